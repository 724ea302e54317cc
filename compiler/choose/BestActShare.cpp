// SPDX-License-Identifier: Apache-2.0
#include "compiler/choose/BestActShare.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "compiler/choose/Explain.h"
#include "runtime/base/StatusMacros.h"

namespace headrace::compiler {
namespace {

constexpr int64_t kQuarter = kActShareParts / 4;
constexpr uint64_t kWaitsFrom = 100; // from one part of so many of the longer lane on an iteration waits

class ShareSearch {
public:
  ShareSearch(const std::function<absl::StatusOr<ShareTimes>(int64_t)> &timesOf,
              const std::function<std::optional<int64_t>()> &start)
      : timesOf_(timesOf), start_(start) {}

  absl::StatusOr<ActShareChoice> run() {
    RETURN_IF_ERROR(attempt(0));
    if (const std::optional<int64_t> part = start_())
      RETURN_IF_ERROR(attempt(std::clamp<int64_t>(*part, 0, kActShareParts)));
    for (int64_t quarter = 4; quarter > 0 && !best_; --quarter)
      RETURN_IF_ERROR(attempt(quarter * kQuarter));
    if (!best_)
      return refused_;
    RETURN_IF_ERROR(goOn());
    if (waits(at(*best_))) { // its lanes do not tell where the best one is
      for (int64_t quarter = 1; quarter <= 4; ++quarter)
        RETURN_IF_ERROR(attempt(quarter * kQuarter));
      RETURN_IF_ERROR(goOn());
    }
    choice_.part = *best_;
    choice_.binding = binding();
    return std::move(choice_);
  }

private:
  const ShareTimes &at(int64_t part) const { return *choice_.tried.at(part); }
  bool held(int64_t part) const { return choice_.tried.contains(part) && choice_.tried.at(part).ok(); }

  absl::Status attempt(int64_t part) {
    if (choice_.tried.contains(part))
      return absl::OkStatus();
    const absl::StatusOr<ShareTimes> times = timesOf_(part);
    choice_.tried.emplace(part, times);
    if (!times.ok()) {
      if (refused_.ok() || asksForLess(times.status(), refused_))
        refused_ = times.status();
      // What KV may take of the device, where it is stated, may do for fewer blocks of it; for none no less would.
      const bool mayDo = absl::IsInvalidArgument(times.status()) && part < kActShareParts;
      return absl::IsResourceExhausted(times.status()) || mayDo ? absl::OkStatus() : times.status();
    }
    const uint64_t least = best_ ? at(*best_).iterationNs : UINT64_MAX;
    if (times->iterationNs < least || (times->iterationNs == least && part < *best_))
      best_ = part;
    return absl::OkStatus();
  }

  static bool linkIsLonger(const ShareTimes &times) { return times.linkNs > times.computeNs; }
  static bool waits(const ShareTimes &times) {
    const uint64_t lane = std::max(times.linkNs, times.computeNs);
    return times.iterationNs > lane + lane / kWaitsFrom;
  }
  static double gapOf(const ShareTimes &times) {
    return static_cast<double>(times.linkNs) - static_cast<double>(times.computeNs);
  }
  static bool same(const ShareTimes &a, const ShareTimes &b) {
    return a.iterationNs == b.iterationNs && a.linkNs == b.linkNs && a.computeNs == b.computeNs;
  }
  // Where the link is the longer, more activations bring less.
  int64_t towardsBalance(int64_t part) const { return linkIsLonger(at(part)) ? 1 : -1; }

  // The next part that was tried that way; one beyond the last, where there is none.
  int64_t boundOf(int64_t part, int64_t way) const {
    auto next = choice_.tried.find(part);
    if (way > 0)
      return ++next == choice_.tried.end() ? kActShareParts + 1 : next->first;
    return next == choice_.tried.begin() ? -1 : (--next)->first;
  }

  // Where the lines through two parts cross, as seen from the first; nothing where they do not that way.
  std::optional<double> crossing(int64_t part, int64_t other, int64_t way) const {
    const double gap = gapOf(at(part)), change = gapOf(at(other)) - gap;
    const double distance = -gap * static_cast<double>(other - part) / change;
    return std::isfinite(distance) && distance * static_cast<double>(way) > 0 ? std::optional(distance) : std::nullopt;
  }

  // A part between `part` and what bounds it that way, both left out; `stride`: where nothing is known of the lines.
  int64_t guess(int64_t part, int64_t bound, int64_t way, int64_t stride) const {
    const bool opposite = held(bound) && linkIsLonger(at(bound)) != linkIsLonger(at(part));
    const int64_t behind = boundOf(part, -way), room = std::abs(bound - part) - 1; // room: at least 1
    double steps = static_cast<double>(kQuarter);
    if (opposite || held(behind) || held(bound))
      steps = std::abs(crossing(part, opposite || !held(behind) ? bound : behind, way).value_or(1));
    // What bounds it and is on the same side is no part of these lines, or memory does not hold it: half of the way.
    const int64_t most = choice_.tried.contains(bound) && !opposite ? (room + 1) / 2 : room;
    steps = std::min(steps, static_cast<double>(kActShareParts));
    return part + way * std::clamp<int64_t>(std::max<int64_t>(std::llround(steps), stride), 1, most);
  }

  absl::Status goOn() {
    int64_t stride = 1;
    for (int64_t part = *best_;;) {
      const int64_t way = towardsBalance(part), bound = boundOf(part, way);
      if (std::abs(bound - part) <= 1)
        return absl::OkStatus();
      const int64_t next = guess(part, bound, way, stride);
      RETURN_IF_ERROR(attempt(next));
      // Few blocks a sequence round several parts to the same.
      const bool asGood = held(next) && same(at(next), at(part));
      stride = asGood ? 2 * stride : 1;
      if (asGood || *best_ == next)
        part = next;
    }
  }

  cost::Binding binding() const {
    using cost::Binding;
    const ShareTimes &best = at(*best_);
    if (cost::balanced({.pcieNs = static_cast<double>(best.linkNs), .computeNs = static_cast<double>(best.computeNs)}))
      return Binding::kBalanced;
    int64_t next = *best_; // the next that is not the same
    do
      next += towardsBalance(*best_);
    while (held(next) && same(at(next), best));
    if (next < 0)
      return Binding::kAllKv;
    if (next > kActShareParts)
      return Binding::kAllAct;
    if (!choice_.tried.contains(next))
      return Binding::kWaits;
    if (const absl::Status &status = choice_.tried.at(next).status(); !status.ok())
      return lacksDeviceMemory(status) || absl::IsInvalidArgument(status) ? Binding::kDeviceMemory
                                                                          : Binding::kHostMemory;
    if (linkIsLonger(best) && at(next).linkNs >= best.linkNs)
      return Binding::kActLoadsMore;
    return linkIsLonger(at(next)) != linkIsLonger(best) ? Binding::kBlocksTooCoarse : Binding::kWaits;
  }

  const std::function<absl::StatusOr<ShareTimes>(int64_t)> &timesOf_;
  const std::function<std::optional<int64_t>()> &start_;
  ActShareChoice choice_;
  std::optional<int64_t> best_;
  absl::Status refused_;
};

} // namespace

absl::StatusOr<ActShareChoice> bestActShare(const std::function<absl::StatusOr<ShareTimes>(int64_t)> &timesOf,
                                            const std::function<std::optional<int64_t>()> &start) {
  return ShareSearch(timesOf, start).run();
}

} // namespace headrace::compiler
