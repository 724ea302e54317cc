// SPDX-License-Identifier: Apache-2.0
#include "runtime/plan/proof/PlanVerifier.h"

#include "absl/strings/str_cat.h"
#include "runtime/plan/proof/VerifyParts.h"
#include "runtime/plan/structure/PlanStructure.h"

namespace headrace::plan {

const char *ruleName(Rule rule) {
  switch (rule) {
  case Rule::Structure:
    return "structure";
  case Rule::ReadBeforeReady:
    return "read before ready";
  case Rule::UseAfterRelease:
    return "use after release";
  case Rule::OverwriteLive:
    return "overwrite of live bytes";
  case Rule::CopyOrder:
    return "copy order";
  case Rule::OverBudget:
    return "over budget";
  case Rule::Overlap:
    return "overlap";
  case Rule::EntryExit:
    return "entry and exit";
  case Rule::HostRange:
    return "host range";
  case Rule::SlotTooSmall:
    return "slot too small";
  case Rule::RedundantEdge:
    return "redundant edge";
  case Rule::WrongSpace:
    return "wrong space";
  case Rule::Accounting:
    return "accounting";
  case Rule::StaleCopy:
    return "stale copy";
  }
  return "unknown";
}

std::vector<Violation> findViolations(const Plan &plan, size_t limit) {
  Report report(limit);
  // Everything else indexes and adds with the plan's numbers: a plan without its structure is not looked into.
  if (auto fault = findStructureFault(plan)) {
    report.add(Rule::Structure, fault->schedule, fault->step, std::move(fault->message));
    return report.take();
  }
  const model::WeightLayout layout = model::layoutWeights(plan.model);
  const BufferIndex buffers(plan);
  const CacheHomes caches(plan);
  verifyBuffers(plan, layout, buffers, report);
  verifyPlaces(plan, caches, report);
  for (uint32_t schedule = 0; schedule < plan.schedules.size() && !report.full(); ++schedule) {
    verifyOperands(plan, layout, buffers, caches, schedule, report);
    verifyRowsAppended(plan, schedule, report);
    verifyPlaces(plan, caches, schedule, report);
    if (verifyCachesApart(plan, caches, schedule, report))
      verifyMovement(plan, caches, schedule, report);
  }
  if (!report.full())
    verifyTotals(plan, caches, report);
  if (!report.full())
    verifyStates(plan, report);
  return report.take();
}

absl::Status verifyPlan(const Plan &plan, const std::string &where) {
  const std::vector<Violation> violations = findViolations(plan, 1);
  if (violations.empty())
    return absl::OkStatus();
  const Violation &v = violations.front();
  std::string place;
  if (v.schedule != kNone)
    absl::StrAppend(&place, " schedule ", v.schedule, " (", plan.schedules[v.schedule].name, ")");
  if (v.step != kNone)
    absl::StrAppend(&place, " step ", v.step);
  return absl::InvalidArgumentError(
      absl::StrCat(where, ":", place, place.empty() ? " " : ": ", v.message, " [", ruleName(v.rule), "]"));
}

} // namespace headrace::plan
