// SPDX-License-Identifier: Apache-2.0
#include "compiler/search/FewestUnits.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "passes/algorithms/PickLayers.h"

namespace headrace::compiler {
namespace {

struct Group { // of units that are as large as each other, in the order of layers
  uint64_t bytes = 0;
  std::vector<int32_t> units;
};

// So many of each group, with the fewest bytes in all that are at least as many as are asked for.
class Fewest {
public:
  explicit Fewest(const std::vector<Group> &groups) : groups_(groups), counts_(groups.size(), 0) {
    rest_.assign(groups.size() + 1, 0);
    for (size_t g = groups.size(); g-- > 0;) {
      rest_[g] = rest_[g + 1] + groups[g].bytes * groups[g].units.size();
      divisor_ = std::gcd(divisor_, groups[g].bytes);
    }
  }

  // With at least one of group `first`, and none of those before it.
  void from(size_t first, uint64_t bytes) {
    std::fill(counts_.begin(), counts_.end(), 0);
    need_ = bytes;
    least_ = (bytes + divisor_ - 1) / divisor_ * divisor_;
    next(first, first, 0);
  }

  uint64_t best() const { return best_; }
  const std::vector<size_t> &counts() const { return found_; }

private:
  void next(size_t g, size_t first, uint64_t sum) {
    if (best_ <= least_ || sum >= best_ || (sum < need_ && sum + rest_[g] < need_))
      return;
    const bool enough = sum >= need_;
    if (g == groups_.size() || (enough && g > first)) {
      if (enough) {
        best_ = sum;
        found_ = counts_;
      }
      return;
    }
    const Group &group = groups_[g];
    const uint64_t lacking = need_ - std::min(need_, sum);
    const size_t least = g == first ? 1 : 0;
    const auto most =
        std::min<uint64_t>(group.units.size(), std::max<uint64_t>(least, (lacking + group.bytes - 1) / group.bytes));
    const bool last = g + 1 == groups_.size(); // of which fewer would not be enough
    for (size_t count = most + 1; count-- > (last ? most : least);) {
      counts_[g] = count;
      next(g + 1, first, sum + count * group.bytes);
    }
    counts_[g] = 0;
  }

  const std::vector<Group> &groups_;
  std::vector<uint64_t> rest_; // of all units of a group and of those behind it
  std::vector<size_t> counts_, found_;
  uint64_t divisor_ = 0;                              // of all sums
  uint64_t need_ = 0, least_ = 0, best_ = UINT64_MAX; // least_: no sum that is enough is smaller
};

} // namespace

std::optional<Candidate> fewestUnits(const model::WeightLayout &layout, bool head, uint64_t freed) {
  std::map<uint64_t, Group, std::greater<>> bySize;
  for (size_t unit = 0; unit < layout.units.size(); ++unit) {
    const model::Unit &of = layout.units[unit];
    if (of.layer < 0 && (!head || of.role != model::UnitRole::Head))
      continue;
    Group &group = bySize[of.bytes];
    group.bytes = of.bytes;
    group.units.push_back(static_cast<int32_t>(unit));
  }
  std::vector<Group> groups;
  for (auto &[bytes, group] : bySize)
    groups.push_back(std::move(group));
  Fewest fewest(groups);
  uint64_t ring = 0, best = UINT64_MAX;
  for (size_t first = 0; first < groups.size(); ++first) {
    const uint64_t size = model::alignUp(groups[first].bytes);
    fewest.from(first, freed + size);
    if (fewest.best() < best) {
      best = fewest.best();
      ring = size;
    }
  }
  if (best == UINT64_MAX)
    return std::nullopt;
  std::vector<int32_t> units;
  for (size_t g = 0; g < groups.size(); ++g)
    for (const int64_t nth :
         algorithms::evenLayers(static_cast<int64_t>(groups[g].units.size()), static_cast<int64_t>(fewest.counts()[g])))
      units.push_back(groups[g].units[static_cast<size_t>(nth)]);
  std::sort(units.begin(), units.end());
  return placementOfUnits(units, ring);
}

} // namespace headrace::compiler
