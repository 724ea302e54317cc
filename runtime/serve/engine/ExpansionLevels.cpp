// SPDX-License-Identifier: Apache-2.0
#include "runtime/serve/engine/ExpansionLevels.h"

#include <algorithm>
#include <utility>

namespace headrace::serve {
namespace {

constexpr double kPlateau = 0.995; // of the best: as good

} // namespace

ExpansionLevels::ExpansionLevels(std::vector<int64_t> levels, const ExpansionTuning &tuning)
    : levels_(std::move(levels)), tuning_(tuning), rates_(levels_.size()), tryAgainAt_(levels_.size()),
      pauses_(levels_.size()) {
  const auto most = static_cast<size_t>(tuning.window * tuning.judgedWindows);
  batch_.reserve(most);
}

void ExpansionLevels::saw(const IterationWaits &iteration) {
  ++seen_;
  // Prompts take what they take; where nobody wants more blocks tokens/s are others' matter.
  if (iteration.prefill || !iteration.settled || !iteration.wanted || iteration.ns <= 0)
    return;
  if (skip_ > 0) { // blocks of a larger level come into use
    --skip_;
    return;
  }
  const double rate = static_cast<double>(offered()) / static_cast<double>(iteration.ns);
  batch_.push_back(rate);
  ++inWindow_;
  lowInWindow_ += rate < (1 - tuning_.falls) * rates_[best()];
  if (inWindow_ == tuning_.window) {
    const bool low = 2 * lowInWindow_ > tuning_.window;
    inWindow_ = lowInWindow_ = 0;
    if (low && at_ > 0)
      return leave();
  }
  if (static_cast<int64_t>(batch_.size()) == tuning_.window * tuning_.judgedWindows)
    look();
}

void ExpansionLevels::measure() {
  const auto middle = batch_.begin() + static_cast<std::ptrdiff_t>(batch_.size() / 2);
  std::nth_element(batch_.begin(), middle, batch_.end());
  rates_[at_] = *middle;
  batch_.clear();
}

// The largest of those that are as good as the best known.
size_t ExpansionLevels::best() const {
  const double most = *std::max_element(rates_.begin(), rates_.end());
  size_t level = levels_.size() - 1;
  while (level > 0 && rates_[level] < kPlateau * most)
    --level;
  return rates_[level] == 0 ? 0 : level;
}

void ExpansionLevels::look() {
  const bool fresh = rates_[at_] == 0 || seen_ < freshUntil_;
  measure();
  if (rates_[at_] < (1 - (fresh ? tuning_.loses : tuning_.drifts)) * rates_[best()])
    return leave();
  if (at_ + 1 < levels_.size() && seen_ >= tryAgainAt_[at_ + 1])
    goTo(at_ + 1);
}

// For the best of the others.
void ExpansionLevels::leave() {
  if (!batch_.empty())
    measure();
  const size_t to = best();
  if (to == at_) // what else is known was measured when the link was as slow, or there is nothing
    return;
  if (to < at_) {
    pauses_[at_] = std::min(pauses_[at_] == 0 ? tuning_.lookAgain : 2 * pauses_[at_],
                            tuning_.longestClimbPause * tuning_.lookAgain);
    for (size_t level = to + 1; level <= at_; ++level)
      tryAgainAt_[level] = seen_ + pauses_[at_];
  }
  goTo(to);
}

void ExpansionLevels::goTo(size_t level) {
  ++(level > at_ ? grown_ : shrunk_);
  at_ = level;
  batch_.clear();
  inWindow_ = lowInWindow_ = 0;
  skip_ = tuning_.window;
  freshUntil_ = seen_ + 2 * tuning_.window * (tuning_.judgedWindows + 1);
}

} // namespace headrace::serve
