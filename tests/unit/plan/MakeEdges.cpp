// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <optional>
#include <tuple>
#include <vector>

#include "tests/unit/plan/PlanParts.h"

namespace headrace::plan::test {
namespace {

// Why step `to` must come after step `from`, if so. Of the host weights alone are only read.
std::optional<EdgeKind> need(const Plan &plan, const Schedule &s, const Step &from, const Step &to) {
  bool raw = false, waw = false, war = false;
  for (uint32_t i = from.firstOperand; i < from.firstOperand + from.operandCount; ++i)
    for (uint32_t j = to.firstOperand; j < to.firstOperand + to.operandCount; ++j) {
      const Operand &a = s.operands[i], &b = s.operands[j];
      const bool isRead = a.space == Space::Host && plan.buffer(s, a.buffer).kind == BufferKind::Weight;
      if (a.space != b.space || isRead || b.address >= a.address + a.bytes || a.address >= b.address + b.bytes)
        continue;
      const bool writes = a.access != Access::Read;
      raw |= writes && b.access != Access::Write;
      waw |= writes && b.access == Access::Write;
      war |= !writes && b.access != Access::Read;
    }
  if (raw)
    return EdgeKind::Raw;
  if (waw)
    return EdgeKind::Waw;
  return war ? std::optional(EdgeKind::War) : std::nullopt;
}

} // namespace

void connect(const Plan &plan, Schedule &s) {
  s.edges.clear();
  // By step and lane: how many of the first steps have ended in it when the step starts.
  std::vector<std::array<uint32_t, kLanes>> ended(s.steps.size());
  const auto join = [&](uint32_t to, uint32_t from) {
    for (size_t lane = 0; lane < kLanes; ++lane)
      ended[to][lane] = std::max(ended[to][lane], ended[from][lane]);
    uint32_t &own = ended[to][static_cast<size_t>(s.steps[from].lane)];
    own = std::max(own, from + 1);
  };
  for (uint32_t to = 0; to < s.steps.size(); ++to) {
    for (uint32_t from = 0; from < to; ++from)
      if (s.steps[from].lane == s.steps[to].lane)
        join(to, from);
    std::vector<Edge> wanted; // the latest of each other lane
    for (uint32_t from = 0; from < to; ++from) {
      if (s.steps[from].lane == s.steps[to].lane)
        continue;
      const std::optional<EdgeKind> kind = need(plan, s, s.steps[from], s.steps[to]);
      if (!kind || ended[to][static_cast<size_t>(s.steps[from].lane)] > from)
        continue;
      std::erase_if(wanted, [&](const Edge &e) { return s.steps[e.from].lane == s.steps[from].lane; });
      wanted.push_back({from, to, *kind});
    }
    for (const Edge &edge : wanted) {
      const auto lane = static_cast<size_t>(s.steps[edge.from].lane);
      if (std::none_of(wanted.begin(), wanted.end(),
                       [&](const Edge &other) { return ended[other.from][lane] > edge.from; }))
        s.edges.push_back(edge);
    }
    for (const Edge &edge : s.edges)
      if (edge.to == to)
        join(to, edge.from);
  }
  std::sort(s.edges.begin(), s.edges.end(),
            [](const Edge &a, const Edge &b) { return std::tie(a.to, a.from) < std::tie(b.to, b.from); });
}

} // namespace headrace::plan::test
