// SPDX-License-Identifier: Apache-2.0
#include "tests/golden/GoldenRun.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/Compile.h"
#include "runtime/core/Runtime.h"
#include "runtime/host/HostDevice.h"
#include "runtime/model/CheckpointFiles.h"
#include "runtime/plan/value/CacheMap.h"
#include "tests/support/SourceDir.h"

namespace headrace::golden {
namespace {

// The checkpoint, changed after each unit is filled.
class ChangedWeights : public model::WeightSource {
public:
  ChangedWeights(const model::WeightSource &inner, const RunSetup &setup) : inner_(inner), setup_(setup) {}
  absl::Status fill(const model::Unit &unit, model::MatrixOrder order, absl::Span<std::byte> out) const override {
    const absl::Status status = inner_.fill(unit, order, out);
    if (status.ok() && setup_.changeUnit)
      setup_.changeUnit(unit, order, out);
    return status;
  }

private:
  const model::WeightSource &inner_;
  const RunSetup &setup_;
};

// A device whose iteration buffer is changed before each launch.
class ChangedMeta : public core::Device {
public:
  ChangedMeta(core::Device &inner, const RunSetup &setup) : inner_(inner), setup_(setup) {}
  std::string_view kind() const override { return inner_.kind(); }
  kernels::Order matrixOrder() const override { return inner_.matrixOrder(); }
  bool holdsData() const override { return inner_.holdsData(); }
  absl::Status open(const plan::Plan &plan, const core::DeviceOptions &options) override {
    return inner_.open(plan, options);
  }
  absl::Span<std::byte> hostSlab() override { return inner_.hostSlab(); }
  absl::Status writeDevice(uint64_t address, absl::Span<const std::byte> bytes) override {
    return inner_.writeDevice(address, bytes);
  }
  absl::Status readDevice(uint64_t address, absl::Span<std::byte> bytes) override {
    return inner_.readDevice(address, bytes);
  }
  absl::StatusOr<std::unique_ptr<core::Graph>> build(const core::GraphKey &key) override { return inner_.build(key); }
  absl::Status upload(core::Graph &graph) override { return inner_.upload(graph); }
  kernels::IterationMeta *meta() override { return filled_ = inner_.meta(); }
  absl::Status launch(core::Graph &graph, const core::LaunchInUse &inUse) override {
    // A transition is launched over no rows: nothing to change, and nothing filled.
    if (setup_.changeMeta && filled_ != nullptr)
      setup_.changeMeta(*filled_);
    filled_ = nullptr;
    return inner_.launch(graph, inUse);
  }
  absl::StatusOr<absl::Span<const int32_t>> awaitTokens(uint64_t iteration) override {
    return inner_.awaitTokens(iteration);
  }
  int64_t tokensVisibleNs(uint64_t iteration) const override { return inner_.tokensVisibleNs(iteration); }
  absl::Status drain() override { return inner_.drain(); }
  absl::Status reserveSwap(uint64_t bytes) override { return inner_.reserveSwap(bytes); }
  absl::Span<std::byte> swapMemory() override { return inner_.swapMemory(); }
  absl::StatusOr<uint64_t> copyBeside(absl::Span<const core::BlockCopy> copies) override {
    return inner_.copyBeside(copies);
  }
  absl::StatusOr<bool> copied(uint64_t ticket) override { return inner_.copied(ticket); }
  absl::Status awaitCopied(uint64_t ticket) override { return inner_.awaitCopied(ticket); }
  absl::StatusOr<std::optional<core::WrongNumber>> findWrongNumber(uint32_t variant,
                                                                   const core::LaunchInUse &inUse) override {
    return inner_.findWrongNumber(variant, inUse);
  }
  int64_t nowNs() const override { return inner_.nowNs(); }
  absl::Status waitUntil(int64_t ns) override { return inner_.waitUntil(ns); }
  core::DeviceCounters counters() const override { return inner_.counters(); }
  absl::Span<const core::StepTime> lastTimes() const override { return inner_.lastTimes(); }

private:
  core::Device &inner_;
  const RunSetup &setup_;
  kernels::IterationMeta *filled_ = nullptr;
};

} // namespace

model::Policy residentPolicy() {
  model::Policy policy;
  policy.none = true;
  policy.offloadEmbedding = policy.offloadHead = model::AutoOnOff::Off;
  return policy;
}

absl::StatusOr<plan::Plan> compilePlan(const RunSetup &setup) {
  absl::StatusOr<model::Hardware> hardware =
      model::openHardware(absl::StrCat(sourceDir(), "/examples/hardware/", setup.hardware, ".toml"));
  if (!hardware.ok())
    return hardware.status();

  const int64_t sequences = static_cast<int64_t>(setup.prompts.size());
  const int64_t ofOne = sequences / setup.miniBatches; // mini-batch, which a bucket is sized for
  int64_t rows = 0, longest = 0;
  for (const std::vector<int32_t> &prompt : setup.prompts) {
    rows += static_cast<int64_t>(prompt.size());
    longest = std::max(longest, static_cast<int64_t>(prompt.size()));
  }
  if (setup.miniBatches > 1) // all prompts in one, as far as it holds them
    rows = std::min(rows, ofOne * (longest + setup.maxNewTokens));
  compiler::CompileRequest request;
  request.model = setup.spec;
  request.modelPath = setup.checkpoint->folder();
  request.hardware = *std::move(hardware);
  request.goal.deviceMemory = setup.deviceMemory;
  request.goal.batch = sequences;
  request.goal.miniBatches = setup.miniBatches;
  request.goal.context = setup.context > 0 ? setup.context : longest + setup.maxNewTokens;
  if (setup.blockTokens > 0)
    request.goal.blockTokens = setup.blockTokens;
  if (setup.kvTokens > 0)
    request.goal.kvTokens = setup.kvTokens;
  request.goal.kvEncoding = setup.kvEncoding;
  request.policy = setup.policy;
  if (setup.residualsLeave)
    request.policy.residuals = model::Residuals::Host;
  if (setup.placement)
    request.placements = {*setup.placement};
  request.buckets.newTokens = {ofOne};
  if (rows > ofOne)
    request.buckets.newTokens.push_back(setup.mixedTokens > 0 ? setup.mixedTokens : rows);
  request.buckets.sequences = {ofOne};
  request.buckets.contexts = {*request.goal.context};
  return compiler::compile(request);
}

absl::StatusOr<std::shared_ptr<const model::WeightSource>> weightsOf(const RunSetup &setup) {
  if (setup.weights != nullptr)
    return setup.weights;
  return model::openCheckpoint(setup.checkpoint, model::layoutWeights(setup.spec));
}

absl::StatusOr<RunResult> run(const RunSetup &setup) {
  const absl::StatusOr<plan::Plan> plan = compilePlan(setup);
  if (!plan.ok())
    return plan.status();
  const absl::StatusOr<std::shared_ptr<const model::WeightSource>> source = weightsOf(setup);
  if (!source.ok())
    return source.status();
  const ChangedWeights weights(**source, setup);
  absl::StatusOr<std::unique_ptr<core::Device>> made = host::makeHostDevice({.threads = setup.threads,
                                                                             .unpaced = true,
                                                                             .poison = setup.poison,
                                                                             .kernelOf = setup.kernelOf,
                                                                             .unitNs = setup.threads > 1 ? 0 : 2000});
  if (setup.makeDevice)
    made = setup.makeDevice();
  if (!made.ok())
    return made.status();
  ChangedMeta device(**made, setup);
  absl::StatusOr<std::unique_ptr<core::Runtime>> runtime =
      core::Runtime::load(*plan, device, {}, &weights, core::LoadOptions());
  if (!runtime.ok())
    return runtime.status();

  serve::GenerateRequest generation;
  generation.prompts = setup.prompts;
  generation.maxNewTokens = setup.maxNewTokens;
  generation.keepLogits = setup.miniBatches == 1;
  generation.chunkedPrefill = !setup.wholePrompts;
  if (setup.swapBlocks > 0) {
    generation.preemption = serve::Preemption::Swap;
    generation.swapBytes = static_cast<uint64_t>(setup.swapBlocks) * plan::movedBlockBytes(*plan);
  }
  std::vector<int64_t> buckets;
  generation.onIteration = [&](const serve::IterationSeen &seen) {
    buckets.push_back(plan->variants[seen.variant].newTokens);
  };
  absl::StatusOr<serve::GenerateResult> generated = serve::generate(**runtime, generation);
  if (!generated.ok())
    return generated.status();
  generation.keepLogits = false;
  generation.onIteration = nullptr;
  absl::StatusOr<serve::GenerateResult> inFlight = serve::generate(**runtime, generation);
  if (!inFlight.ok())
    return inFlight.status();
  if (setup.lookAt)
    setup.lookAt(**made);
  const plan::Placement &placement = plan->placements[(*runtime)->placement()];
  const plan::OffloadedWeights offloaded = plan::offloadedWeights(*plan, placement);
  return RunResult{.generated = *std::move(generated),
                   .tokensInFlight = std::move(inFlight->tokens),
                   .buckets = std::move(buckets),
                   .offloadedLayers = offloaded.layers,
                   .offloadsEmbedding = offloaded.embedding,
                   .offloadsHead = offloaded.head,
                   .residentBlocks = plan::CacheMap(*plan, placement).resident(),
                   .kvBlocks = placement.kvBlocks};
}

} // namespace headrace::golden
