// SPDX-License-Identifier: Apache-2.0
#include "compiler/choose/BestActShare.h"

#include <utility>

#include "runtime/base/StatusMacros.h"
#include "runtime/cost/HybridServe.h"

namespace headrace::compiler {
namespace {

class ShareSearch {
public:
  explicit ShareSearch(const std::function<absl::StatusOr<ShareTimes>(int64_t)> &timesOf) : timesOf_(timesOf) {}

  absl::StatusOr<ActShareChoice> run() {
    for (int64_t part = 0; part <= kActShareParts; part += kActShareParts / 4)
      RETURN_IF_ERROR(attempt(part));
    if (!best_)
      return refused_;
    for (int64_t step = kActShareParts / 8; step > 0; step /= 2)
      for (int64_t before = -1; before != *best_;) {
        before = *best_;
        if (const int64_t next = before + step * towardsBalance(); next >= 0 && next <= kActShareParts)
          RETURN_IF_ERROR(attempt(next));
      }
    choice_.part = *best_;
    choice_.binding = binding();
    return std::move(choice_);
  }

private:
  absl::Status attempt(int64_t part) {
    if (choice_.tried.contains(part))
      return absl::OkStatus();
    const absl::StatusOr<ShareTimes> times = timesOf_(part);
    if (!times.ok()) {
      choice_.tried[part] = std::nullopt;
      refused_.Update(times.status());
      return absl::IsResourceExhausted(times.status()) ? absl::OkStatus() : times.status();
    }
    choice_.tried[part] = *times;
    const uint64_t least = best_ ? choice_.tried[*best_]->iterationNs : UINT64_MAX;
    if (times->iterationNs < least || (times->iterationNs == least && part < *best_))
      best_ = part;
    return absl::OkStatus();
  }

  static bool linkIsLonger(const ShareTimes &times) { return times.linkNs > times.computeNs; }
  // Where the link is the longer, more activations bring less.
  int64_t towardsBalance() { return linkIsLonger(*choice_.tried[*best_]) ? 1 : -1; }

  std::string binding() {
    const ShareTimes &best = *choice_.tried[*best_];
    if (cost::balanced({.pcieNs = static_cast<double>(best.linkNs), .computeNs = static_cast<double>(best.computeNs)}))
      return "both within 5% of each other";
    const bool link = linkIsLonger(best);
    const int64_t next = *best_ + towardsBalance();
    if (next < 0)
      return "computing is the longer with keys and values alone";
    if (next > kActShareParts)
      return "the link is the longer with activations alone";
    const std::optional<ShareTimes> &there = choice_.tried[next]; // the last step's
    if (!there)
      return "memory holds no share that is nearer to both being equal";
    if (link && there->linkNs >= best.linkNs)
      return "one more activation block is no less to bring than its keys and values";
    if (linkIsLonger(*there) != link)
      return "one 64th more or less makes the other one the longer";
    return "what a share nearer to both being equal saves, it waits for elsewhere";
  }

  const std::function<absl::StatusOr<ShareTimes>(int64_t)> &timesOf_;
  ActShareChoice choice_;
  std::optional<int64_t> best_;
  absl::Status refused_;
};

} // namespace

absl::StatusOr<ActShareChoice> bestActShare(const std::function<absl::StatusOr<ShareTimes>(int64_t)> &timesOf) {
  return ShareSearch(timesOf).run();
}

} // namespace headrace::compiler
