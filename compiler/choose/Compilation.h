// SPDX-License-Identifier: Apache-2.0
//
// Placements are chosen, evaluated side by side in one draft of a plan, and chosen anew where they turn out not to fit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/choice/CompileRequest.h"
#include "compiler/choose/LatencyChoice.h"
#include "compiler/evaluate/Evaluate.h"
#include "compiler/evaluate/LayOutHost.h"
#include "compiler/evaluate/Placements.h"
#include "compiler/search/GeneratorInputs.h"
#include "runtime/plan/Plan.h"

namespace headrace::compiler {

// What there is to choose from, where it is not all that a policy would consider.
struct ToChooseFrom {
  // The last is chosen; one before it, if any, offloads less and did not fit.
  std::vector<Candidate> found;
  // Else, if not empty, in place of the policy's candidates and of a search; `inOrder`: each is better than those
  // behind it.
  std::vector<Candidate> candidates;
  bool inOrder = false;
  // Not to choose from: only how little memory they need is asked of them. Null: none.
  std::function<std::vector<Candidate>()> smallest;
};

class Compilation {
public:
  // What it refers to must outlive it.
  Compilation(const CompileRequest &request, const Generator &policy, Target target, model::WeightLayout layout,
              const cost::CostModel &costs);
  Compilation(const Compilation &) = delete;
  Compilation &operator=(const Compilation &) = delete;

  absl::StatusOr<Draft> run(const ToChooseFrom &of);

private:
  // Candidates for one placement of the plan, and the one that is tried.
  struct Attempt {
    std::vector<Candidate> candidates;
    size_t chosen = 0;
    const Candidate &candidate() const { return candidates[chosen]; }
  };
  struct OverBudget {
    size_t choice;
    uint64_t bytes;
  };

  absl::StatusOr<Draft> choose();
  absl::Status chooseByLatency(std::vector<Attempt> &choices, size_t most = SIZE_MAX);
  // Others, where what was chosen fits each alone and not together.
  absl::Status chooseCloser(std::vector<Attempt> &choices);
  // The first candidate that fits; the last if none does, which takes the least.
  Attempt firstThatFits();
  uint64_t packedBytes(const Candidate &candidate) const; // of the device; of one that cannot be placed the most
  // One candidate alone in an empty plan, for what it takes.
  absl::StatusOr<Evaluation> evaluate(const Candidate &candidate, plan::Plan &plan, bool gaps);
  absl::Status exhausted(const Attempt &choice, uint64_t least) const;

  // A plan of the chosen candidates. Sets overBudget_ where one of them needs more than there is; the plan is not
  // complete then.
  absl::StatusOr<Draft> tryPlan(const std::vector<Attempt> &choices);
  // Each candidate once, its buffers placed. Sets overBudget_.
  struct Together {
    std::vector<PlacedCandidate> placed;
    std::vector<size_t> choice; // of each
  };
  absl::StatusOr<Together> placeAll(const std::vector<Attempt> &choices, const HostLayout &host, plan::Plan &plan);
  // The choice that ends highest among those that can still offload more; the first if none can.
  static size_t mostDemanding(const std::vector<Attempt> &choices, const Together &together);
  // ResourceExhausted where the host has less memory than the plan pins.
  absl::Status checkHost(const HostLayout &host) const;
  Draft emptyPlan() const;
  void explain(const Attempt &choice, uint32_t placement, plan::Plan &plan) const;

  const CompileRequest &request_;
  const Generator &policy_;
  Target target_;
  model::WeightLayout layout_;
  Prices prices_;
  Iterations iterations_;
  PlacementFamily family_;
  std::vector<PricedStep> steps_; // where something is chosen by latency
  GeneratorInputs inputs_;
  ToChooseFrom of_;
  std::optional<std::vector<Candidate>> split_; // what there is to choose from once caches are split
  bool nested_ = false;                         // the range was asked for nested
  int roomier_ = 0;                             // times that it was asked for with more to spare
  uint64_t rangeSpare_ = 0;                     // bytes
  std::optional<LatencyChoice> latency_;        // where placements are chosen by latency, or several
  std::optional<OverBudget> overBudget_;
};

} // namespace headrace::compiler
