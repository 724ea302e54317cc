// SPDX-License-Identifier: Apache-2.0
#include "tools/report/IterationLooks.h"

#include <algorithm>
#include <cstdlib>
#include <map>

#include "runtime/base/Text.h"

namespace headrace::tools {

void IterationTimes::add(uint32_t variant, int64_t ns, bool prefill) { order_.push_back({variant, ns, prefill}); }

uint32_t IterationTimes::mostOften(IterationPhase phase) const {
  std::map<uint32_t, size_t> of;
  for (const One &one : order_)
    if (one.isOf(phase))
      ++of[one.variant];
  uint32_t most = plan::kNone;
  for (const One &one : order_)
    if (one.isOf(phase) && (most == plan::kNone || of[one.variant] > of[most]))
      most = one.variant;
  return most;
}

IterationTimes::Representative IterationTimes::representative(const std::vector<Look> &looks,
                                                              IterationPhase phase) const {
  const uint32_t variant = mostOften(phase);
  std::vector<int64_t> sorted;
  for (const One &one : order_)
    if (one.isOf(phase) && one.variant == variant)
      sorted.push_back(one.ns);
  if (sorted.empty())
    return {};
  std::sort(sorted.begin(), sorted.end());
  const int64_t median = sorted[(sorted.size() - 1) / 2];
  Representative found;
  int64_t away = 0;
  const auto awayOf = [&](const Look &look) { return std::abs(order_[look.iteration - 1].ns - median); };
  const auto counts = [&](const Look &look) { return order_[look.iteration - 1].isOf(phase); };
  for (const Look &look : looks)
    if (counts(look) && look.variant == variant && (found.look == nullptr || awayOf(look) < away)) {
      found.look = &look;
      away = awayOf(look);
    }
  const bool typical = found.look != nullptr;
  for (size_t l = looks.size(); l-- > 0 && found.look == nullptr;)
    if (counts(looks[l]))
      found.look = &looks[l];
  if (found.look == nullptr)
    return {};
  found.about = model::cat("iteration ", found.look->iteration, " of ", count());
  if (typical && sorted.size() > 1)
    found.about +=
        model::cat(away == 0 ? ", the median of " : ", near the median of ", sorted.size(), " of its variant");
  return found;
}

void IterationLooks::look() {
  const int64_t fromNs = runtime_.device().nowNs();
  if (absl::Status drained = runtime_.device().drain(); !drained.ok()) {
    if (status_.ok())
      status_ = drained;
    return;
  }
  const absl::Span<const core::StepTime> times = runtime_.device().lastTimes();
  looks_.push_back(
      {runtime_.launched(), plan::kNone, {times.begin(), times.end()}, ran_.empty() ? RanLaunch() : ran_.back()});
  waits_[runtime_.launched() % waits_.size()] = {runtime_.launched(), fromNs, runtime_.device().nowNs()};
}

void IterationLooks::launched(uint32_t variant, const kernels::IterationMeta &first) {
  const plan::Plan &plan = runtime_.plan();
  RanLaunch ran;
  for (uint32_t i = 0; i < plan.miniBatches; ++i)
    ran.inUse.push_back(runtime_.launchedInUse().of(i));
  if (const uint32_t schedule = plan.variants[variant].schedule; rows_)
    counters_.try_emplace(schedule, plan, plan.schedules[schedule]).first->second.count(first, ran.rows);
  ran_.push_back(std::move(ran));
}

void IterationLooks::beforeLaunch(const serve::ComposedIteration &next) {
  const uint64_t last = runtime_.launched();
  const bool wanted = many_ ? stride_.wants(last) : promptsLast_ && !next.prefill;
  promptsLast_ = next.prefill;
  if (!opened_ || last == 0 || !wanted || (!looks_.empty() && looks_.back().iteration == last))
    return;
  look();
  if (many_ && stride_.keeps(looks_.size()))
    std::erase_if(looks_, [&](const Look &kept) { return !stride_.wants(kept.iteration); });
}

serve::IterationSeen IterationLooks::unwatched(serve::IterationSeen seen) {
  const uint64_t iteration = times_.count() + 1;
  // It was launched when the look had ended, instead of when the one before it was in flight: what that copies behind
  // its tokens stands between them all the same.
  const Wait &wait = waits_[(iteration - 1) % waits_.size()];
  if (iteration > 1 && wait.iteration == iteration - 1) {
    const int64_t tailNs = std::max<int64_t>(0, wait.toNs - std::max(wait.fromNs, visibleNs_));
    seen.ns += tailNs;
    hiddenStallNs_ += tailNs;
    if (seen.gapNs >= 0) // since the tokens of that one
      seen.gapNs = std::min(seen.gapNs, seen.ns);
  }
  times_.add(seen.variant, seen.ns, seen.prefill);
  visibleNs_ = std::max(visibleNs_, runtime_.device().tokensVisibleNs(iteration));
  return seen;
}

absl::Status IterationLooks::finish() {
  if (opened_ && runtime_.launched() > 0 && (looks_.empty() || looks_.back().iteration != runtime_.launched()))
    look();
  for (Look &look : looks_)
    look.variant = times_.variantOf(look.iteration);
  return status_;
}

} // namespace headrace::tools
