// SPDX-License-Identifier: Apache-2.0
//
// That the range of the device which caches that are split share out among them is theirs alone, and that attention
// finds the rows of its own iteration.
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/Kernels.h"
#include "runtime/plan/VerifyParts.h"

namespace headrace::plan {

// Appends and attention are of the compute lane, whose order is theirs.
void verifyRowsAppended(const Plan &plan, uint32_t index, Report &report) {
  const Schedule &schedule = plan.schedules[index];
  std::vector<bool> appended(plan.kvCaches());
  for (uint32_t number = 0; number < schedule.steps.size(); ++number) {
    const Step &step = schedule.steps[number];
    const bool append = step.op == kernels::Op::RopeAppend, attention = step.op == kernels::Op::Attention;
    if (step.kind != StepKind::Compute || step.layer < 0 || !(append || attention))
      continue;
    const uint64_t cache = static_cast<uint64_t>(step.layer) * plan.miniBatches + step.miniBatch;
    if (append)
      appended[cache] = true;
    else if (!appended[cache])
      report.add(Rule::Structure, index, number,
                 absl::StrCat("attention: no step before it appends the iteration's rows to the cache of layer ",
                              step.layer,
                              plan.miniBatches > 1 ? absl::StrCat(" for mini-batch ", step.miniBatch) : ""));
  }
}

bool verifyCachesApart(const Plan &plan, const CacheHomes &caches, uint32_t index, Report &report) {
  const Schedule &schedule = plan.schedules[index];
  if (!caches.split())
    return true;
  const uint64_t begin = caches.regionBegin(schedule.placement), end = begin + caches.regionBytes(schedule.placement);
  const auto isAmong = [&](const auto &range) { return range.address < end && range.address + range.bytes > begin; };
  const auto fail = [&](uint32_t step, const auto &range) {
    report.add(Rule::Overlap, index, step,
               absl::StrCat(describe(plan, schedule, range.buffer, range.bufferOffset, range.bytes), " at ",
                            range.address, " shares bytes with the range of the caches [", begin, ", ", end, ")"));
    return false;
  };
  // What slots hold in a placement that is left is nobody's.
  if (schedule.fromPlacement == kNone)
    for (const Content &content : plan.states[schedule.entryState].contents)
      if (isAmong(content))
        return fail(kNone, content);
  for (const Content &content : plan.states[schedule.exitState].contents)
    if (isAmong(content))
      return fail(kNone, content);
  for (uint32_t number = 0; number < schedule.steps.size(); ++number) {
    const Step &step = schedule.steps[number];
    for (uint32_t i = step.firstOperand; i < step.firstOperand + step.operandCount; ++i)
      if (const Operand &o = schedule.operands[i];
          o.space == Space::Device && !o.interleaved && o.access != Access::Read && isAmong(o))
        return fail(number, o);
  }
  return true;
}

} // namespace headrace::plan
