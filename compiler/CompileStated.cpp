// SPDX-License-Identifier: Apache-2.0
#include "compiler/CompileStated.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/Drafting.h"
#include "compiler/choice/Packing.h"
#include "compiler/choice/Resolve.h"
#include "compiler/search/Explain.h"
#include "compiler/search/generators/Generators.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::compiler {
namespace {

// Placements that are stated say what they have alike, or leave it to the choice: that, with what they say.
absl::StatusOr<Choice> commonOf(const std::vector<Candidate> &stated, Choice choice) {
  if (stated.empty())
    return choice;
  const algorithms::Residency &first = stated.front().residency;
  if (const std::vector<int32_t> away = first.actAway(); !away.empty())
    choice.residency.setActAway(away);
  if (first.residualsLeave())
    choice.residency.residuals() = first.residuals();
  if (stated.front().encodings.any())
    choice.encodings = stated.front().encodings;
  choice.attendsOnCpu |= stated.front().attendsOnCpu;
  for (const Candidate &candidate : stated) {
    const algorithms::Residency &residency = candidate.residency;
    if ((!residency.actAway().empty() && residency.actAway() != choice.residency.actAway()) ||
        (residency.residualsLeave() && residency.residuals() != choice.residency.residuals()))
      return absl::InvalidArgumentError(absl::StrCat("placement '", candidate.name,
                                                     "': expected activation blocks and residual streams where the "
                                                     "first placement has them"));
    if (candidate.attendsOnCpu && !choice.attendsOnCpu)
      return absl::InvalidArgumentError(absl::StrCat("placement '", candidate.name,
                                                     "': expected attention on the device, as of the first placement"));
    if (candidate.encodings.any() && candidate.encodings != choice.encodings)
      return absl::InvalidArgumentError(
          absl::StrCat("placement '", candidate.name, "': expected the first placement's encodings"));
  }
  return choice;
}

} // namespace

absl::StatusOr<Draft> compileStated(const CompileRequest &asked, const Choice &chosen) {
  ASSIGN_OR_RETURN(choice, commonOf(asked.placements, chosen));
  CompileRequest request = asChosen(asked, choice);
  for (Candidate &candidate : request.placements)
    candidate = alike(std::move(candidate), choice);
  ASSIGN_OR_RETURN(policy, policyFor(request.policy, request.goal));
  const model::WeightLayout layout = model::layoutWeights(request.model);
  for (const Candidate &candidate : request.placements)
    RETURN_IF_ERROR(checkCandidate(candidate, request.model, layout));
  ASSIGN_OR_RETURN(drafting, Drafting::of(request, *policy, choice));
  RETURN_IF_ERROR(checkBlocks(request.placements, drafting->target()));
  ASSIGN_OR_RETURN(draft, drafting->draft(request.placements));
  if (policy->order == Order::LeastAim && request.placements.size() == 1 && request.goal.hasSlo()) {
    RETURN_IF_ERROR(drafting->explainByBucket(draft));
  } else {
    drafting->explain(draft, 0, fixedBy(request, *policy), nullptr);
  }
  if (const std::string cycle = explainCycle(draft); !cycle.empty())
    absl::StrAppend(&draft.reason, ". ", cycle);
  return draft;
}

} // namespace headrace::compiler
