// SPDX-License-Identifier: Apache-2.0
//
// Measured times of single steps, as `bench_cuda` and pictures of traced iterations have them, each with the op, shape
// and rows that the cost model prices. Half of each class's are to fit its figures to, the rest are held out: where
// they make a table (sequences by context, rows by matrix) as the colours of a chessboard, else every second one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "bench/figures/Report.h"
#include "runtime/cost/CostModel.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::bench {

enum class OpClass { Product, DecodeAttention, PrefillAttention, Row };
std::string_view opClassName(OpClass of); // "products", "decode attention", ...

struct KernelFigure {
  OpClass of = OpClass::Product;
  std::string name;
  double us = 0;
  model::ModelSpec spec;
  cost::OpSite site{};
  cost::Bucket bucket;
  bool fitted = false; // else held out
};

// What the profile says of it.
double pricedUs(const KernelFigure &figure, const model::Hardware &hardware);
double errorOf(const KernelFigure &figure, const model::Hardware &hardware); // measured / priced - 1

// Times of one kind of step in a picture (`headrace timeline --format svg`), those measured: "norm" of all layers.
// Their median, in microseconds; Failure where there is none.
double tracedUs(const std::string &svg, std::string_view step, bool ofLayers);

// The parts kernels, mapped and direct of bench_cuda's figures, and the steps of two pictures of OPT-6.7B: decode of 32
// sequences at 256 and a prompt of 2,040 tokens. Failure where one is missing.
struct Measured {
  Json figures;
  std::string decodeSvg, prefillSvg;
};
std::vector<KernelFigure> kernelFigures(const Measured &measured);
Measured readMeasured(const std::string &folder); // bench/results/h200

// A shape of examples/models.
model::ModelSpec shapeOf(const std::string &name);

} // namespace headrace::bench
