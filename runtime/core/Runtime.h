// SPDX-License-Identifier: Apache-2.0
//
// The thin runtime: loads a verified plan onto a device, builds every variant before the first token, and launches one
// per iteration. It has no policy: which variant is the caller's choice (serve/), what a variant does is the plan's.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/core/Device.h"
#include "runtime/core/KvBlocks.h"
#include "runtime/model/WeightSource.h"
#include "runtime/plan/value/CacheMap.h"

namespace headrace::core {

class BlockMover;

// Bytes of weights by home, counted while loading, beside what the plan says; and where its KV blocks are at home.
struct Manifest {
  plan::HomeBytes planned, loaded;
  plan::HomeBytes kv; // of the caches; said where some of them is on the host
  uint64_t deviceArenaBytes = 0, hostSlabBytes = 0;
  std::string toString() const; // one table for people
};

struct LoadOptions {
  uint32_t placement = 0;                                      // into Plan::placements: whose homes to load
  std::function<void(uint64_t done, uint64_t total)> progress; // bytes
  // What building graphs may take, on the device's clock and of device memory beside the arena; 0: no limit. The
  // largest bucket of each kind and every transition are built whatever they take; smaller buckets that no longer fit
  // are left out, and a larger one runs in their place.
  int64_t buildNs = 0;
  uint64_t graphBytes = 0;
};

// A step of the way to another placement, for the edge of an iteration.
struct Hop {
  uint32_t placement = 0;   // where it leads
  uint64_t predictedNs = 0; // the copies it makes
  uint64_t leftNs = 0;      // those of the way behind it
};

class Runtime {
public:
  // Opens the device, fills homes from `weights` (ignored by devices that hold no data), builds and uploads every
  // variant and transition, within the limits of `options`. Fails if the manifest differs from the plan. Plan and
  // device outlive the runtime.
  static absl::StatusOr<std::unique_ptr<Runtime>> load(const plan::Plan &plan, Device &device,
                                                       const DeviceOptions &deviceOptions,
                                                       const model::WeightSource *weights, const LoadOptions &options);

  const plan::Plan &plan() const;
  Device &device();
  const Manifest &manifest() const;
  uint32_t placement() const;

  // The cheapest variant of the current placement that holds this size; NotFound naming the size and the largest
  // buckets if none does (counted in `missingVariants`, never built on the request path).
  absl::StatusOr<uint32_t> choose(int64_t tokens, int64_t sequences, int64_t context);
  // The same of another placement: launching it changes to that placement first, by all transitions that lead there.
  absl::StatusOr<uint32_t> chooseIn(uint32_t placement, int64_t tokens, int64_t sequences, int64_t context);
  // Launches the transitions that lead to a variant's entry state, and not the variant. Allocates nothing.
  absl::Status enter(uint32_t variant);
  // Launches a variant over what the caller has put in device().meta(), after the transitions its entry state needs, if
  // any. Allocates nothing.
  absl::Status launch(uint32_t variant);
  // The pool that every KV block of a mini-batch on this device comes from. The present placement says how many there
  // are; a change to one that has fewer (launch(), takeHop()) is FailedPrecondition, with nothing launched, while a
  // block is in use that it does not have: memory is never taken from a block in use. Each mini-batch has a pool of its
  // own, all of one limit.
  KvBlocks &kvBlocks(uint32_t miniBatch = 0);
  // From now on its pools are those of another runtime, which outlives it: of a model's stages, as every sequence has
  // the same blocks in all (Stages.h). Their limit is the lower of both, and stays. With no block in use.
  // FailedPrecondition where placements of either plan differ in their number of blocks.
  absl::Status shareKvBlocks(Runtime &of);
  // Where blocks are in a placement; in the present one.
  const plan::CacheMap &caches(uint32_t placement) const;
  const plan::CacheMap &caches() const { return caches(placement()); }
  BlockMover &mover();
  // Launches what makes every home of KV on the host current, where a launch has left one behind what is in slots (a
  // dirty state, DirtyStates.h); nothing where none is. Before blocks are read or written otherwise than by a launch.
  // Slots hold nothing afterwards that such a state had. Allocates nothing.
  absl::Status flushKv();
  // Blocks were filled otherwise than by a launch (BlockMover.h): what slots hold of caches is no longer what
  // blocks hold, and the next launch brings it anew. After flushKv(), with nothing launched in between: else what was
  // written to them could be lost, and every launch from then on is FailedPrecondition.
  void kvWritten();
  // The way to another placement one hop at a time, with iterations in between, so that none of them is late by more
  // than one hop: what the next one is, and taking it. A hop leads to the placement asked for or to one on the way;
  // to the present one there is none to take (predictedNs 0). FailedPrecondition if no transitions lead there.
  // Allocates nothing.
  absl::StatusOr<Hop> nextHop(uint32_t placement) const;
  absl::StatusOr<Hop> takeHop(uint32_t placement);
  absl::StatusOr<absl::Span<const int32_t>> awaitTokens(); // of the oldest launch not yet awaited
  // Device::findWrongNumber() of a variant over what the caller has put in device().meta(), after the transitions its
  // entry state needs. For when a launch has published wrong numbers, and all that were launched have been awaited.
  // What other sequences have in the cache stays, whatever is found.
  absl::StatusOr<std::optional<WrongNumber>> findWrongNumber(uint32_t variant);
  uint64_t launched() const;                // iterations, transitions not counted
  const LaunchInUse &launchedInUse() const; // what the last of them was told of KV; everything before the first
  uint64_t missingVariants() const;
  uint64_t leftOutVariants() const; // not built, for LoadOptions' limits
  uint64_t transitionsRun() const;
  ~Runtime();

private:
  Runtime();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

} // namespace headrace::core
