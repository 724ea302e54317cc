// SPDX-License-Identifier: Apache-2.0
#include "bench/slo/Player.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "runtime/host/HostDevice.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::bench {
namespace {

template <typename T> double nearestRank(std::vector<T> values, double q) {
  if (values.empty())
    return 0;
  const auto rank = static_cast<size_t>(std::ceil(q * static_cast<double>(values.size())));
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(std::max<size_t>(rank, 1) - 1);
  std::nth_element(values.begin(), at, values.end());
  return static_cast<double>(*at);
}

} // namespace

double quantile(std::vector<int64_t> values, double q) { return nearestRank(std::move(values), q); }
double quantile(std::vector<double> values, double q) { return nearestRank(std::move(values), q); }

Player::Player(plan::Plan plan, const host::HostOptions &options, const KeptWeights &weights, const Load &load)
    : plan_(std::make_unique<plan::Plan>(std::move(plan))), device_(host::makeHostDevice(options)) {
  runtime_ = take(core::Runtime::load(*plan_, *device_, {.trace = true}, &weights, {}));
  variant_ = take(runtime_->choose(load.sequences * load.rows, load.sequences, load.context));
  const int64_t blocksEach = (load.context + plan_->blockTokens - 1) / plan_->blockTokens;
  blocks_.resize(static_cast<size_t>(load.sequences * blocksEach));
  for (size_t i = 0; i < blocks_.size(); ++i)
    blocks_[i] = static_cast<int32_t>(i + 1); // block 0 is the scratch block
  tokens_.resize(static_cast<size_t>(load.sequences * load.rows));
  for (size_t i = 0; i < tokens_.size(); ++i)
    tokens_[i] = static_cast<int32_t>(i * 37 % static_cast<size_t>(plan_->model->vocab));
  for (int64_t s = 0; s < load.sequences; ++s)
    rows_.push_back({.tokens = absl::MakeConstSpan(tokens_).subspan(static_cast<size_t>(s * load.rows),
                                                                    static_cast<size_t>(load.rows)),
                     .firstPosition = load.context - load.rows,
                     .blocks = absl::MakeConstSpan(blocks_).subspan(static_cast<size_t>(s * blocksEach),
                                                                    static_cast<size_t>(blocksEach)),
                     .sample = true,
                     .requestSlot = static_cast<int32_t>(s)});
  forget();
}

void Player::launch() {
  check(core::writeMeta(plan_->metaLayout, plan_->blockTokens, rows_, device_->meta()));
  check(runtime_->launch(variant_));
}

void Player::play(int64_t warmUpNs, int count) {
  const int64_t startNs = device_->nowNs();
  int64_t previousNs = -1; // of an iteration that counts, or the last one before them
  launch();
  for (int counted = 0; counted < count;) {
    launch(); // two in flight; one more than are counted
    (void)take(runtime_->awaitTokens());
    const int64_t seenNs = device_->tokensVisibleNs(runtime_->launched() - 1);
    if (previousNs >= 0) {
      gapsNs.push_back(seenNs - previousNs);
      ++counted;
    }
    if (previousNs >= 0 || seenNs - startNs >= warmUpNs)
      previousNs = seenNs;
  }
  (void)take(runtime_->awaitTokens());
  check(device_->drain());
  keepTimes();
}

void Player::keepTimes() {
  const absl::Span<const core::StepTime> times = device_->lastTimes();
  std::array<int64_t, plan::kLanes> free;
  free.fill(-1);
  std::vector<int64_t> ready(times.size(), -1);
  for (const plan::Edge &edge : schedule().edges)
    ready[edge.to] = std::max(ready[edge.to], times[edge.from].endNs);
  for (size_t step = 0; step < times.size(); ++step) {
    int64_t &before = free[static_cast<size_t>(schedule().steps[step].lane)];
    const int64_t could = std::max(ready[step], before);
    lastedNs_[step].push_back(times[step].endNs - times[step].startNs);
    lagNs_[step].push_back(could < 0 ? 0 : times[step].startNs - could);
    before = times[step].endNs;
  }
}

Player::Parts Player::parts() const {
  const auto median = [](std::vector<int64_t> values) {
    std::sort(values.begin(), values.end());
    return values.empty() ? 0 : static_cast<double>(values[values.size() / 2]);
  };
  Parts parts;
  for (size_t step = 0; step < lastedNs_.size(); ++step) {
    const bool computes = schedule().steps[step].lane == plan::Lane::Compute;
    (computes ? parts.kernelsNs : parts.copiesNs) += median(lastedNs_[step]);
    parts.lagsNs += computes ? median(lagNs_[step]) : 0;
  }
  return parts;
}

void Player::forget() {
  gapsNs.clear();
  for (auto *samples : {&lastedNs_, &lagNs_})
    samples->assign(schedule().steps.size(), {});
}

} // namespace headrace::bench
