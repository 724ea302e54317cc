// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/Runtime.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/model/WeightLayout.h"

namespace headrace::core {
namespace {

using plan::kNone;

bool contains(const plan::State &outer, const plan::State &inner) {
  // Contents are sorted by address and do not overlap, so one content of `outer` must cover one of `inner`, or several
  // that follow each other without a gap do.
  for (const plan::Content &want : inner.contents) {
    uint64_t covered = 0;
    for (const plan::Content &have : outer.contents) {
      if (covered == want.bytes)
        break;
      const uint64_t from = want.address + covered;
      if (have.buffer != want.buffer || have.address > from || from - have.address >= have.bytes ||
          have.bufferOffset + (from - have.address) != want.bufferOffset + covered)
        continue;
      covered += std::min(want.bytes - covered, have.bytes - (from - have.address));
    }
    if (covered != want.bytes)
      return false;
  }
  return true;
}

// The transition to run when the device is in one state and the next variant needs another, for all pairs.
class TransitionTable {
public:
  enum : uint32_t { kReady = 0xfffffffeu }; // no transition is needed

  TransitionTable() = default;
  explicit TransitionTable(const plan::Plan &plan) : states_(plan.states.size()) {
    table_.assign(states_ * states_, kNone);
    std::vector<char> holds(states_ * states_);
    for (size_t have = 0; have < states_; ++have)
      for (size_t want = 0; want < states_; ++want)
        holds[have * states_ + want] = contains(plan.states[have], plan.states[want]);
    for (size_t have = 0; have < states_; ++have)
      for (size_t want = 0; want < states_; ++want) {
        uint32_t &entry = table_[have * states_ + want];
        if (holds[have * states_ + want] && (samePlacement(plan, have, want) || want == 0)) {
          entry = kReady;
          continue;
        }
        for (uint32_t t = 0; t < plan.transitions.size(); ++t) {
          const plan::Transition &transition = plan.transitions[t];
          if (transition.toState == want && holds[have * states_ + transition.fromState] &&
              (samePlacement(plan, have, transition.fromState) ||
               (transition.fromState == 0 && samePlacement(plan, have, want))) &&
              (entry == kNone || transition.predictedNs < plan.transitions[entry].predictedNs))
            entry = t;
        }
      }
  }
  uint32_t find(uint32_t have, uint32_t want) const { return table_[have * states_ + want]; }

private:
  // State 0 holds nothing and so is of every placement.
  static bool samePlacement(const plan::Plan &plan, size_t a, size_t b) {
    return a == 0 || b == 0 || plan.states[a].placement == plan.states[b].placement;
  }
  size_t states_ = 0;
  std::vector<uint32_t> table_;
};

// Brings the weights to their homes in one placement, and to host memory whatever any placement keeps there.
class Loader {
public:
  Loader(const plan::Plan &plan, Device &device, const model::WeightSource *weights, const LoadOptions &options)
      : plan_(plan), device_(device), weights_(weights), options_(options), layout_(model::layoutWeights(plan.model)) {}

  absl::StatusOr<Manifest> load() {
    if (absl::Status status = check(); !status.ok())
      return status;
    Manifest manifest;
    manifest.planned = plan::weightBytesByHome(plan_, options_.placement);
    uint64_t done = 0;
    const uint64_t total = layout_.totalBytes();
    if (options_.progress)
      options_.progress(0, total);
    for (uint32_t u = 0; u < layout_.units.size(); ++u) {
      if (absl::Status status = loadUnit(u, manifest); !status.ok())
        return status;
      done += layout_.units[u].bytes;
      if (options_.progress)
        options_.progress(done, total);
    }
    const DeviceCounters counters = device_.counters();
    manifest.deviceArenaBytes = counters.peakDeviceBytes;
    manifest.hostSlabBytes = counters.hostBytes;
    return manifest;
  }

private:
  absl::Status check() const {
    if (device_.holdsData() && weights_ == nullptr)
      return absl::InvalidArgumentError(
          absl::StrCat("device '", std::string(device_.kind()), "' holds data and was given no weights"));
    if (plan_.buffers.size() < layout_.units.size())
      return absl::InvalidArgumentError(absl::StrCat("plan: ", plan_.buffers.size(), " buffers, the model has ",
                                                     layout_.units.size(), " weight units"));
    for (size_t u = 0; u < layout_.units.size(); ++u)
      if (plan_.buffers[u].bytes != layout_.units[u].bytes)
        return absl::InvalidArgumentError(absl::StrCat("plan: buffer ", plan_.buffers[u].name, " has ",
                                                       plan_.buffers[u].bytes, " bytes, the model's unit ",
                                                       layout_.units[u].name, " has ", layout_.units[u].bytes));
    return absl::OkStatus();
  }

  absl::Status loadUnit(uint32_t u, Manifest &manifest) {
    const model::Unit &unit = layout_.units[u];
    absl::Span<const std::byte> bytes; // the unit as filled; empty until then
    for (const plan::Extent &extent : plan_.placements[options_.placement].extents)
      if (extent.buffer == u && extent.space == plan::Space::Device) {
        if (absl::Status status = bringToDevice(unit, extent, bytes); !status.ok())
          return status;
        manifest.loaded.device += extent.bytes;
      }
    std::set<std::pair<uint64_t, uint64_t>> filled; // (bufferOffset, address)
    for (uint32_t p = 0; p < plan_.placements.size(); ++p)
      for (const plan::Extent &extent : plan_.placements[p].extents) {
        if (extent.buffer != u || extent.space == plan::Space::Device)
          continue;
        if (extent.space == plan::Space::Disk)
          return absl::InvalidArgumentError(absl::StrCat("plan: unit ", unit.name, " has its home on disk"));
        if (filled.insert({extent.bufferOffset, extent.address}).second)
          if (absl::Status status = bringToHost(unit, extent, bytes); !status.ok())
            return status;
        if (p == options_.placement)
          manifest.loaded.host += extent.bytes;
      }
    return absl::OkStatus();
  }

  absl::Status bringToDevice(const model::Unit &unit, const plan::Extent &extent, absl::Span<const std::byte> &bytes) {
    if (!device_.holdsData())
      return absl::OkStatus();
    if (absl::Status status = fillScratch(unit, bytes); !status.ok())
      return status;
    return device_.writeDevice(extent.address, bytes.subspan(extent.bufferOffset, extent.bytes));
  }

  absl::Status bringToHost(const model::Unit &unit, const plan::Extent &extent, absl::Span<const std::byte> &bytes) {
    if (!device_.holdsData())
      return absl::OkStatus();
    absl::Span<std::byte> slab = device_.hostSlab();
    if (extent.bytes > slab.size() || extent.address > slab.size() - extent.bytes)
      return absl::InvalidArgumentError(absl::StrCat("plan: unit ", unit.name, ": host bytes [", extent.address, ", +",
                                                     extent.bytes, ") are outside the slab of ", slab.size()));
    absl::Span<std::byte> target = slab.subspan(extent.address, extent.bytes);
    if (bytes.empty() && extent.bytes == unit.bytes) { // no detour through scratch
      absl::Status status = weights_->fill(unit, order(), target);
      bytes = target;
      return status;
    }
    if (absl::Status status = fillScratch(unit, bytes); !status.ok())
      return status;
    std::copy_n(bytes.data() + extent.bufferOffset, extent.bytes, target.data());
    return absl::OkStatus();
  }

  absl::Status fillScratch(const model::Unit &unit, absl::Span<const std::byte> &bytes) {
    if (!bytes.empty())
      return absl::OkStatus();
    if (scratch_.size() < unit.bytes)
      scratch_.resize(unit.bytes);
    absl::Span<std::byte> target(scratch_.data(), unit.bytes);
    absl::Status status = weights_->fill(unit, order(), target);
    bytes = target;
    return status;
  }

  model::MatrixOrder order() const { return static_cast<model::MatrixOrder>(device_.matrixOrder()); }

  const plan::Plan &plan_;
  Device &device_;
  const model::WeightSource *weights_;
  const LoadOptions &options_;
  const model::WeightLayout layout_;
  std::vector<std::byte> scratch_; // the largest unit that is not filled in place; gone once loading ends
};

absl::Status compareManifest(const Manifest &manifest, const plan::Plan &plan) {
  const auto check = [](const char *what, uint64_t loaded, uint64_t planned) {
    return loaded == planned ? absl::OkStatus()
                             : absl::InternalError(absl::StrCat("manifest: ", loaded, " bytes of ", what,
                                                                " loaded, the plan says ", planned));
  };
  for (const absl::Status &status : {check("weights on the device", manifest.loaded.device, manifest.planned.device),
                                     check("weights in host memory", manifest.loaded.host, manifest.planned.host),
                                     check("weights on disk", manifest.loaded.disk, manifest.planned.disk),
                                     check("device arena", manifest.deviceArenaBytes, plan.arenaBytes),
                                     check("host slab", manifest.hostSlabBytes, plan.hostBytes)})
    if (!status.ok())
      return status;
  return absl::OkStatus();
}

} // namespace

struct Runtime::Impl {
  Impl(const plan::Plan &planIn, Device &deviceIn) : plan(planIn), device(deviceIn), table(planIn) {}

  const plan::Plan &plan;
  Device &device;
  Manifest manifest;
  TransitionTable table;
  std::vector<std::unique_ptr<Graph>> variants, transitions; // null: left out
  uint32_t placement = 0;
  uint32_t state = 0;
  uint64_t launched = 0, awaited = 0, missing = 0, leftOut = 0, transitionsRun = 0;

  absl::StatusOr<std::unique_ptr<Graph>> make(const GraphKey &key) const {
    absl::StatusOr<std::unique_ptr<Graph>> graph = device.build(key);
    if (!graph.ok())
      return graph.status();
    if (absl::Status status = device.upload(**graph); !status.ok())
      return status;
    return graph;
  }

  absl::Status buildAll(const LoadOptions &options) {
    const int64_t startNs = device.nowNs();
    const auto within = [&] {
      return (options.buildNs == 0 || device.nowNs() - startNs < options.buildNs) &&
             (options.graphBytes == 0 || device.counters().graphBytes < options.graphBytes);
    };
    for (uint32_t i = 0; i < plan.transitions.size(); ++i) {
      absl::StatusOr<std::unique_ptr<Graph>> graph = make({.transition = true, .index = i});
      if (!graph.ok())
        return graph.status();
      transitions.push_back(*std::move(graph));
    }
    variants.resize(plan.variants.size());
    const auto build = [&](uint32_t i) {
      absl::StatusOr<std::unique_ptr<Graph>> graph = make({.transition = false, .index = i});
      if (!graph.ok())
        return graph.status();
      variants[i] = *std::move(graph);
      return absl::OkStatus();
    };
    for (uint32_t i = 0; i < plan.variants.size(); ++i)
      if (isLargest(i))
        if (absl::Status status = build(i); !status.ok())
          return status;
    // The larger a bucket, the more others it can stand in for.
    for (uint32_t i = static_cast<uint32_t>(plan.variants.size()); i-- > 0;)
      if (variants[i] == nullptr) {
        if (!within()) {
          ++leftOut;
          continue;
        }
        if (absl::Status status = build(i); !status.ok())
          return status;
      }
    return absl::OkStatus();
  }

  // No other variant of its schedule holds more in any respect.
  bool isLargest(uint32_t index) const {
    const plan::Variant &one = plan.variants[index];
    return std::none_of(plan.variants.begin(), plan.variants.end(), [&](const plan::Variant &other) {
      return other.schedule == one.schedule && other.newTokens >= one.newTokens && other.sequences >= one.sequences &&
             other.context >= one.context &&
             (other.newTokens > one.newTokens || other.sequences > one.sequences || other.context > one.context);
    });
  }

  // What this variant takes from the present state, its transition included; kNone-cost if it cannot be reached.
  bool cost(const plan::Variant &variant, uint64_t &ns) const {
    const uint32_t transition = table.find(state, plan.schedules[variant.schedule].entryState);
    if (transition == kNone)
      return false;
    ns = variant.predictedNs + (transition == TransitionTable::kReady ? 0 : plan.transitions[transition].predictedNs);
    return true;
  }
};

Runtime::Runtime() = default;
Runtime::~Runtime() {
  if (impl_ != nullptr)
    (void)impl_->device.drain(); // graphs outlive their launches
}

absl::StatusOr<std::unique_ptr<Runtime>> Runtime::load(const plan::Plan &plan, Device &device,
                                                       const DeviceOptions &deviceOptions,
                                                       const model::WeightSource *weights, const LoadOptions &options) {
  if (options.placement >= plan.placements.size())
    return absl::InvalidArgumentError(
        absl::StrCat("placement ", options.placement, " asked for, the plan has ", plan.placements.size()));
  if (absl::Status status = device.open(plan, deviceOptions); !status.ok())
    return status;
  auto impl = std::make_unique<Impl>(plan, device);
  impl->placement = options.placement;
  absl::StatusOr<Manifest> manifest = Loader(plan, device, weights, options).load();
  if (!manifest.ok())
    return manifest.status();
  impl->manifest = *std::move(manifest);
  if (absl::Status status = compareManifest(impl->manifest, plan); !status.ok())
    return status;
  if (absl::Status status = impl->buildAll(options); !status.ok())
    return status;
  std::unique_ptr<Runtime> runtime(new Runtime());
  runtime->impl_ = std::move(impl);
  return runtime;
}

const plan::Plan &Runtime::plan() const { return impl_->plan; }
Device &Runtime::device() { return impl_->device; }
const Manifest &Runtime::manifest() const { return impl_->manifest; }
uint32_t Runtime::placement() const { return impl_->placement; }
uint64_t Runtime::launched() const { return impl_->launched; }
uint64_t Runtime::missingVariants() const { return impl_->missing; }
uint64_t Runtime::leftOutVariants() const { return impl_->leftOut; }
uint64_t Runtime::transitionsRun() const { return impl_->transitionsRun; }

absl::StatusOr<uint32_t> Runtime::choose(int64_t tokens, int64_t sequences, int64_t context) {
  return chooseIn(impl_->placement, tokens, sequences, context);
}

absl::StatusOr<uint32_t> Runtime::chooseIn(uint32_t placement, int64_t tokens, int64_t sequences, int64_t context) {
  const plan::Plan &plan = impl_->plan;
  if (placement >= plan.placements.size())
    return absl::InvalidArgumentError(
        absl::StrCat("placement ", placement, " asked for, the plan has ", plan.placements.size()));
  uint32_t best = kNone;
  uint64_t bestNs = 0;
  int64_t largestTokens = 0, largestSequences = 0, largestContext = 0;
  for (uint32_t i = 0; i < plan.variants.size(); ++i) {
    const plan::Variant &variant = plan.variants[i];
    if (variant.placement != placement || impl_->variants[i] == nullptr)
      continue;
    largestTokens = std::max(largestTokens, variant.newTokens);
    largestSequences = std::max(largestSequences, variant.sequences);
    largestContext = std::max(largestContext, variant.context);
    const bool oneRowEach = tokens == sequences;
    if (variant.newTokens < tokens || variant.sequences < sequences || variant.context < context ||
        (plan.schedules[variant.schedule].shape == plan::ShapeClass::Decode && !oneRowEach))
      continue;
    uint64_t ns = 0;
    if (impl_->cost(variant, ns) && (best == kNone || ns < bestNs)) {
      best = i;
      bestNs = ns;
    }
  }
  if (best != kNone)
    return best;
  ++impl_->missing;
  return absl::NotFoundError(absl::StrCat("no variant of placement '", plan.placements[placement].name, "' holds ",
                                          tokens, " new tokens of ", sequences, " sequences at context ", context,
                                          "; its largest buckets are ", largestTokens, " new tokens, ",
                                          largestSequences, " sequences, context ", largestContext));
}

absl::Status Runtime::launch(uint32_t variant) {
  Impl &impl = *impl_;
  if (variant >= impl.variants.size())
    return absl::InvalidArgumentError(
        absl::StrCat("variant ", variant, " launched, the plan has ", impl.variants.size()));
  if (impl.variants[variant] == nullptr)
    return absl::FailedPreconditionError(absl::StrCat("variant ", variant, " launched, which was left out"));
  const plan::Schedule &schedule = impl.plan.schedules[impl.plan.variants[variant].schedule];
  const uint32_t transition = impl.table.find(impl.state, schedule.entryState);
  if (transition == kNone)
    return absl::FailedPreconditionError(absl::StrCat("no transition leads from state ", impl.state, " to state ",
                                                      schedule.entryState, " of schedule '", schedule.name, "'"));
  if (transition != TransitionTable::kReady) {
    if (absl::Status status = impl.device.launch(*impl.transitions[transition]); !status.ok())
      return status;
    impl.state = impl.plan.transitions[transition].toState;
    ++impl.transitionsRun;
  }
  if (absl::Status status = impl.device.launch(*impl.variants[variant]); !status.ok())
    return status;
  impl.state = schedule.exitState;
  impl.placement = schedule.placement;
  ++impl.launched;
  return absl::OkStatus();
}

absl::StatusOr<absl::Span<const int32_t>> Runtime::awaitTokens() {
  if (impl_->awaited == impl_->launched)
    return absl::FailedPreconditionError("no launched iteration is left to wait for");
  absl::StatusOr<absl::Span<const int32_t>> tokens = impl_->device.awaitTokens(impl_->awaited + 1);
  if (tokens.ok())
    ++impl_->awaited;
  return tokens;
}

} // namespace headrace::core
