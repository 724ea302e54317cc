// SPDX-License-Identifier: Apache-2.0
//
// Small models and round hardware for the compiler's tests.
#pragma once

#include <string>

#include "compiler/Compile.h"

namespace headrace::compiler {

// Gated, grouped-query, untied: hidden 64, 4 heads of 16, 2 of keys and values, intermediate 96, vocabulary 256.
model::ModelSpec tinyLlama(int64_t layers);
// Learned positions, biases, LayerNorm, ReLU, tied embeddings.
model::ModelSpec tinyOpt(int64_t layers);
// As tinyLlama with biases on q, k and v, tied or not.
model::ModelSpec tinyQwen(int64_t layers, bool tied);
model::ModelSpec tinyQwen3(int64_t layers); // norms of q's and k's heads

// 1 GB/s links without latency, 10 GB/s of memory, 100 GFLOP/s, all efficiencies 1.
model::Hardware roundHardware();

// Batch 2, context 64, on roundHardware with 1 GiB.
CompileRequest request(const model::ModelSpec &spec);
CompileRequest longRequest(); // two layers, batch 2, context 4,096
// A shipped model on shipped hardware.
CompileRequest shipped(const std::string &model, const std::string &hardware, int64_t batch, int64_t context);

} // namespace headrace::compiler
