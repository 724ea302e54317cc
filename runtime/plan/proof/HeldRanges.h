// SPDX-License-Identifier: Apache-2.0
//
// Who holds which addresses: disjoint ranges, each with what it holds, who wrote it and who has read it since.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "runtime/plan/value/Plan.h"

namespace headrace::plan {

// Of HeldRange::stale: since before the schedule began.
inline constexpr int32_t kOnEntry = std::numeric_limits<int32_t>::max();

struct HeldRange {
  uint64_t end = 0;                      // the begin is the key
  uint32_t buffer = kNone;               // whose content it is
  uint64_t base = 0;                     // the address at which byte 0 of the buffer would be, modulo 2^64
  int32_t writer = -1;                   // the step that wrote it; -1: it was there at the start
  int32_t stale = -1;                    // the step that has since written the same bytes elsewhere only; -1: none
                                         // that has, kOnEntry: it was so at the start
  uint32_t life = kNone;                 // one a write, or a content at the start
  std::array<int32_t, kLanes> readers{}; // by lane, the last step that read it since; -1: none

  bool holds(uint32_t wanted, uint64_t wantedBase) const { return buffer == wanted && base == wantedBase; }
};

class HeldRanges {
public:
  // Nodes that end at the borders of [begin, end); then f(begin, end, node) for each, in order, with a null node for a
  // part that nothing is known of. `f` must not change which ranges there are.
  template <typename F> void visit(uint64_t begin, uint64_t end, F f) {
    split(begin);
    split(end);
    uint64_t at = begin;
    for (auto it = nodes_.lower_bound(begin); it != nodes_.end() && it->first < end; ++it) {
      if (it->first > at)
        f(at, it->first, static_cast<HeldRange *>(nullptr));
      f(it->first, it->second.end, &it->second);
      at = it->second.end;
      ++visits_;
    }
    if (at < end)
      f(at, end, static_cast<HeldRange *>(nullptr));
  }

  // As `visit`, but only of the parts of [begin, end) that hold bytes of this buffer at this base; borders of others
  // stay where they are.
  template <typename F> void visitContent(uint64_t begin, uint64_t end, uint32_t buffer, uint64_t base, F f) {
    auto it = nodes_.upper_bound(begin);
    if (it != nodes_.begin())
      --it;
    std::vector<std::pair<uint64_t, uint64_t>> found;
    for (; it != nodes_.end() && it->first < end; ++it, ++visits_)
      if (it->second.end > begin && it->second.holds(buffer, base))
        found.emplace_back(std::max(begin, it->first), std::min(end, it->second.end));
    for (const auto &[from, to] : found)
      visit(from, to, [&](uint64_t at, uint64_t until, HeldRange *node) {
        if (node)
          f(at, until, *node);
      });
  }

  // [begin, node.end) becomes this node; what was there is forgotten.
  void assign(uint64_t begin, const HeldRange &node) {
    split(begin);
    split(node.end);
    nodes_.erase(nodes_.lower_bound(begin), nodes_.lower_bound(node.end));
    nodes_.emplace(begin, node);
  }

  // Nodes seen by `visit` so far: a measure of the work done.
  uint64_t visits() const { return visits_; }

private:
  // Makes `address` a border.
  void split(uint64_t address) {
    auto it = nodes_.upper_bound(address);
    if (it == nodes_.begin())
      return;
    --it;
    if (it->first == address || it->second.end <= address)
      return;
    HeldRange upper = it->second;
    it->second.end = address;
    nodes_.emplace_hint(std::next(it), address, upper);
  }

  std::map<uint64_t, HeldRange> nodes_;
  uint64_t visits_ = 0;
};

} // namespace headrace::plan
