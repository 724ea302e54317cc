// SPDX-License-Identifier: Apache-2.0
//
// One line on a terminal that says how far a long step is and how long it has still to go; nothing where standard error
// is not a terminal.
//
//   loading  [#########...........]  45%  2.1 of 4.7 GiB, 12 s left
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace headrace::tools {

enum class Amount : uint8_t { Count, Bytes };

// The line's text. Time left is elapsed x (total - done) / done; unknown until something is done.
std::string progressLine(const std::string &label, Amount amount, uint64_t done, uint64_t total, double elapsedSeconds);

class Progress {
public:
  Progress(std::string label, Amount amount);
  Progress(const Progress &) = delete;
  Progress &operator=(const Progress &) = delete;
  ~Progress(); // takes the line away
  // Cheap to call often: draws at most ten times a second, and the last time.
  void update(uint64_t done, uint64_t total);

private:
  std::string label_;
  Amount amount_;
  bool terminal_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point start_, last_;
};

} // namespace headrace::tools
