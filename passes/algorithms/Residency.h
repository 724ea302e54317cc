// SPDX-License-Identifier: Apache-2.0
//
// What lives where, and how the rest gets to the device in time, as one value: all that a policy decides about a
// placement, and all that the passes are told.
//
//   movable   a buffer whose home may be elsewhere than on the device: a weight (a unit of placement), a layer's KV
//             cache, the activations kept of a layer
//   extent    a run of a movable with one home and one encoding; what no extent names is at home on the device
//   item      what is brought together: the movables of one layer, or what the head reads
//   slot      a range of device memory that items take turns in
//   ring      one range instead of slots, that movables of any size go through one behind the other, from its start
//             again where the end is reached (AssignRing.h)
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
//   slots=2 | ring=65536         bytes; neither: as many slots as the start asks for
//   kv-slots=3                   slots for tails of caches, apart from the others; without: two
//   kv-places=5                  or places for fewer tails than there are, which stay there over iterations as long as
//                                may be (RotatePlaces.h)
//   kv-blocks=150                of each layer's cache there are so many blocks; without: all that the plan has
//   kv-fifo=3/2                  and are swapped first in, first out, as Pie does, where a swap takes so many layers'
//                                compute in and out (ScheduleKvSwap.h)
//   residual-slots=3             the residual stream of each mini-batch leaves the device between layers, and goes
//   through
//                                so many slots; without: it stays
//   decode-write-back=mirror | all | dirty, mixed-write-back=...
//                                how the rows that an iteration appends to a tail get home; without: mirror
//   decode-cut=1+400 mixed-cut=2 whole movables, and bytes of the one after them; by the class of the iteration
//   wrap                         cuts that are not stated are still to be planned
//   one-cut                      the mixed cut is to be no shorter than the decode cut
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "passes/algorithms/PlanCut.h"

namespace headrace::algorithms {

// Residual: the residual stream of a mini-batch. It is not away between iterations: no extent names it.
enum class MovableKind : uint8_t { Weight = 0, Kv = 1, Act = 2, Residual = 3 };

struct Movable {
  MovableKind kind = MovableKind::Weight;
  int32_t index = 0; // of a weight its unit, else the layer
  bool operator==(const Movable &other) const { return kind == other.kind && index == other.index; }
  bool operator<(const Movable &other) const { return std::tie(kind, index) < std::tie(other.kind, other.index); }
};

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

// Of the tails of caches: one is used, and written back, while the next is brought.
inline constexpr int64_t kKvSlots = 2;
// Of residual streams that leave the device: a layer works on one from its first step to its last, while the one before
// is written home and the next is brought.
inline constexpr int64_t kResidualSlots = 3;

// Of activation blocks at home on the host: keys and values are recomputed from one layer's while the next are brought.
inline constexpr int64_t kActSlots = 2;

// How many layers compute while one layer's tail is swapped in, and out; above 0.
struct SwapVisits {
  int64_t in = 1, out = 1;
  bool operator==(const SwapVisits &other) const { return in == other.in && out == other.out; }
};

struct Residency {
  std::vector<Extent> away; // not on the device; ascending by movable, then begin
  Start start;
  int64_t slots = 0;                // item-sized; 0: what the start asks for, or a ring
  uint64_t ringBytes = 0;           // above 0: one ring of at most so many bytes instead of slots; rule eager
  int64_t kvSlots = 0;              // of the tails of caches, a slot each; 0: kKvSlots
  int64_t kvPlaces = 0;             // above 0: so many slots for tails of caches, which rotate through them
  int64_t kvBlocks = 0;             // of each cache, whether away or not; 0: as many as there are
  std::optional<SwapVisits> kvFifo; // of places: swapped first in, first out
  int64_t residualSlots = 0;        // above 0: residual streams leave the device between layers, through so many slots
  // By class of the iteration; unset: Mirror. Who compiles a plan decides what is unset.
  std::optional<WriteBack> decodeWriteBack, mixedWriteBack;
  Wrap wrap;

  bool nothingAway() const { return away.empty(); }
  bool isAway(Movable movable) const;
  std::vector<int32_t> weightsAway() const;               // units, ascending
  void setWeightsAway(const std::vector<int32_t> &units); // in any order; whole, on the host
  // Of every layer's cache the blocks from this one on are at home on the host; none: caches are not away. 0: all of
  // them are, the scratch block as well.
  std::optional<int64_t> firstKvBlockAway() const;
  void setKvAway(int64_t layers, int64_t firstBlock);
  void setNoKvAway();
  void setActAway(const std::vector<int32_t> &layers); // whose activation blocks are at home on the host
  bool writesBack() const;                             // tails, in some class
  int64_t slotsOfTails() const;
  // Whether iterations differ by what is where: places rotate.
  bool rotates() const { return kvPlaces > 0 && firstKvBlockAway().has_value(); }
  // Whether anything is there on entry, or may be once cuts are planned.
  bool wrapsAround() const {
    return !away.empty() && (wrap.around || rotates() || (start.rule == StartRule::Ahead && start.items > 0));
  }
  bool operator==(const Residency &other) const;
};

std::string toText(const Residency &residency);
// What is wrong with the text in `error`, where there is no value.
std::optional<Residency> residencyFromText(std::string_view text, std::string &error);

// What contradicts itself whatever the model; empty: nothing does.
std::string contradictionIn(const Residency &residency);

} // namespace headrace::algorithms
