// SPDX-License-Identifier: Apache-2.0
#include "runtime/serve/engine/Expansion.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace headrace::serve {
namespace {

constexpr double kPlateau = 0.995; // of the best level: as good

double shareOf(int64_t of, int64_t all) {
  return static_cast<double>(of) / static_cast<double>(std::max<int64_t>(1, all));
}

} // namespace

Expansion::Expansion(const ExpansionBounds &bounds, const ExpansionTuning &tuning)
    : bounds_(bounds), tuning_(tuning), offered_(bounds.least), lookAgainAfter_(tuning.lookAgain) {}

Expansion::Expansion(const std::vector<int64_t> &levels, const ExpansionTuning &tuning)
    : Expansion(ExpansionBounds{levels.front(), levels.back()}, tuning) {
  for (const int64_t blocks : levels)
    levels_.push_back({blocks});
  rates_.reserve(static_cast<size_t>(tuning.window * tuning.judgedWindows));
}

void Expansion::setBounds(const ExpansionBounds &bounds) {
  if (bounds == bounds_)
    return;
  bounds_ = bounds;
  lookAgainAt_ = tooMany_ = step_ = before_ = 0;
  lookAgainAfter_ = tuning_.lookAgain;
  begin(std::clamp(offered_, bounds.least, bounds.most));
}

void Expansion::saw(const IterationWaits &iteration) {
  ++seen_;
  levels_.empty() ? sawWithin(iteration) : sawLevel(iteration);
}

void Expansion::offer(int64_t blocks) {
  ++(blocks > offered_ ? grown_ : shrunk_);
  begin(blocks);
}

void Expansion::begin(int64_t blocks) {
  offered_ = blocks;
  judgedWindows_ = judgedNs_ = judgedUsed_ = 0;
  window_ = {};
  rates_.clear();
}

void Expansion::sawWithin(const IterationWaits &iteration) {
  const bool waits = shareOf(iteration.waitNs, iteration.ns) > floor_ + tuning_.waits;
  if (waits && !iteration.settled)
    return;
  Window &w = window_;
  ++w.iterations;
  w.ns += iteration.ns;
  w.waitNs += iteration.waitNs;
  if (!iteration.prefill) {
    w.decodeNs += iteration.ns;
    w.decodeUsed += iteration.used;
  }
  w.mostUsed = std::max(w.mostUsed, iteration.used);
  w.mostAway = std::max(w.mostAway, iteration.away);
  if (waits) {
    ++w.slow;
    w.waitingNs += iteration.ns;
  } else {
    w.linkNs += iteration.linkNs;
  }
  w.wanted += iteration.wanted;
  if (w.iterations < tuning_.window)
    return;
  look();
  window_ = {};
}

void Expansion::look() {
  const Window &w = window_;
  if (w.mostAway == 0) // what compute waits for anyway: offloaded weights
    floor_ = shareOf(w.waitNs, w.ns);
  else if (offered_ > bounds_.least && 2 * w.slow > w.iterations && longer() > 1)
    return shrink();
  if (2 * w.wanted <= w.iterations)
    return;
  ++judgedWindows_;
  judgedNs_ += w.decodeNs;
  judgedUsed_ += w.decodeUsed;
  // Where prompts take most of the time, decoding alone does not say what is gained.
  const bool decodes = 2 * w.decodeNs > w.ns;
  if (before_ > 0 && decodes && shareOf(offered_ - before_, before_) >= tuning_.judged) {
    if (judgedWindows_ < tuning_.judgedWindows)
      return;
    if (!scales()) {
      fewer(before_);
      return;
    }
    before_ = 0;
  }
  if (longer() < tuning_.room && seen_ >= lookAgainAt_)
    grow();
}

// How much longer iterations would take with more blocks, in proportion: those that wait for copies take what these
// take, so with 1% more blocks, of which half are on the host, 2% longer.
double Expansion::longer() const {
  const Window &w = window_;
  return w.mostAway == 0 ? 0 : shareOf(w.waitingNs, w.ns) * shareOf(w.mostUsed, w.mostAway);
}

// The part of the window that compute waited, beyond what it waits without blocks on the host.
double Expansion::waited() const { return std::max(0., shareOf(window_.waitNs, window_.ns) - floor_); }

// What is brought takes time in proportion to what is there: as much less as compute waited.
void Expansion::shrink() {
  const int64_t used = std::min(offered_, std::max(window_.mostUsed, bounds_.least)), away = used - bounds_.least;
  const auto less = static_cast<int64_t>(std::ceil(static_cast<double>(away) * waited()));
  fewer(used - std::max<int64_t>(1, less));
}

void Expansion::grow() {
  const int64_t all = bounds_.most - bounds_.least;
  const auto first = std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(all) * tuning_.firstStep));
  int64_t blocks = std::min(offered_ + (step_ == 0 ? first : 2 * step_), bounds_.most);
  // Not beyond what the link has room for, as far as can be told.
  const double busy = shareOf(window_.linkNs, window_.ns - window_.waitingNs);
  if (const int64_t away = offered_ - bounds_.least; away > 0 && busy > 0)
    blocks = std::min(blocks, bounds_.least + static_cast<int64_t>(static_cast<double>(away) / busy));
  if (blocks <= offered_)
    return;
  if (before_ == 0) {
    before_ = offered_;
    rateBefore_ = shareOf(judgedUsed_, judgedNs_);
  }
  step_ = blocks - offered_;
  offer(blocks);
}

bool Expansion::scales() {
  const double more = shareOf(offered_ - before_, before_);
  return shareOf(judgedUsed_, judgedNs_) >= rateBefore_ * (1 + tuning_.scales * more);
}

void Expansion::fewer(int64_t blocks) {
  const bool again = tooMany_ > 0 && std::abs(offered_ - tooMany_) <= tooMany_ / 8;
  lookAgainAfter_ = again ? std::min(2 * lookAgainAfter_, tuning_.longestPause * tuning_.lookAgain) : tuning_.lookAgain;
  lookAgainAt_ = seen_ + lookAgainAfter_;
  tooMany_ = offered_;
  step_ = before_ = 0;
  offer(std::max(bounds_.least, blocks));
}

void Expansion::sawLevel(const IterationWaits &iteration) {
  // Prompts take what they take; where nobody wants more blocks tokens/s are others' matter.
  if (iteration.prefill || !iteration.settled || !iteration.wanted || iteration.ns <= 0)
    return;
  if (skip_ > 0) { // blocks of a larger level come into use
    --skip_;
    return;
  }
  const double rate = static_cast<double>(offered_) / static_cast<double>(iteration.ns);
  rates_.push_back(rate);
  ++window_.iterations;
  window_.slow += rate < (1 - tuning_.falls) * levels_[best()].rate;
  if (window_.iterations == tuning_.window) {
    const bool low = 2 * window_.slow > tuning_.window;
    window_ = {};
    if (low && at_ > 0)
      return leave();
  }
  if (static_cast<int64_t>(rates_.size()) == tuning_.window * tuning_.judgedWindows)
    lookAtLevel();
}

void Expansion::lookAtLevel() {
  const bool fresh = levels_[at_].rate == 0 || seen_ < freshUntil_;
  measure();
  if (levels_[at_].rate < (1 - (fresh ? tuning_.loses : tuning_.drifts)) * levels_[best()].rate)
    return leave();
  if (at_ + 1 < levels_.size() && seen_ >= levels_[at_ + 1].tryAgainAt)
    goTo(at_ + 1);
}

void Expansion::measure() {
  const auto middle = rates_.begin() + static_cast<std::ptrdiff_t>(rates_.size() / 2);
  std::nth_element(rates_.begin(), middle, rates_.end());
  levels_[at_].rate = *middle;
  rates_.clear();
}

// The largest of those that are as good as the best known.
size_t Expansion::best() const {
  const double most = std::ranges::max(levels_, {}, &Level::rate).rate;
  size_t level = levels_.size() - 1;
  while (level > 0 && levels_[level].rate < kPlateau * most)
    --level;
  return levels_[level].rate == 0 ? 0 : level;
}

// For the best of the others.
void Expansion::leave() {
  if (!rates_.empty())
    measure();
  const size_t to = best();
  if (to == at_) // what else is known was measured when the link was as slow, or there is nothing
    return;
  if (to < at_) {
    int64_t &pause = levels_[at_].pause;
    pause = std::min(pause == 0 ? tuning_.lookAgain : 2 * pause, tuning_.longestClimbPause * tuning_.lookAgain);
    for (size_t level = to + 1; level <= at_; ++level)
      levels_[level].tryAgainAt = seen_ + pause;
  }
  goTo(to);
}

void Expansion::goTo(size_t level) {
  at_ = level;
  offer(levels_[level].blocks);
  skip_ = tuning_.window;
  freshUntil_ = seen_ + 2 * tuning_.window * (tuning_.judgedWindows + 1);
}

} // namespace headrace::serve
