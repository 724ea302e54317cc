// SPDX-License-Identifier: Apache-2.0
//
// Half-open ranges of bytes -> values, where the newest assignment of a byte counts.
//
//   map.assign(0, 100, a); map.assign(50, 80, b);       [0, 50) a   [50, 80) b   [80, 100) a
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>

namespace headrace::algorithms {

template <typename T> class RangeMap {
public:
  // Calls visit(begin, end, value) for each part of [begin, end) that has a value, clipped to it, ascending.
  template <typename Visit> void forEach(uint64_t begin, uint64_t end, Visit &&visit) const {
    for (auto it = firstPast(begin); it != runs_.end() && it->first < end; ++it)
      visit(std::max(begin, it->first), std::min(end, it->second.end), it->second.value);
  }

  void assign(uint64_t begin, uint64_t end, T value) {
    erase(begin, end);
    if (begin < end)
      runs_.emplace(begin, Run{end, std::move(value)});
  }

  void erase(uint64_t begin, uint64_t end) {
    if (begin >= end)
      return;
    split(begin);
    split(end);
    runs_.erase(runs_.lower_bound(begin), runs_.lower_bound(end));
  }

private:
  struct Run {
    uint64_t end;
    T value;
  };
  typename std::map<uint64_t, Run>::const_iterator firstPast(uint64_t begin) const {
    auto it = runs_.upper_bound(begin);
    if (it != runs_.begin() && std::prev(it)->second.end > begin)
      --it;
    return it;
  }
  // No run crosses `at` afterwards.
  void split(uint64_t at) {
    auto it = runs_.lower_bound(at);
    if (it == runs_.begin())
      return;
    --it;
    if (it->second.end <= at)
      return;
    Run right{it->second.end, it->second.value};
    it->second.end = at;
    runs_.emplace(at, std::move(right));
  }

  std::map<uint64_t, Run> runs_; // by begin
};

} // namespace headrace::algorithms
