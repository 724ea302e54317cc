// SPDX-License-Identifier: Apache-2.0
//
// Order and contents of one schedule, and that each of its data edges is needed.
#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "runtime/plan/proof/Playback.h"
#include "runtime/plan/proof/VerifyParts.h"

namespace headrace::plan {
namespace {

// Would a need be unmet without an edge? The clocks are worked out again from the edge's target on, as far as they
// change: a few steps, up to the next edge between the same lanes.
class EdgeCheck {
public:
  EdgeCheck(const Schedule &schedule, const Clocks &clocks, const std::vector<Need> &needs)
      : schedule_(schedule), clocks_(clocks), needs_(needs) {
    const auto steps = static_cast<uint32_t>(schedule.steps.size());
    next_.assign(steps, -1);
    for (uint32_t step = 0; step < steps; ++step)
      if (clocks.previous(step) >= 0)
        next_[clocks.previous(step)] = static_cast<int32_t>(step);
    outBegin_.assign(steps + 1, 0);
    for (const Edge &edge : schedule.edges)
      ++outBegin_[edge.from + 1];
    for (uint32_t step = 0; step < steps; ++step)
      outBegin_[step + 1] += outBegin_[step];
    out_.resize(schedule.edges.size());
    std::vector<uint32_t> at(outBegin_.begin(), outBegin_.end() - 1);
    for (const Edge &edge : schedule.edges)
      out_[at[edge.from]++] = edge.to;
    needsBegin_.assign(steps + 1, 0);
    for (const Need &need : needs)
      ++needsBegin_[need.to + 1];
    for (uint32_t step = 0; step < steps; ++step)
      needsBegin_[step + 1] += needsBegin_[step];
    changed_.resize(steps);
    changedFor_.assign(steps, kNone);
  }

  enum class Verdict { Needed, NeededAsAnother, Implied, Idle, TooMuchWork };

  Verdict check(uint32_t edge) {
    const Edge &e = schedule_.edges[edge];
    bool another = false;
    std::set<uint32_t> pending = {e.to}; // steps whose clock may change, visited in order: what they wait for is done
    while (!pending.empty()) {
      const uint32_t step = *pending.begin();
      pending.erase(pending.begin());
      if (++work_ > kMaxWork)
        return Verdict::TooMuchWork;
      const Clock clock = without(step, edge);
      if (clock == clocks_[step]) {
        if (step == e.to)
          return Verdict::Implied;
        continue;
      }
      changed_[step] = clock;
      changedFor_[step] = edge;
      for (uint32_t i = needsBegin_[step]; i < needsBegin_[step + 1]; ++i) {
        const Need &need = needs_[i];
        if (clock[clocks_.lane(need.from)] >= static_cast<int32_t>(need.from))
          continue;
        if (need.kind == e.kind)
          return Verdict::Needed;
        another = true;
      }
      if (next_[step] >= 0)
        pending.insert(static_cast<uint32_t>(next_[step]));
      pending.insert(out_.begin() + outBegin_[step], out_.begin() + outBegin_[step + 1]);
    }
    return another ? Verdict::NeededAsAnother : Verdict::Idle;
  }

private:
  static constexpr uint64_t kMaxWork = uint64_t{1} << 25;

  Clock without(uint32_t step, uint32_t removed) const {
    Clock clock;
    clock.fill(-1);
    const auto learnFrom = [&](uint32_t from) {
      Clocks::learn(clock, changedFor_[from] == removed ? changed_[from] : clocks_[from], clocks_.lane(from),
                    static_cast<int32_t>(from));
    };
    if (clocks_.previous(step) >= 0)
      learnFrom(static_cast<uint32_t>(clocks_.previous(step)));
    for (uint32_t i = clocks_.edgesBegin(step); i < clocks_.edgesBegin(step + 1); ++i, ++work_)
      if (i != removed)
        learnFrom(schedule_.edges[i].from);
    return clock;
  }

  const Schedule &schedule_;
  const Clocks &clocks_;
  const std::vector<Need> &needs_;
  std::vector<int32_t> next_;            // in the lane
  std::vector<uint32_t> outBegin_, out_; // targets of edges by source
  std::vector<uint32_t> needsBegin_;     // by `to`
  std::vector<Clock> changed_;           // without the edge in changedFor_
  std::vector<uint32_t> changedFor_;
  mutable uint64_t work_ = 0;
};

const char *edgeKindName(EdgeKind kind) {
  switch (kind) {
  case EdgeKind::Raw:
    return "read-after-write";
  case EdgeKind::War:
    return "write-after-read";
  case EdgeKind::Waw:
    return "write-after-write";
  case EdgeKind::Pacing:
    return "pacing";
  }
  return "unknown";
}

void verifyEdges(const Plan &plan, uint32_t index, const Clocks &clocks, const std::vector<Need> &needs,
                 Report &report) {
  const Schedule &schedule = plan.schedules[index];
  EdgeCheck check(schedule, clocks, needs);
  for (uint32_t i = 0; i < schedule.edges.size() && !report.full(); ++i) {
    const Edge &edge = schedule.edges[i];
    if (edge.kind == EdgeKind::Pacing)
      continue;
    const std::string name = absl::StrCat("the ", edgeKindName(edge.kind), " edge from step ", edge.from);
    switch (check.check(i)) {
    case EdgeCheck::Verdict::Needed:
      break;
    case EdgeCheck::Verdict::NeededAsAnother:
      report.add(Rule::RedundantEdge, index, edge.to,
                 absl::StrCat(name, " is needed, but for another kind of conflict"));
      break;
    case EdgeCheck::Verdict::Implied:
      report.add(Rule::RedundantEdge, index, edge.to, absl::StrCat(name, " is implied by lane order and other edges"));
      break;
    case EdgeCheck::Verdict::Idle:
      report.add(Rule::RedundantEdge, index, edge.to, absl::StrCat(name, " orders no two accesses to a common byte"));
      break;
    case EdgeCheck::Verdict::TooMuchWork:
      report.add(Rule::Structure, index, edge.to, "the edges are too entangled to be checked in reasonable time");
      return;
    }
  }
}

// Behind its publish a stage's caller reads the homes of residuals, or puts the next rows there. What is sent is what
// the last step has left.
void verifyPublished(const Plan &plan, uint32_t index, const Clocks &clocks, Report &report) {
  const Schedule &s = plan.schedules[index];
  std::vector<uint32_t> publishes;
  for (uint32_t i = 0; i < s.steps.size(); ++i)
    if (s.steps[i].kind == StepKind::Publish)
      publishes.push_back(i);
  for (uint32_t i = 0; i < s.steps.size() && !report.full(); ++i)
    for (uint32_t k = s.steps[i].firstOperand; k < s.steps[i].firstOperand + s.steps[i].operandCount; ++k) {
      const Operand &o = s.operands[k];
      if (o.access == Access::Read || o.buffer >= plan.buffers.size() ||
          plan.buffers[o.buffer].kind != BufferKind::Residual)
        continue;
      for (const uint32_t publish : publishes) {
        const std::string what = absl::StrCat("writes ", describe(plan, s, o.buffer, o.bufferOffset, o.bytes));
        if (o.space == Space::Host && !clocks.ordered(i, publish))
          report.add(Rule::OverwriteLive, index, i,
                     absl::StrCat(what, " in the host slab, expected before step ", publish, " publishes"));
        if (plan.sends() && s.steps[i].kind == StepKind::Compute && publish < i)
          report.add(Rule::StaleCopy, index, i, absl::StrCat(what, ", of which step ", publish, " has published rows"));
      }
    }
}

} // namespace

void verifyMovement(const Plan &plan, const CacheHomes &caches, uint32_t schedule, Report &report) {
  const Clocks clocks(plan.schedules[schedule]);
  Playback playback(plan, caches, schedule, clocks);
  playback.run(&report);
  if (plan.receives() || plan.sends())
    verifyPublished(plan, schedule, clocks, report);
  // An edge that seems idle where the contents are wrong would only distract.
  if (report.empty())
    verifyEdges(plan, schedule, clocks, playback.needs(), report);
}

} // namespace headrace::plan
