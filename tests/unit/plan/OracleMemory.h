// SPDX-License-Identifier: Apache-2.0
//
// Between the parts of the oracle: memory as an array of granules, caches in it, the order of steps.
#pragma once

#include <bitset>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <set>
#include <vector>

#include "runtime/model/WeightLayout.h"
#include "runtime/plan/proof/PlanVerifier.h"

namespace headrace::plan::test {

inline constexpr uint64_t kGranule = 64;

// The granules of a range of bytes.
struct Granules {
  uint64_t first = 0, last = 0; // half open
  Granules(uint64_t address, uint64_t bytes) : first(address / kGranule), last((address + bytes) / kGranule) {
    if (address % kGranule != 0 || bytes % kGranule != 0)
      std::abort();
  }
};

struct What { // a granule's worth of a buffer
  uint32_t buffer = kNone;
  uint64_t granule = 0;
  bool operator==(const What &) const = default;
};

// Where the bytes of an extent, an operand or a content lie, granule by granule: f(granule, what). An interleaved one
// leaves a stride between its blocks.
template <typename Range, typename F> void forEachGranule(const Plan &plan, const Range &r, bool interleaved, F f) {
  const Granules run(r.address, r.bytes);
  const uint64_t block = plan.kvBlockBytes() / kGranule, gap = plan.kvStride() / kGranule - block;
  const uint64_t first = r.bufferOffset / kGranule;
  for (uint64_t i = 0; i < run.last - run.first; ++i) {
    const uint64_t blocks = interleaved ? (first + i) / block - first / block : 0;
    f(run.first + i + blocks * gap, What{r.buffer, first + i});
  }
}
// One behind its last byte.
template <typename Range> uint64_t endOf(const Plan &plan, const Range &r, bool interleaved) {
  const uint64_t block = plan.kvBlockBytes();
  const uint64_t blocks = interleaved ? (r.bufferOffset + r.bytes - 1) / block - r.bufferOffset / block : 0;
  return r.address + r.bytes + blocks * (plan.kvStride() - block);
}

// Caches whose blocks are interleaved on the device in all placements, or at home on the host. Numbers of blocks.
struct Caches {
  bool byBlocks = false; // neither: each is one run on the device
  bool mirrored = false; // blocks [mirroredFrom, mirroredTo) have a home in the slab
  int64_t mirroredFrom = 0;
  int64_t mirroredTo = 0;             // the most of any placement
  std::map<uint32_t, uint64_t> byte0; // by buffer: where byte 0 is in the slab, or would be
};
Caches cachesOf(const Plan &plan);
int64_t blocksOnDevice(const Plan &plan, const Placement &placement); // of the first layer's cache
int64_t blocksInUse(const Plan &plan, const Schedule &s);

// Homes of such caches, placement by placement, and what schedules say about blocks.
bool cachesAreRight(const Plan &plan);
// What placements must have in common.
void addBrokenCacheRules(const Plan &plan, const Caches &caches, std::set<Rule> &rules);
// Operands that are parts of a cache.
void addBrokenCacheRules(const Plan &plan, const Caches &caches, const Schedule &s, const Step &step,
                         std::set<Rule> &rules);

// Bytes of weights and caches, packed ones bit by bit, and what extents say of them; a cache's groups fit its heads.
bool encodingsAreRight(const Plan &plan);
bool kvEncodingIsRight(const Plan &plan);

// Some content of it is ahead of its home.
bool isDirtyState(const State &state);
// How many there are, their caches, and whose each step and local is.
bool miniBatchesAreRight(const Plan &plan);
// Sizes of what is exchanged with the host, of all mini-batches.
bool ioIsRight(const Plan &plan);
// Of the iteration buffer a mini-batch's header and arrays but its block table: so far apart they lie.
uint64_t metaArraysBytes(const Plan &plan);
// Residuals that leave the device: whether there are any; of which mini-batches, and where they and their copies are;
// how large. Whether an operand is a step's own, as the ops have it, and whether a step adds to it where it is.
bool isResidual(const Plan &plan, uint32_t buffer);
bool residualsLeave(const Plan &plan);
bool residualsAreRight(const Plan &plan);
void addBrokenResidualRules(const Plan &plan, std::set<Rule> &rules);
bool isStream(const Plan &plan, const Step &step, const Operand &operand);
bool addsInPlace(const Plan &plan, const Schedule &s, const Step &step, const Operand &y);
// Stages: which weights, residuals and steps there are, and what is published; that it is added to before, and when
// homes are written for the last time.
bool stageIsRight(const Plan &plan, const model::WeightLayout &layout);
bool stageStepsAreRight(const Plan &plan, const Schedule &s);
bool publishesTheLast(const Plan &plan, const Schedule &s);
bool homesAreLeftInTime(const Plan &plan, const Schedule &s);
// Activation blocks: whether a placement has a buffer's on the host; which buffers there are; how many blocks, and how
// large what has them or their ids; operands of a step. A layer attends to the keys and values that were made from
// them, for it, in this iteration, with its rows.
bool isAct(const Plan &plan, uint32_t buffer);
bool actsOnHost(const Plan &plan, const Placement &placement, uint32_t buffer);
bool actBuffersAreRight(const Plan &plan);
void addBrokenActRules(const Plan &plan, const Caches &caches, std::set<Rule> &rules);
void addBrokenActRules(const Plan &plan, const model::WeightLayout &layout, const Schedule &s, const Step &step,
                       std::set<Rule> &rules);
bool attendsToWhatIsRebuilt(const Plan &plan, const Schedule &s);
// A layer attends to what it has appended to its cache, rows that are rotated once.
bool attendsToItsRows(const Plan &plan, const Schedule &s);
// The cpu lane: whether a buffer is the iteration buffers', or a transient on the device and on the host; where
// transients are, and what is copied down; which steps the lane has, of which operands.
bool isMeta(const Plan &plan, uint32_t buffer);
bool isStaged(const Plan &plan, const Schedule &s, uint32_t buffer);
bool localsAreRight(const Plan &plan, const Schedule &s);
bool copiesDownAreRight(const Plan &plan, const Schedule &s);
void addBrokenCpuRules(const Plan &plan, const Caches &caches, const Schedule &s, const Step &step,
                       std::set<Rule> &rules);
// What is published was sampled before, of every mini-batch.
bool publishesAll(const Plan &plan, const Schedule &s);
// Phases of cycles, and the order of variants.
bool cyclesAreRight(const Plan &plan);
// From which state to which there must be a way.
void addBrokenTransitionRules(const Plan &plan, std::set<Rule> &rules);

inline constexpr size_t kMaxSteps = 512;
using StepSet = std::bitset<kMaxSteps>;
// Who comes before a step, whatever the durations: the closure of lane order and of the edges but one.
std::vector<StepSet> ancestors(const Schedule &s, size_t without = SIZE_MAX);

// The rules that one schedule breaks: places, contents, order, edges. The plan's structure must be right.
void addBrokenRules(const Plan &plan, uint32_t schedule, std::set<Rule> &rules);

} // namespace headrace::plan::test
