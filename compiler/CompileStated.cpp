// SPDX-License-Identifier: Apache-2.0
#include "compiler/CompileStated.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/choice/CheckStated.h"
#include "compiler/choice/Resolve.h"
#include "compiler/choose/Compilation.h"
#include "compiler/search/generators/Generators.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/cost/CostModel.h"
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
  for (const Candidate &candidate : stated) {
    const algorithms::Residency &residency = candidate.residency;
    if ((!residency.actAway().empty() && residency.actAway() != choice.residency.actAway()) ||
        (residency.residualsLeave() && residency.residuals() != choice.residency.residuals()))
      return absl::InvalidArgumentError(absl::StrCat("placement '", candidate.name,
                                                     "': expected activation blocks and residual streams where the "
                                                     "first placement has them"));
  }
  return choice;
}

} // namespace

absl::StatusOr<Draft> compileStated(const CompileRequest &asked, const Choice &chosen, const ToChooseFrom &of) {
  ASSIGN_OR_RETURN(choice, commonOf(asked.placements, chosen));
  CompileRequest request = asked;
  for (Candidate &candidate : request.placements)
    candidate = alike(std::move(candidate), choice);
  ASSIGN_OR_RETURN(policy, policyFor(request.policy, request.goal));
  RETURN_IF_ERROR(checkStated(request, choice, !policy->swapsLayers));
  model::WeightLayout layout = model::layoutWeights(request.model);
  for (const Candidate &candidate : request.placements)
    RETURN_IF_ERROR(checkCandidate(candidate, request.model, layout));
  ASSIGN_OR_RETURN(target, resolve(request, choice, policy->swapsLayers));
  RETURN_IF_ERROR(checkBlocks(request.placements, target));
  std::optional<cost::Roofline> roofline;
  const cost::CostModel &costs =
      request.costs ? *request.costs : roofline.emplace(request.model, request.hardware, target.activation, target.kv);
  ASSIGN_OR_RETURN(plan, Compilation(request, *policy, std::move(target), std::move(layout), costs).run(of));
  return plan;
}

} // namespace headrace::compiler
