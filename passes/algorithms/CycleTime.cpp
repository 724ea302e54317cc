// SPDX-License-Identifier: Apache-2.0
#include "passes/algorithms/CycleTime.h"

#include <algorithm>
#include <optional>
#include <vector>

namespace headrace::algorithms {
namespace {

constexpr int64_t kAlone = 1000; // thousandths of its rate
constexpr int64_t kWriting = 4;  // a layer has written its rows once it has computed for so much of its time
constexpr int32_t kNothing = -1;

class IterationPlayer {
public:
  IterationPlayer(const Cycle::Phase &phase, int32_t layers, const KvSwapTimes &times)
      : phase_(phase), layers_(layers), times_(times), emptiedBy_(phase.moves.size(), kNothing),
        broughtBy_(static_cast<size_t>(layers), kNothing) {
    std::vector<int32_t> left(phase.entry.size(), kNothing); // the last exit from each place
    size_t exit = 0;
    for (size_t i = 0; i < phase.moves.size(); ++i) {
      const PlaceMove &move = phase.moves[i];
      for (; exit < phase.exits.size() && phase.exits[exit].after <= move.after; ++exit)
        left[static_cast<size_t>(phase.exits[exit].place)] = static_cast<int32_t>(exit);
      emptiedBy_[i] = left[static_cast<size_t>(move.place)];
      if (!move.forNext())
        broughtBy_[static_cast<size_t>(move.layer)] = static_cast<int32_t>(i);
    }
  }

  int64_t run() {
    for (;;) {
      begin();
      int64_t step = computing_.value_or(INT64_MAX);
      const int64_t rate = in_.left && out_.left ? times_.both : kAlone;
      for (const Direction *one : {&in_, &out_})
        if (one->left)
          step = std::min(step, (*one->left + rate - 1) / rate);
      if (step == INT64_MAX)
        return now_;
      now_ += step;
      for (Direction *one : {&in_, &out_})
        if (one->left && (*one->left -= step * rate) <= 0) {
          one->left.reset();
          ++one->done;
        }
      if (computing_ && (*computing_ -= step) == 0) {
        computing_.reset();
        ++(written_ > visited_ ? visited_ : written_);
      }
    }
  }

private:
  struct Direction {
    std::optional<int64_t> left; // of the copy under way: thousandths of its time alone
    int32_t done = 0;
  };

  void begin() {
    if (!computing_ && written_ > visited_)
      computing_ = times_.compute - times_.compute / kWriting;
    else if (!computing_ && visited_ < layers_ && broughtBy_[static_cast<size_t>(visited_)] < in_.done)
      computing_ = times_.compute / kWriting;
    if (const auto i = static_cast<size_t>(in_.done);
        !in_.left && i < phase_.moves.size() && emptiedBy_[i] < out_.done && !isRead(emptiedBy_[i]))
      in_.left = times_.in * kAlone;
    if (const auto i = static_cast<size_t>(out_.done); !out_.left && i < phase_.exits.size()) {
      const PlaceExit &exit = phase_.exits[i];
      if (!ofThis(exit) || exit.layer < written_)
        out_.left = times_.out * kAlone;
    }
  }

  // Whether its layer has computed in this iteration by then, not in the one before.
  static bool ofThis(const PlaceExit &exit) { return exit.after >= exit.layer; }
  bool isRead(int32_t exit) const {
    return exit != kNothing && ofThis(phase_.exits[static_cast<size_t>(exit)]) &&
           phase_.exits[static_cast<size_t>(exit)].layer >= visited_;
  }

  const Cycle::Phase &phase_;
  const int32_t layers_;
  const KvSwapTimes &times_;
  std::vector<int32_t> emptiedBy_;    // by move: the exit that leaves its place empty
  std::vector<int32_t> broughtBy_;    // by layer: the move that it waits for
  std::optional<int64_t> computing_;  // what is left until the layer has written, or computed
  int32_t written_ = 0, visited_ = 0; // layers, of this iteration
  Direction in_, out_;
  int64_t now_ = 0;
};

} // namespace

int64_t cycleTime(const Cycle &cycle, int32_t layers, const KvSwapTimes &times) {
  int64_t time = 0;
  for (const Cycle::Phase &phase : cycle.phases)
    time += IterationPlayer(phase, layers, times).run();
  return time;
}

} // namespace headrace::algorithms
