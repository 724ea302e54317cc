// SPDX-License-Identifier: Apache-2.0
#include "runtime/sim/SimDeviceBase.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/sim/SimDevice.h"

namespace headrace::sim {

absl::Status SimDeviceBase::checkOpen() const {
  return plan_ == nullptr ? absl::FailedPreconditionError("sim: no plan is open") : absl::OkStatus();
}

size_t SimDeviceBase::mostSteps() const {
  size_t steps = 0;
  for (const plan::Schedule &schedule : plan_->schedules)
    steps = std::max(steps, schedule.steps.size());
  return steps;
}

absl::Status SimDeviceBase::open(const plan::Plan &plan, const core::DeviceOptions &options) {
  if (!std::isfinite(options.linkBandwidth) || options.linkBandwidth < 0)
    return absl::InvalidArgumentError(
        absl::StrCat("sim: link bandwidth ", options.linkBandwidth, ", expected bytes per second above zero"));
  const model::Hardware &hardware = plan.hardware;
  if (plan.arenaBytes > hardware.memoryBytes)
    return absl::ResourceExhaustedError(absl::StrCat("sim: the plan takes ", plan.arenaBytes,
                                                     " bytes of device memory, ", hardware.name, " has ",
                                                     hardware.memoryBytes));
  if (plan.hostBytes > hardware.hostLimit())
    return absl::ResourceExhaustedError(absl::StrCat("sim: the plan takes ", plan.hostBytes, " bytes of host memory, ",
                                                     hardware.name, " has ", hardware.hostLimit()));
  ++opening_; // graphs of an earlier plan are refused
  plan_ = &plan;
  options_ = options;
  launched_ = 0;
  swapBytes_ = 0;
  counters_ = {};
  for (Iteration &it : iterations_) {
    it = {};
    it.staging.assign(kernels::metaBytes(plan.metaLayout, plan.miniBatches) / sizeof(uint64_t), 0);
    kernels::initMetas(plan.metaLayout, plan.miniBatches, it.meta());
    it.tokens.assign(static_cast<size_t>(plan.mostSampled()), 0);
  }
  counters_.peakDeviceBytes = plan.arenaBytes;
  counters_.hostBytes = plan.hostBytes;
  return absl::OkStatus();
}

absl::Status SimDeviceBase::writeDevice(uint64_t address, absl::Span<const std::byte> bytes) {
  RETURN_IF_ERROR(checkOpen());
  if (bytes.size() > plan_->arenaBytes || address > plan_->arenaBytes - bytes.size())
    return absl::OutOfRangeError(
        absl::StrCat("sim: bytes [", address, ", +", bytes.size(), ") are outside the arena of ", plan_->arenaBytes));
  return absl::OkStatus(); // dropped: there is no data
}

absl::Status SimDeviceBase::readDevice(uint64_t, absl::Span<std::byte>) {
  static const absl::Status refused = absl::FailedPreconditionError("sim: the device holds no data to read");
  return refused; // made once: who asks all the same allocates nothing
}

absl::StatusOr<std::unique_ptr<core::Graph>> SimDeviceBase::build(const core::GraphKey &key) {
  RETURN_IF_ERROR(checkOpen());
  ASSIGN_OR_RETURN(source, core::graphSource(*plan_, key));
  const model::Hardware &hardware = plan_->hardware;
  std::vector<uint64_t> durationsNs =
      pacedDurations(*source.schedule, source.durationsNs, hardware, options_.linkBandwidth);
  ASSIGN_OR_RETURN(sized, sizedTimes(*plan_, *source.schedule, durationsNs, source.bucket.tokens,
                                     linkRates(hardware, options_.linkBandwidth)));
  std::unique_ptr<SimGraph> graph = prepare(source, std::move(durationsNs), sized);
  graph->bytes = plan::linkBytes(*source.schedule);
  for (const SizedTime &copy : sized)
    (copy.toDevice ? graph->bytes.h2d : graph->bytes.d2h) -= source.schedule->steps[copy.step].linkBytes;
  graph->sized = std::move(sized);
  graph->direct = core::directBytes(*plan_, *source.schedule);
  for (const plan::Step &step : source.schedule->steps)
    if (core::directBytes(*plan_, *source.schedule, step).any())
      (plan::directToHost(*source.schedule, step) ? graph->bytes.d2h : graph->bytes.h2d) -= step.linkBytes;
  graph->bucket = source.bucket;
  graph->owner = this;
  graph->opening = opening_;
  graph->transition = key.transition;
  return graph;
}

absl::StatusOr<SimGraph *> SimDeviceBase::own(core::Graph &graph) const {
  return core::owned<SimGraph>("sim", graph, *this, opening_);
}

absl::Status SimDeviceBase::upload(core::Graph &graph) {
  ASSIGN_OR_RETURN(own, this->own(graph));
  own->uploaded = true;
  return absl::OkStatus();
}

kernels::IterationMeta *SimDeviceBase::meta() {
  if (plan_ == nullptr)
    return nullptr;
  Iteration &it = iteration(launched_ + 1);
  (void)passTo(it.times.endNs); // the iteration that has this staging copy ends first; launch() says if it does not
  return it.meta();
}

void SimDeviceBase::makeUpTokens(Iteration &it) const {
  const core::Metas metas = core::metasOf(*plan_, it.meta());
  it.tokenCount = 0;
  for (uint32_t i = 0; i < metas.count; ++i) {
    const kernels::IterationMeta &meta = metas.of(i);
    const auto *seeds = meta.array<uint64_t>(meta.seed);
    const auto *positions = meta.array<int32_t>(meta.samplePosition);
    for (int32_t s = 0; s < meta.numSampled; ++s)
      it.tokens[it.tokenCount++] = madeUpToken(seeds[s], static_cast<uint32_t>(positions[s]), plan_->model->vocab);
  }
}

absl::Status SimDeviceBase::launch(core::Graph &graph, const core::LaunchInUse &inUse) {
  ASSIGN_OR_RETURN(own, this->own(graph));
  SimGraph &mine = *own;
  RETURN_IF_ERROR(core::checkUploaded("sim", mine));
  Launch what{.inUse = inUse};
  if (!mine.transition) {
    Iteration &it = iteration(launched_ + 1);
    RETURN_IF_ERROR(core::checkFits("sim", mine.bucket, core::metasOf(*plan_, it.meta())));
    RETURN_IF_ERROR(passTo(it.times.endNs));
    it.meta()->iteration = ++launched_;
    makeUpTokens(it);
    for (const core::DirectBytes &direct : mine.direct) {
      counters_.h2dBytes += direct.read(*it.meta());
      counters_.d2hBytes += direct.written(*it.meta());
    }
    it.times = {};
    what.meta = it.meta();
    what.times = &it.times;
  }
  ++counters_.launches;
  counters_.h2dBytes += mine.bytes.h2d;
  counters_.d2hBytes += mine.bytes.d2h;
  for (const SizedTime &copy : mine.sized)
    (copy.toDevice ? counters_.h2dBytes : counters_.d2hBytes) += core::bytesInUse(copy.size, inUse);
  play(mine, what);
  return absl::OkStatus();
}

absl::Status SimDeviceBase::reserveSwap(uint64_t bytes) {
  RETURN_IF_ERROR(checkOpen());
  RETURN_IF_ERROR(drain());
  swapBytes_ = 0;
  const model::Hardware &hardware = plan_->hardware;
  if (bytes > hardware.hostLimit() - std::min(plan_->hostBytes, hardware.hostLimit()))
    return absl::ResourceExhaustedError(absl::StrCat("sim: swap memory: ", bytes, " bytes beside the plan's ",
                                                     plan_->hostBytes, " of host memory, ", hardware.name, " has ",
                                                     hardware.hostLimit()));
  swapBytes_ = bytes;
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> SimDeviceBase::copyBeside(absl::Span<const core::BlockCopy> copies) {
  RETURN_IF_ERROR(checkOpen());
  RETURN_IF_ERROR(core::checkCopies("sim", copies, plan_->arenaBytes, swapBytes_));
  for (const core::BlockCopy &copy : copies)
    (copy.toDevice ? counters_.h2dBytes : counters_.d2hBytes) += copy.bytes;
  return playBeside(copies, linkRates(plan_->hardware, options_.linkBandwidth));
}

absl::Status SimDeviceBase::checkTicket(uint64_t ticket) const {
  RETURN_IF_ERROR(checkOpen());
  return core::checkTicket("sim", ticket, ticketsGiven());
}

absl::StatusOr<bool> SimDeviceBase::copied(uint64_t ticket) {
  RETURN_IF_ERROR(checkTicket(ticket));
  const int64_t endNs = besideEndNs(ticket);
  return endNs != kUnknownNs && endNs <= nowNs();
}

absl::Status SimDeviceBase::awaitCopied(uint64_t ticket) {
  RETURN_IF_ERROR(checkTicket(ticket));
  return passToBeside(ticket);
}

absl::StatusOr<absl::Span<const int32_t>> SimDeviceBase::awaitTokens(uint64_t number) {
  RETURN_IF_ERROR(core::checkAwaited("sim", number, launched_));
  const Iteration &it = iteration(number);
  RETURN_IF_ERROR(passTo(it.times.visibleNs));
  return absl::MakeConstSpan(it.tokens.data(), it.tokenCount);
}

} // namespace headrace::sim
