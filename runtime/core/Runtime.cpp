// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/Runtime.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/core/BlockMover.h"
#include "runtime/core/DirtyStates.h"
#include "runtime/core/LoadWeights.h"
#include "runtime/core/TransitionPaths.h"
#include "runtime/core/VariantTable.h"
#include "runtime/plan/value/BlockRuns.h"

namespace headrace::core {

using plan::kNone;

struct Runtime::Impl {
  Impl(const plan::Plan &planIn, Device &deviceIn, uint32_t placement)
      : plan(planIn), device(deviceIn), caches(plan::cacheMaps(planIn)), mover(planIn, deviceIn), paths(planIn),
        now(paths.config(placement, 0)), tellsRows(copiesByRows(planIn)),
        own(planIn.miniBatches,
            KvBlocks(planIn.kvBlocks, planIn.blockTokens,
                     {planIn.actBlocks, planIn.contextBlocks, planIn.actRatio, planIn.mostSequences()})),
        blocks(absl::MakeSpan(own)) {}

  const plan::Plan &plan;
  Device &device;
  const std::vector<plan::CacheMap> caches; // by placement
  BlockMover mover;
  Manifest manifest;
  const TransitionPaths paths;
  VariantTable table;
  std::vector<std::unique_ptr<Graph>> variants, transitions; // null: left out
  TransitionPaths::Config now;                               // what the device holds once all launches have ended
  const bool tellsRows;                                      // launches say which rows and blocks they write
  absl::Status lost;                                         // of kvWritten(): nothing can be launched any more
  std::vector<KvBlocks> own;                                 // by mini-batch, all of one limit
  absl::Span<KvBlocks> blocks;                               // these, or another runtime's
  bool sharesBlocks = false;                                 // the limit stays
  VariantTable::Chosen chosen;                               // the last that was asked for
  uint64_t owedNs = 0;       // lost since the last transition by variants that were chosen to avoid one
  LaunchInUse launchedInUse; // of the last iteration
  uint64_t launched = 0, awaited = 0, missing = 0, leftOut = 0, transitionsRun = 0;

  absl::StatusOr<std::unique_ptr<Graph>> make(const GraphKey &key) const {
    ASSIGN_OR_RETURN(graph, device.build(key));
    RETURN_IF_ERROR(device.upload(*graph));
    return graph;
  }

  absl::Status buildAll(const LoadOptions &options) {
    const int64_t startNs = device.nowNs();
    const auto within = [&] {
      return (options.buildNs == 0 || device.nowNs() - startNs < options.buildNs) &&
             (options.graphBytes == 0 || device.counters().graphBytes < options.graphBytes);
    };
    for (uint32_t i = 0; i < plan.transitions.size(); ++i) {
      ASSIGN_OR_RETURN(graph, make({.transition = true, .index = i}));
      transitions.push_back(std::move(graph));
    }
    variants.resize(plan.variants.size());
    const auto build = [&](uint32_t i) {
      ASSIGN_OR_RETURN(graph, make({.transition = false, .index = i}));
      variants[i] = std::move(graph);
      return absl::OkStatus();
    };
    for (uint32_t i = 0; i < plan.variants.size(); ++i)
      if (isLargest(i))
        RETURN_IF_ERROR(build(i));
    // The larger a bucket, the more others it can stand in for.
    for (uint32_t i = static_cast<uint32_t>(plan.variants.size()); i-- > 0;)
      if (variants[i] == nullptr) {
        if (!within()) {
          ++leftOut;
          continue;
        }
        RETURN_IF_ERROR(build(i));
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

  int64_t endOfUse() const { // of any mini-batch
    int64_t end = 0;
    for (const KvBlocks &pool : blocks)
      end = std::max(end, pool.endOfUse());
    return end;
  }
  absl::Status setLimit(int64_t limit) {
    for (KvBlocks &pool : blocks)
      RETURN_IF_ERROR(pool.setLimit(limit));
    return absl::OkStatus();
  }
  LaunchInUse inUse() const {
    std::array<InUse, kernels::kMostMiniBatches> each;
    for (size_t i = 0; i < blocks.size(); ++i)
      each[i] = {.kvBlocks = blocks[i].endOfUse(), .actBlocks = blocks[i].actEndOfUse()};
    return LaunchInUse(absl::MakeConstSpan(each.data(), blocks.size()));
  }
  // Of the iteration that the device's staging copies hold.
  LaunchInUse inUseOfRows() const {
    if (!tellsRows)
      return inUse();
    std::array<InUse, kernels::kMostMiniBatches> each;
    const kernels::IterationMeta *const first = device.meta();
    for (size_t i = 0; i < blocks.size(); ++i)
      each[i] = inUseOfRows(*kernels::metaOf(plan.metaLayout, first, static_cast<uint32_t>(i)), blocks[i]);
    return LaunchInUse(absl::MakeConstSpan(each.data(), blocks.size()));
  }
  InUse inUseOfRows(const kernels::IterationMeta &meta, const KvBlocks &pool) const {
    InUse out{.kvBlocks = pool.endOfUse(), .rows = meta.numTokens, .actBlocks = pool.actEndOfUse()};
    const int32_t *slots = meta.array<int32_t>(meta.kvSlot);
    // Slots of KV blocks; the scratch block's are below blockTokens.
    int64_t first = std::numeric_limits<int64_t>::max(), last = 0;
    for (int32_t row = 0; row < meta.numTokens; ++row)
      if (slots[row] >= plan.blockTokens && slots[row] < plan.kvBlocks * plan.blockTokens) {
        first = std::min<int64_t>(first, slots[row]);
        last = std::max<int64_t>(last, slots[row]);
      }
    out.writtenBegin = last == 0 ? 0 : first / plan.blockTokens;
    out.writtenEnd = last == 0 ? 0 : last / plan.blockTokens + 1;
    return out;
  }

  TransitionPaths::Config entryOf(const plan::Schedule &schedule) const {
    return paths.config(schedule.placement, schedule.entryState);
  }

  // Along the path to `target`, up to where the placement changes or the path ends.
  struct Stretch {
    TransitionPaths::Config end;
    uint64_t predictedNs = 0;
  };
  Stretch stretch(TransitionPaths::Config target) const {
    Stretch s{now};
    while (s.end != target && paths.placementOf(s.end) == paths.placementOf(now)) {
      const uint32_t transition = paths.transition(s.end, target);
      s.predictedNs += transition == TransitionPaths::kFree ? 0 : plan.transitions[transition].predictedNs;
      s.end = paths.next(s.end, target);
    }
    return s;
  }

  // No block is in use that a placement on the path does not have.
  absl::Status checkBlocks(TransitionPaths::Config target, TransitionPaths::Config end) const {
    for (TransitionPaths::Config at = now; at != end;) {
      at = paths.next(at, target);
      const plan::Placement &placement = plan.placements[paths.placementOf(at)];
      for (const KvBlocks &pool : blocks) {
        if (placement.kvBlocks >= pool.limit())
          continue;
        if (const int64_t above = pool.blocksInUseAbove(placement.kvBlocks); above > 0)
          return absl::FailedPreconditionError(absl::StrCat("placement '", placement.name, "' has ", placement.kvBlocks,
                                                            " KV blocks of ", pool.limit(), ", and ", above,
                                                            " of those that it has not are in use"));
      }
    }
    return absl::OkStatus();
  }

  // Launches what is on the path to `target` up to `end`, a configuration on it.
  absl::Status follow(TransitionPaths::Config target, TransitionPaths::Config end) {
    RETURN_IF_ERROR(lost);
    RETURN_IF_ERROR(checkBlocks(target, end));
    while (now != end) {
      const uint32_t transition = paths.transition(now, target);
      const TransitionPaths::Config next = paths.next(now, target);
      if (const int64_t has = plan.placements[paths.placementOf(next)].kvBlocks;
          !sharesBlocks && has != blocks[0].limit())
        RETURN_IF_ERROR(setLimit(has));
      if (transition != TransitionPaths::kFree) {
        RETURN_IF_ERROR(device.launch(*transitions[transition], inUse()));
        ++transitionsRun;
        owedNs = 0;
      }
      now = next;
    }
    return absl::OkStatus();
  }

  absl::Status checkPlacement(uint32_t placement) const {
    if (placement < plan.placements.size())
      return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("placement ", placement, " asked for, the plan has ", plan.placements.size()));
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
  RETURN_IF_ERROR(TransitionPaths::check(plan));
  RETURN_IF_ERROR(device.open(plan, deviceOptions));
  auto impl = std::make_unique<Impl>(plan, device, options.placement);
  ASSIGN_OR_RETURN(manifest, loadWeights(plan, device, weights, options));
  impl->manifest = manifest;
  RETURN_IF_ERROR(impl->buildAll(options));
  std::vector<bool> built;
  for (const std::unique_ptr<Graph> &variant : impl->variants)
    built.push_back(variant != nullptr);
  impl->table = VariantTable(plan, impl->paths, built);
  RETURN_IF_ERROR(impl->setLimit(plan.placements[options.placement].kvBlocks));
  std::unique_ptr<Runtime> runtime(new Runtime());
  runtime->impl_ = std::move(impl);
  return runtime;
}

const plan::Plan &Runtime::plan() const { return impl_->plan; }
Device &Runtime::device() { return impl_->device; }
KvBlocks &Runtime::kvBlocks(uint32_t miniBatch) { return impl_->blocks[miniBatch]; }
absl::Status Runtime::shareKvBlocks(Runtime &of) {
  for (const plan::Plan *const plan : {&impl_->plan, &of.impl_->plan})
    for (const plan::Placement &placement : plan->placements)
      if (placement.kvBlocks != plan->placements.front().kvBlocks)
        return absl::FailedPreconditionError(absl::StrCat("placement '", placement.name, "' has ", placement.kvBlocks,
                                                          " KV blocks and '", plan->placements.front().name, "' ",
                                                          plan->placements.front().kvBlocks,
                                                          ": expected as many, as they are shared"));
  const int64_t lower = std::min(impl_->blocks[0].limit(), of.impl_->blocks[0].limit());
  impl_->blocks = of.impl_->blocks;
  impl_->sharesBlocks = of.impl_->sharesBlocks = true;
  return impl_->setLimit(lower);
}
const plan::CacheMap &Runtime::caches(uint32_t placement) const { return impl_->caches[placement]; }
BlockMover &Runtime::mover() { return impl_->mover; }
const Manifest &Runtime::manifest() const { return impl_->manifest; }
absl::Status Runtime::flushKv() {
  Impl &impl = *impl_;
  if (!impl.paths.dirty(impl.now))
    return absl::OkStatus();
  const TransitionPaths::Config clean = impl.paths.config(placement(), 0);
  if (!impl.paths.reaches(impl.now, clean))
    return absl::FailedPreconditionError(absl::StrCat("no transition of placement '",
                                                      impl.plan.placements[placement()].name,
                                                      "' brings homes of KV on the host up to what slots hold"));
  return impl.follow(clean, clean);
}

void Runtime::kvWritten() {
  if (impl_->paths.dirty(impl_->now) && impl_->lost.ok())
    impl_->lost = absl::FailedPreconditionError(
        "KV blocks were written while slots held what their homes did not have: flushKv() comes first");
  // Of caches that are all on the device slots hold nothing; what they hold of weights stays.
  if (caches().split())
    impl_->now = impl_->paths.config(placement(), 0);
}
uint32_t Runtime::placement() const { return impl_->paths.placementOf(impl_->now); }
uint64_t Runtime::launched() const { return impl_->launched; }
const LaunchInUse &Runtime::launchedInUse() const { return impl_->launchedInUse; }
uint64_t Runtime::missingVariants() const { return impl_->missing; }
uint64_t Runtime::leftOutVariants() const { return impl_->leftOut; }
uint64_t Runtime::transitionsRun() const { return impl_->transitionsRun; }

absl::StatusOr<uint32_t> Runtime::choose(int64_t tokens, int64_t sequences, int64_t context) {
  return chooseIn(placement(), tokens, sequences, context);
}

absl::StatusOr<uint32_t> Runtime::chooseIn(uint32_t placement, int64_t tokens, int64_t sequences, int64_t context) {
  RETURN_IF_ERROR(impl_->checkPlacement(placement));
  impl_->chosen = impl_->table.cheapest(placement, {tokens, sequences, context, impl_->endOfUse()}, impl_->paths,
                                        impl_->now, impl_->owedNs);
  if (impl_->chosen.variant != kNone)
    return impl_->chosen.variant;
  ++impl_->missing;
  const VariantTable::Bucket largest = impl_->table.largest(placement);
  return absl::NotFoundError(absl::StrCat("no variant of placement '", impl_->plan.placements[placement].name,
                                          "' holds ", tokens, " new tokens of ", sequences, " sequences at context ",
                                          context, "; its largest buckets are ", largest.tokens, " new tokens, ",
                                          largest.sequences, " sequences, context ", largest.context));
}

absl::StatusOr<Hop> Runtime::nextHop(uint32_t placement) const {
  RETURN_IF_ERROR(impl_->checkPlacement(placement));
  const TransitionPaths::Config target = impl_->paths.config(placement, 0);
  if (!impl_->paths.reaches(impl_->now, target))
    return absl::FailedPreconditionError(absl::StrCat("no transition leads from placement '",
                                                      impl_->plan.placements[this->placement()].name, "' to '",
                                                      impl_->plan.placements[placement].name, "'"));
  if (placement == this->placement())
    return Hop{placement, 0, 0};
  const Impl::Stretch stretch = impl_->stretch(target);
  return Hop{impl_->paths.placementOf(stretch.end), stretch.predictedNs,
             impl_->paths.predictedNs(impl_->now, target) - stretch.predictedNs};
}

absl::StatusOr<Hop> Runtime::takeHop(uint32_t placement) {
  absl::StatusOr<Hop> hop = nextHop(placement);
  if (!hop.ok() || placement == this->placement())
    return hop;
  const TransitionPaths::Config target = impl_->paths.config(placement, 0);
  RETURN_IF_ERROR(impl_->follow(target, impl_->stretch(target).end));
  return hop;
}

absl::Status Runtime::enter(uint32_t variant) {
  Impl &impl = *impl_;
  if (variant >= impl.variants.size())
    return absl::InvalidArgumentError(
        absl::StrCat("variant ", variant, " launched, the plan has ", impl.variants.size()));
  if (impl.variants[variant] == nullptr)
    return absl::FailedPreconditionError(absl::StrCat("variant ", variant, " launched, which was left out"));
  const plan::Schedule &schedule = impl.plan.schedules[impl.plan.variants[variant].schedule];
  const TransitionPaths::Config entry = impl.entryOf(schedule);
  if (!impl.paths.reaches(impl.now, entry))
    return absl::FailedPreconditionError(absl::StrCat("no transition leads from placement '",
                                                      impl.plan.placements[placement()].name, "' to state ",
                                                      schedule.entryState, " of schedule '", schedule.name, "'"));
  return impl.follow(entry, entry);
}

absl::Status Runtime::launch(uint32_t variant) {
  RETURN_IF_ERROR(enter(variant));
  Impl &impl = *impl_;
  const plan::Schedule &schedule = impl.plan.schedules[impl.plan.variants[variant].schedule];
  if (const int64_t most = plan::kvBlocksOf(impl.plan, schedule), end = impl.endOfUse(); end > most)
    return absl::FailedPreconditionError(
        absl::StrCat("variant ", variant, " is for KV blocks below ", most, ", block ", end - 1, " is in use"));
  const LaunchInUse inUse = impl.inUseOfRows();
  RETURN_IF_ERROR(impl.device.launch(*impl.variants[variant], inUse));
  impl.launchedInUse = inUse;
  impl.now = impl.paths.config(schedule.placement, schedule.exitState);
  if (variant == impl.chosen.variant)
    impl.owedNs += impl.chosen.excessNs;
  ++impl.launched;
  return absl::OkStatus();
}

absl::StatusOr<std::optional<WrongNumber>> Runtime::findWrongNumber(uint32_t variant) {
  RETURN_IF_ERROR(enter(variant));
  Impl &impl = *impl_;
  const plan::Schedule &schedule = impl.plan.schedules[impl.plan.variants[variant].schedule];
  RETURN_IF_ERROR(impl.device.drain());
  absl::StatusOr<std::optional<WrongNumber>> found = impl.device.findWrongNumber(variant, impl.inUseOfRows());
  // Where it stopped early, slots hold what they would have at the end or less: the exit state counts as lost.
  const bool ended = found.ok() && (!*found || writesBack(impl.plan, schedule));
  impl.now = impl.paths.config(schedule.placement, ended ? schedule.exitState : 0);
  return found;
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
