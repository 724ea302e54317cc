// SPDX-License-Identifier: Apache-2.0
//
// Random strings and random ids, the same as tests/golden/text_random.py draws; there stands what they are.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace headrace::text {

class SplitMix64 {
public:
  explicit SplitMix64(uint64_t seed) : state_(seed) {}
  uint64_t next();
  uint64_t below(uint64_t n) { return next() % n; }

private:
  uint64_t state_;
};

class RandomStrings {
public:
  // `path`: of tests/golden/text/random-strings.json. Throws where that is not what it should be.
  explicit RandomStrings(const std::string &path);
  std::string string(uint64_t number) const; // UTF-8

private:
  struct Part {
    std::vector<std::string> items; // or
    std::vector<std::pair<uint32_t, uint32_t>> ranges;
    uint64_t least, most;
    bool same;
  };
  using Kind = std::vector<Part>;

  void appendPiece(SplitMix64 &random, std::string &text) const;
  std::vector<Kind> kinds_;
};

// Sequence `number` of ids for a tokenizer of `size` tokens; a few are no token's.
std::vector<int32_t> randomIds(uint64_t number, int64_t size);

} // namespace headrace::text
