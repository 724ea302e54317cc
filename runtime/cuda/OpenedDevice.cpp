// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/OpenedDevice.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/cuda/CudaError.h"
#include "runtime/cuda/Driver.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::cuda {
namespace {

// Device memory of graphs once they are uploaded: a guess, to refuse in time what cannot fit; GraphCosts says what it
// came to. 1 KiB a node, 1 MiB an executable, 64 MiB for kernels and libraries.
constexpr uint64_t kNodeBytes = 1 << 10, kGraphBytes = 1 << 20, kLibraryBytes = uint64_t{64} << 20;

uint64_t graphOverhead(const plan::Plan &plan) {
  uint64_t nodes = 0;
  for (const plan::Variant &variant : plan.variants)
    nodes += variant.durationsNs.size();
  for (const plan::Transition &transition : plan.transitions)
    nodes += transition.durationsNs.size();
  return nodes * kNodeBytes + (plan.variants.size() + plan.transitions.size()) * kGraphBytes + kLibraryBytes;
}

// Moves what was taken, or keeps its status.
template <typename T> absl::Status into(T &target, absl::StatusOr<T> taken) {
  if (!taken.ok())
    return taken.status();
  target = *std::move(taken);
  return absl::OkStatus();
}

} // namespace

OpenedDevice::~OpenedDevice() {
  // What runs uses what is given back now.
  if (launch != nullptr && cudaStreamSynchronize(launch) != cudaSuccess) {
    giveBack(cudaDeviceSynchronize());
    (void)cudaGetLastError();
  }
  for (const auto &events : {taken, ended})
    for (cudaEvent_t event : events)
      if (event != nullptr)
        giveBack(cudaEventDestroy(event));
  for (cudaStream_t stream : {launch, side})
    if (stream != nullptr)
      giveBack(cudaStreamDestroy(stream));
}

absl::Status OpenedDevice::take(const SlabOptions &host) {
  RETURN_IF_ERROR(findMeta());
  RETURN_IF_ERROR(checkDeviceMemory(plan.arenaBytes, graphOverhead(plan)));
  RETURN_IF_ERROR(takeMemory(host));
  binding.emplace(plan, kernels::Order::RowMajor, reinterpret_cast<const float *>(frequencies.data()),
                  reinterpret_cast<uint32_t *>(arrivals.data()));
  RETURN_IF_ERROR(cpu.start(plan));
  RETURN_IF_ERROR(createStreams());
  return buildStreams.create();
}

absl::Status OpenedDevice::startTrace(TraceBy by, const std::string &libraries) {
  if (!options.trace || by == TraceBy::Stamps)
    return absl::OkStatus();
  absl::StatusOr<std::unique_ptr<CuptiTrace>> started = CuptiTrace::start(cuptiSearchPath(libraries));
  if (!started.ok()) {
    if (by == TraceBy::Cupti)
      return started.status();
    cuptiRefused = std::string(started.status().message());
    return absl::OkStatus();
  }
  cupti = *std::move(started);
  return absl::OkStatus();
}

absl::Status OpenedDevice::findMeta() {
  metaBytes = kernels::metaBytes(plan.metaLayout, plan.miniBatches);
  const uint32_t buffer = plan.ioBuffer(plan::Io::Meta);
  for (const plan::Extent &extent : plan.placements[0].extents)
    if (extent.buffer == buffer && extent.space == plan::Space::Device && extent.bufferOffset == 0 &&
        extent.bytes >= metaBytes && extent.bytes <= plan.arenaBytes &&
        extent.address <= plan.arenaBytes - extent.bytes) {
      metaAddress = extent.address;
      return absl::OkStatus();
    }
  return absl::InvalidArgumentError(
      absl::StrCat("plan: buffer 'meta' has no home of ", metaBytes, " bytes on the device"));
}

absl::Status OpenedDevice::takeMemory(const SlabOptions &host) {
  RETURN_IF_ERROR(into(arena, DeviceMemory::take(plan.arenaBytes, "the plan's arena")));
  RETURN_IF_ERROR(into(slab, PinnedSlab::take(plan.hostBytes, host)));
  for (MappedMemory &one : staging) {
    RETURN_IF_ERROR(into(one, MappedMemory::take(metaBytes, "iteration data")));
    kernels::initMetas(plan.metaLayout, plan.miniBatches, reinterpret_cast<kernels::IterationMeta *>(one.data()));
  }
  RETURN_IF_ERROR(into(mailbox, TokenMailbox::make(plan.mostSampled())));
  RETURN_IF_ERROR(takeArrivals());
  return plan.model->rope.enabled ? takeFrequencies() : absl::OkStatus();
}

absl::Status OpenedDevice::takeArrivals() {
  const std::string what = "counters of attention's blocks";
  RETURN_IF_ERROR(into(arrivals, DeviceMemory::take(kArrivalBytes, what)));
  HEADRACE_CUDA(what, cudaMemset(arrivals.data(), 0, arrivals.bytes()));
  // The call may return before they are zero; launches are on a stream that does not wait for this one.
  HEADRACE_CUDA(what, cudaStreamSynchronize(cudaStreamLegacy));
  return absl::OkStatus();
}

absl::Status OpenedDevice::takeFrequencies() {
  const std::vector<float> host = core::inverseFrequencies(plan.model->rope, plan.model->headDim);
  RETURN_IF_ERROR(into(frequencies, DeviceMemory::take(host.size() * sizeof(float), "rotary frequencies")));
  HEADRACE_CUDA("rotary frequencies",
                cudaMemcpy(frequencies.data(), host.data(), frequencies.bytes(), cudaMemcpyHostToDevice));
  // The call may return before the device has it; launches are on a stream that does not wait for this one.
  HEADRACE_CUDA("rotary frequencies", cudaStreamSynchronize(cudaStreamLegacy));
  return absl::OkStatus();
}

absl::Status OpenedDevice::createStreams() {
  HEADRACE_CUDA("streams of launches", cudaStreamCreateWithFlags(&launch, cudaStreamNonBlocking));
  HEADRACE_CUDA("streams of launches", cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking));
  for (auto *events : {&taken, &ended})
    for (cudaEvent_t &event : *events)
      HEADRACE_CUDA("events of launches", cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  return absl::OkStatus();
}

GraphMemory OpenedDevice::graphMemory() const {
  return {.bases = {arena.data(), slab.bytes().data()},
          .arenaBytes = plan.arenaBytes,
          .slabBytes = plan.hostBytes,
          .frequencies = reinterpret_cast<const float *>(frequencies.data()),
          .frequencyBytes = frequencies.bytes(),
          .arrivals = reinterpret_cast<uint32_t *>(arrivals.data()),
          .publishedTokens = mailbox.deviceTokens(),
          .publishedTokensBytes = mailbox.deviceTokensBytes(),
          .publishedIterations = mailbox.deviceIterations()};
}

absl::Status OpenedDevice::collectRecords() {
  RETURN_IF_ERROR(cupti->collect(last->name, last->nodes, lastLaunchCupti, times));
  for (const std::unique_ptr<CpuStep> &step : last->cpuSteps)
    if (step != nullptr)
      times[step->step] = step->time;
  return absl::OkStatus();
}

absl::Status OpenedDevice::readStamps() {
  // Event 0 is taken for the moment of the launch call: the host has no better one on its clock.
  times.resize(last->steps);
  return last->stamps.read(last->name, lastLaunchNs, times);
}

} // namespace headrace::cuda
