// SPDX-License-Identifier: Apache-2.0
//
// A model over several devices of one group: its stages (model::ModelSpec::stage), each a plan of its own, loaded by a
// runtime of its own. Micro-batches, sequences that pass the model together, go through them one behind the other; the
// caller's thread launches a stage when the one before has published, and takes the rows there by the host:
//
//   stage 0   [ 0 ][ 1 ][ 2 ]                  [ 0 ] the next token of micro-batch 0, whose id the last stage has
//   stage 1        [ 0 ][ 1 ][ 2 ]
//   stage 2             [ 0 ][ 1 ][ 2 ]
//                            ^ rows of 1: from where stage 1 has sent them, in its slab, to where stage 2 receives
//
// Each iteration runs in the placement that its stage's plan has chosen for its size, or in one that was asked for: a
// stage changes to it at its own edge, before the first micro-batch that began since. No edges between plans, and no
// thread that waits for another's device. A stage has one launch under way: its rows lie at one address, and go on
// before the next is launched. So a stage waits for the one behind it where that is slower, which bounds them all
// anyway.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/core/DeviceGroup.h"
#include "runtime/core/MetaWriter.h"
#include "runtime/core/Runtime.h"

namespace headrace::core {

class Stages {
public:
  // Of all stages of one model, the first first, each on the group's device of its number; all outlive this. At most
  // `microBatches` are under way at once. InvalidArgument naming the stage for what checkStages() (plan/StagesFile.h)
  // refuses.
  static absl::StatusOr<std::unique_ptr<Stages>> make(absl::Span<Runtime *const> stages, DeviceGroup &group,
                                                      size_t microBatches);

  size_t size() const { return stages_.size(); }
  const plan::Plan &plan() const { return stages_.front().runtime->plan(); } // the first one's; in limits all are alike
  DeviceGroup &group() { return group_; }
  size_t microBatches() const { return batches_.size(); }
  Runtime &stage(size_t number) { return *stages_[number].runtime; }
  DeviceCounters counters() const; // of all devices together
  absl::Status drain();            // all devices
  // Of a mini-batch, by the same numbers in every stage's caches: as many as the stage with the fewest has.
  KvBlocks &kvBlocks(uint32_t miniBatch) { return stages_.front().runtime->kvBlocks(miniBatch); }
  size_t underWay() const { return static_cast<size_t>(begun_ - awaited_); }
  uint64_t begun() const { return begun_; } // micro-batches
  // Which placement a stage's iterations run in, of micro-batches that begin from now on; none: chosen by size.
  // InvalidArgument where its plan has no such one.
  absl::Status setPlacement(size_t stage, std::optional<uint32_t> placement);

  // Takes a micro-batch behind the others: the sequences of each mini-batch, as writeMetas() has them. Tokens are ids:
  // what a request slot sampled last only the last stage knows. What they refer to stays until its tokens were awaited.
  // Returns the first stage's variant. NotFound where a stage has no variant for it; FailedPrecondition where too many
  // are under way. Launches what can be. Allocates nothing.
  absl::StatusOr<uint32_t> begin(absl::Span<const absl::Span<const SequenceRows>> miniBatches);
  // Drives all stages until the oldest micro-batch's tokens are there (true), or `untilNs` on the group's clock.
  // FailedPrecondition where none is under way. Allocates nothing.
  absl::StatusOr<bool> waitUntil(int64_t untilNs);
  // Drives all stages until the oldest micro-batch's tokens are there. FailedPrecondition where none is under way.
  // Allocates nothing.
  struct Awaited {
    absl::Span<const int32_t> tokens; // one a sampled row, by mini-batch and sequence; valid until the next begin()
    int64_t visibleNs = 0;            // on the group's clock
    uint32_t variant = 0;             // of the last stage
  };
  absl::StatusOr<Awaited> await();

private:
  struct MicroBatch {
    absl::Span<const absl::Span<const SequenceRows>> miniBatches;
    int64_t tokens = 0, sequences = 0, context = 0; // of the largest mini-batch
    std::vector<uint32_t> placements;               // by stage
    std::vector<int32_t> sampled;                   // as large as any may be
    int64_t visibleNs = 0;
    uint32_t lastVariant = 0; // of the last stage
  };
  struct Stage {
    Runtime *runtime = nullptr;
    std::optional<uint32_t> placement; // asked for
    std::vector<uint64_t> home;        // of each mini-batch's rows, in the slab; of stages that receive or send
    uint64_t taken = 0, published = 0;
  };

  Stages(absl::Span<Runtime *const> stages, DeviceGroup &group, size_t microBatches);
  absl::StatusOr<uint32_t> variantOf(size_t stage, const MicroBatch &batch);
  static uint32_t placementOf(const Stage &stage, const MicroBatch &batch);
  absl::Status launchAll();
  absl::StatusOr<bool> launchNext(size_t stage);
  void passOn(size_t stage, const MicroBatch &batch);
  absl::StatusOr<bool> awaitAny(int64_t untilNs);
  MicroBatch &batch(uint64_t number) { return batches_[number % batches_.size()]; }

  DeviceGroup &group_;
  std::vector<Stage> stages_;
  std::vector<MicroBatch> batches_; // a ring
  std::vector<uint64_t> wanted_;    // by device: the launch that is awaited
  uint64_t begun_ = 0, awaited_ = 0;
};

} // namespace headrace::core
