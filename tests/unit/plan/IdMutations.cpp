// SPDX-License-Identifier: Apache-2.0
#include "kernels/Kernels.h"
#include "runtime/model/ModelSpec.h"
#include "tests/unit/plan/ActSpots.h"
#include "tests/unit/plan/CacheSpots.h"
#include "tests/unit/plan/MutationParts.h"

namespace headrace::plan::test {
namespace {

using kernels::Op;

bool leaveIdsOut(Plan &plan, Random &random) {
  std::vector<Spot> all = stepsOf(plan, {Op::KeepIds});
  if (all.empty())
    return false;
  eraseCompute(plan, pick(random, all), /*anew=*/false);
  return true;
}
// Behind what samples, or, which is no fault, further in front of it.
bool keepIdsElsewhere(Plan &plan, Random &random) {
  std::vector<Spot> all = stepsOf(plan, {Op::KeepIds});
  if (all.empty())
    return false;
  const Spot keep = pick(random, all);
  std::vector<Spot> samples = stepsOf(plan, {Op::Sample});
  std::erase_if(samples, [&](const Spot &sample) {
    return sample.schedule != keep.schedule || stepAt(plan, sample).miniBatch != stepAt(plan, keep).miniBatch;
  });
  const uint32_t sample = samples.front().step;
  const uint32_t to = below(random, 4) != 0 ? sample : keep.step + below(random, sample - keep.step);
  moveCompute(plan, keep, to, /*anew=*/false);
  return to != keep.step;
}
// The step is another's, or its ids go where another's are.
bool keepAnothersIds(Plan &plan, Random &random) {
  std::vector<Spot> all = stepsOf(plan, {Op::KeepIds});
  if (all.empty())
    return false;
  const Spot keep = pick(random, all);
  std::erase_if(all, [&](const Spot &o) { return o.schedule != keep.schedule || o.step == keep.step; });
  if (all.empty())
    return false;
  const Spot other = pick(random, all);
  if (coin(random)) {
    Operand &ids = *part(plan, keep, Arg::History);
    const Operand &others = *part(plan, other, Arg::History);
    ids.bufferOffset = others.bufferOffset, ids.address = others.address;
    return true;
  }
  Step &step = stepAt(plan, keep);
  const Step &of = stepAt(plan, other);
  step.miniBatch = of.miniBatch, step.firstOperand = of.firstOperand, step.operandCount = of.operandCount;
  return true;
}
// Beside an embedding, or where nothing samples.
bool keepIdsWhereNoneAreWanted(Plan &plan, Random &random) {
  std::vector<Spot> norms = stepsOf(plan, {Op::Norm});
  if ((plan.receives() && !plan.sends()) || norms.empty())
    return false;
  const Spot norm = pick(random, norms);
  Step step = stepAt(plan, norm);
  step.op = Op::KeepIds;
  step.part = Part::Head;
  step.layer = -1;
  insertStep(plan, norm, step,
             {*part(plan, norm, Arg::Meta), ioRange(plan, norm, Io::Sampled, Arg::Sampled, Access::Read),
              ioRange(plan, norm, Io::History, Arg::History, Access::ReadWrite)});
  return true;
}

} // namespace

const std::vector<Mutation> &idMutations() {
  static const std::vector<Mutation> all = {{"leave the ids out", leaveIdsOut},
                                            {"keep the ids elsewhere", keepIdsElsewhere},
                                            {"keep another mini-batch's ids", keepAnothersIds},
                                            {"keep ids where none are wanted", keepIdsWhereNoneAreWanted}};
  return all;
}

} // namespace headrace::plan::test
