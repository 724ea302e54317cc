// SPDX-License-Identifier: Apache-2.0
//
// Times to first tokens of requests, held against the TTFT that was asked for.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

namespace headrace::tools {

class TtftHeld {
public:
  explicit TtftHeld(std::optional<std::chrono::nanoseconds> objective) : objective_(objective) {}
  void add(int64_t ns);

  bool any() const { return objective_ && count_ > 0; }
  // "longest 1.900 ms, 0.950 x its objective of 2.000 ms; all 3 held it"; empty without an objective, or a request.
  std::string text() const;
  std::string shareText() const;       // "97%" of them; "-" where text() is empty
  nlohmann::ordered_json json() const; // null likewise

private:
  const std::optional<std::chrono::nanoseconds> objective_;
  uint64_t count_ = 0, late_ = 0;
  int64_t longestNs_ = 0;
};

} // namespace headrace::tools
