// SPDX-License-Identifier: Apache-2.0
//
// A model over several devices of one kind, each with the memory of the request's hardware, on one host whose memory
// they share by layers: where it is cut into stages, and a plan for each, with a placement of its own.
//
//   8 layers of 1 ms, a head of 2 ms, two devices       layers 4, 4: 4 and 6 ms       layers 5, 3: 5 and 5 ms
//
// Cut by predicted time: the longest stage's iteration of the largest bucket that decodes is the least. All stages have
// the goal's batch, context and KV blocks, as every sequence passes all of them. Of an objective each stage has its
// part, tpot / stages and ttft / stages: with as many micro-batches on their way as stages a token takes as many times
// the longest. Attention that may be on the CPU is there where that is faster all in all: stages share it
// (sim/StagedTime.h).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/choice/CompileRequest.h"
#include "runtime/plan/value/Plan.h"

namespace headrace::compiler {

inline constexpr int64_t kMostStages = 16;

struct StagedPlans {
  std::vector<plan::Plan> plans; // in order; one where one device is enough: of the whole model
  std::string reason;            // where it is cut, and by which times
};

// `stages` of them, or with 0 the fewest that memory holds and of whose plans `holds` says (of objectives) that they
// will do: sought by twice as many each time, then between. Each plan has the whole model's hash. InvalidArgument for
// more stages than layers, instances apart, and whatever compile() refuses; ResourceExhausted naming the stage, and how
// many stages would do, sought in the same way, if any number does; with 0 of the fewest and of the most.
absl::StatusOr<StagedPlans> compileStages(const CompileRequest &request, int64_t stages,
                                          const std::function<absl::Status(const plan::Plan &)> &holds);

} // namespace headrace::compiler
