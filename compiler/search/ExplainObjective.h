// SPDX-License-Identifier: Apache-2.0
//
// Why placements were chosen by latency, and what would do where none can be.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "compiler/evaluate/Placements.h"
#include "compiler/search/Generator.h"
#include "runtime/plan/value/Plan.h"

namespace headrace::compiler {

struct Objective;
struct LinkUse;

// A gap between tokens that a change of placements, or of what the ring holds, makes longer than its objective.
struct BrokenGap {
  uint64_t ns = 0, sloNs = 0, wayNs = 0; // wayNs: of transitions
  std::string from, to;                  // placements
};

// The least latency that a class of buckets can be held to within the budget.
struct ClassMinimum {
  uint64_t ns = 0;                    // 0: the class has no objective, or nothing fits the budget
  double factor = 0;                  // the same as a multiple of the resident time
  bool missed = false;                // the objective asks for less
  const Objective *bucket = nullptr;  // that decides
  std::optional<Candidate> candidate; // that reaches it
};
struct MemoryMinimum {
  uint64_t bytes = 0;
  std::optional<Candidate> candidate;
};
struct ObjectiveMinima {
  ClassMinimum decode, mixed;
  std::optional<uint64_t> bytesAtObjective; // unset: no memory would do
  MemoryMinimum bytesAtAny;
  bool ofMemory = true; // false: nothing is said of other amounts of memory
};

// What one placement for all buckets would need, times and factor to within a ten-thousandth; unset: nothing would do,
// or the goal does not ask for it.
struct TogetherMinima {
  std::optional<std::chrono::nanoseconds> tpot, ttft; // the other objective as it is
  std::optional<double> factor;
  std::optional<uint64_t> bytes; // at these objectives
};
// Every bucket's objective can be met, but not by one instance that changes between them.
std::string explainApart(const model::ModelSpec &spec, const Target &target, const model::Goal &goal,
                         const std::string &policy, const BrokenGap &apart, const TogetherMinima &minima);

// A refusal that says at least which TTFT of an iteration would do, the rest of the goal as it is; 0: that is not
// known.
absl::Status missed(const std::string &text, std::chrono::nanoseconds leastTtft);
std::optional<std::chrono::nanoseconds> leastTtft(const absl::Status &status); // nothing of all others

// A message in which every minimum is exact: a goal with it succeeds, one a step below (1 ns, 1e-6, 1 byte) does not.
std::string explainMissed(const model::ModelSpec &spec, const Target &target, const model::Goal &goal,
                          const std::string &policy, const ObjectiveMinima &minima);

// What there was to choose from.
struct Compared {
  size_t placements = 0, played = 0;
  bool inOrder = false; // each was better than those behind it
};
// `plan` has its placements; `chosen` is that of `bucket`, which decided, `variant` its own in it. `apart`: why one
// placement serves all buckets. `link`: of the bucket's time, where a search filled it; null: nothing to say of it.
std::string explainObjective(const Generator &policy, const Candidate &chosen, const Compared &of,
                             const Objective &bucket, const plan::Variant &variant, const plan::Plan &plan,
                             const std::optional<BrokenGap> &apart, const LinkUse *link);

// Of a finished plan, by class of iterations that miss their objective, as with policies that do not choose by it:
// which bucket, and the least objective that would be held. Not of a TTFT, which is of a request's whole prompt.
std::vector<std::string> missesOf(const plan::Plan &plan);
// ResourceExhausted, for what it misses by this policy.
absl::Status refuseMissed(const plan::Plan &plan, const Generator &policy, const std::vector<std::string> &misses);

} // namespace headrace::compiler
