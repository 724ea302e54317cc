// SPDX-License-Identifier: Apache-2.0
//
// What is asked of a compilation.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/choice/Candidate.h"
#include "runtime/cost/CostModel.h"
#include "runtime/job/JobFile.h"

namespace headrace::compiler {

// How far a compilation is. Choosing placements by latency has no end that is known before it; then the schedules of
// what was chosen are made.
struct CompileProgress {
  bool choosing = false;
  size_t nth = 0, buckets = 0; // whose placement is looked for, from 1
  cost::Bucket bucket;         // its
  int evaluated = 0;           // candidates so far
  int done = 0, total = 0;     // schedules and their variants
};

struct CompileRequest {
  model::Boxed<model::ModelSpec> model;
  std::string modelHash;
  std::function<std::string(const model::ModelSpec &)> hashOf; // of the model as it was packed; unset: modelHash
  std::string modelPath;
  model::Hardware hardware;
  model::Goal goal;
  model::Policy policy;
  model::Buckets buckets;                 // empty lists get defaults from the goal
  const cost::CostModel *costs = nullptr; // null: the roofline over `hardware`
  // Of a host that is the machine at hand: bytes that device and host memory have together; what sizes the KV cache
  // (Goal::autoKvTokens) heeds it.
  std::optional<uint64_t> sharedMemory;
  // If not empty, the plan has exactly these placements, whatever the policies say; none of them is changed to fit the
  // budget. Of activation blocks and residual streams they are as the policies say, or all as the first one says. What
  // `checkCandidate` refuses is an InvalidArgument.
  std::vector<Candidate> placements;
  // Called with the IR's text after each phase ("model", "homes", "movement", "lanes", "offsets") of each schedule, if
  // set.
  std::function<void(std::string_view schedule, std::string_view phase, std::string_view text)> onPhase;
  // The same after each pass ("choose-homes", ...), if set.
  std::function<void(std::string_view schedule, std::string_view pass, std::string_view text)> onPass;
  std::function<void(const CompileProgress &)> progress;
  // Called, if set, with what would be better if it were allowed, a line; no part of the plan.
  std::function<void(std::string_view line)> advise;
};

} // namespace headrace::compiler
