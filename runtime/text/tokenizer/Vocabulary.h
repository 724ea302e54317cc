// SPDX-License-Identifier: Apache-2.0
//
// Tokens and their ids, both ways.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace headrace::text {

// An id is below this; what no vocabulary comes near.
inline constexpr int64_t kMostIds = int64_t{1} << 21;

class Vocabulary {
public:
  // False if the token or the id, 0 to kMostIds - 1, is there already.
  bool add(std::string_view token, int32_t id);

  std::optional<int32_t> find(std::string_view token) const;
  bool has(int32_t id) const { return id >= 0 && id < size() && lengths_[static_cast<size_t>(id)] >= 0; }
  // Empty for an id that is none's.
  std::string_view token(int32_t id) const;

  int64_t size() const { return static_cast<int64_t>(lengths_.size()); } // every id is below
  int64_t count() const { return count_; }

private:
  struct Slot {
    uint32_t hash;
    int32_t id = -1;
  };
  void grow();

  int64_t count_ = 0;
  std::string bytes_;
  std::vector<uint64_t> begins_; // by id, in bytes_
  std::vector<int32_t> lengths_; // by id; -1: no token
  std::vector<Slot> slots_;      // a power of two of them, at most two thirds taken
};

} // namespace headrace::text
