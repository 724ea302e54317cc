// SPDX-License-Identifier: Apache-2.0
//
// The parts of bench_cuda: each measures its figures one by one through the report, so that what is measured stays, and
// what fails hides nothing.
#pragma once

#include <string>

#include "bench/figures/Report.h"

namespace headrace::bench {

struct Context {
  Report &report;
  int device = 0;
  std::string deviceName;
  std::string filter; // of steps and iterations: only figures whose name holds it
  std::string folder; // that pictures are written to; empty: none are
};

void measureLink(const Context &context);
void measureGraphs(const Context &context);
void measureKernels(const Context &context);
void measureSteps(const Context &context);
void measureHandshake(const Context &context);
void measureIterations(const Context &context);
void measureFurthest(const Context &context);
void measureOverlap(const Context &context);
void measureSplitCaches(const Context &context);
void measureHybridCaches(const Context &context);
void measureSwitches(const Context &context);
void measureTracing(const Context &context);
void measureSpread(const Context &context);
void measureSameTokens(const Context &context);
void measureSizes(const Context &context);
void measureDirectWrites(const Context &context);
void measureMappedReads(const Context &context);

} // namespace headrace::bench
