// SPDX-License-Identifier: Apache-2.0
//
// Stored totals against what follows from the steps.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "runtime/plan/proof/VerifyParts.h"
#include "runtime/plan/value/BlockRuns.h"

namespace headrace::plan {
namespace {

class TotalsCheck {
public:
  TotalsCheck(const Plan &plan, const CacheHomes &caches, Report &report)
      : plan_(plan), caches_(caches), report_(report) {}

  void memory() {
    uint64_t arena = 0, host = 0;
    for (const Placement &placement : plan_.placements) {
      for (const Extent &e : placement.extents) {
        uint64_t &end = e.space == Space::Device ? arena : host;
        end = std::max(end, addressEnd(plan_, e));
      }
      for (const Slot &slot : placement.slots)
        arena = std::max(arena, slot.address + slot.bytes);
    }
    if (caches_.mirrors())
      for (uint32_t i = 0; i < plan_.buffers.size(); ++i)
        if (plan_.buffers[i].kind == BufferKind::Kv)
          host = std::max(host, caches_.slabBase(i) + caches_.mirrorEnd());
    for (const Schedule &schedule : plan_.schedules)
      for (const Local &local : schedule.locals)
        for (const Space space : {Space::Device, Space::Host})
          if (uint64_t &end = space == Space::Device ? arena : host; local.in(space) != kNowhere)
            end = std::max(end, local.in(space) + local.buffer.bytes);
    if (plan_.metaOnHost != kNowhere)
      host = std::max(host, plan_.metaOnHost + plan_.buffers[plan_.ioBuffer(Io::Meta)].bytes);
    expect("arena_bytes", plan_.arenaBytes, arena);
    largestCache();
    expect("host_bytes", plan_.hostBytes, host);
  }

  // The caches have as many blocks as the placement that uses most of them.
  void largestCache() {
    int64_t most = 0;
    for (const Placement &placement : plan_.placements)
      most = std::max(most, placement.kvBlocks);
    expect("kv_blocks", static_cast<uint64_t>(plan_.kvBlocks), static_cast<uint64_t>(most));
  }

  // What a copy's step says it moves; transitions and variants are priced by it.
  void copies(uint32_t index) {
    const Schedule &schedule = plan_.schedules[index];
    for (uint32_t i = 0; i < schedule.steps.size() && !report_.full(); ++i) {
      const Step &step = schedule.steps[i];
      if (step.kind == StepKind::Copy && step.linkBytes != schedule.operands[step.firstOperand].bytes)
        report_.add(Rule::Accounting, index, i,
                    absl::StrCat("link_bytes is ", step.linkBytes, ", the copy moves ",
                                 schedule.operands[step.firstOperand].bytes));
    }
  }

  // The sum of the compute lane, and of the busier link direction.
  std::pair<uint64_t, uint64_t> alone(const std::vector<uint64_t> &durations, uint32_t schedule) const {
    uint64_t lanes[kLanes] = {};
    for (size_t i = 0; i < durations.size(); ++i)
      lanes[static_cast<size_t>(plan_.schedules[schedule].steps[i].lane)] += durations[i];
    return {lanes[static_cast<size_t>(Lane::Compute)],
            std::max(lanes[static_cast<size_t>(Lane::H2D)], lanes[static_cast<size_t>(Lane::D2H)])};
  }

  void variant(size_t i) {
    const Variant &v = plan_.variants[i];
    const std::string name = absl::StrCat("variants[", i, "].");
    const auto [compute, link] = alone(v.durationsNs, v.schedule);
    expect(name + "compute_alone_ns", v.computeAloneNs, compute);
    expect(name + "link_alone_ns", v.linkAloneNs, link);
    atLeast(name + "predicted_ns", v.predictedNs, std::max(compute, link));
  }

  void transition(size_t i) {
    const Transition &t = plan_.transitions[i];
    atLeast(absl::StrCat("transitions[", i, "].predicted_ns"), t.predictedNs, alone(t.durationsNs, t.schedule).second);
  }

private:
  void expect(const std::string &what, uint64_t stored, uint64_t derived) {
    if (stored != derived)
      report_.add(Rule::Accounting, kNone, kNone, absl::StrCat(what, " is ", stored, ", the plan makes it ", derived));
  }
  void atLeast(const std::string &what, uint64_t stored, uint64_t least) {
    if (stored < least)
      report_.add(Rule::Accounting, kNone, kNone,
                  absl::StrCat(what, " is ", stored, ", its steps take at least ", least));
  }

  const Plan &plan_;
  const CacheHomes &caches_;
  Report &report_;
};

} // namespace

void verifyTotals(const Plan &plan, const CacheHomes &caches, Report &report) {
  TotalsCheck check(plan, caches, report);
  check.memory();
  for (uint32_t i = 0; i < plan.schedules.size() && !report.full(); ++i)
    check.copies(i);
  for (size_t i = 0; i < plan.variants.size() && !report.full(); ++i)
    check.variant(i);
  for (size_t i = 0; i < plan.transitions.size() && !report.full(); ++i)
    check.transition(i);
}

} // namespace headrace::plan
