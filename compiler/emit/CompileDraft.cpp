// SPDX-License-Identifier: Apache-2.0
#include "compiler/emit/CompileDraft.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "compiler/emit/CandidateCompiler.h"
#include "compiler/emit/CheckKernels.h"
#include "compiler/emit/PlaceHomes.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/cost/CostModel.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/plan/proof/PlanVerifier.h"

namespace headrace::compiler {

absl::StatusOr<plan::Plan> compileDraft(const Draft &draft) {
  const CompileRequest &request = draft.request;
  const Target &target = draft.target;
  const model::WeightLayout layout = model::layoutWeights(request.model);
  std::optional<cost::Roofline> roofline;
  const cost::CostModel &costs =
      request.costs ? *request.costs : roofline.emplace(request.model, request.hardware, target.activation, target.kv);
  Prices prices(costs);
  Iterations iterations(request, target, layout, prices);
  CandidateCompiler compiler(iterations);

  plan::Plan plan = draft;
  plan.buffers.clear();
  plan.placements.clear();
  plan.states.clear();
  plan.schedules.clear();
  plan.variants.clear();
  plan.transitions.clear();
  PlanWriter writer(layout, target, plan);
  std::vector<const Candidate *> candidates;
  for (const Candidate &candidate : draft.candidates)
    candidates.push_back(&candidate);
  HostLayout host = layOutHost(candidates, layout, target, request.model);
  host.kv.interleaved |= draft.grown;
  std::vector<Placed> placed;
  std::vector<mlir::ModuleOp> modules;
  for (const Candidate *candidate : candidates) {
    ASSIGN_OR_RETURN(next, compiler.place(*candidate, host));
    placed.push_back(std::move(next));
    modules.push_back(*placed.back().module);
  }
  placeHomes(draft, modules);
  CompileProgress progress;
  progress.total =
      static_cast<int>(draft.variants.size()) +
      static_cast<int>(std::count_if(draft.schedules.begin(), draft.schedules.end(), [](const plan::Schedule &of) {
        return of.iterationClass != plan::IterationClass::Transition;
      }));
  for (Placed &each : placed)
    RETURN_IF_ERROR(compiler.addTo(writer, each, [&] {
      ++progress.done;
      if (request.progress)
        request.progress(progress);
    }));
  closePlan(prices, writer);
  if (absl::Status status = plan::verifyPlan(plan, "compiled plan"); !status.ok())
    return absl::InternalError(absl::StrCat("the compiler made a plan that breaks a rule: ", status.message()));
  if (const std::string difference = differenceFrom(draft, plan); !difference.empty())
    return absl::InternalError(absl::StrCat("the compiled plan is not what was chosen: ", difference));
  RETURN_IF_ERROR(checkKernels(plan));
  return plan;
}

} // namespace headrace::compiler
