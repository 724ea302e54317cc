// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/CudaDevice.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/FileIo.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/core/LaunchChecks.h"
#include "runtime/cuda/CudaDeviceImpl.h"
#include "runtime/cuda/DynamicLibrary.h"

namespace headrace::cuda {
namespace {

absl::Status setDevice(const DeviceInfo &info) {
  HEADRACE_CUDA(absl::StrCat("making GPU ", info.index, " the thread's"), cudaSetDevice(info.index));
  return absl::OkStatus();
}

} // namespace

absl::Status CudaDevice::enter() const {
  if (o_ == nullptr)
    return absl::FailedPreconditionError("cuda device: not open");
  RETURN_IF_ERROR(o_->failed);
  RETURN_IF_ERROR(o_->cpu.failed());
  return setDevice(info_);
}

absl::Status CudaDevice::open(const plan::Plan &plan, const core::DeviceOptions &options) {
  RETURN_IF_ERROR(setDevice(info_));
  o_.reset();
  if (plan.placements.empty() || plan.ioBuffer(plan::Io::Meta) >= plan.buffers.size() ||
      plan.ioBuffer(plan::Io::Output) >= plan.buffers.size())
    return absl::InvalidArgumentError("plan: no placement, or no io buffers");
  if (plan.hardware.kind != model::DeviceKind::Cuda)
    return absl::FailedPreconditionError(absl::StrCat(
        "cuda device: the plan is for ", std::string(model::deviceKindName(plan.hardware.kind)), " hardware (",
        plan.hardware.name, "): compile it for hardware of kind cuda, or run it on the host device"));
  if (options.linkBandwidth != 0)
    return absl::InvalidArgumentError("cuda device: copies run at the link's speed: pacing is the host device's");
  auto opened = std::make_unique<OpenedDevice>(plan, options, cudaOptions_.cpu);
  RETURN_IF_ERROR(opened->take(slabOptions()));
  RETURN_IF_ERROR(opened->startTrace(cudaOptions_.traceBy, cudaOptions_.libraries));
  opened->loading.begin(NvtxName("load weights"));
  o_ = std::move(opened);
  ++opening_;
  return absl::OkStatus();
}

absl::Status CudaDevice::checkRange(const char *what, uint64_t address, uint64_t bytes) const {
  const uint64_t size = o_->arena.bytes();
  if (bytes > size || address > size - bytes)
    return absl::OutOfRangeError(
        absl::StrCat(what, ": bytes [", address, ", +", bytes, ") are outside the arena of ", size, " bytes"));
  return absl::OkStatus();
}

absl::Status CudaDevice::writeDevice(uint64_t address, absl::Span<const std::byte> bytes) {
  RETURN_IF_ERROR(enter());
  RETURN_IF_ERROR(checkRange("writing to the device", address, bytes.size()));
  RETURN_IF_ERROR(keep(finish()));
  HEADRACE_CUDA("writing to the device",
                cudaMemcpy(o_->arena.data() + address, bytes.data(), bytes.size(), cudaMemcpyHostToDevice));
  // The copy may end after the call where the source is pageable; launches are on another stream.
  HEADRACE_CUDA("writing to the device", cudaStreamSynchronize(cudaStreamLegacy));
  return absl::OkStatus();
}

absl::Status CudaDevice::readDevice(uint64_t address, absl::Span<std::byte> bytes) {
  RETURN_IF_ERROR(enter());
  RETURN_IF_ERROR(checkRange("reading from the device", address, bytes.size()));
  RETURN_IF_ERROR(keep(finish()));
  HEADRACE_CUDA("reading from the device",
                cudaMemcpy(bytes.data(), o_->arena.data() + address, bytes.size(), cudaMemcpyDeviceToHost));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<core::Graph>> CudaDevice::build(const core::GraphKey &key) {
  RETURN_IF_ERROR(enter());
  o_->loading.end();
  const MakeGraphRequest request = {.plan = o_->plan,
                                    .binding = *o_->binding,
                                    .memory = o_->graphMemory(),
                                    .libraries = libraries_,
                                    .streams = o_->buildStreams,
                                    .cpu = o_->cpu,
                                    .how = cudaOptions_.capture ? GraphBuild::Capture : GraphBuild::Explicit,
                                    .instrumented = o_->options.trace && o_->cupti == nullptr,
                                    .cupti = o_->cupti.get(),
                                    .compare = cudaOptions_.compare,
                                    .arenaIsFree = o_->launches == 0};
  ASSIGN_OR_RETURN(graph, makeGraph(request, key, o_->costs));
  graph->owner = this;
  graph->opening = opening_;
  graph->gpu = info_.index;
  return std::unique_ptr<core::Graph>(std::move(graph));
}

absl::Status CudaDevice::upload(core::Graph &graph) {
  RETURN_IF_ERROR(enter());
  ASSIGN_OR_RETURN(checked, core::owned<CudaGraph>("cuda device", graph, *this, opening_));
  CudaGraph &own = *checked;
  const int64_t start = monotonicNs();
  // Beside the launch stream: an upload is ordered behind what its stream has to do.
  HEADRACE_CUDA(own.name, cudaGraphUpload(own.exec, o_->side));
  HEADRACE_CUDA(own.name, cudaStreamSynchronize(o_->side));
  o_->costs.uploadNs += monotonicNs() - start;
  own.uploaded = true;
  return absl::OkStatus();
}

// For that event of the iteration before the last, whose staging copy is the next one's.
absl::Status CudaDevice::waitForOlder(const std::array<cudaEvent_t, 2> &events) {
  const uint64_t next = o_->iterations + 1;
  if (next <= 2)
    return absl::OkStatus();
  HEADRACE_CUDA("waiting for an iteration", cudaEventSynchronize(events[next % 2]));
  return absl::OkStatus();
}

kernels::IterationMeta *CudaDevice::meta() {
  if (o_ == nullptr)
    return nullptr;
  if (o_->failed.ok()) // launch() reports what fails here
    if (keep(setDevice(info_)).ok())
      (void)keep(waitForOlder(o_->taken));
  return reinterpret_cast<kernels::IterationMeta *>(o_->staging[(o_->iterations + 1) % 2].data());
}

absl::Status CudaDevice::launch(core::Graph &graph, const core::LaunchInUse &inUse) {
  RETURN_IF_ERROR(enter());
  ASSIGN_OR_RETURN(checked, core::owned<CudaGraph>("cuda device", graph, *this, opening_));
  CudaGraph &own = *checked;
  RETURN_IF_ERROR(core::checkUploaded("cuda device", own));
  if (!own.transition) {
    const kernels::IterationMeta *next = meta();
    RETURN_IF_ERROR(o_->failed);
    RETURN_IF_ERROR(core::checkFits("cuda device", own.bucket, core::metasOf(o_->plan, next)));
    RETURN_IF_ERROR(keep(waitForOlder(o_->ended))); // at most two are in flight
  }
  RETURN_IF_ERROR(keep(setSizes(own, inUse)));
  return keep(own.transition ? launchGraph(own) : launchIteration(own));
}

// Launches already made keep theirs.
absl::Status CudaDevice::setSizes(CudaGraph &graph, const core::LaunchInUse &inUse) {
  return graph.sizes.set(inUse, [&](uint32_t node, const core::CopySides &copy, core::CopyRun run) -> absl::Status {
    HEADRACE_CUDA(graph.name, cudaGraphExecMemcpyNodeSetParams1D(graph.exec, graph.built.nodes[node][0],
                                                                 copy.destination + run.offset,
                                                                 copy.source + run.offset, run.bytes, copyKind(copy)));
    ++o_->sizesSet;
    return absl::OkStatus();
  });
}

absl::Status CudaDevice::launchIteration(CudaGraph &graph) {
  const uint64_t iteration = o_->iterations + 1;
  auto *meta = reinterpret_cast<kernels::IterationMeta *>(o_->staging[iteration % 2].data());
  meta->iteration = iteration;
  const core::Metas metas = core::metasOf(o_->plan, meta);
  o_->mailbox.expect(iteration, metas.sampled());
  RETURN_IF_ERROR(bringMeta(graph, metas));
  HEADRACE_CUDA(graph.name, cudaEventRecord(o_->taken[iteration % 2], o_->launch));
  RETURN_IF_ERROR(launchGraph(graph));
  HEADRACE_CUDA(graph.name, cudaEventRecord(o_->ended[iteration % 2], o_->launch));
  o_->iterations = iteration;
  o_->lateness.launched(iteration, graph.predictedNs);
  for (const core::DirectBytes &direct : graph.direct) {
    o_->h2dBytes += direct.read(*meta);
    o_->d2hBytes += direct.written(*meta);
  }
  return absl::OkStatus();
}

// One packed copy before the graph: inside it, it would wait behind the prefetches.
absl::Status CudaDevice::bringMeta(const CudaGraph &graph, const core::Metas &metas) {
  HEADRACE_CUDA(graph.name, cudaMemcpyAsync(o_->arena.data() + o_->metaAddress, metas.first, core::bytesInUse(metas),
                                            cudaMemcpyHostToDevice, o_->launch));
  return absl::OkStatus();
}

absl::Status CudaDevice::launchGraph(CudaGraph &graph) {
  const NvtxRange range(graph.range);
  o_->lastLaunchNs = monotonicNs();
  if (o_->cupti != nullptr)
    o_->lastLaunchCupti = o_->cupti->now();
  HEADRACE_CUDA(graph.name, cudaGraphLaunch(graph.exec, o_->launch));
  ++o_->launches;
  o_->h2dBytes += graph.sizes.bytes().h2d;
  o_->d2hBytes += graph.sizes.bytes().d2h;
  o_->last = &graph;
  if (graph.transition)
    o_->lateness.launchedTransition(graph.predictedNs);
  return absl::OkStatus();
}

absl::Status CudaDevice::checkAwaited(uint64_t iteration) const {
  return o_ == nullptr ? enter() : core::checkAwaited("cuda device", iteration, o_->iterations);
}

absl::Status CudaDevice::look(uint64_t iteration) {
  RETURN_IF_ERROR(enter());
  return keep(o_->mailbox.look(iteration, o_->launch));
}

int64_t CudaDevice::lateAfterNs(uint64_t iteration) const {
  return cudaOptions_.notice == nullptr ? 0 : o_->lateness.afterNs(iteration, iteration > 1 && inFlight(iteration - 1));
}

absl::StatusOr<absl::Span<const int32_t>> CudaDevice::awaitTokens(uint64_t iteration) {
  RETURN_IF_ERROR(checkAwaited(iteration));
  RETURN_IF_ERROR(setDevice(info_));
  const NvtxRange range(awaiting_);
  const int64_t lateNs = lateAfterNs(iteration);
  absl::StatusOr<absl::Span<const int32_t>> tokens =
      o_->mailbox.await(iteration, o_->launch, lateNs, [&] { sayLate(iteration, lateNs); });
  if (!tokens.ok())
    return keep(tokens.status());
  if (absl::Status ofCpu = o_->cpu.failed(); !ofCpu.ok()) // which is known before tokens are made of what it left
    return ofCpu;
  return tokens;
}

absl::Status CudaDevice::drain() {
  if (o_ != nullptr && !(o_->failed.ok() && o_->cpu.failed().ok()) && setDevice(info_).ok())
    (void)finish(); // what runs all the same uses the graphs, which may be destroyed now
  RETURN_IF_ERROR(enter());
  RETURN_IF_ERROR(keep(finish()));
  RETURN_IF_ERROR(o_->cpu.failed());
  if (!o_->options.trace || o_->last == nullptr)
    return absl::OkStatus();
  // Missing records are no failure of the device's: it can be used on.
  return o_->cupti != nullptr ? o_->collectRecords() : keep(o_->readStamps());
}

absl::Status CudaDevice::finish() {
  HEADRACE_CUDA("waiting for the launches", cudaStreamSynchronize(o_->launch));
  return o_->beside.awaitAll();
}

absl::Status CudaDevice::reserveSwap(uint64_t bytes) {
  RETURN_IF_ERROR(enter());
  RETURN_IF_ERROR(keep(finish()));
  return o_->beside.reserve(bytes, slabOptions());
}

absl::StatusOr<uint64_t> CudaDevice::copyBeside(absl::Span<const core::BlockCopy> copies) {
  RETURN_IF_ERROR(enter());
  RETURN_IF_ERROR(core::checkCopies("cuda device", copies, o_->arena.bytes(), o_->beside.memory().size()));
  absl::StatusOr<uint64_t> ticket = o_->beside.copy(copies, o_->arena.data(), o_->launch);
  if (!ticket.ok())
    return keep(ticket.status());
  for (const core::BlockCopy &copy : copies)
    (copy.toDevice ? o_->h2dBytes : o_->d2hBytes) += copy.bytes;
  return ticket;
}

absl::StatusOr<bool> CudaDevice::copied(uint64_t ticket) {
  RETURN_IF_ERROR(enter());
  return o_->beside.copied(ticket);
}

absl::Status CudaDevice::awaitCopied(uint64_t ticket) {
  RETURN_IF_ERROR(enter());
  return o_->beside.await(ticket);
}

core::DeviceCounters CudaDevice::counters() const {
  if (o_ == nullptr)
    return {};
  return {.launches = o_->launches,
          .h2dBytes = o_->h2dBytes,
          .d2hBytes = o_->d2hBytes,
          .stallNs = 0, // not known without a trace
          .peakDeviceBytes = o_->arena.bytes(),
          .hostBytes = o_->slab.bytes().size(),
          .graphBytes = o_->costs.deviceBytes,
          .sizesSet = o_->sizesSet};
}

absl::Status CudaDevice::useAlgorithms(const std::string &path) {
  ASSIGN_OR_RETURN(chosen, readProductAlgorithms(path));
  if (chosen.library != libraries_.version() && cudaOptions_.notice != nullptr)
    cudaOptions_.notice(absl::StrCat(path, ": algorithms of ", chosen.library, ", the library here is ",
                                     libraries_.version(), ": it chooses its own"));
  libraries_.use(chosen);
  chosen_ = std::move(chosen);
  return absl::OkStatus();
}

GraphCosts CudaDevice::costs() const {
  GraphCosts costs = o_ == nullptr ? GraphCosts() : o_->costs;
  costs.algorithms = libraries_.algorithms();
  return costs;
}

absl::StatusOr<std::string> CudaDevice::measuredBy() const {
  if (o_ == nullptr || !o_->options.trace)
    return absl::FailedPreconditionError("cuda device: not opened with trace");
  return o_->cupti != nullptr ? "CUPTI" : "time stamps";
}

absl::StatusOr<std::string> CudaDevice::cuptiRefused() const {
  RETURN_IF_ERROR(measuredBy().status());
  return o_->cuptiRefused;
}

absl::StatusOr<std::vector<CopyChannel>> CudaDevice::copyChannels() const {
  if (o_ == nullptr || o_->cupti == nullptr || o_->last == nullptr)
    return absl::FailedPreconditionError("cuda device: channels of copies: nothing was launched and measured by CUPTI");
  return o_->cupti->channels(o_->last->nodes);
}

absl::StatusOr<std::unique_ptr<CudaDevice>> CudaDevice::make(const CudaOptions &options) {
  ASSIGN_OR_RETURN(info, selectDevice(options.index));
  ASSIGN_OR_RETURN(libraries, MatMulLibraries::open(options.gemmEx, librarySearchPath(options.libraries)));
  auto device = std::make_unique<CudaDevice>(options, std::move(info), std::move(libraries));
  if (!options.algorithms.empty())
    RETURN_IF_ERROR(device->useAlgorithms(options.algorithms));
  return device;
}

absl::StatusOr<std::unique_ptr<core::Device>> makeCudaDevice(const CudaOptions &options) {
  ASSIGN_OR_RETURN(device, CudaDevice::make(options));
  return std::unique_ptr<core::Device>(std::move(device));
}

absl::Status useAlgorithmsBeside(core::Device &device, const std::string &record) {
  auto *own = dynamic_cast<CudaDevice *>(&device);
  if (own == nullptr || own->algorithmsStated() || record.empty() || !model::isRegularFile(algorithmsBeside(record)))
    return absl::OkStatus();
  return own->useAlgorithms(algorithmsBeside(record));
}

std::string algorithmsOf(const core::Device &device) {
  const auto *own = dynamic_cast<const CudaDevice *>(&device);
  return own == nullptr ? "" : own->algorithms();
}

absl::StatusOr<GraphCosts> graphCosts(const core::Device &device) {
  const auto *own = dynamic_cast<const CudaDevice *>(&device);
  if (own == nullptr)
    return absl::InvalidArgumentError("not a cuda device");
  return own->costs();
}

absl::StatusOr<std::string> measuredBy(const core::Device &device) {
  const auto *own = dynamic_cast<const CudaDevice *>(&device);
  return own == nullptr ? absl::InvalidArgumentError("not a cuda device") : own->measuredBy();
}

absl::StatusOr<std::string> cuptiRefused(const core::Device &device) {
  const auto *own = dynamic_cast<const CudaDevice *>(&device);
  return own == nullptr ? absl::InvalidArgumentError("not a cuda device") : own->cuptiRefused();
}

absl::StatusOr<std::vector<CopyChannel>> copyChannels(const core::Device &device) {
  const auto *own = dynamic_cast<const CudaDevice *>(&device);
  return own == nullptr ? absl::InvalidArgumentError("not a cuda device") : own->copyChannels();
}

} // namespace headrace::cuda
