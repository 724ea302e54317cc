// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/plan/CacheSpots.h"

#include <iterator>

#include "kernels/Kernels.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/model/WeightLayout.h"

namespace headrace::plan::test {

bool isCache(const Plan &plan, uint32_t buffer) {
  return buffer < plan.buffers.size() && plan.buffers[buffer].kind == BufferKind::Kv;
}
bool isSplit(const Plan &plan) {
  for (const Placement &p : plan.placements)
    for (const Extent &e : p.extents)
      if (e.interleaved || (isCache(plan, e.buffer) && e.space == Space::Host))
        return true;
  return false;
}

Schedule &scheduleAt(Plan &plan, const Spot &spot) { return plan.schedules[spot.schedule]; }
Step &stepAt(Plan &plan, const Spot &spot) { return plan.schedules[spot.schedule].steps[spot.step]; }
Operand *part(Plan &plan, const Spot &spot, Arg arg) {
  const Step &step = stepAt(plan, spot);
  const auto begin = scheduleAt(plan, spot).operands.begin() + step.firstOperand, end = begin + step.operandCount;
  const auto it = std::find_if(begin, end, [&](const Operand &o) { return o.arg == arg; });
  return it == end ? nullptr : &*it;
}
Operand ioRange(Plan &plan, const Spot &step, Io which, Arg arg, Access access) {
  const uint32_t buffer = plan.ioBuffer(which);
  const bool shared = which == Io::Output;
  const uint64_t bytes = plan.buffers[buffer].bytes / (shared ? 1 : plan.miniBatches);
  const uint64_t begin = shared ? 0 : stepAt(plan, step).miniBatch * bytes;
  for (const Extent &e : plan.placements[scheduleAt(plan, step).placement].extents)
    if (e.buffer == buffer)
      return {buffer, Space::Device, access, arg, begin, bytes, e.address + begin};
  std::abort();
}
std::vector<Spot> spotsOf(Plan &plan, Arg arg) {
  return spots(plan, [&](const Spot &spot) {
    const Operand *o = part(plan, spot, arg);
    return o != nullptr && isCache(plan, o->buffer);
  });
}
std::vector<Spot> cacheCopies(Plan &plan) {
  std::vector<Spot> out = spotsOf(plan, Arg::Destination);
  std::erase_if(out, [&](const Spot &copy) { return stepAt(plan, copy).lane == Lane::D2H; });
  return out;
}
std::vector<Spot> copiesBeforeAppend(Plan &plan) {
  std::vector<Spot> out = cacheCopies(plan);
  std::erase_if(out, [&](const Spot &copy) { return appendBehind(plan, copy) == kNone; });
  return out;
}
std::vector<Spot> copiesToHomes(Plan &plan) {
  std::vector<Spot> out = cacheCopies(plan);
  std::erase_if(out, [&](const Spot &copy) { return !(&source(plan, copy))[1].interleaved; });
  return out;
}
namespace {
std::vector<Spot> copiesToHost(Plan &plan, bool ofTransitions) {
  return spots(plan, [&](const Spot &spot) {
    return stepAt(plan, spot).kind == StepKind::Copy && stepAt(plan, spot).lane == Lane::D2H &&
           isCache(plan, source(plan, spot).buffer) &&
           (scheduleAt(plan, spot).iterationClass == IterationClass::Transition) == ofTransitions;
  });
}
} // namespace
std::vector<Spot> evicts(Plan &plan) { return copiesToHost(plan, false); }
std::vector<Spot> flushes(Plan &plan) { return copiesToHost(plan, true); }
Operand &source(Plan &plan, const Spot &copy) {
  return scheduleAt(plan, copy).operands[stepAt(plan, copy).firstOperand];
}

uint32_t appendBehind(Plan &plan, const Spot &copy) {
  for (Spot at = copy; at.step < scheduleAt(plan, copy).steps.size(); ++at.step)
    if (stepAt(plan, at).op == kernels::Op::RopeAppend && stepAt(plan, at).kind == StepKind::Compute &&
        stepAt(plan, at).layer == stepAt(plan, copy).layer && part(plan, at, Arg::KvTail) != nullptr)
      return at.step;
  return kNone;
}

uint64_t newSlot(Plan &plan, uint32_t placement, uint64_t bytes) {
  const Slot slot{model::alignUp(plan.arenaBytes), model::alignUp(bytes)};
  plan.placements[placement].slots.push_back(slot);
  plan.arenaBytes = slot.address + slot.bytes;
  plan.deviceMemory = std::max(plan.deviceMemory, plan.arenaBytes);
  return slot.address;
}

namespace {
// What durations add up to, as the steps of a schedule now are.
void addUp(Plan &plan, uint32_t schedule) {
  const std::vector<Step> &steps = plan.schedules[schedule].steps;
  const auto sum = [&](const std::vector<uint64_t> &durations, Lane lane) {
    uint64_t out = 0;
    for (size_t i = 0; i < steps.size(); ++i)
      out += steps[i].lane == lane ? durations[i] : 0;
    return out;
  };
  const auto link = [&](const std::vector<uint64_t> &durations) {
    return std::max(sum(durations, Lane::H2D), sum(durations, Lane::D2H));
  };
  for (Variant &v : plan.variants)
    if (v.schedule == schedule) {
      v.linkAloneNs = link(v.durationsNs);
      v.predictedNs = std::max({v.predictedNs, v.linkAloneNs, v.computeAloneNs});
    }
  for (Transition &t : plan.transitions)
    if (t.schedule == schedule)
      t.predictedNs = std::max(t.predictedNs, link(t.durationsNs));
}
template <typename F> void forDurations(Plan &plan, uint32_t schedule, F f) {
  for (Variant &v : plan.variants)
    if (v.schedule == schedule)
      f(v.durationsNs);
  for (Transition &t : plan.transitions)
    if (t.schedule == schedule)
      f(t.durationsNs);
}
} // namespace

void insertCopy(Plan &plan, uint32_t schedule, uint32_t at, Step step, const Operand &from, const Operand &to) {
  Schedule &s = plan.schedules[schedule];
  step.firstOperand = static_cast<uint32_t>(s.operands.size());
  step.operandCount = 2;
  s.operands.insert(s.operands.end(), {from, to});
  s.steps.insert(s.steps.begin() + at, step);
  for (Edge &edge : s.edges)
    for (uint32_t *end : {&edge.from, &edge.to})
      *end += *end >= at ? 1 : 0;
  forDurations(plan, schedule, [&](std::vector<uint64_t> &durations) {
    constexpr uint64_t kDuration = 100;
    durations.insert(durations.begin() + at, kDuration);
  });
  addUp(plan, schedule);
}

void insertStep(Plan &plan, const Spot &before, Step step, const std::vector<Operand> &operands) {
  Schedule &s = scheduleAt(plan, before);
  step.firstOperand = static_cast<uint32_t>(s.operands.size());
  step.operandCount = static_cast<uint32_t>(operands.size());
  s.operands.insert(s.operands.end(), operands.begin(), operands.end());
  const uint32_t at = before.step + 1;
  s.steps.insert(s.steps.begin() + at, step);
  for (Edge &edge : s.edges)
    for (uint32_t *end : {&edge.from, &edge.to})
      *end += *end >= at ? 1 : 0;
  forDurations(plan, before.schedule,
               [&](std::vector<uint64_t> &durations) { durations.insert(durations.begin() + at, 0); });
}

void eraseStep(Plan &plan, const Spot &spot) {
  Schedule &s = scheduleAt(plan, spot);
  s.steps.erase(s.steps.begin() + spot.step);
  std::erase_if(s.edges, [&](const Edge &e) { return e.from == spot.step || e.to == spot.step; });
  for (Edge &edge : s.edges)
    for (uint32_t *end : {&edge.from, &edge.to})
      *end -= *end > spot.step ? 1 : 0;
  forDurations(plan, spot.schedule,
               [&](std::vector<uint64_t> &durations) { durations.erase(durations.begin() + spot.step); });
  addUp(plan, spot.schedule);
}

uint64_t copyAside(Plan &plan, const Spot &copy, uint32_t at) {
  const Step step = stepAt(plan, copy);
  const Operand from = source(plan, copy);
  Operand to = (&source(plan, copy))[1];
  to.address = newSlot(plan, scheduleAt(plan, copy).placement, to.bytes);
  insertCopy(plan, copy.schedule, at, step, from, to);
  return to.address;
}

} // namespace headrace::plan::test
