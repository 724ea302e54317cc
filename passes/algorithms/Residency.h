// SPDX-License-Identifier: Apache-2.0
//
// What lives where, and how the rest gets to the device in time, as one value: all that a policy decides about a
// placement, and all that the passes are told.
//
//   movable   a buffer whose home may be elsewhere than on the device: a weight (a unit of placement), a layer's KV
//             cache, the activations kept of a layer
//   extent    a run of a movable with one home and one encoding; what no extent names is at home on the device
//   item      what is brought together: the movables of one layer, or what the head reads
//   pool      what movables of a kind are brought through: slots, a ring or places
//   slot      a range of device memory that items take turns in
//   ring      one range instead of slots, that movables of any size go through one behind the other, from its start
//             again where the end is reached (AssignRing.h)
//   place     of fewer than there are movables: what was brought stays there over iterations, as long as may be
//   cut       how much of its first movables an iteration finds on the device: its predecessor's tail has copied them
//   start     when a copy may start
//
// Four layers of 10 ms each, layers 1 and 3 at home on the host, 10 ms a copy:
//
//            0    10   20   30   40   50   60 ms
//   compute  | 0  | 1  | 2  | 3  |
//   paper    | 1  |    | 3  |    |              one slot. When the first layer of its interval starts (Select-N,
//                                               section 4.1); for an interval of one, when the layer before does
//   eager    | 3  |    | 1' |    |              two slots, or a ring of two. As soon as its range is free; 1' is of
//                                               the next iteration: the cut is all of layer 1
//   ahead 1  |    |    | 3  |    | 1' |         one slot. When the item so many before it has ended: the last copy,
//                                               for the next iteration, behind the last layer (vLLM's prefetch_step)
//   ahead 0  | 0  : 1  | 1  | 2  : 3  | 3  |    one slot. When its layer is next: compute waits for every copy
//                                               (Accelerate's hooks)
//
// As text (what the passes take as their option `residency`), in any order, none twice:
//
//   weights=0,4-7 kv=0-3@33 act=2   movables on the host: units; layers. Whole, or from a block on
//   start=paper | eager | ahead-1
//   slots=2 | ring=65536         the weights' pool; bytes; neither: as many slots as the start asks for
//   kv-slots=3 | kv-places=5     that of the tails of caches, apart from the others; neither: two slots. What is in
//                                places cycles (CyclePlaces.h),
//   kv-fifo=3/2 | 3/2/841        or is swapped as Pie does, first in, first out, where a swap takes so many layers'
//                                compute in and out, both at once, of which each has so many thousandths of its rate
//                                alone (ScheduleKvSwap.h); where compute waits for that, in turns (CycleOf.h)
//   residual-slots=3             that of residual streams: each mini-batch's leaves the device between layers, and goes
//                                through so many slots; without: it stays
//   decode-write-back=mirror | all | dirty, mixed-write-back=...
//                                how the rows that an iteration appends to a tail get home; without: mirror
//   decode-cut=1+400 mixed-cut=2 whole movables, and bytes of the one after them; by the class of the iteration
//   wrap                         cuts that are not stated are still to be planned
//   one-cut                      the mixed cut is to be no shorter than the decode cut
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "passes/algorithms/MovableKinds.h"
#include "passes/algorithms/PlanCut.h"

namespace headrace::algorithms {

enum class Space : uint8_t { Device = 0, Host = 1 };

struct Extent {
  static constexpr uint64_t kEnd = std::numeric_limits<uint64_t>::max(); // of the movable, whatever its size
  Movable of;
  Space space = Space::Host;
  uint64_t begin = 0, end = kEnd; // bytes of a weight; blocks of KV and of activations
  bool isWhole() const { return begin == 0 && end == kEnd; }
  bool operator==(const Extent &other) const {
    return of == other.of && space == other.space && begin == other.begin && end == other.end;
  }
};

enum class StartRule : uint8_t { Paper = 0, Eager = 1, Ahead = 2 };

struct Start {
  StartRule rule = StartRule::Eager;
  int32_t items = 0; // of Ahead: how many items ahead
  bool operator==(const Start &other) const { return rule == other.rule && items == other.items; }
  // Movables one by one, each as soon as its range is free; else item by item: a layer waits for all of its movables,
  // and gives them up together.
  bool byMovable() const { return rule == StartRule::Eager; }
};
inline constexpr Start kPaper{StartRule::Paper, 0}, kEager{StartRule::Eager, 0};
constexpr Start ahead(int32_t items) { return {StartRule::Ahead, items}; }

// Where the circle of iterations is cut, by class of the iteration. Of rule eager only: ahead says itself what is there
// on entry (the first so many items), and nothing is under the rule paper.
struct Wrap {
  bool around = false;              // the tail of an iteration copies for the next
  bool oneCut = false;              // the mixed cut is no shorter than the decode cut
  std::optional<Cut> decode, mixed; // unset: to be planned where `around`, else nothing is there on entry
  bool operator==(const Wrap &other) const {
    return std::tie(around, oneCut, decode, mixed) == std::tie(other.around, other.oneCut, other.decode, other.mixed);
  }
};

// How the home of a tail stays current. Mirror: the step that appends rows writes them there as well. All, Dirty: they
// go to the slot only, and what is in use of the tail, or the run of blocks that were written to, is copied home
// (evict).
enum class WriteBack : uint8_t { Mirror = 0, All = 1, Dirty = 2 };

// How many layers compute while one layer's tail is swapped in, and out, while the other direction is at work too;
// above 0. `both`: of its rate alone a direction then has so many thousandths, 1 to 1000.
struct SwapVisits {
  int64_t in = 1, out = 1, both = 1000;
  bool operator==(const SwapVisits &other) const = default;
};

enum class How : uint8_t { Slots = 0, Ring = 1, Places = 2 };

// What movables of a kind are brought through, and how what was written there gets home.
class Pool {
public:
  How how() const { return how_; }
  int64_t slots() const { return how_ == How::Slots ? count_ : 0; }     // 0: as many as the kind or the start asks for
  uint64_t ringBytes() const { return how_ == How::Ring ? bytes_ : 0; } // at most so many
  int64_t places() const { return how_ == How::Places ? count_ : 0; }
  const std::optional<SwapVisits> &fifo() const { return fifo_; } // of places: swapped first in, first out

  void setSlots(int64_t count) { set(How::Slots, count, 0, {}); }
  void setRing(uint64_t bytes) { set(How::Ring, 0, bytes, {}); }
  void setPlaces(int64_t count, std::optional<SwapVisits> fifo = {}) { set(How::Places, count, 0, fifo); }
  bool operator==(const Pool &) const = default;

  // By class of the iteration; unset: Mirror. Who compiles a plan decides what is unset.
  std::optional<WriteBack> decodeBack, mixedBack;
  bool writesBack() const; // in some class

private:
  void set(How how, int64_t count, uint64_t bytes, std::optional<SwapVisits> fifo) {
    how_ = how;
    count_ = count;
    bytes_ = bytes;
    fifo_ = fifo;
  }

  How how_ = How::Slots;
  int64_t count_ = 0;
  uint64_t bytes_ = 0;
  std::optional<SwapVisits> fifo_;
};

struct Residency {
  std::vector<Extent> away; // not on the device; ascending by movable, then begin
  Start start;
  std::array<Pool, kMovableKinds> pools; // by kind; of residual streams without slots: they stay on the device
  Wrap wrap;

  Pool &pool(MovableKind kind) { return pools[static_cast<size_t>(kind)]; }
  const Pool &pool(MovableKind kind) const { return pools[static_cast<size_t>(kind)]; }
  Pool &weights() { return pool(MovableKind::Weight); }
  const Pool &weights() const { return pool(MovableKind::Weight); }
  Pool &kv() { return pool(MovableKind::Kv); } // the tails of caches
  const Pool &kv() const { return pool(MovableKind::Kv); }
  Pool &residuals() { return pool(MovableKind::Residual); }
  const Pool &residuals() const { return pool(MovableKind::Residual); }

  bool nothingAway() const { return away.empty(); }
  bool isAway(Movable movable) const;
  bool isAway(MovableKind kind) const; // any
  // Of a kind: which have blocks or bytes on the host, ascending.
  std::vector<int32_t> awayOf(MovableKind kind) const;
  void setAway(MovableKind kind, std::vector<int32_t> indices);                    // in any order; whole, on the host
  std::vector<int32_t> weightsAway() const { return awayOf(MovableKind::Weight); } // units
  void setWeightsAway(std::vector<int32_t> units) { setAway(MovableKind::Weight, std::move(units)); }
  // Of every layer's cache the blocks from this one on are at home on the host; none: caches are not away. 0: all of
  // them are, the scratch block as well.
  std::optional<int64_t> firstKvBlockAway() const;
  void setKvAway(int64_t layers, int64_t firstBlock);
  void setNoKvAway() { setAway(MovableKind::Kv, {}); }
  std::vector<int32_t> actAway() const { return awayOf(MovableKind::Act); } // layers, whose activation blocks are
  void setActAway(std::vector<int32_t> layers) { setAway(MovableKind::Act, std::move(layers)); }
  bool residualsHaveHomes() const { return residuals().slots() > 0; } // on the host, of each mini-batch
  bool residualsLeave() const {
    return residualsHaveHomes() && residuals().slots() < kOwnResidualSlots;
  } // between layers
  // Whether what an iteration makes leaves the device, caches apart: under the rule eager only.
  bool movesBack() const { return residualsHaveHomes() || isAway(MovableKind::Act); }
  int64_t slotsOf(MovableKind kind) const; // stated, or as many as the kind has by default
  // Whether iterations differ by what is where: places cycle.
  bool cycles() const { return kv().places() > 0 && firstKvBlockAway().has_value(); }
  // Whether anything is there on entry, or may be once cuts are planned.
  bool wrapsAround() const {
    return !away.empty() && (wrap.around || cycles() || (start.rule == StartRule::Ahead && start.items > 0));
  }
  bool operator==(const Residency &) const = default;
};

std::string toText(const Residency &residency);
// What is wrong with the text in `error`, where there is no value.
std::optional<Residency> residencyFromText(std::string_view text, std::string &error);

// What contradicts itself whatever the model; empty: nothing does.
std::string contradictionIn(const Residency &residency);

} // namespace headrace::algorithms
