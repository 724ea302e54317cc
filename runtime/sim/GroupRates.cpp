// SPDX-License-Identifier: Apache-2.0
#include "runtime/sim/GroupRates.h"

#include <algorithm>
#include <cmath>

#include "absl/types/span.h"
#include "runtime/sim/BesideCopies.h"
#include "runtime/sim/LaneRates.h"

namespace headrace::sim {
namespace {

constexpr size_t kLanes = 3; // of LaneRates

double partOf(uint64_t rate) { return static_cast<double>(rate) / static_cast<double>(kFullRate); }

} // namespace

GroupRates::GroupRates(size_t devices, const core::PathLimits &bus)
    : bus_(bus), devices_(devices), flows_(kRows * devices), shares_(devices), asked_(kLanes * devices) {}

void GroupRates::open(size_t index, const cost::Sharing &sharing) {
  devices_[index] = {sharing, sharedRate(sharing.duplexShare)};
  memory_ = std::numeric_limits<double>::infinity();
  for (const Device &device : devices_)
    memory_ = std::min(memory_, device.sharing.hostMemory);
}

void GroupRates::share(size_t onCpu) {
  for (size_t i = 0; i < flows_.size(); ++i) {
    flows_[i].rate = flows_[i].step == nullptr ? 0 : ofLink(i);
    flows_[i].share = partOf(flows_[i].rate);
  }
  cpuRate_ = kFullRate;
  shareBus();
  if (std::isfinite(memory_))
    shareMemory(onCpu);
  h2dBytesPerNs_ = 0;
  for (const core::LinkShare &link : shares_)
    h2dBytesPerNs_ += link.rates[0];
}

// Of a copy with nothing but its link.
uint64_t GroupRates::ofLink(size_t index) const {
  const auto works = [&](size_t i) { return flows_[i].step != nullptr; };
  // Rows of the other direction, and the other row of its own.
  return rateBeside(devices_[index / kRows].bothRate, works(index ^ 1) || works(index ^ 3), works(index ^ 2));
}

// What a link has for both directions together is in what each of them asks for.
void GroupRates::shareBus() {
  const auto asks = [&](size_t index) {
    const Flow &flow = flows_[index];
    return flow.onBus ? flow.step->askedBytesPerNs * flow.share : 0;
  };
  const auto rowsAsk = [&](size_t index) { return asks(index) + asks(index ^ kBeside); };
  for (size_t d = 0; d < devices_.size(); ++d) {
    shares_[d].limits.h2d = rowsAsk(kRows * d);
    shares_[d].limits.d2h = rowsAsk(kRows * d + 1);
  }
  core::shareBus(bus_, absl::MakeSpan(shares_));
  busSlows_ = false;
  for (size_t d = 0; d < devices_.size(); ++d)
    for (size_t direction = 0; direction < 2; ++direction) {
      if (!shares_[d].byBus[direction])
        continue;
      busSlows_ |= direction == 0;
      // Both rows of a direction get of what it gets as they ask.
      const size_t row = kRows * d + direction;
      const double part = shares_[d].rates[direction] / rowsAsk(row);
      const std::array<double, 2> gets = {asks(row) * part, asks(row ^ kBeside) * part};
      for (const size_t i : {row, row ^ kBeside})
        if (flows_[i].onBus) {
          flows_[i].share = std::min(flows_[i].share, gets[i == row ? 0 : 1] / flows_[i].step->bytesPerNs);
          flows_[i].rate = slowedRate(flows_[i].share, flows_[i].rate);
        }
    }
}

// Of a link's direction, both rows together.
GroupRates::Direction GroupRates::ofDirection(size_t device, size_t direction) const {
  const size_t row = kRows * device + direction;
  const Flow &launched = flows_[row], &beside = flows_[row ^ kBeside];
  Direction all = {launched.rate + beside.rate, launched.share + beside.share};
  if (launched.rate != 0 && beside.rate != 0 && !shares_[device].byBus[direction]) { // not two halves rounded down
    all.rate = rateBeside(devices_[device].bothRate, flows_[row ^ 1].step != nullptr || flows_[row ^ 3].step != nullptr,
                          /*besides=*/false);
    all.share = partOf(all.rate);
  }
  return all;
}

void GroupRates::shareMemory(size_t onCpu) {
  for (size_t d = 0; d < devices_.size(); ++d) {
    const std::array<double, kLanes> &asked = devices_[d].sharing.asked;
    for (size_t direction = 0; direction < 2; ++direction)
      asked_[kLanes * d + direction] = asked[direction] * ofDirection(d, direction).share;
    asked_[kLanes * d + LaneRates::kCpu] = d == onCpu ? asked[LaneRates::kCpu] : 0;
  }
  const double level = core::memoryLevel(memory_, asked_);
  for (size_t d = 0; d < devices_.size(); ++d)
    for (size_t direction = 0; direction < 2; ++direction) {
      if (asked_[kLanes * d + direction] <= level)
        continue;
      busSlows_ &= direction == 1; // a larger bus would bring no more
      const uint64_t all = ofDirection(d, direction).rate;
      const uint64_t slowed = slowedRate(level / devices_[d].sharing.asked[direction], all);
      shares_[d].rates[direction] *= level / asked_[kLanes * d + direction];
      const size_t row = kRows * d + direction;
      const double both = flows_[row].share + flows_[row ^ kBeside].share;
      for (const size_t i : {row, row ^ kBeside})
        if (flows_[i].rate != 0) // rows get of it as they would have had
          flows_[i].rate =
              std::max<uint64_t>(1, static_cast<uint64_t>(static_cast<double>(slowed) * (flows_[i].share / both)));
    }
  if (onCpu != kNobody && asked_[kLanes * onCpu + LaneRates::kCpu] > level)
    cpuRate_ = slowedRate(level / devices_[onCpu].sharing.asked[LaneRates::kCpu], kFullRate);
}

} // namespace headrace::sim
