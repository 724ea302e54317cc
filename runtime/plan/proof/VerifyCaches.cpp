// SPDX-License-Identifier: Apache-2.0
//
// That the range of the device which caches that are split share out among them is theirs alone, and that attention
// finds the rows of its own iteration.
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/Kernels.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/plan/proof/VerifyParts.h"

namespace headrace::plan {

namespace {

// What steps so far have done for a layer and mini-batch.
struct RowsDone {
  bool rotated = false;                // the iteration's rows, by a step that appends nothing
  bool appended = false, kept = false; // in the cache and in activation blocks
};

// The buffer of an operand, kNone where the step has none.
uint32_t bufferOf(const Schedule &schedule, const Step &step, Arg arg) {
  for (uint32_t i = step.firstOperand; i < step.firstOperand + step.operandCount; ++i)
    if (schedule.operands[i].arg == arg)
      return schedule.operands[i].buffer;
  return kNone;
}

// Whether rows differ before and behind a rotation.
bool rotatesRows(const Plan &plan) { return plan.model->qkNorm || plan.model->rope.enabled; }

} // namespace

// Of the compute lane, whose order is theirs, or of others that wait for each other: each uses what the one before it
// has made.
void verifyRowsAppended(const Plan &plan, uint32_t index, Report &report) {
  const Schedule &schedule = plan.schedules[index];
  std::vector<RowsDone> done(plan.kvCaches());
  const bool rotates = rotatesRows(plan);
  // By transient: of which layer and mini-batch it has the keys and values of activation blocks, if of any.
  std::vector<uint64_t> holds(schedule.locals.size(), UINT64_MAX);
  const auto first = static_cast<uint32_t>(plan.buffers.size());
  const auto written = [&](const Step &step, uint64_t cache) {
    for (uint32_t i = step.firstOperand; i < step.firstOperand + step.operandCount; ++i)
      if (const Operand &o = schedule.operands[i];
          o.access != Access::Read && o.buffer >= first && o.arg != Arg::KvRebuilt)
        holds[o.buffer - first] = step.op == kernels::Op::RebuildKv && o.arg == Arg::Y ? cache : UINT64_MAX;
  };
  for (uint32_t number = 0; number < schedule.steps.size(); ++number) {
    const Step &step = schedule.steps[number];
    if (step.kind != StepKind::Compute)
      continue;
    if (step.layer < 0) {
      written(step, UINT64_MAX);
      continue;
    }
    const uint64_t cache = static_cast<uint64_t>(step.layer) * plan.miniBatches + step.miniBatch;
    RowsDone &of = done[cache];
    const auto fail = [&](const char *what) {
      report.add(Rule::Structure, index, number,
                 absl::StrCat(kernels::opName(step.op), ": ", what, " of layer ", step.layer,
                              plan.miniBatches > 1 ? absl::StrCat(" for mini-batch ", step.miniBatch) : ""));
    };
    switch (step.op) {
    case kernels::Op::RebuildKv:
      of.appended = false; // its transient has none of the iteration's rows
      break;
    case kernels::Op::ActAppend:
      of.kept = true;
      break;
    case kernels::Op::Rotate:
      if (of.rotated || of.appended)
        fail("a step before it has rotated the iteration's rows");
      of.rotated = true;
      break;
    case kernels::Op::Append:
      if (rotates && !of.rotated)
        fail("no step before it rotates the iteration's rows");
      of.appended = true;
      break;
    case kernels::Op::RopeAppend:
    case kernels::Op::Attention:
      if (const uint32_t buffer = bufferOf(schedule, step, Arg::KvRebuilt);
          plan.actBlocks > 0 && (buffer == kNone || buffer < first || holds[buffer - first] != cache))
        fail("does not use what rebuild_kv has made before it");
      if (step.op == kernels::Op::RopeAppend) {
        if (of.rotated)
          fail("a step before it has rotated the iteration's rows");
        of.appended = true;
        break;
      }
      if (!of.appended)
        fail("no step before it appends the iteration's rows to the cache");
      if (plan.actBlocks > 0 && !of.kept)
        fail("no step before it keeps the iteration's rows in activation blocks");
      break;
    default:
      break;
    }
    written(step, cache);
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
