// SPDX-License-Identifier: Apache-2.0
//
// Plans for CUDA whose rows that decode the CPU attends for, and what a run of them makes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/core/Device.h"
#include "runtime/plan/value/Plan.h"

namespace headrace::cuda {

// Of two layers, two sequences a mini-batch of up to 40 tokens, in blocks of 4, and iterations of up to 8 rows with
// prompts. `more`: of the choice, as text. Fails the test where it cannot be compiled.
plan::Plan planOnCpu(model::ModelSpec spec, const std::string &more = "", int64_t miniBatches = 1);
// The variant that decodes.
uint32_t decoding(const plan::Plan &plan);
uint64_t cpuSteps(const plan::Schedule &schedule);

struct Replies {
  std::vector<std::vector<int32_t>> tokens;
  std::vector<std::vector<float>> logits; // where they are kept
  bool operator==(const Replies &) const = default;
};
// Of four prompts, each its own length, with synthetic weights. Without logits two iterations are in flight.
absl::StatusOr<Replies> generateReplies(core::Device &device, const plan::Plan &plan, bool keepLogits,
                                        bool trace = false);
// Fails the test where the device does.
Replies replies(core::Device &device, const plan::Plan &plan, bool keepLogits, bool trace = false);

} // namespace headrace::cuda
