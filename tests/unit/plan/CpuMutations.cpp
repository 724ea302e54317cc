// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/Kernels.h"
#include "runtime/model/ModelSpec.h"
#include "tests/unit/plan/CacheSpots.h"
#include "tests/unit/plan/MutationParts.h"
#include "tests/unit/plan/OracleMemory.h"

namespace headrace::plan::test {
namespace {

using kernels::Op;

bool computes(Plan &plan, const Spot &spot, Op op) {
  return stepAt(plan, spot).kind == StepKind::Compute && stepAt(plan, spot).op == op;
}
std::vector<Spot> stepsOf(Plan &plan, Op op) {
  return spots(plan, [&](const Spot &spot) { return computes(plan, spot, op); });
}
std::vector<Spot> onCpu(Plan &plan) {
  return spots(plan, [&](const Spot &spot) { return stepAt(plan, spot).lane == Lane::Cpu; });
}
bool isOwn(const Plan &plan, uint32_t buffer) { return buffer >= plan.buffers.size(); } // a schedule's
// Copies of rows, and of the iteration buffer, for the lane.
std::vector<Spot> copiesDown(Plan &plan, bool meta) {
  return spots(plan, [&](const Spot &spot) {
    if (stepAt(plan, spot).kind != StepKind::Copy)
      return false;
    const uint32_t buffer = source(plan, spot).buffer;
    return meta ? isMeta(plan, buffer) : isOwn(plan, buffer);
  });
}
std::vector<Spot> ofTheLane(Plan &plan) {
  std::vector<Spot> out = onCpu(plan);
  for (const std::vector<Spot> &more : {copiesDown(plan, false), copiesDown(plan, true), stepsOf(plan, Op::FetchRows)})
    out.insert(out.end(), more.begin(), more.end());
  return out;
}
Local &localOf(Plan &plan, const Spot &spot, uint32_t buffer) {
  return scheduleAt(plan, spot).locals[buffer - plan.buffers.size()];
}
// A transient has another range in the slab, and its operands with it.
void moveOnHost(Plan &plan, uint32_t schedule, size_t local, uint64_t to) {
  Schedule &s = plan.schedules[schedule];
  s.locals[local].hostAddress = to;
  for (Operand &o : s.operands)
    if (o.buffer == plan.buffers.size() + local && o.space == Space::Host)
      o.address = to + o.bufferOffset;
}
std::vector<std::pair<uint32_t, size_t>> localsOnHost(const Plan &plan) {
  std::vector<std::pair<uint32_t, size_t>> out;
  for (uint32_t i = 0; i < plan.schedules.size(); ++i)
    for (size_t l = 0; l < plan.schedules[i].locals.size(); ++l)
      if (plan.schedules[i].locals[l].hostAddress != kNowhere)
        out.emplace_back(i, l);
  return out;
}
// Two steps that follow each other in a lane change places; edges stay where they are.
void swapSteps(Plan &plan, const Spot &first, uint32_t second) {
  Schedule &s = scheduleAt(plan, first);
  std::swap(s.steps[first.step], s.steps[second]);
  for (Variant &v : plan.variants)
    if (v.schedule == first.schedule)
      std::swap(v.durationsNs[first.step], v.durationsNs[second]);
}

bool dropEdge(Plan &plan, Random &random) {
  std::vector<std::pair<uint32_t, size_t>> all;
  for (const Spot &spot : ofTheLane(plan))
    for (size_t i = 0; i < scheduleAt(plan, spot).edges.size(); ++i)
      if (const Edge &edge = scheduleAt(plan, spot).edges[i]; edge.from == spot.step || edge.to == spot.step)
        all.emplace_back(spot.schedule, i);
  if (all.empty())
    return false;
  const auto [schedule, edge] = pick(random, all);
  plan.schedules[schedule].edges.erase(plan.schedules[schedule].edges.begin() + static_cast<std::ptrdiff_t>(edge));
  return true;
}

// Rows are appended, or the meta buffer is read, before the copy is there: the copy stands behind.
bool readBeforeTheCopy(Plan &plan, Random &random) {
  std::vector<Spot> all = copiesDown(plan, coin(random));
  if (all.empty())
    return false;
  const Spot copy = pick(random, all);
  const Step step = stepAt(plan, copy);
  const Operand from = source(plan, copy), to = destination(plan, copy);
  uint32_t reader = kNone;
  for (const Spot &spot : onCpu(plan))
    if (spot.schedule == copy.schedule && spot.step > copy.step && stepAt(plan, spot).miniBatch == step.miniBatch &&
        reader == kNone)
      reader = spot.step;
  if (reader == kNone)
    return false;
  eraseStep(plan, copy);
  insertCopy(plan, copy.schedule, reader, step, from, to);
  return true;
}
// Of the iteration buffer the first mini-batch's arrays are left out, or the last tables.
bool copyPartOfMeta(Plan &plan, Random &random) {
  std::vector<Spot> all = copiesDown(plan, true);
  if (all.empty())
    return false;
  const Spot spot = pick(random, all);
  const uint64_t less = coin(random) ? metaArraysBytes(plan) : kGranule;
  const bool front = coin(random);
  for (uint32_t k = 0; k < 2; ++k) {
    Operand &o = scheduleAt(plan, spot).operands[stepAt(plan, spot).firstOperand + k];
    o.bytes -= less;
    o.bufferOffset += front ? less : 0;
    o.address += front ? less : 0;
  }
  return true;
}
bool leaveCopyOut(Plan &plan, Random &random) {
  std::vector<Spot> all = copiesDown(plan, coin(random));
  if (all.empty())
    return false;
  eraseStep(plan, pick(random, all));
  return true;
}
bool appendAfterAttention(Plan &plan, Random &random) {
  std::vector<Spot> all = stepsOf(plan, Op::Append);
  if (all.empty())
    return false;
  const Spot append = pick(random, all);
  if (!computes(plan, {append.schedule, append.step + 1}, Op::Attention))
    return false;
  swapSteps(plan, append, append.step + 1);
  return true;
}
// The output of the launch before is what the rest of the layer would find.
bool leaveStepOut(Plan &plan, Random &random) {
  constexpr Op kOps[] = {Op::Append, Op::Attention, Op::FetchRows, Op::Rotate};
  std::vector<Spot> all = stepsOf(plan, kOps[below(random, 4)]);
  std::erase_if(all, [&](const Spot &spot) {
    return computes(plan, spot, Op::Attention) && stepAt(plan, spot).lane != Lane::Cpu;
  });
  if (all.empty())
    return false;
  eraseStep(plan, pick(random, all));
  return true;
}
// What is copied is not yet what is appended.
bool rotateBehindTheCopy(Plan &plan, Random &random) {
  std::vector<Spot> all = stepsOf(plan, Op::Rotate);
  if (all.empty())
    return false;
  const Spot rotate = pick(random, all);
  Schedule &s = scheduleAt(plan, rotate);
  if (rotate.step + 1 >= s.steps.size() || s.steps[rotate.step + 1].lane != Lane::D2H)
    return false;
  swapSteps(plan, rotate, rotate.step + 1);
  for (Edge &edge : s.edges) {
    if (edge.from == rotate.step && edge.to == rotate.step + 1)
      edge.kind = EdgeKind::War;
  }
  return true;
}

bool overlapOnHost(Plan &plan, Random &random) {
  auto all = localsOnHost(plan);
  if (all.empty())
    return false;
  const auto [schedule, local] = pick(random, all);
  std::erase_if(all, [schedule = schedule, local = local](const auto &other) {
    return other.first != schedule || other.second == local;
  });
  if (all.empty())
    return false;
  const Local &onto = plan.schedules[schedule].locals[pick(random, all).second];
  moveOnHost(plan, schedule, local,
             onto.hostAddress + model::kAlign * below(random, onto.buffer.bytes / model::kAlign));
  return true;
}
bool moveLocalOnHost(Plan &plan, Random &random) {
  auto all = localsOnHost(plan);
  if (all.empty())
    return false;
  const auto [schedule, local] = pick(random, all);
  const uint64_t from = plan.schedules[schedule].locals[local].hostAddress;
  moveOnHost(plan, schedule, local,
             coin(random) ? moved(random, from, model::kAlign, 16)
                          : model::kAlign * below(random, plan.hostBytes / model::kAlign));
  return plan.schedules[schedule].locals[local].hostAddress != from;
}
bool moveMetaOnHost(Plan &plan, Random &random) {
  if (plan.metaOnHost == kNowhere)
    return false;
  const uint64_t from = plan.metaOnHost, to = moved(random, from, coin(random) ? model::kAlign : kGranule, 16);
  if (coin(random))
    plan.metaOnHost = to;
  for (Schedule &s : plan.schedules)
    for (Operand &o : s.operands)
      if (isMeta(plan, o.buffer) && o.space == Space::Host && below(random, 4) != 0)
        o.address += to - from;
  return true;
}
// A step of the lane on the device's memory, or one of another lane on what the lane has.
bool inOtherMemory(Plan &plan, Random &random) {
  struct Use {
    Spot spot;
    uint32_t operand;
  };
  std::vector<Use> all;
  for (const Spot &spot : spots(plan, [&](const Spot &s) { return stepAt(plan, s).kind != StepKind::Publish; })) {
    const Step &step = stepAt(plan, spot);
    for (uint32_t k = step.firstOperand; k < step.firstOperand + step.operandCount; ++k)
      if (const Operand &o = scheduleAt(plan, spot).operands[k];
          (isOwn(plan, o.buffer) && localOf(plan, spot, o.buffer).staged()) ||
          (isMeta(plan, o.buffer) && plan.metaOnHost != kNowhere))
        all.push_back({spot, k});
  }
  if (all.empty())
    return false;
  const Use use = pick(random, all);
  Operand &o = scheduleAt(plan, use.spot).operands[use.operand];
  o.space = o.space == Space::Host ? Space::Device : Space::Host;
  if (isOwn(plan, o.buffer)) {
    o.address = localOf(plan, use.spot, o.buffer).in(o.space);
    return true;
  }
  for (const Extent &e : plan.placements[scheduleAt(plan, use.spot).placement].extents)
    if (e.buffer == o.buffer)
      o.address = (o.space == Space::Host ? plan.metaOnHost : e.address) + o.bufferOffset;
  return true;
}
bool inAnotherLane(Plan &plan, Random &random) {
  std::vector<Spot> all = coin(random) ? onCpu(plan) : spots(plan, [&](const Spot &spot) {
    return stepAt(plan, spot).lane == Lane::Compute && !onCpu(plan).empty();
  });
  if (all.empty())
    return false;
  const Spot spot = pick(random, all);
  Step &step = stepAt(plan, spot);
  step.lane = step.lane == Lane::Cpu ? Lane::Compute : Lane::Cpu;
  std::erase_if(scheduleAt(plan, spot).edges, [&](const Edge &e) {
    return scheduleAt(plan, spot).steps[e.from].lane == scheduleAt(plan, spot).steps[e.to].lane;
  });
  for (Variant &v : plan.variants) // sums follow
    if (v.schedule == spot.schedule) {
      v.computeAloneNs += step.lane == Lane::Compute ? v.durationsNs[spot.step] : -v.durationsNs[spot.step];
      v.predictedNs = std::max(v.predictedNs, v.computeAloneNs);
    }
  return true;
}
bool flipDirect(Plan &plan, Random &random) {
  std::vector<Spot> all = coin(random) ? onCpu(plan) : stepsOf(plan, Op::FetchRows);
  if (all.empty())
    return false;
  Step &step = stepAt(plan, pick(random, all));
  step.direct = !step.direct;
  return true;
}
// Another mini-batch's or layer's rows, cache, or output.
bool takeAnothers(Plan &plan, Random &random) {
  std::vector<Spot> all = ofTheLane(plan);
  if (all.empty())
    return false;
  const Spot spot = pick(random, all);
  const Step &step = stepAt(plan, spot);
  Schedule &s = scheduleAt(plan, spot);
  Operand &o = s.operands[step.firstOperand + below(random, step.operandCount)];
  std::vector<Operand> others;
  for (const Operand &other : s.operands)
    if (other.space == o.space && other.arg == o.arg && other.buffer != o.buffer && other.bytes == o.bytes)
      others.push_back(other);
  if (others.empty())
    return false;
  const Operand &other = pick(random, others);
  const uint32_t before = o.buffer;
  o.buffer = other.buffer, o.address = other.address, o.bufferOffset = other.bufferOffset;
  if (step.kind == StepKind::Copy) { // both sides, if the other has them
    Operand *const sides = &s.operands[step.firstOperand];
    for (Operand *side : {sides, sides + 1})
      if (side->buffer == before && isOwn(plan, o.buffer) && localOf(plan, spot, o.buffer).staged()) {
        side->buffer = o.buffer;
        side->address = localOf(plan, spot, o.buffer).in(side->space);
      }
    if (isOwn(plan, o.buffer) && coin(random))
      stepAt(plan, spot).miniBatch = static_cast<uint8_t>(localOf(plan, spot, o.buffer).buffer.index);
  }
  return true;
}
bool shortenCache(Plan &plan, Random &random) {
  std::vector<Spot> all = onCpu(plan);
  if (all.empty())
    return false;
  Operand *home = part(plan, pick(random, all), Arg::KvHome);
  if (home == nullptr)
    return false;
  const uint64_t block = plan.kvBlockBytes();
  if (coin(random)) {
    home->bufferOffset += block;
    home->address += block;
  }
  home->bytes -= block;
  return true;
}
bool changeAccess(Plan &plan, Random &random) {
  std::vector<Spot> all = onCpu(plan);
  for (const std::vector<Spot> &more : {stepsOf(plan, Op::Rotate), stepsOf(plan, Op::FetchRows)})
    all.insert(all.end(), more.begin(), more.end());
  if (onCpu(plan).empty())
    return false;
  const Spot spot = pick(random, all);
  Operand &o =
      scheduleAt(plan, spot).operands[stepAt(plan, spot).firstOperand + below(random, stepAt(plan, spot).operandCount)];
  o.access = static_cast<Access>((static_cast<int>(o.access) + 1 + below(random, 2)) % 3);
  return true;
}
bool resizeCopy(Plan &plan, Random &random) {
  std::vector<Spot> all = copiesDown(plan, coin(random));
  if (all.empty())
    return false;
  Step &step = stepAt(plan, pick(random, all));
  if (coin(random))
    step.resizable = !step.resizable;
  else
    step.dirtyOnly = step.resizable = true;
  return true;
}
bool copyUp(Plan &plan, Random &random) {
  std::vector<Spot> all = copiesDown(plan, below(random, 4) == 0);
  if (all.empty())
    return false;
  const Spot spot = pick(random, all);
  std::swap(source(plan, spot).space, destination(plan, spot).space);
  std::swap(source(plan, spot).address, destination(plan, spot).address);
  return true;
}
bool fetchFewer(Plan &plan, Random &random) {
  std::vector<Spot> all = stepsOf(plan, Op::FetchRows);
  if (all.empty())
    return false;
  Operand &o = *part(plan, pick(random, all), coin(random) ? Arg::X : Arg::Y);
  o.bytes -= kGranule;
  return true;
}
bool dropRange(Plan &plan, Random &random) {
  auto all = localsOnHost(plan);
  if (all.empty())
    return false;
  const auto [schedule, local] = pick(random, all);
  Local &l = plan.schedules[schedule].locals[local];
  if (below(random, 4) == 0)
    l.address = l.address == kNowhere ? 0 : kNowhere;
  else
    l.hostAddress = kNowhere;
  return true;
}

} // namespace

const std::vector<Mutation> &cpuMutations() {
  static const std::vector<Mutation> kAll = {
      {"drop an edge of the cpu lane", dropEdge},
      {"read before the copy is there", readBeforeTheCopy},
      {"copy a part of meta", copyPartOfMeta},
      {"leave a copy down out", leaveCopyOut},
      {"append after attention", appendAfterAttention},
      {"leave a step of attention out", leaveStepOut},
      {"rotate behind the copy", rotateBehindTheCopy},
      {"two transients of the slab over each other", overlapOnHost},
      {"move a transient of the slab", moveLocalOnHost},
      {"move meta in the slab", moveMetaOnHost},
      {"use the other memory", inOtherMemory},
      {"use another lane", inAnotherLane},
      {"direct or not", flipDirect},
      {"take another's rows", takeAnothers},
      {"shorten a cache", shortenCache},
      {"another access in the cpu lane", changeAccess},
      {"another kind of copy down", resizeCopy},
      {"copy rows up", copyUp},
      {"fetch fewer rows", fetchFewer},
      {"drop a transient's range", dropRange},
  };
  return kAll;
}

} // namespace headrace::plan::test
