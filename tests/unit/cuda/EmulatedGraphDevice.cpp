// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/cuda/EmulatedGraphDevice.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <deque>
#include <optional>
#include <random>
#include <string_view>
#include <utility>

#include "kernels/Half.h"
#include "runtime/core/DirectBytes.h"
#include "runtime/core/LaunchChecks.h"
#include "runtime/cuda/CopySizes.h"
#include "runtime/cuda/GraphRules.h"
#include "runtime/cuda/RecordingBuilder.h"
#include "runtime/model/ModelSpec.h"
#include "tests/unit/cuda/EmulatedCalls.h"
#include "tests/unit/kernels_cuda/TestDevice.h"

namespace headrace::cuda {
namespace {

using kernels::Elem;
using kernels::Epilogue;

float load(const void *base, Elem elem, int64_t index) {
  if (elem == Elem::F32)
    return static_cast<const float *>(base)[index];
  const uint16_t bits = static_cast<const uint16_t *>(base)[index];
  return elem == Elem::F16 ? kernels::floatFromF16(bits) : kernels::floatFromBf16(bits);
}

void store(void *base, Elem elem, int64_t index, float value) {
  if (elem == Elem::F32)
    static_cast<float *>(base)[index] = value;
  else
    static_cast<uint16_t *>(base)[index] =
        elem == Elem::F16 ? kernels::f16FromFloat(value) : kernels::bf16FromFloat(value);
}

// What the library computes, k ascending in F32.
void multiply(const MatMul &matmul) {
  const MatMulShape &s = matmul.shape;
  for (int64_t row = 0; row < s.m; ++row)
    for (int64_t n = 0; n < s.n; ++n) {
      float sum = 0;
      for (int64_t k = 0; k < s.k; ++k)
        sum += load(matmul.x, s.operands, row * s.k + k) * load(matmul.w, s.operands, n * s.k + k);
      if (s.residual)
        sum += matmul.residual[row * s.stride() + n];
      if (s.bias)
        sum += load(matmul.bias, s.result, n);
      if (s.epilogue == Epilogue::Relu)
        sum = std::max(sum, 0.0f);
      if (s.epilogue == Epilogue::GeluTanh)
        sum = 0.5f * sum * (1 + std::tanh(0.7978845608f * (sum + 0.044715f * sum * sum * sum)));
      store(matmul.y, s.result, row * s.stride() + n, sum);
    }
}

struct AlignedDelete {
  void operator()(std::byte *memory) const { ::operator delete(memory, std::align_val_t(256)); }
};
using Memory = std::unique_ptr<std::byte, AlignedDelete>;
Memory take(uint64_t bytes, int fill) {
  Memory memory(static_cast<std::byte *>(::operator new(std::max<uint64_t>(bytes, 1), std::align_val_t(256))));
  std::memset(memory.get(), fill, bytes);
  return memory;
}

struct EmulatedGraph final : core::Graph {
  RecordedGraph recorded;
  CopySizes sizes;
  std::vector<core::DirectBytes> direct;
  CpuSteps cpuSteps; // by the plan's nodes
  bool transition = false;
};

class EmulatedGraphDevice final : public core::Device {
public:
  explicit EmulatedGraphDevice(const EmulatedGraphOptions &options) : options_(options), random_(options.order) {}

  std::string_view kind() const override { return "emulated"; }
  kernels::Order matrixOrder() const override { return kernels::Order::RowMajor; }
  bool holdsData() const override { return true; }

  absl::Status open(const plan::Plan &plan, const core::DeviceOptions &) override {
    plan_ = &plan;
    arena_ = take(plan.arenaBytes, 0xff); // NaN in every type
    slab_ = take(plan.hostBytes, 0xff);
    swap_.clear();
    pending_.clear();
    given_ = done_ = 0;
    tokens_.assign(static_cast<size_t>(kernels::kPublishSlots * plan.mostSampled()), -1);
    published_.assign(kernels::kPublishSlots, 0);
    if (plan.model->rope.enabled)
      frequencies_ = core::inverseFrequencies(plan.model->rope, plan.model->headDim);
    for (Memory &staging : staging_) {
      staging = take(kernels::metaBytes(plan.metaLayout, plan.miniBatches), 0);
      kernels::initMetas(plan.metaLayout, plan.miniBatches, reinterpret_cast<kernels::IterationMeta *>(staging.get()));
    }
    arrivals_.assign(kernels::CudaWorkspace::kArrivals, 0);
    binding_.emplace(plan, matrixOrder(), frequencies_.data(), arrivals_.data());
    cpu_ = std::make_unique<CpuLane>(options_.cpu);
    return cpu_->start(plan);
  }
  absl::Span<std::byte> hostSlab() override { return {slab_.get(), plan_->hostBytes}; }
  absl::Status writeDevice(uint64_t address, absl::Span<const std::byte> bytes) override {
    copyUntil(given_);
    std::copy(bytes.begin(), bytes.end(), arena_.get() + address);
    return absl::OkStatus();
  }
  absl::Status readDevice(uint64_t address, absl::Span<std::byte> bytes) override {
    copyUntil(given_);
    std::copy_n(arena_.get() + address, bytes.size(), bytes.data());
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<core::Graph>> build(const core::GraphKey &key) override {
    const GraphMemory memory{.bases = {arena_.get(), slab_.get()},
                             .arenaBytes = plan_->arenaBytes,
                             .slabBytes = plan_->hostBytes,
                             .frequencies = frequencies_.data(),
                             .frequencyBytes = frequencies_.size() * sizeof(float),
                             .arrivals = arrivals_.data(),
                             .publishedTokens = tokens_.data(),
                             .publishedTokensBytes = tokens_.size() * sizeof(int32_t),
                             .publishedIterations = published_.data()};
    absl::StatusOr<GraphPlan> planned =
        planGraph({.plan = *plan_, .binding = *binding_, .memory = memory, .fuse = options_.fuse}, key);
    if (!planned.ok())
      return planned.status();
    absl::StatusOr<RecordedGraph> recorded = record(*planned);
    if (!recorded.ok())
      return recorded.status();
    if (absl::Status status = checkGraph(*recorded); !status.ok())
      return status;
    auto graph = std::make_unique<EmulatedGraph>();
    graph->recorded = *std::move(recorded);
    graph->sizes = CopySizes(*planned);
    graph->cpuSteps = cpu_->stepsOf(*planned);
    graph->transition = key.transition;
    if (!key.transition)
      graph->direct = core::directBytes(*plan_, plan_->schedules[plan_->variants[key.index].schedule]);
    if (options_.dropCrossEdges)
      for (RecordedNode &node : graph->recorded.nodes)
        std::erase_if(node.after, [&](uint32_t before) { return graph->recorded.nodes[before].lane != node.lane; });
    return graph;
  }
  absl::Status upload(core::Graph &) override { return absl::OkStatus(); }
  kernels::IterationMeta *meta() override {
    return reinterpret_cast<kernels::IterationMeta *>(staging_[(iterations_ + 1) % 2].get());
  }

  absl::Status launch(core::Graph &graph, const core::LaunchInUse &inUse) override {
    auto &own = static_cast<EmulatedGraph &>(graph);
    if (absl::Status status = setSizes(own, inUse); !status.ok())
      return status;
    if (!own.transition) {
      meta()->iteration = iterations_ + 1;
      for (const plan::Extent &extent : plan_->placements[0].extents)
        if (extent.buffer == plan_->ioBuffer(plan::Io::Meta))
          copyMeta(arena_.get() + extent.address);
      sampled_[(iterations_ + 1) % kernels::kPublishSlots] = core::metasOf(*plan_, meta()).sampled();
      for (const core::DirectBytes &direct : own.direct) {
        counters_.h2dBytes += direct.read(*meta());
        counters_.d2hBytes += direct.written(*meta());
      }
      ++iterations_;
    }
    copyAny();
    ++counters_.launches;
    counters_.h2dBytes += own.sizes.bytes().h2d;
    counters_.d2hBytes += own.sizes.bytes().d2h;
    return run(own);
  }
  absl::StatusOr<absl::Span<const int32_t>> awaitTokens(uint64_t iteration) override {
    const size_t slot = iteration % kernels::kPublishSlots;
    if (published_[slot] != iteration)
      return absl::InternalError("the iteration was not published");
    return absl::MakeConstSpan(tokens_.data() + slot * static_cast<size_t>(plan_->mostSampled()),
                               static_cast<size_t>(sampled_[slot]));
  }
  int64_t tokensVisibleNs(uint64_t) const override { return 0; }
  absl::Status drain() override {
    copyUntil(given_);
    return absl::OkStatus();
  }
  // Copies beside launches are made when somebody waits for them, or before a launch or a look at them that is drawn.
  absl::Status reserveSwap(uint64_t bytes) override {
    if (plan_ == nullptr)
      return absl::FailedPreconditionError("emulated: no plan is open");
    copyUntil(given_);
    swap_.clear();
    if (bytes >> 40 != 0)
      return absl::ResourceExhaustedError("swap memory of " + std::to_string(bytes) + " bytes");
    swap_.assign(bytes, std::byte{0xff});
    return absl::OkStatus();
  }
  absl::Span<std::byte> swapMemory() override { return absl::MakeSpan(swap_); }
  absl::StatusOr<uint64_t> copyBeside(absl::Span<const core::BlockCopy> copies) override {
    if (absl::Status status = core::checkCopies("emulated", copies, plan_->arenaBytes, swap_.size()); !status.ok())
      return status;
    pending_.push_back({copies.begin(), copies.end()});
    for (const core::BlockCopy &copy : copies)
      (copy.toDevice ? counters_.h2dBytes : counters_.d2hBytes) += copy.bytes;
    return ++given_;
  }
  absl::StatusOr<bool> copied(uint64_t ticket) override {
    if (absl::Status status = core::checkTicket("emulated", ticket, given_); !status.ok())
      return status;
    copyAny();
    return ticket <= done_;
  }
  absl::Status awaitCopied(uint64_t ticket) override {
    if (absl::Status status = core::checkTicket("emulated", ticket, given_); !status.ok())
      return status;
    copyUntil(ticket);
    return absl::OkStatus();
  }
  int64_t nowNs() const override { return 0; }
  absl::Status waitUntil(int64_t) override { return absl::UnimplementedError("emulated graphs have no clock"); }
  core::DeviceCounters counters() const override {
    core::DeviceCounters counters = counters_;
    counters.peakDeviceBytes = plan_->arenaBytes;
    counters.hostBytes = plan_->hostBytes;
    return counters;
  }
  absl::Span<const core::StepTime> lastTimes() const override { return {}; }

private:
  // What is not in use is not read either: it is poison.
  void copyMeta(std::byte *to) {
    const core::Metas metas = core::metasOf(*plan_, meta());
    std::memset(to, 0xff, kernels::metaBytes(plan_->metaLayout, plan_->miniBatches));
    std::memcpy(to, metas.first, core::bytesInUse(metas));
  }
  void copyUntil(uint64_t ticket) {
    for (; done_ < ticket; ++done_) {
      for (const core::BlockCopy &copy : pending_.front())
        if (copy.toDevice)
          std::copy_n(swap_.data() + copy.swap, copy.bytes, arena_.get() + copy.device);
        else
          std::copy_n(arena_.get() + copy.device, copy.bytes, swap_.data() + copy.swap);
      pending_.pop_front();
    }
  }
  void copyAny() {
    if (done_ < given_ && random_() % 4 == 0)
      copyUntil(done_ + 1);
  }

  absl::Status setSizes(EmulatedGraph &graph, const core::LaunchInUse &inUse) {
    return graph.sizes.set(inUse, [&](uint32_t node, const core::CopySides &copy, core::CopyRun run) {
      if (copy.inRows())
        return absl::InvalidArgumentError("only 1-D copy nodes can be changed");
      for (RecordedNode &recorded : graph.recorded.nodes)
        if (recorded.planNode == node) {
          recorded.copy.source = copy.source + run.offset;
          recorded.copy.destination = copy.destination + run.offset;
          recorded.copy.bytes = run.bytes;
        }
      ++counters_.sizesSet;
      return absl::OkStatus();
    });
  }

  absl::Status run(const EmulatedGraph &own) {
    const RecordedGraph &graph = own.recorded;
    std::vector<size_t> missing(graph.nodes.size());
    std::vector<std::vector<uint32_t>> next(graph.nodes.size());
    std::vector<uint32_t> ready;
    for (uint32_t i = 0; i < graph.nodes.size(); ++i) {
      missing[i] = graph.nodes[i].after.size();
      for (uint32_t before : graph.nodes[i].after)
        next[before].push_back(i);
      if (missing[i] == 0)
        ready.push_back(i);
    }
    while (!ready.empty()) {
      const size_t drawn = random_() % ready.size();
      const uint32_t node = ready[drawn];
      ready.erase(ready.begin() + static_cast<std::ptrdiff_t>(drawn));
      if (absl::Status status = runNode(own, graph.nodes[node]); !status.ok())
        return status;
      for (uint32_t follower : next[node])
        if (--missing[follower] == 0)
          ready.push_back(follower);
    }
    return absl::OkStatus();
  }

  absl::Status runNode(const EmulatedGraph &graph, const RecordedNode &node) {
    switch (node.kind) {
    case RecordedKind::Host:
      CpuLane::callback(graph.cpuSteps[node.planNode].get());
      return cpu_->failed();
    case RecordedKind::Copy:
      core::copyPart(node.copy, 0, node.copy.bytes);
      return absl::OkStatus();
    case RecordedKind::Library:
      multiply(node.matmul);
      return absl::OkStatus();
    case RecordedKind::Kernel: {
      const EmulatedCall call = callOf(node.kernel.launch.kernel);
      if (call.call == nullptr)
        return absl::InternalError("a kernel of no known arguments");
      if (options_.ran != nullptr)
        options_.ran->insert(node.kernel.launch.kernel);
      // Arguments are read at their own alignment.
      alignas(16) std::byte args[kMostArgumentBytes];
      std::memcpy(args, node.kernel.args.data(), node.kernel.args.size());
      kernels::testDevice().run({{node.kernel.launch, args, call.call}}, random_());
      return absl::OkStatus();
    }
    default:
      return absl::InternalError("a node that no plan leads to");
    }
  }

  const EmulatedGraphOptions options_;
  std::mt19937_64 random_;
  const plan::Plan *plan_ = nullptr;
  Memory arena_, slab_;
  std::array<Memory, 2> staging_;
  std::vector<float> frequencies_;
  std::vector<uint32_t> arrivals_;
  std::vector<int32_t> tokens_;
  std::vector<uint64_t> published_;
  std::optional<core::BindContext> binding_;
  std::unique_ptr<CpuLane> cpu_; // goes before the slab
  core::DeviceCounters counters_;
  std::vector<std::byte> swap_;
  std::deque<std::vector<core::BlockCopy>> pending_; // of tickets from done_ + 1 on
  uint64_t given_ = 0, done_ = 0;                    // tickets
  uint64_t iterations_ = 0;
  std::array<int32_t, kernels::kPublishSlots> sampled_{};
};

} // namespace

std::unique_ptr<core::Device> makeEmulatedGraphDevice(const EmulatedGraphOptions &options) {
  return std::make_unique<EmulatedGraphDevice>(options);
}

} // namespace headrace::cuda
