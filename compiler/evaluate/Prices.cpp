// SPDX-License-Identifier: Apache-2.0
#include "compiler/evaluate/Prices.h"

#include <algorithm>
#include <cmath>

#include "kernels/Kernels.h"
#include "runtime/base/EnumCount.h"
#include "runtime/core/GraphSteps.h"
#include "runtime/model/WeightLayout.h"
#include "runtime/sim/TimedSchedule.h"

namespace headrace::compiler {
namespace {

constexpr size_t kUnits = model::enumCount<model::UnitRole>();
using cost::How;
constexpr size_t kHows = static_cast<size_t>(How::OnCpu) + 1;

} // namespace

Prices::Table &Prices::tableOf(const cost::Bucket &bucket) {
  const auto [it, fresh] = tables_.try_emplace({bucket.tokens, bucket.sequences, bucket.context, bucket.actRows});
  if (fresh)
    it->second.assign(kernels::kOpCount * kUnits * kHows, kUnknown);
  return it->second;
}

uint64_t Prices::computeNs(Table &table, const cost::OpSite &site, const cost::Bucket &bucket, How how) const {
  uint64_t &price = table[(static_cast<size_t>(site.op) * kUnits + static_cast<size_t>(site.unit)) * kHows +
                          static_cast<size_t>(how)];
  if (price == kUnknown)
    price = how == How::OnCpu ? costs_.cpuNs(site, bucket) : costs_.computeNs(site, bucket, how == How::Direct);
  return price;
}

uint64_t Prices::computeNs(const std::optional<cost::OpSite> &site, const cost::Bucket &bucket, bool direct) {
  return site ? computeNs(tableOf(bucket), *site, bucket, direct ? How::Direct : How::OnDevice) : 0;
}
uint64_t Prices::cpuNs(const cost::OpSite &site, const cost::Bucket &bucket) {
  return computeNs(tableOf(bucket), site, bucket, How::OnCpu);
}

uint64_t Prices::copyNs(uint64_t bytes, bool hostToDevice) {
  // Most copies are as large as one of a few before them.
  Copied &recent = recent_[(bytes / model::kAlign * 2 + (hostToDevice ? 1 : 0)) % recent_.size()];
  if (recent.bytes == bytes && recent.hostToDevice == hostToDevice && recent.ns != kUnknown)
    return recent.ns;
  const auto [it, fresh] = copies_.try_emplace({bytes, hostToDevice}, 0);
  if (fresh)
    it->second = costs_.copyNs(bytes, hostToDevice);
  recent = {bytes, hostToDevice, it->second};
  return it->second;
}

std::vector<uint64_t> Prices::durations(const plan::Plan &plan, const plan::Schedule &schedule,
                                        const std::vector<std::optional<cost::OpSite>> &sites,
                                        const cost::Bucket &bucket) {
  const core::LaunchInUse rows(core::InUse{.rows = bucket.tokens});
  const auto bytesOf = [&](uint32_t index) {
    const plan::Step &step = schedule.steps[index];
    if (!step.resizable)
      return step.linkBytes;
    const plan::BufferKind kind = plan.buffer(schedule, schedule.operands[step.firstOperand].buffer).kind;
    if (kind != plan::BufferKind::Residual && kind != plan::BufferKind::Activation) // whose rows a launch has
      return step.linkBytes;
    const absl::StatusOr<core::SizedCopy> copy = core::sizedCopy(plan, schedule, index);
    return copy.ok() ? core::bytesInUse(*copy, rows) : step.linkBytes;
  };
  Table &table = tableOf(bucket);
  std::vector<uint64_t> durations;
  durations.reserve(schedule.steps.size());
  for (uint32_t i = 0; i < schedule.steps.size(); ++i) {
    const plan::Step &step = schedule.steps[i];
    durations.push_back(step.kind == plan::StepKind::Copy ? copyNs(bytesOf(i), plan::toDevice(step.lane))
                        : sites[i]                        ? computeNs(table, *sites[i], bucket, sim::howOf(step))
                                                          : 0);
  }
  return durations;
}

uint32_t Prices::slowestPermille() const {
  constexpr double kMost = 4e9; // of a record may be larger
  return static_cast<uint32_t>(std::llround(std::clamp(costs_.slowestFactor() * plan::kPredicted, 1e3, kMost)));
}

} // namespace headrace::compiler
