// SPDX-License-Identifier: Apache-2.0
//
// What a long command is at, how far it is and how long it has still to go, on standard error. Nothing is said within
// the first second of a command; then on a terminal one line that is redrawn calmly and taken away at the end,
// elsewhere (a log, a pipe) a line every ten seconds. A step within a step stands behind it: there is one line for all
// of them, and one bar, of the outermost: what is within it fills its part. A search, whose end nobody knows, has none.
//
//   loading  [##########..............]  45%  2.1 of 4.7 GiB, about 12 s left
//   bench 9 of 21: headrace at batch 8: compiling 29 of 56  [#########...............]  40%  8 s so far
//   the largest batch, trying 64: compiling 29 of 56  8 s so far
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
  void update(uint64_t done, uint64_t total); // a total of 0: nobody knows
  void note(std::string text);                // what of it is being done
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
    double shown = 0;                       // of the bar, which does not fall
  };
  static std::string counts(const Step &step); // "2.10 GiB of 4.70 GiB"
  double share(size_t step) const;             // of it that is done, with what is within it
  std::string text(double now);

  std::optional<size_t> columns_;
  std::vector<Step> steps_; // each within the one before
  std::string drawn_;       // on the terminal now
  double saidAt_ = 0;       // the last time that something was written
  bool said_ = false;
};

} // namespace headrace::tools
