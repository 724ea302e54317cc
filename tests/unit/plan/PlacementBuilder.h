// SPDX-License-Identifier: Apache-2.0
//
// One placement of a plan by hand: its homes and slots, its schedules, and the transitions between its states.
//
//   PlacementBuilder.cpp   homes, slots, transients
//   MakeSteps.cpp          the compute steps of a schedule
//   MakeCpuSteps.cpp       those of the cpu lane, with what it is brought
//   MakeActs.cpp           those of them that activation blocks add
//   MakeCopies.cpp         its copies of weights, with what each waits for
//   MakeTailCopies.cpp     its copies of tails, both ways
//   MakePlaces.cpp         those of tails that stay over iterations
//   MakeResiduals.cpp      those of residuals, both ways
//   MakeActCopies.cpp      homes of activation blocks on the host, and their copies
//   MakeSchedule.cpp       all in one order with edges; states, variants, transitions
//   MakeEdges.cpp          edges of a schedule that copies both ways
#pragma once

#include <map>
#include <vector>

#include "runtime/model/ModelSpec.h"
#include "runtime/model/WeightLayout.h"
#include "tests/unit/plan/MakePlan.h"
#include "tests/unit/plan/PlanParts.h"

namespace headrace::plan::test {

// What all placements have in common where caches are interleaved.
struct CacheHomes {
  bool mirrored = false; // blocks from `mirroredFrom` on have a home in the slab; else none has
  int64_t mirroredFrom = 0;
  int64_t weightsFrom = 0;        // weights have their homes where blocks from this number on would be
  std::vector<uint64_t> unitAt;   // by unit: its home, from there on
  std::vector<uint64_t> position; // by cache: in the run of blocks of one number
};

// Whether activation blocks have their home on the host.
bool areOnHost(const ActOptions &acts, const Buffer &buffer);

// Of a token, in a layer's cache.
uint64_t keysAndValuesBytes(const Plan &plan);

class PlacementBuilder {
public:
  // `homes` is null where caches are whole. Nothing is added to the plan yet.
  PlacementBuilder(Plan &plan, const model::WeightLayout &layout, const PlacementOptions &options, uint32_t index,
                   uint64_t localsAt, const LimitOptions &largest, bool switches, const CacheHomes *homes,
                   const ActOptions &acts)
      : plan_(plan), layout_(layout), options_(options), index_(index), localsAt_(localsAt), largest_(largest),
        switches_(switches), homes_(homes), acts_(acts) {}

  void addPlacement();
  void addSchedules();
  // One schedule of copies for each pair of states that the variants of this placement may need.
  void addTransitions();

private:
  // What takes turns in a slot: the units of a layer, or the head.
  struct Item {
    std::vector<uint32_t> units;
    uint32_t slot = 0;
  };
  // A compute step before it has a place among the copies.
  struct PlannedCompute {
    Step step;
    std::vector<Operand> operands;
    int waitsFor = -1; // the last copy it needs, by number
  };
  // Transients, each at an address of its own but for up and act, which take turns with qkv and attn.
  struct LocalSizes {
    uint64_t x, h, qkv, attn, up, act, rows, logits, workspace, rebuilt;
  };
  // What a transient is for. Each value is a buffer of its own, with a life of its own; those for one thing share
  // bytes.
  enum Role : uint32_t { X, H, Qkv, Attn, Up, Act, Rows, RowsNormed, Logits, Workspace, Rebuilt, CpuWorkspace };

  // An iteration of those in which tails stay in the ring.
  struct Round {
    std::vector<int64_t> layers;  // by slot, at its begin
    std::vector<bool> used;       // since they were brought
    std::vector<uint64_t> slotOf; // by layer, when it is used
    struct Move {
      int64_t out, in; // `out` has just been used
    };
    std::vector<Move> moves;
  };

  // A mini-batch's turn in a layer: the slot in which its residual is, whether it is brought there before and goes home
  // behind; its first compute step, and the last but for the head.
  struct Visit {
    uint32_t slot = 0;
    bool brought = false, leaves = false;
    int begin = 0, last = 0;
  };

  void chooseItems();
  void chooseRounds();
  void chooseVisits();
  Placement described() const;
  bool offloads(uint32_t unit) const;
  // Units that a stage has not are in no list here, neither of the layout nor of buffers: what is a unit's number below
  // is its place in both.
  uint32_t unitOf(int64_t layer, model::UnitRole role) const {
    return static_cast<uint32_t>(layout_.layerUnit(layer, role)) - (plan_.receives() ? 1 : 0);
  }
  void place();
  void placeBesideCaches();
  void placeCache(Placement &p, int64_t layer) const;
  void rememberPlaces();
  uint64_t hostAddress(uint32_t buffer) const;
  Extent residualHome(uint32_t buffer) const;
  uint64_t residualAddress(uint32_t visit) const;
  uint32_t residualSlots() const { return plan_.residualsLeave() ? static_cast<uint32_t>(options_.residualSlots) : 0; }
  // The last buffers of the plan.
  uint32_t residualBuffer(uint32_t miniBatch) const {
    return static_cast<uint32_t>(plan_.buffers.size()) - plan_.miniBatches + miniBatch;
  }
  uint64_t residualBytes() const { return plan_.residualsLeave() ? plan_.buffers.back().bytes : 0; }
  bool actsOnHost(uint32_t buffer) const { return areOnHost(acts_, plan_.buffers[buffer]); }
  uint32_t actSlots() const { return acts_.onHost.empty() ? 0 : static_cast<uint32_t>(acts_.slots); }
  uint64_t actBytes() const { return plan_.buffers[actBuffer(plan_, 0, 0)].bytes; }
  Extent actHome(uint32_t buffer) const;
  void rememberActs();
  uint64_t itemBytes(const Item &item) const;
  uint64_t slotBytes(uint32_t slot) const;
  LocalSizes sizes(const LimitOptions &limits) const;
  uint64_t localsBytesOfOne() const; // of a mini-batch
  uint64_t localsBytes() const { return plan_.miniBatches * localsBytesOfOne(); }
  void fresh(Role role);
  const Placement &placement() const { return plan_.placements[index_]; }

  // Of split caches, in blocks: those on the device, and those that exist or may be in use.
  int64_t resident() const;
  int64_t existing() const;
  int64_t inUse() const { return limits_->withoutTail ? resident() : existing(); }
  bool hasTail() const { return homes_ != nullptr && resident() < existing(); }
  uint32_t periodOf(const LimitOptions &limits) const {
    const bool alone = limits.withoutTail || limits.noCycle;
    return alone ? 1 : options_.cycles ? static_cast<uint32_t>(rounds_.size()) : options_.period;
  }
  // The iteration before or behind this one.
  uint32_t otherPhase(bool next) const {
    const uint32_t period = periodOf(*limits_);
    return (phase_ + (next ? 1 : period - 1)) % period;
  }
  // Where byte 0 of a layer's cache would be in a phase, with its tail in its slot of the ring.
  uint64_t tailAddress(uint32_t phase, int64_t layer) const;
  bool carries(int64_t layer) const { return layer < options_.carriedTails; }
  // Its tail is ahead of its home between two iterations.
  bool leavesDirty(int64_t layer) const { return layer >= cacheCount() - options_.dirtyTails; }
  // Its append writes no home of a tail.
  bool evicts(int64_t layer) const;
  // Caches, layer by layer, in it mini-batch by mini-batch; `layer` in what is said of tails is the number of one.
  int64_t cacheCount() const { return static_cast<int64_t>(plan_.kvCaches()); }
  uint32_t bufferOf(int64_t cache) const { return plan_.kvBuffer(0) + static_cast<uint32_t>(cache); }
  bool isCache(uint32_t buffer) const { return plan_.buffers[buffer].kind == BufferKind::Kv; }

  const Extent &home(uint32_t buffer) const;
  Operand whole(Arg arg, Access access, uint32_t buffer) const;
  Operand range(Arg arg, Access access, Io io) const; // the mini-batch's own
  Operand local(Arg arg, Access access, Role role, bool inPlace = false);
  Operand residual(Arg arg, Access access) const; // where it is in this visit
  Operand weight(Arg arg, uint32_t unit, const model::Tensor &first, const model::Tensor &last) const;
  Operand weight(Arg arg, uint32_t unit, model::TensorRole role) const;
  int64_t cacheOf(int64_t layer) const { return layer * plan_.miniBatches + miniBatch_; }
  Operand blocks(Arg arg, Access access, int64_t cache, int64_t from, int64_t to) const;
  void compute(kernels::Op op, Part part, int64_t layer, std::vector<Operand> operands, bool direct = false);
  void norm(Part part, int64_t layer, uint32_t unit, Role from, Role to);
  void linear(Part part, int64_t layer, uint32_t unit, Role from, Role to, bool residual = false);
  void keepRows(int64_t layer);
  void rebuild(int64_t layer);
  void append(int64_t layer);
  void attend(int64_t layer);
  // In the cpu lane (MakeCpuSteps.cpp).
  bool onCpu() const { return limits_->attendsOnCpu; }
  uint64_t onHost(Role role) const; // where the slab has it of this mini-batch
  Operand hosted(Operand local) const;
  void copyDown(const Operand &from, uint64_t hostAddress, bool resizable);
  void copyMetaDown();
  void computeOnCpu(kernels::Op op, int64_t layer, std::vector<Operand> operands);
  void attendOnCpu(int64_t layer);
  void addCompute();
  void addEmbed();
  void keepIds(); // of a stage that has a head and does not embed
  void addLayer(int64_t layer);
  void addHead();

  int lastReader(uint64_t address, uint64_t bytes, int before) const;
  int firstReader(uint32_t buffer) const;
  int lastReader(uint32_t unit) const;
  PlannedCopy part(uint32_t buffer, uint64_t offset, uint64_t bytes, int after) const;
  void addCopiesOfPaper();
  void addCopiesOfEager(const LimitOptions &limits, State &prefix);
  void addEvicts(int64_t layer, uint64_t byte0, int append, int after, bool dirtyOnly);
  void addCopiesOfTail(int64_t layer, State &entry, State &exit);
  void addCopiesOfTails(State &entry, State &exit);
  void addPlaces(State &entry, State &exit);
  void addCopiesOfResiduals();
  void addCopiesOfActs();
  int freeFrom(const PlannedCopy &copy, int use) const;
  void sortCopiesByUse();

  uint32_t stateFor(State state);
  void merge(Schedule &s);
  void addSchedule(const LimitOptions &limits, uint32_t phase);
  void addVariants(const LimitOptions &limits, const Schedule &s);
  void addTransition(uint32_t from, uint32_t to);

  Plan &plan_;
  const model::WeightLayout &layout_;
  const PlacementOptions &options_;
  const uint32_t index_;
  const uint64_t localsAt_;
  const LimitOptions &largest_;
  const bool switches_;
  const CacheHomes *const homes_;
  const ActOptions &acts_;
  std::vector<Item> items_;
  std::vector<Round> rounds_;
  std::vector<Visit> visits_; // where residuals leave
  uint32_t slots_ = 0;
  std::map<uint32_t, uint64_t> slotAddress_; // of a buffer that takes turns: where its byte 0 is, or would be
  // Of the schedule being made.
  Schedule *schedule_ = nullptr;
  const LimitOptions *limits_ = nullptr;
  uint32_t phase_ = 0;
  uint32_t visit_ = 0;
  int64_t layer_ = 0;
  uint32_t miniBatch_ = 0;                                             // whose steps are being made
  uint32_t current_[kernels::kMostMiniBatches][CpuWorkspace + 1] = {}; // by mini-batch and role
  std::vector<PlannedCompute> computes_;
  std::vector<PlannedCopy> copies_, evicts_; // to the device, to the host
};

} // namespace headrace::plan::test
