// SPDX-License-Identifier: Apache-2.0
//
// Values that are numbered from 0 on over all time, of which the oldest are given up: what is under way.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace headrace::core {

// `kFirst`: so many it has room for once there is one.
template <typename T, size_t kFirst> class Ring {
public:
  uint64_t first() const { return first_; } // the oldest that is kept
  uint64_t next() const { return next_; }   // behind the newest
  bool empty() const { return first_ == next_; }
  // Of one that is kept.
  T &operator[](uint64_t number) { return values_[number % values_.size()]; }
  const T &operator[](uint64_t number) const { return values_[number % values_.size()]; }

  // Returns its number. Allocates where more are kept than ever before.
  uint64_t add(T value) {
    if (next_ - first_ == values_.size()) {
      std::vector<T> larger(std::max(2 * values_.size(), kFirst));
      for (uint64_t n = first_; n != next_; ++n)
        larger[n % larger.size()] = std::move((*this)[n]);
      values_.swap(larger);
    }
    (*this)[next_] = std::move(value);
    return next_++;
  }
  void giveUpBefore(uint64_t number) { first_ = number; }
  void clear() { first_ = next_ = 0; }

private:
  std::vector<T> values_;
  uint64_t first_ = 0, next_ = 0;
};

} // namespace headrace::core
