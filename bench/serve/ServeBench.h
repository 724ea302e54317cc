// SPDX-License-Identifier: Apache-2.0
//
// What the benchmarks of the engine share: plans of OPT-13B.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "compiler/Compile.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::serve {

// Ends the program where something failed.
template <class T> T must(absl::StatusOr<T> value) {
  if (!value.ok()) {
    std::fprintf(stderr, "%s\n", value.status().ToString().c_str());
    std::exit(1);
  }
  return *std::move(value);
}

struct OptPlan {
  int64_t batch = 64, context = 2048;
  uint64_t memoryBytes = 0;             // 0: the profile's
  std::optional<int64_t> kvTokens;      // unset: batch x context
  std::optional<int64_t> offloadLayers; // unset: nothing is offloaded
};

// Of OPT-13B on a profile of examples/hardware, with the compiler's own buckets.
inline plan::Plan optPlan(const std::string &hardware, const OptPlan &asked) {
  compiler::CompileRequest request;
  request.model = must(model::openModel("opt-13b")).spec;
  request.modelHash = "0";
  request.hardware = must(model::openHardware(hardware));
  if (asked.memoryBytes > 0)
    request.hardware.memoryBytes = asked.memoryBytes;
  request.goal.batch = asked.batch;
  request.goal.context = asked.context;
  request.goal.kvTokens = asked.kvTokens;
  request.policy.name = asked.offloadLayers ? "interval" : "none";
  request.policy.offloadLayers = asked.offloadLayers;
  return must(compiler::compile(request));
}

} // namespace headrace::serve
