// SPDX-License-Identifier: Apache-2.0
//
// From placements to a draft of their plan: what they are laid out, priced and played with, for one request and what
// its placements have alike.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/choice/CompileRequest.h"
#include "compiler/evaluate/Draft.h"
#include "compiler/evaluate/PlayChoice.h"
#include "compiler/search/GeneratorInputs.h"

namespace headrace::compiler {

class Drafting {
public:
  // The policy outlives it. Of the request with the choice's encodings; InvalidArgument where it contradicts the
  // choice.
  static absl::StatusOr<std::unique_ptr<Drafting>> of(const CompileRequest &request, const Generator &policy,
                                                      const Choice &choice);
  Drafting(CompileRequest request, const Generator &policy, Target target);
  Drafting(const Drafting &) = delete;
  Drafting &operator=(const Drafting &) = delete;

  const CompileRequest &request() const { return request_; }
  const Generator &policy() const { return policy_; }
  const Target &target() const { return target_; }
  const model::WeightLayout &layout() const { return layout_; }
  Prices &prices() { return prices_; }
  Iterations &iterations() { return iterations_; }
  const PlacementFamily &family() const { return family_; }
  Player &player() { return player_; }
  const GeneratorInputs &inputs() const { return inputs_; }

  // Placements side by side, whatever memory they take: Draft::over says of the device, hostBytes of the host.
  absl::StatusOr<Draft> attempt(const std::vector<Candidate> &placements);
  // ResourceExhausted, with what would do, where that is more memory than there is.
  absl::Status check(const Draft &draft, const std::vector<Candidate> &placements) const;
  absl::StatusOr<Draft> draft(const std::vector<Candidate> &placements);

  // Says in the draft why it has that placement: `fixed` (fixedBy) left nothing to choose, or it is the first that
  // fits; `before` offloads less and did not fit, or is null.
  void explain(Draft &draft, size_t placement, const std::string &fixed, const Candidate *before) const;
  // The same by which placement serves which bucket, where there is one.
  absl::Status explainByBucket(Draft &draft);

private:
  uint64_t packedBytes(const Candidate &candidate); // of the device; of one that cannot be placed the most

  const CompileRequest request_;
  const Generator &policy_;
  const Target target_;
  const model::WeightLayout layout_;
  std::optional<cost::Roofline> roofline_;
  Prices prices_;
  Iterations iterations_;
  PlacementFamily family_;
  Player player_;
  const std::vector<PricedStep> steps_;
  const GeneratorInputs inputs_;
  std::map<std::string, uint64_t> packed_; // by a candidate's text
};

// "as asked for", "as policy hybridserve has it"; empty where there is something to choose.
std::string fixedBy(const CompileRequest &request, const Generator &policy);

} // namespace headrace::compiler
