// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>

#include "tests/unit/plan/Oracle.h"
#include "tests/unit/plan/OracleMemory.h"

namespace headrace::plan::test {

std::vector<StepSet> ancestors(const Schedule &s, size_t without) {
  std::vector<StepSet> before(s.steps.size());
  for (size_t to = 0; to < s.steps.size(); ++to) {
    for (size_t from = 0; from < to; ++from)
      if (s.steps[from].lane == s.steps[to].lane)
        before[to].set(from);
    for (size_t e = 0; e < s.edges.size(); ++e)
      if (e != without && s.edges[e].to == to)
        before[to].set(s.edges[e].from);
    const StepSet direct = before[to];
    for (size_t from = 0; from < to; ++from)
      if (direct[from])
        before[to] |= before[from];
  }
  return before;
}

uint64_t liveBytesByBruteForce(const Plan &plan, uint32_t index) {
  const Schedule &s = plan.schedules[index];
  const Placement &placement = plan.placements[s.placement];
  const std::vector<StepSet> before = ancestors(s);
  uint64_t homes = 0, largest = 0;
  for (const Extent &e : placement.extents)
    homes += e.space == Space::Device ? e.bytes : 0;
  const auto atHome = [&](const Operand &o) {
    return o.interleaved || std::any_of(placement.extents.begin(), placement.extents.end(), [&](const Extent &e) {
             return e.buffer == o.buffer && e.space == o.space && e.address == o.address;
           });
  };
  // Contents of slots: their ranges, who writes them (none: there on entry), who reads them until the next write.
  struct Held {
    Content content;
    std::optional<uint32_t> writer;
    std::set<uint32_t> readers;
    bool atExit = false, replaced = false;
  };
  std::vector<Held> held;
  for (const Content &c : plan.states[s.entryState].contents)
    held.push_back({c});
  const auto meets = [](const auto &a, const auto &b) {
    return a.address < b.address + b.bytes && b.address < a.address + a.bytes;
  };
  for (uint32_t i = 0; i < s.steps.size(); ++i)
    for (uint32_t k = s.steps[i].firstOperand; k < s.steps[i].firstOperand + s.steps[i].operandCount; ++k) {
      const Operand &o = s.operands[k];
      if (o.space != Space::Device || o.interleaved)
        continue;
      // An append updates a tail in its slot, and a sum a residual.
      const bool kept = o.access == Access::Read || o.arg == Arg::KvTail || addsInPlace(plan, s, s.steps[i], o);
      for (Held &h : held)
        if (!h.replaced && meets(h.content, o)) {
          if (kept)
            h.readers.insert(i);
          else
            h.replaced = true;
        }
      const bool fills = s.steps[i].kind == StepKind::Copy || (isResidual(plan, o.buffer) && !kept);
      if (fills && o.access == Access::Write && !atHome(o))
        held.push_back({{o.buffer, o.bufferOffset, o.bytes, o.address}, i});
    }
  for (Held &h : held)
    for (const Content &c : plan.states[s.exitState].contents)
      h.atExit |= !h.replaced && meets(h.content, c);
  // At each compute step, and after the last.
  std::vector<uint32_t> points;
  for (uint32_t i = 0; i < s.steps.size(); ++i)
    if (s.steps[i].lane == Lane::Compute)
      points.push_back(i);
  for (size_t p = 0; p <= points.size(); ++p) {
    uint64_t sum = homes;
    for (const Held &h : held) {
      // The copy may have begun: all the compute steps that it waits for come before this one.
      const auto begunAt = [&](size_t position) {
        bool begun = true;
        for (size_t q = position; q < points.size(); ++q)
          begun &= !h.writer || !before[*h.writer][points[q]];
        return begun;
      };
      // A copy that writes it back is through as soon as the steps that it waits for are.
      bool wanted = h.atExit;
      for (const uint32_t reader : h.readers)
        for (size_t q = p; q < points.size(); ++q)
          wanted |= reader == points[q] || before[reader][points[q]];
      const bool first = begunAt(p) && (p == 0 || !begunAt(p - 1)); // it takes its place in any case
      sum += first || (begunAt(p) && wanted) ? h.content.bytes : 0;
    }
    for (uint32_t l = 0; l < s.locals.size(); ++l) {
      bool from = false, to = false;
      for (size_t q = 0; q < points.size(); ++q)
        for (uint32_t k = s.steps[points[q]].firstOperand;
             k < s.steps[points[q]].firstOperand + s.steps[points[q]].operandCount; ++k)
          if (s.operands[k].buffer == plan.buffers.size() + l) {
            from |= q <= p;
            to |= q >= p;
          }
      sum += from && to ? s.locals[l].buffer.bytes : 0;
    }
    largest = std::max(largest, sum);
  }
  return largest;
}

} // namespace headrace::plan::test
