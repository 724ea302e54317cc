// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/plan/ActSpots.h"

#include <algorithm>

#include "tests/unit/plan/MutationParts.h"
#include "tests/unit/plan/PlanParts.h"

namespace headrace::plan::test {

bool isActs(const Plan &plan, uint32_t buffer) {
  return buffer < plan.buffers.size() && plan.buffers[buffer].kind == BufferKind::Act;
}
std::vector<uint32_t> actBuffers(const Plan &plan) {
  std::vector<uint32_t> out;
  for (uint32_t i = 0; i < plan.buffers.size(); ++i)
    if (isActs(plan, i))
      out.push_back(i);
  return out;
}
std::vector<Spot> stepsOf(Plan &plan, std::initializer_list<kernels::Op> ops) {
  return spots(plan, [&](const Spot &spot) {
    const Step &step = stepAt(plan, spot);
    return step.kind == StepKind::Compute && std::find(ops.begin(), ops.end(), step.op) != ops.end();
  });
}
Spot besideIt(Plan &plan, const Spot &spot, kernels::Op op) {
  for (const Spot &at : stepsOf(plan, {op}))
    if (at.schedule == spot.schedule && stepAt(plan, at).layer == stepAt(plan, spot).layer &&
        stepAt(plan, at).miniBatch == stepAt(plan, spot).miniBatch)
      return at;
  return {spot.schedule, kNone};
}
void lieAtHome(const Plan &plan, const Schedule &s, Operand &o, uint32_t buffer) {
  for (const Extent &e : plan.placements[s.placement].extents)
    if (e.buffer == buffer)
      o = {buffer, e.space, o.access, o.arg, 0, e.bytes, e.address};
}
void moveCompute(Plan &plan, const Spot &spot, uint32_t to, bool anew) {
  Schedule &s = scheduleAt(plan, spot);
  const uint32_t from = spot.step;
  const auto move = [&](auto &of) {
    const auto at = [&](uint32_t i) { return of.begin() + static_cast<std::ptrdiff_t>(i); };
    if (from < to)
      std::rotate(at(from), at(from + 1), at(to + 1));
    else
      std::rotate(at(to), at(from), at(from + 1));
  };
  move(s.steps);
  for (Variant &v : plan.variants)
    if (v.schedule == spot.schedule)
      move(v.durationsNs);
  const auto now = [&](uint32_t number) {
    if (number == from)
      return to;
    return from < to ? number - (number > from && number <= to ? 1 : 0)
                     : number + (number >= to && number < from ? 1 : 0);
  };
  for (Edge &edge : s.edges)
    edge = {now(edge.from), now(edge.to), edge.kind};
  std::erase_if(s.edges, [](const Edge &edge) { return edge.from >= edge.to; });
  sortEdges(s);
  if (anew)
    connect(plan, s);
}
void eraseCompute(Plan &plan, const Spot &spot, bool anew) {
  for (Variant &v : plan.variants)
    if (v.schedule == spot.schedule)
      v.computeAloneNs -= v.durationsNs[spot.step];
  eraseStep(plan, spot);
  if (anew)
    connect(plan, scheduleAt(plan, spot));
}
bool rebuildBeforeCopyOf(Plan &plan, Random &random, Arg brought) {
  std::vector<std::pair<Spot, Spot>> pairs; // copy, rebuild_kv
  for (const Spot &spot : stepsOf(plan, {kernels::Op::RebuildKv}))
    for (uint32_t i = 0; i < spot.step; ++i)
      if (const Spot copy{spot.schedule, i};
          stepAt(plan, copy).kind == StepKind::Copy && source(plan, copy).buffer == part(plan, spot, brought)->buffer)
        pairs.emplace_back(copy, spot);
  if (pairs.empty())
    return false;
  const std::pair<Spot, Spot> pair = pick(random, pairs);
  const Spot &copy = pair.first, &spot = pair.second;
  if (coin(random)) {
    moveCompute(plan, spot, copy.step, coin(random));
    return true;
  }
  Schedule &s = scheduleAt(plan, spot);
  if (brought == Arg::Act) // no other step reads it
    std::erase_if(s.edges, [&](const Edge &edge) { return edge.from == copy.step && edge.to <= spot.step; });
  for (Edge &edge : s.edges) // the next step waits instead
    if (edge.from == copy.step && edge.to <= spot.step)
      edge.to = spot.step + 1;
  std::erase_if(s.edges, [&](const Edge &edge) { return s.steps[edge.from].lane == s.steps[edge.to].lane; });
  sortEdges(s);
  s.edges.erase(std::unique(s.edges.begin(), s.edges.end(),
                            [](const Edge &a, const Edge &b) { return a.from == b.from && a.to == b.to; }),
                s.edges.end());
  return true;
}
std::vector<uint32_t> localsLike(const Plan &plan, const Schedule &s, uint32_t than) {
  const Buffer &own = plan.buffer(s, than);
  std::vector<uint32_t> out;
  for (const bool sameName : {true, false})
    for (uint32_t i = 0; i < s.locals.size() && out.empty(); ++i)
      for (uint32_t k = i; k < s.locals.size(); ++k)
        if (const Buffer &b = s.locals[k].buffer; plan.buffers.size() + k != than && b.bytes >= own.bytes &&
                                                  b.kind == own.kind && (b.name == own.name) == sameName &&
                                                  std::find(out.begin(), out.end(), k) == out.end())
          out.push_back(k);
  return out;
}
void useLocal(const Plan &plan, const Schedule &s, Operand &o, uint32_t local) {
  o.buffer = static_cast<uint32_t>(plan.buffers.size()) + local;
  o.address = s.locals[local].address;
}

} // namespace headrace::plan::test
