// SPDX-License-Identifier: Apache-2.0
#include "passes/algorithms/UnitKinds.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace headrace::algorithms {
namespace {

constexpr size_t kKinds = 8;
constexpr int kUnitsInRing = 4;

constexpr uint64_t roundUp(uint64_t bytes) { return (bytes + kRingAlign - 1) / kRingAlign * kRingAlign; }

} // namespace

UnitKinds kindsOf(const UnitProblem &problem, const UnitTimes &times, const std::vector<bool> &may) {
  std::map<std::pair<int32_t, uint64_t>, uint32_t> numbers; // by role and size
  for (const OffloadableUnit &unit : problem.units)
    numbers.try_emplace({unit.role, unit.bytes}, 0);
  UnitKinds found;
  for (auto &[key, number] : numbers) {
    number = static_cast<uint32_t>(found.kinds.size());
    found.kinds.push_back({{}, key.second, 0});
  }
  for (uint32_t unit = 0; unit < problem.units.size(); ++unit) {
    found.kindOf.push_back(numbers.at({problem.units[unit].role, problem.units[unit].bytes}));
    UnitKind &kind = found.kinds[found.kindOf.back()];
    kind.copyNs = times.copyNs(unit);
    if (may[unit])
      kind.units.push_back(unit);
  }
  return found;
}

std::vector<KindRing> kindRings(const UnitKinds &kinds, uint32_t needed, uint64_t mostBytes) {
  std::vector<KindRing> found;
  const uint32_t sets = 1u << std::min(kinds.kinds.size(), kKinds);
  for (uint32_t set = 1; set < sets; ++set) {
    if ((set & needed) != needed)
      continue;
    std::vector<uint64_t> sizes;
    uint64_t bytes = 0, largest = 0;
    for (uint32_t kind = 0; kind < kinds.kinds.size(); ++kind)
      if (set >> kind & 1) {
        sizes.push_back(roundUp(kinds.kinds[kind].bytes));
        bytes += kinds.kinds[kind].units.size() * kinds.kinds[kind].bytes;
        largest = std::max(largest, sizes.back());
      }
    std::set<uint64_t> rings, last{0};
    for (int count = 0; count < kUnitsInRing; ++count) {
      std::set<uint64_t> next;
      for (const uint64_t before : last)
        for (const uint64_t size : sizes)
          next.insert(before + size);
      rings.insert(next.begin(), next.end());
      last = std::move(next);
    }
    const uint64_t most = std::min(bytes, mostBytes);
    for (const uint64_t ring : rings)
      if (ring >= largest && ring < most)
        found.push_back({most - ring, ring, set});
  }
  std::sort(found.begin(), found.end(), [](const KindRing &a, const KindRing &b) {
    return std::tie(b.bound, a.ringBytes, a.kinds) < std::tie(a.bound, b.ringBytes, b.kinds);
  });
  return found;
}

uint64_t bytesWithin(const UnitKinds &kinds, uint32_t set, uint64_t ns) {
  std::vector<const UnitKind *> fastest;
  for (size_t kind = 0; kind < kinds.kinds.size() && kind < 32; ++kind)
    if (set >> kind & 1)
      fastest.push_back(&kinds.kinds[kind]);
  const auto rate = [](const UnitKind *kind) {
    return static_cast<double>(kind->bytes) / static_cast<double>(std::max<uint64_t>(1, kind->copyNs));
  };
  std::sort(fastest.begin(), fastest.end(), [&](const auto *a, const auto *b) { return rate(a) > rate(b); });
  uint64_t bytes = 0;
  for (const UnitKind *kind : fastest) {
    const uint64_t whole = std::min<uint64_t>(kind->units.size(), ns / std::max<uint64_t>(1, kind->copyNs));
    bytes += whole * kind->bytes;
    ns -= whole * kind->copyNs;
    if (whole < kind->units.size())
      return bytes + static_cast<uint64_t>(rate(kind) * static_cast<double>(ns));
  }
  return bytes;
}

} // namespace headrace::algorithms
