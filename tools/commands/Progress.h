// SPDX-License-Identifier: Apache-2.0
//
// What a long command is at, how far it is and how long it has still to go, on standard error. Nothing is said within
// the first second of a command; then on a terminal one line that is redrawn calmly and taken away at the end,
// elsewhere (a log, a pipe) a line every ten seconds. A step within a step stands behind it: there is one line for all
// of them.
//
//   loading  [#########...........]  45%  2.1 of 4.7 GiB, about 12 s left
//   bench: headrace at batch 8: compiling  8 s so far, placement for 8 tokens of 8 at context 288 (bucket 2 of 3)
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace headrace::tools {

// What is counted. Time left is said of amounts whose parts take equally long: bytes, and rounds of the same work.
enum class Amount : uint8_t { Count, Bytes, Rounds };

// A step of a command, from its construction to its end. Cheap to update often; of one thread.
class Progress {
public:
  explicit Progress(std::string label, Amount amount = Amount::Count);
  Progress(const Progress &) = delete;
  Progress &operator=(const Progress &) = delete;
  ~Progress();
  void update(uint64_t done, uint64_t total);
  void note(std::string text); // what of it is being done
};

// Nothing is said from here on: standard output is read by a program (--json).
void silenceProgress();

// What is written when, without a clock and a terminal of its own. Times are seconds, and do not fall.
class ProgressLine {
public:
  // On a terminal of so many columns; none: not a terminal.
  explicit ProgressLine(std::optional<size_t> columns) : columns_(columns) {}

  void begin(std::string label, Amount amount, double now);
  void update(uint64_t done, uint64_t total, double now); // of the innermost step, as is
  void note(std::string text);
  std::string end(); // what to write when it ends
  bool idle() const { return steps_.empty(); }
  // What to write by now; empty: nothing.
  std::string tick(double now);

private:
  struct Step {
    std::string label, note;
    Amount amount;
    double startedAt;
    uint64_t done = 0, total = 0;
    double changedAt = 0, roundSeconds = 0; // rounds: the last end of one, and what it took
  };
  std::string text(double now) const;

  std::optional<size_t> columns_;
  std::vector<Step> steps_; // each within the one before
  std::string drawn_;       // on the terminal now
  double saidAt_ = 0;       // the last time that something was written
  bool said_ = false;
};

} // namespace headrace::tools
