// SPDX-License-Identifier: Apache-2.0
//
// The plans of WriteBackPlan.h that tests break, and parts of them by name.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "kernels/Kernels.h"
#include "runtime/model/ModelSpec.h"
#include "tests/unit/plan/BrokenPlan.h"
#include "tests/unit/plan/MakePlan.h"
#include "tests/unit/plan/WriteBackPlan.h"

namespace headrace::plan::test {

inline constexpr WriteBack kWriteBacks[] = {WriteBack::Mirror, WriteBack::All, WriteBack::Dirty};

inline const char *name(WriteBack how) {
  return how == WriteBack::Mirror ? "mirror" : how == WriteBack::All ? "all" : "dirty";
}

// Three blocks of 2048 bytes a layer.
inline Plan tailPlan(int64_t layers, const std::vector<Tails> &tails, const std::vector<LimitOptions> &limits = {{}}) {
  std::vector<PlacementOptions> placements(tails.size());
  for (size_t p = 0; p < tails.size(); ++p) {
    placements[p].name = std::to_string(tails[p].resident) + " of " + std::to_string(tails[p].blocks);
    placements[p].limits = limits;
  }
  Plan plan = makePlan({tinyLlama(layers), placements});
  moveTails(plan, tails);
  return plan;
}
inline Tails turns(int64_t resident, WriteBack how, uint32_t slots = 2, int32_t layers = 4) {
  return {resident, 3, slots, how == WriteBack::Mirror, {inTurns(layers, slots, how)}};
}
inline Tails cycle(int64_t resident, WriteBack how) { return {resident, 3, 2, how == WriteBack::Mirror, staying(how)}; }

// One block of three of each of three layers on the device: bytes [0, 2048), tails of 4096 bytes from 4096 l on in the
// slab. Schedules of a plan in turns: 0 the iteration; of a cycle: 0 and 1 the phases, then transitions: 2 brings state
// 1, 3 writes it back (all), then the same of state 2.
inline Plan turnsPlan(WriteBack how = WriteBack::All) { return tailPlan(3, {turns(1, how, 2, 3)}); }
inline Plan cyclePlan(WriteBack how = WriteBack::All) { return tailPlan(3, {cycle(1, how)}); }
inline Plan wholePlan() { return tailPlan(3, {turns(0, WriteBack::All, 2, 3)}); }

// The n-th copy of a schedule to the host, or to the device.
inline uint32_t copyOf(const Plan &p, uint32_t schedule, bool out, int n) {
  const std::vector<Step> &steps = p.schedules[schedule].steps;
  for (uint32_t i = 0; i < steps.size(); ++i)
    if (steps[i].kind == StepKind::Copy && (steps[i].lane == Lane::D2H) == out && n-- == 0)
      return i;
  std::abort();
}
inline Step &back(Plan &p, int n, uint32_t schedule = 0) {
  return p.schedules[schedule].steps[copyOf(p, schedule, true, n)];
}
inline Operand &source(Plan &p, const Step &step, uint32_t schedule = 0) {
  return p.schedules[schedule].operands[step.firstOperand];
}
inline Operand &destination(Plan &p, const Step &step, uint32_t schedule = 0) {
  return p.schedules[schedule].operands[step.firstOperand + 1];
}
inline Step &compute(Plan &p, kernels::Op op, int32_t layer, uint32_t schedule = 0) {
  for (Step &step : p.schedules[schedule].steps)
    if (step.kind == StepKind::Compute && step.op == op && step.layer == layer)
      return step;
  std::abort();
}
inline Operand &operand(Plan &p, const Step &step, Arg arg, uint32_t schedule = 0) {
  for (uint32_t i = step.firstOperand; i < step.firstOperand + step.operandCount; ++i)
    if (p.schedules[schedule].operands[i].arg == arg)
      return p.schedules[schedule].operands[i];
  std::abort();
}
inline void dropEdges(Plan &p, uint32_t schedule, uint32_t from, uint32_t to) {
  std::erase_if(p.schedules[schedule].edges, [&](const Edge &edge) { return edge.from == from && edge.to == to; });
}
// The plan with other phases.
inline Plan withPhases(WriteBack how, const std::function<void(std::vector<Phase> &)> &change) {
  Tails tails = cycle(1, how);
  change(tails.phases);
  return tailPlan(3, {tails});
}
inline void expectRefusedAsItIs(const Plan &plan, const char *name, Rule rule, const char *message) {
  expectRefused(plan, {name, rule, message, [](Plan &) {}});
}

} // namespace headrace::plan::test
