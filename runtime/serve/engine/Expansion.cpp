// SPDX-License-Identifier: Apache-2.0
#include "runtime/serve/engine/Expansion.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace headrace::serve {
namespace {

double shareOf(int64_t of, int64_t all) {
  return static_cast<double>(of) / static_cast<double>(std::max<int64_t>(1, all));
}

} // namespace

Expansion::Expansion(const ExpansionBounds &bounds, const ExpansionTuning &tuning)
    : bounds_(bounds), tuning_(tuning), offered_(bounds.least), lookAgainAfter_(tuning.lookAgain) {}

void Expansion::setBounds(const ExpansionBounds &bounds) {
  if (bounds == bounds_)
    return;
  bounds_ = bounds;
  lookAgainAt_ = tooMany_ = step_ = before_ = 0;
  lookAgainAfter_ = tuning_.lookAgain;
  offer(std::clamp(offered_, bounds.least, bounds.most));
}

void Expansion::saw(const IterationWaits &iteration) {
  ++seen_;
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
    ++w.waiting;
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
  else if (offered_ > bounds_.least && 2 * w.waiting > w.iterations && longer() > 1)
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
  ++grown_;
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
  ++shrunk_;
  offer(std::max(bounds_.least, blocks));
}

void Expansion::offer(int64_t blocks) {
  offered_ = blocks;
  judgedWindows_ = judgedNs_ = judgedUsed_ = 0;
  window_ = {};
}

} // namespace headrace::serve
