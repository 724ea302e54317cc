// SPDX-License-Identifier: Apache-2.0
#include "runtime/host/LaneDevice.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/Kernels.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/core/DirtyStates.h"
#include "runtime/core/LaunchChecks.h"
#include "runtime/host/WrongNumbers.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/threads/Threads.h"

namespace headrace::host {
namespace {

constexpr size_t kWritePiece = 1 << 20; // what a thread copies at a time of what is written to the device

// What copies are paced to: the hardware's link, or `linkBandwidth` in each direction with the hardware's ratio between
// one direction and both.
absl::StatusOr<LinkSpeed> linkSpeed(const model::Hardware &hardware, double linkBandwidth) {
  const auto refuse = [](const char *what, double value) {
    return absl::InvalidArgumentError(
        absl::StrCat("link pacing: ", what, " = ", value, ", expected a positive number of bytes/s"));
  };
  LinkSpeed speed;
  speed.h2d = hardware.h2dBandwidth * hardware.linkEfficiency;
  speed.d2h = hardware.d2hBandwidth * hardware.linkEfficiency;
  speed.both = hardware.duplexBandwidth * hardware.linkEfficiency;
  if (linkBandwidth != 0) {
    if (!std::isfinite(linkBandwidth) || linkBandwidth < 0)
      return refuse("link bandwidth", linkBandwidth);
    const double share =
        speed.both > 0 && std::max(speed.h2d, speed.d2h) > 0 ? speed.both / std::max(speed.h2d, speed.d2h) : 2.0;
    speed.h2d = speed.d2h = linkBandwidth;
    speed.both = share * linkBandwidth;
  }
  if (!(speed.h2d > 0))
    return refuse("h2d bandwidth", speed.h2d);
  if (!(speed.d2h > 0))
    return refuse("d2h bandwidth", speed.d2h);
  if (!(speed.both > 0))
    speed.both = speed.h2d + speed.d2h;
  speed.latencyNs = static_cast<int64_t>(std::llround(std::max(0.0, hardware.copyLatency) * 1e9));
  return speed;
}

// Of all steps; 0 where none has one.
uint64_t largestWorkspace(const plan::Plan &plan) {
  uint64_t most = 0;
  for (const plan::Schedule &schedule : plan.schedules)
    for (const plan::Operand &operand : schedule.operands)
      if (operand.arg == plan::Arg::Workspace)
        most = std::max(most, operand.bytes);
  return most;
}

} // namespace

LaneDevice::~LaneDevice() { close(); }

absl::StatusOr<uint64_t> LaneDevice::deviceHome(uint32_t buffer, uint64_t bytes) const {
  for (const plan::Extent &extent : plan_->placements[0].extents)
    if (extent.buffer == buffer && extent.space == plan::Space::Device && extent.bufferOffset == 0 &&
        extent.bytes >= bytes) {
      if (absl::Status status = checkRange(plan_->buffers[buffer].name.c_str(), extent.address, extent.bytes);
          !status.ok())
        return status;
      return extent.address;
    }
  return absl::InvalidArgumentError(
      absl::StrCat("plan: buffer '", plan_->buffers[buffer].name, "' has no home of ", bytes, " bytes on the device"));
}

absl::Status LaneDevice::open(const plan::Plan &plan, const core::DeviceOptions &options) {
  close();
  if (options_.threads < 1)
    return absl::InvalidArgumentError(
        absl::StrCat("host device: threads = ", options_.threads, ", expected at least 1"));
  if (plan.placements.empty() || plan.ioBuffer(plan::Io::Meta) >= plan.buffers.size() ||
      plan.ioBuffer(plan::Io::Output) >= plan.buffers.size())
    return absl::InvalidArgumentError("plan: no placement, or no io buffers");
  if (plan.hardware.kind != model::DeviceKind::Host || plan.activationDtype != model::DType::F32)
    return absl::FailedPreconditionError(
        absl::StrCat("host device: the plan is for ", std::string(model::deviceKindName(plan.hardware.kind)),
                     " hardware (", plan.hardware.name, ", ", std::string(model::dtypeName(plan.activationDtype)),
                     " activations): compile it for hardware of kind host, or run it on the sim device"));
  if (!options_.unpaced && !options_.poison) {
    ASSIGN_OR_RETURN(speed, linkSpeed(plan.hardware, options.linkBandwidth));
    speed_ = speed;
  }
  ASSIGN_OR_RETURN(arena, threads::GuardedMemory::take(plan.arenaBytes, model::kAlign, "device arena", true));
  // Blocks of a cache, which it may end with, are of any size.
  ASSIGN_OR_RETURN(slab,
                   threads::GuardedMemory::take(model::alignUp(plan.hostBytes), model::kAlign, "host slab", false));
  plan_ = &plan;
  trace_ = options.trace;
  arena_ = std::move(arena);
  slab_ = std::move(slab);

  const uint64_t metaBytes = kernels::metaBytes(plan.metaLayout, plan.miniBatches);
  const uint64_t slots = static_cast<uint64_t>(plan.mostSampled());
  absl::StatusOr<uint64_t> meta = deviceHome(plan.ioBuffer(plan::Io::Meta), metaBytes);
  absl::StatusOr<uint64_t> output = deviceHome(plan.ioBuffer(plan::Io::Output), slots * sizeof(int32_t));
  if (!meta.ok() || !output.ok()) {
    close();
    return meta.ok() ? output.status() : meta.status();
  }
  ++opening_;
  shared_ = std::make_unique<Shared>(transfer_.bell(), callerBell_);
  shared_->bases = {arena_.bytes().data(), slab_.bytes().data()};
  shared_->meta = reinterpret_cast<kernels::IterationMeta *>(arena_.bytes().data() + *meta);
  shared_->metas = core::metasOf(plan, shared_->meta);
  shared_->output = reinterpret_cast<const int32_t *>(arena_.bytes().data() + *output);
  shared_->trace = options.trace;
  shared_->directWriteRate = Shared::directWriteRateOf(speed_.has_value() ? &*speed_ : nullptr);
  shared_->copies = transfer_.lateCopies();
  shared_->pool = &pool_;
  shared_->poolLane = index_;
  for (TokenSlot &slot : shared_->tokens)
    slot.tokens.resize(slots);
  for (std::vector<uint64_t> &staging : staging_) {
    staging.assign((metaBytes + sizeof(uint64_t) - 1) / sizeof(uint64_t), 0);
    kernels::initMetas(plan.metaLayout, plan.miniBatches, reinterpret_cast<kernels::IterationMeta *>(staging.data()));
  }
  binding_.emplace(plan, matrixOrder());
  absl::Status status = options_.lowLatency ? lowerLatency() : absl::OkStatus();
  if (status.ok())
    status = startThreads();
  if (!status.ok())
    close();
  return status;
}

absl::Status LaneDevice::startThreads() {
  const model::ModelSpec &spec = *plan_->model;
  RETURN_IF_ERROR(pool_.attach(index_, {.workspaceBytes = largestWorkspace(*plan_),
                                        .sharedBytes = kernels::hostTeamBytes(spec.heads, spec.kvHeads, spec.headDim),
                                        .unitNs = options_.unitNs,
                                        .urgent = options_.lowLatency,
                                        .poison = options_.poison,
                                        .cores = options_.helperCores}));
  RETURN_IF_ERROR(transfer_.attach(index_, *shared_, speed_.has_value() ? &*speed_ : nullptr, options_.lowLatency));
  copies_ = true;
  RETURN_IF_ERROR(threads::startThread(compute_, "compute lane", [this] {
    if (options_.lowLatency)
      (void)threads::makeThreadUrgent(); // as the caller was before
    runComputeLane(*shared_);
  }));
  RETURN_IF_ERROR(threads::pinThread(compute_, options_.computeCore, "compute lane"));
  return transfer_.pin(options_.transferCore);
}

absl::Status LaneDevice::lowerLatency() {
  ASSIGN_OR_RETURN(awake, threads::AwakeCores::hold());
  awake_ = std::move(awake);
  return threads::makeThreadUrgent();
}

void LaneDevice::close() {
  if (compute_.joinable())
    (void)drain();
  if (copies_)
    transfer_.detach(index_);
  copies_ = false;
  if (compute_.joinable()) {
    shared_->signals.advance(Counter::Launched, kStop);
    compute_.join();
  }
  pool_.detach(index_);
  plan_ = nullptr;
  shared_.reset();
  binding_.reset();
  speed_.reset();
  arena_ = threads::GuardedMemory();
  slab_ = threads::GuardedMemory();
  swap_ = threads::GuardedMemory();
  swapBytes_ = 0;
  tickets_ = {};
  stagingLaunch_ = {};
  launches_ = iterations_ = 0;
  ended_ = {};
  last_ = nullptr;
  awake_ = threads::AwakeCores();
}

absl::Status LaneDevice::checkRange(const char *what, uint64_t address, uint64_t bytes) const {
  if (bytes > plan_->arenaBytes || address > plan_->arenaBytes - bytes)
    return absl::OutOfRangeError(absl::StrCat(what, ": bytes [", address, ", +", bytes, ") are outside the arena of ",
                                              plan_->arenaBytes, " bytes"));
  return absl::OkStatus();
}

absl::Status LaneDevice::writeDevice(uint64_t address, absl::Span<const std::byte> bytes) {
  if (plan_ == nullptr)
    return notOpen();
  RETURN_IF_ERROR(checkRange("writing to the device", address, bytes.size()));
  RETURN_IF_ERROR(drain());
  const auto pieces = static_cast<int64_t>((bytes.size() + kWritePiece - 1) / kWritePiece);
  pool_.each(index_, pieces, [&](int64_t i) {
    const absl::Span<const std::byte> piece = bytes.subspan(static_cast<size_t>(i) * kWritePiece, kWritePiece);
    std::copy(piece.begin(), piece.end(), arena_.bytes().data() + (piece.data() - bytes.data()) + address);
  });
  return absl::OkStatus();
}

absl::Status LaneDevice::readDevice(uint64_t address, absl::Span<std::byte> bytes) {
  if (plan_ == nullptr)
    return notOpen();
  RETURN_IF_ERROR(checkRange("reading from the device", address, bytes.size()));
  RETURN_IF_ERROR(drain());
  std::copy_n(arena_.bytes().data() + address, bytes.size(), bytes.data());
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<core::Graph>> LaneDevice::build(const core::GraphKey &key) {
  if (plan_ == nullptr)
    return notOpen();
  ASSIGN_OR_RETURN(graph, buildGraph({.plan = *plan_,
                                      .binding = *binding_,
                                      .bases = shared_->bases,
                                      .trace = trace_,
                                      .serial = options_.poison,
                                      .options = options_},
                                     key));
  graph->owner = this;
  graph->opening = opening_;
  return std::unique_ptr<core::Graph>(std::move(graph));
}

absl::StatusOr<HostGraph *> LaneDevice::own(core::Graph &graph) const {
  return core::owned<HostGraph>("host device", graph, *this, opening_);
}

absl::Status LaneDevice::upload(core::Graph &graph) {
  ASSIGN_OR_RETURN(own, this->own(graph));
  own->uploaded = true; // it was built in place
  return absl::OkStatus();
}

void LaneDevice::waitForEnd(uint64_t launch) {
  const std::array<uint64_t, kHostLanes> &end = shared_->ring[launch % kRing].end;
  for (size_t lane = 0; lane < kHostLanes; ++lane)
    shared_->signals.wait(Thread::Caller, {static_cast<Counter>(lane), end[lane]});
}

kernels::IterationMeta *LaneDevice::meta() {
  if (plan_ == nullptr)
    return nullptr;
  const size_t which = (iterations_ + 1) % 2;
  if (stagingLaunch_[which] != 0 && stagingLaunch_[which] + kRing > launches_)
    waitForEnd(stagingLaunch_[which] - 1);
  return reinterpret_cast<kernels::IterationMeta *>(staging_[which].data());
}

absl::Status LaneDevice::launch(core::Graph &graph, const core::LaunchInUse &inUse) {
  if (plan_ == nullptr)
    return notOpen();
  ASSIGN_OR_RETURN(checked, this->own(graph));
  HostGraph &own = *checked;
  RETURN_IF_ERROR(core::checkUploaded("host device", own));
  if (!own.transition)
    RETURN_IF_ERROR(core::checkFits("host device", own.bucket, core::metasOf(*plan_, meta())));
  if (launches_ >= kRing)
    waitForEnd(launches_ - kRing);
  Launch next{.graph = &own, .base = ended_, .end = ended_, .inUse = inUse};
  for (size_t lane = 0; lane < kHostLanes; ++lane)
    next.end[lane] += own.lanes[lane].size() + 1;
  if (!own.transition) {
    kernels::IterationMeta *staging = meta();
    ++iterations_;
    staging->iteration = iterations_;
    next.staging = staging;
    stagingLaunch_[iterations_ % 2] = launches_ + 1;
  }
  next.launchedNs = threads::monotonicNs();
  shared_->ring[launches_ % kRing] = next;
  ended_ = next.end;
  last_ = &own;
  ++launches_;
  shared_->signals.advance(Counter::Launched, launches_);
  return absl::OkStatus();
}

absl::StatusOr<Signals::WantOf> LaneDevice::published(uint64_t iteration) {
  if (plan_ == nullptr)
    return notOpen();
  RETURN_IF_ERROR(core::checkAwaited("host device", iteration, iterations_));
  return Signals::WantOf{&shared_->signals, {Counter::Published, iteration}};
}

absl::StatusOr<absl::Span<const int32_t>> LaneDevice::awaitTokens(uint64_t iteration) {
  if (const absl::StatusOr<Signals::WantOf> want = published(iteration); !want.ok())
    return want.status();
  shared_->signals.wait(Thread::Caller, {Counter::Published, iteration});
  const TokenSlot &slot = shared_->tokens[iteration % kTokenSlots];
  return absl::MakeConstSpan(slot.tokens.data(), static_cast<size_t>(slot.count));
}

absl::Status LaneDevice::drain() {
  if (plan_ == nullptr)
    return notOpen();
  if (launches_ != 0)
    waitForEnd(launches_ - 1);
  waitForCopies(tickets_.asked());
  return absl::OkStatus();
}

absl::Status LaneDevice::reserveSwap(uint64_t bytes) {
  RETURN_IF_ERROR(drain());
  shared_->swap = nullptr;
  swapBytes_ = 0;
  swap_ = threads::GuardedMemory();
  if (bytes == 0)
    return absl::OkStatus();
  const uint64_t most = std::numeric_limits<uint64_t>::max() / 2; // whatever is above is refused as well
  ASSIGN_OR_RETURN(
      swap, threads::GuardedMemory::take(model::alignUp(std::min(bytes, most)), model::kAlign, "swap memory", false));
  swap_ = std::move(swap);
  swapBytes_ = bytes;
  shared_->swap = swap_.bytes().data();
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> LaneDevice::copyBeside(absl::Span<const core::BlockCopy> copies) {
  if (plan_ == nullptr)
    return notOpen();
  RETURN_IF_ERROR(core::checkCopies("host device", copies, plan_->arenaBytes, swapBytes_));
  const uint64_t ticket = tickets_.add(copies, copiesEnded());
  const int64_t askedNs = threads::monotonicNs();
  for (const core::BlockCopy &copy : copies)
    shared_->beside[copy.toDevice ? 0 : 1].add({copy, ended_, askedNs});
  for (const Direction direction : {Direction::HostToDevice, Direction::DeviceToHost})
    shared_->signals.advance(besideAsked(direction), tickets_.asked()[direction == Direction::HostToDevice ? 1 : 0]);
  return ticket;
}

// To the host, to the device.
core::CopyTickets::Counts LaneDevice::copiesEnded() const {
  return {shared_->signals.value(Counter::BesideD2HEnded), shared_->signals.value(Counter::BesideH2DEnded)};
}

void LaneDevice::waitForCopies(const core::CopyTickets::Counts &ended) {
  shared_->signals.wait(Thread::Caller, {Counter::BesideD2HEnded, ended[0]});
  shared_->signals.wait(Thread::Caller, {Counter::BesideH2DEnded, ended[1]});
}

absl::StatusOr<bool> LaneDevice::copied(uint64_t ticket) {
  if (plan_ == nullptr)
    return notOpen();
  RETURN_IF_ERROR(tickets_.check("host device", ticket));
  return tickets_.ended(ticket, copiesEnded());
}

absl::Status LaneDevice::awaitCopied(uint64_t ticket) {
  if (plan_ == nullptr)
    return notOpen();
  RETURN_IF_ERROR(tickets_.check("host device", ticket));
  waitForCopies(tickets_.endOf(ticket));
  return absl::OkStatus();
}

absl::StatusOr<std::optional<core::WrongNumber>> LaneDevice::findWrongNumber(uint32_t variant,
                                                                             const core::LaunchInUse &inUse) {
  RETURN_IF_ERROR(drain());
  if (options_.replaceKernels.run != nullptr)
    return absl::UnimplementedError("host device: the kernels are replaced");
  ASSIGN_OR_RETURN(
      graph,
      buildGraph({.plan = *plan_, .binding = *binding_, .bases = shared_->bases, .serial = true, .options = options_},
                 {.transition = false, .index = variant}));
  const kernels::IterationMeta *staging = meta();
  RETURN_IF_ERROR(core::checkFits("host device", graph->bucket, core::metasOf(*plan_, staging)));
  // Both threads wait for the next launch, so what they share is this one's.
  std::memcpy(static_cast<void *>(shared_->meta), staging, core::bytesInUse(core::metasOf(*plan_, staging)));
  const bool toTheEnd = core::writesBack(*plan_, plan_->schedules[plan_->variants[variant].schedule]);
  std::optional<core::WrongNumber> found;
  auto bound = graph->bound.begin();
  for (const LaneStep &step : graph->lanes[0]) {
    if (step.kind == plan::StepKind::Copy) {
      const core::CopyRun run = step.copy.runIn(inUse);
      core::copyPart(step.copy, run.offset, run.bytes);
    }
    if (step.kind != plan::StepKind::Compute)
      continue;
    step.kernel(step.args);
    const core::KernelArgs &args = (bound++)->args;
    if (found)
      continue;
    found = firstWrongNumber(args);
    if (found)
      found->step = step.step;
    if (found && !toTheEnd)
      break;
  }
  return found;
}

core::DeviceCounters LaneDevice::counters() const {
  if (shared_ == nullptr)
    return {};
  return {.launches = launches_,
          .h2dBytes = shared_->h2dBytes.load(std::memory_order_relaxed),
          .d2hBytes = shared_->d2hBytes.load(std::memory_order_relaxed),
          .stallNs = shared_->stallNs.load(std::memory_order_relaxed),
          .peakDeviceBytes = plan_->arenaBytes,
          .hostBytes = plan_->hostBytes};
}

} // namespace headrace::host
