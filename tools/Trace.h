// SPDX-License-Identifier: Apache-2.0
//
// When each step of one iteration really ran, as a small JSON file: what `run --trace` writes and `timeline --measured`
// reads.
//
//   {"format": "headrace-trace", "version": 1, "model_hash": "...", "device": "host", "variant": 3,
//    "steps": [[start_ns, end_ns], ...]}        one pair a step of the variant's schedule, from the iteration's start
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/core/Device.h"
#include "runtime/plan/Plan.h"

namespace headrace::tools {

struct Trace {
  std::string modelHash;
  std::string device; // Device::kind(), and what measured where that has several ways: "cuda, CUPTI"
  uint32_t variant = 0;
  std::vector<std::pair<int64_t, int64_t>> steps; // start, end
};

// Times on the device's clock become times from the first start.
Trace makeTrace(const plan::Plan &plan, const std::string &device, uint32_t variant,
                absl::Span<const core::StepTime> times);
std::string traceJson(const Trace &trace);
// Refuses, naming `where`, what is not such a file, and what does not belong to the plan: another model, a variant the
// plan lacks, a number of steps that is not the schedule's.
absl::StatusOr<Trace> parseTrace(std::string_view text, const std::string &where, const plan::Plan &plan);

} // namespace headrace::tools
