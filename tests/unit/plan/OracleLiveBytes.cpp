// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <optional>

#include "tests/unit/plan/Oracle.h"
#include "tests/unit/plan/OracleMemory.h"

namespace headrace::plan::test {

std::vector<StepSet> ancestors(const Schedule &s, size_t without) {
  std::vector<std::vector<uint32_t>> into(s.steps.size());
  std::map<Lane, uint32_t> last;
  for (uint32_t i = 0; i < s.steps.size(); ++i) {
    if (const auto at = last.find(s.steps[i].lane); at != last.end())
      into[i].push_back(at->second);
    last[s.steps[i].lane] = i;
  }
  for (size_t e = 0; e < s.edges.size(); ++e)
    if (e != without)
      into[s.edges[e].to].push_back(s.edges[e].from);
  std::vector<StepSet> before(s.steps.size());
  for (uint32_t to = 0; to < s.steps.size(); ++to)
    for (const uint32_t from : into[to]) {
      before[to].set(from);
      if (from < to)
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
  // From which of these points on something holds bytes, and up to which.
  struct Span {
    size_t first = 0, last = 0;
    uint64_t bytes = 0;
  };
  std::vector<Span> spans;
  for (const Held &h : held) {
    Span span{.bytes = h.content.bytes};
    for (size_t p = 0; p < points.size(); ++p) {
      // The copy may have begun once no compute step that it waits for is left.
      if (h.writer && before[*h.writer][points[p]])
        span.first = p + 1;
      // A copy that writes it back is through as soon as the steps that it waits for are.
      for (const uint32_t reader : h.readers)
        if (reader == points[p] || before[reader][points[p]])
          span.last = p;
    }
    span.last = h.atExit ? points.size() : std::max(span.first, span.last); // it takes its place in any case
    spans.push_back(span);
  }
  for (uint32_t l = 0; l < s.locals.size(); ++l) {
    std::optional<Span> span;
    for (size_t p = 0; p < points.size(); ++p)
      for (uint32_t k = s.steps[points[p]].firstOperand;
           k < s.steps[points[p]].firstOperand + s.steps[points[p]].operandCount; ++k)
        if (s.operands[k].buffer == plan.buffers.size() + l && s.operands[k].space == Space::Device)
          span = Span{span ? span->first : p, p, s.locals[l].buffer.bytes};
    if (span)
      spans.push_back(*span);
  }
  for (size_t p = 0; p <= points.size(); ++p) {
    uint64_t sum = homes;
    for (const Span &span : spans)
      sum += span.first <= p && p <= span.last ? span.bytes : 0;
    largest = std::max(largest, sum);
  }
  return largest;
}

} // namespace headrace::plan::test
