// SPDX-License-Identifier: Apache-2.0
//
// How many of its cases a test draws: all with HEADRACE_LONG in the environment, else a share that takes seconds, the
// same in every run; and with HEADRACE_SEED, a number, some more, which are others for each number. A test that fails
// is run again with the same number.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <optional>
#include <vector>

namespace headrace {

inline bool longRun() { return std::getenv("HEADRACE_LONG") != nullptr; }

inline std::optional<uint64_t> seedOfRun() {
  const char *text = std::getenv("HEADRACE_SEED");
  return text == nullptr ? std::nullopt : std::optional<uint64_t>(std::strtoull(text, nullptr, 10));
}

// 1 to `fixed`, and those of HEADRACE_SEED, a quarter as many.
inline std::vector<uint64_t> seedsOfCases(uint64_t fixed) {
  std::vector<uint64_t> seeds;
  for (uint64_t seed = 1; seed <= fixed; ++seed)
    seeds.push_back(seed);
  if (const std::optional<uint64_t> drawn = seedOfRun())
    for (uint64_t i = 0; i < fixed / 4; ++i)
      seeds.push_back((uint64_t{1} << 32) + *drawn * 1000 + i); // none of the fixed ones
  return seeds;
}

// Of problems that a test draws one after the other from a generator: all with HEADRACE_LONG, else `fast`, and a
// quarter more that a generator begun with HEADRACE_SEED draws.
class Problems {
public:
  Problems(int fast, int all) : fixed_(longRun() ? all : fast), more_(!longRun() && seedOfRun() ? (fast + 3) / 4 : 0) {}
  int count() const { return fixed_ + more_; }
  // Before problem number `next` is drawn.
  template <typename Generator> void begin(int next, Generator &generator) {
    if (more_ == 0 || next != fixed_ || begun_)
      return;
    generator.seed(static_cast<typename Generator::result_type>(*seedOfRun()));
    begun_ = true;
  }

private:
  int fixed_, more_;
  bool begun_ = false;
};

inline int casesOf(int fast, int all) { return longRun() ? all : fast; }

} // namespace headrace
