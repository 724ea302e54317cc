// SPDX-License-Identifier: Apache-2.0
//
// What an iteration takes when several devices copy over one bus, bounded from above, on plain values (Select-N,
// section 4.5, corrected: a sum of mean rates below the bandwidth proves no SLO, as two copies that start together get
// half the bus each).
//
// The bus shares max-min fairly among the copies that run (core/BusShare.h); a device runs one copy a direction at a
// time. An iteration alone takes C + E / r + X / s + max(0, H / r + D / s - W) at rates r to the device and s from it:
// C its compute, E and X the bytes that are copied while nothing computes (the transition before it), H and D those
// that are copied along with the compute, W the compute that these can hide behind. Two bounds of the contended time
// hold, and the smaller is used:
//
//   share      the same at the fair rates when every device that copies at all copies all the time, in each direction
//              that it copies in. Fewer copies at once never lower a rate, and a faster copy never ends an iteration
//              later.
//   delay      alone + sum over the others o of min(H + E, M_o) / B, M_o = (H_o + E_o) k_o + F_o + A_o the most that o
//              moves in a window: k_o = ceil(window / shortest_o) + 1 are the iterations of o that a window can touch,
//              F_o the bytes of its first stage, A_o those that it copies beside its iterations, once (a KV cache that
//              is handed over). While a device gets less than it would alone the bus B is full and no copy is faster
//              than its own: what it loses is what others move, at most as much as it moves itself. Delaying copies by
//              d in all ends an iteration at most d later.
//
// The bus has so much for each direction (B0, B1), and may have less than their sum for both together (B2). A copy that
// B2 slows loses to copies of either direction, its own device's among them: of what others move in its own direction
// min(own, M_o) / min(B, B2'), of what they move in the other one min(own, M_o) / B2'. B2' is B2, or half of it where
// the device itself copies in both directions: no more than that half can be its own other copy's. A link whose two
// directions get less together than alone gives each of them its bothShare all the time, where a stage copies both
// ways: that is never more than they get.
//
// E is a bound at any rate. Alone it may be known that less is left to copy (soloNs): what the share bound takes where
// the fair rates are a device's own, but no base for a delay.
//
// The window is the SLO: an iteration whose bound is within the SLO ends inside the window. So
//   admissible(d)  <=>  min(share, delay) <= SLO of d
// and both bounds only grow when another device moves more, which is what the search prunes by.
//
// What comes before the iterations, once a request, is its first stage: the prefill on an instance that decodes as
// well, or the arrival of the KV cache on one that only decodes. It has an objective of its own, the TTFT, and holds or
// not by the same two bounds. One placement serves both stages.
//
// A pair, one device that prefills a request and another one that decodes it, does one after the other: the KV cache
// arrives when the prompts have ended, and the iterations begin when it is there. So nothing of the prefill runs beside
// the iterations, and nothing but the decode device's transition beside the prefill.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "runtime/core/BusShare.h"
#include "runtime/cost/SelectN.h"
#include "runtime/plan/value/Plan.h"

namespace headrace::serve {

using core::Direction;

// Bytes per second, by direction. What copies to the device only is told by one rate.
struct BusRates {
  double h2d = 0, d2h = std::numeric_limits<double>::infinity();
  BusRates(double toDevice, double toHost = std::numeric_limits<double>::infinity()) : h2d(toDevice), d2h(toHost) {}
};

// What a request does once before its iterations. All zero: nothing.
struct BusStage {
  double computeNs = 0;      // C
  uint64_t linkBytes = 0;    // H
  double hiddenNs = 0;       // W
  uint64_t exposedBytes = 0; // E
  // Where its rates are never below these it takes no longer than this; 0: nothing is known beyond C, E, H and W.
  double soloNs = 0, soloRate = 0;
  uint64_t d2hBytes = 0;        // D
  uint64_t exposedD2hBytes = 0; // X
  double soloD2hRate = 0;
};

// One placement of the model on one device for the batch it serves. Bytes, ns.
struct BusPlacement {
  uint32_t placement = 0;    // the caller's number for it (an index into the plan's placements)
  uint64_t freedBytes = 0;   // device memory that it gives back, slots taken off
  uint64_t deviceBytes = 0;  // device memory that it needs
  uint64_t linkBytes = 0;    // H: host to device in an iteration
  double computeNs = 0;      // C: an iteration whose copies take no time
  double hiddenNs = 0;       // W: time of it that copies can hide behind, evenly for all of them
  double shortestNs = 0;     // no iteration with this placement is shorter; 0: not known
  double tokens = 0;         // that an iteration makes; for the throughput objective
  uint64_t exposedBytes = 0; // E: host to device while nothing computes
  BusStage first;
  // Where iterations with other placements may lie in a neighbour's window as well (transitionOf): the most that one of
  // them copies. 0: what this one does.
  uint64_t mostBytes = 0;
  double soloNs = 0, soloRate = 0; // of an iteration, as a stage's
  int64_t budget = 0; // tokens of an iteration that brings prompts beside those that decode; 0: no such limit
  // The same of the other direction.
  uint64_t d2hBytes = 0, exposedD2hBytes = 0, mostD2hBytes = 0; // D, X
  double soloD2hRate = 0;
  // A: copied beside the iterations, once.
  uint64_t besideBytes = 0, besideD2hBytes = 0;
};

inline constexpr uint32_t kNoDevice = 0xffffffffu;

// What a device serves.
struct BusLoad {
  uint32_t device = 0;                                    // into Bus::links
  double sloNs = std::numeric_limits<double>::infinity(); // of an iteration
  std::vector<BusPlacement> placements;
  double firstSloNs = std::numeric_limits<double>::infinity(); // of the first stage
  uint32_t decodedBy = kNoDevice; // it prefills, and this other device decodes the same request
  uint64_t handoverBytes = 0;     // it decodes: those of the first stage's bytes that wait for the prefill's end
};

// Bytes per second. What is left out limits nothing.
struct Bus {
  double bandwidth = 0;      // host to device
  std::vector<double> links; // one a device, host to device
  double d2hBandwidth = std::numeric_limits<double>::infinity();
  double bothBandwidth = std::numeric_limits<double>::infinity(); // both directions together
  std::vector<double> d2hLinks;                                   // one a device, or none
  // Of each direction's rate while the other one copies as well, at most 1; one a device, or none.
  std::vector<double> bothShares;
};

// Of Select-N's rule with empty slots (cost::emptyStartNs at every rate): C, H and W of an interval; interval 0
// offloads nothing. freedBytes is 0 where the slots take as much as is offloaded.
BusPlacement selectNPlacement(const cost::LayerTimes &times, uint64_t layerBytes, int64_t interval);
// Of any plan that takes `ns` at `rate` bytes/s: at every lower rate it takes at most ns + H (1 / r - 1 / rate), as an
// iteration's time is a maximum over chains of steps, each linear in 1 / r with a slope of at most H.
BusPlacement planPlacement(double computeNs, uint64_t linkBytes, double ns, double rate);
// The same with copies from the device, of `ns` at these rates and no lower.
BusPlacement planPlacement(double computeNs, const plan::LinkBytes &bytes, double ns, const BusRates &rates);

// Bytes that turning one placement into another one copies before the iteration, and what that takes beside bytes over
// the link (the latency of copies).
struct TransitionCost {
  uint64_t bytes = 0;
  double fixedNs = 0;
  bool possible = true; // false: no transition leads there
  uint64_t d2hBytes = 0;
};
// A placement while it is turned into another one. The device itself makes the transition, behind which nothing hides,
// and then an iteration with `to`. To its neighbours every iteration may be
// either, each with a transition, as a window of theirs can see several changes follow each other.
BusPlacement transitionOf(const BusPlacement &from, const BusPlacement &to, const TransitionCost &cost);

enum class Stage : uint8_t { Iteration = 0, First = 1 };
BusStage stageOf(const BusPlacement &placement, Stage stage);
plan::LinkBytes stageBytes(const BusStage &stage);  // H + E, D + X
uint64_t movedBytes(const BusPlacement &placement); // of an iteration, both directions
double timeAtRate(const BusStage &stage, const BusRates &rates);
double delayableNs(const BusStage &stage, const BusRates &rates); // by C, E, H, W, D and X alone: what delays add to
double timeAtRate(const BusPlacement &placement, const BusRates &rates); // of an iteration
// Whether `a` takes no longer than `b` at any rate, and moves no more.
bool noWorse(const BusStage &a, const BusStage &b);
// Alone on the bus: rates of a stage's copies, and its time.
BusRates aloneRates(const Bus &bus, uint32_t device, const BusStage &stage);
double aloneNs(const Bus &bus, uint32_t device, const BusStage &stage);
double aloneNs(const Bus &bus, uint32_t device, const BusPlacement &placement);
// Whether it moves anything in any stage.
bool copies(const BusPlacement &placement, Direction direction = Direction::HostToDevice);

// Who copies: a bit a device, at most 64.
struct Copying {
  uint64_t h2d = 0, d2h = 0;
  bool operator==(const Copying &) const = default;
};
// Max-min fair rate of `device` while it and the devices in `copying` copy to theirs, and nobody copies from one.
double fairRate(const Bus &bus, uint64_t copying, uint32_t device);
// The rates of `device` while it copies to the device, and from it where it is in `copying`, and the others in
// `copying` copy. Where it is not in there its rate from the device is its link's. What the last set shared is kept;
// the bus outlives it.
class FairRates {
public:
  explicit FairRates(const Bus &bus) : bus_(bus) {}
  BusRates of(const Copying &copying, uint32_t device);

private:
  const Bus &bus_;
  Copying copying_;                                 // the last set, whose devices' shares follow in their order
  uint64_t own_ = 0;                                // the device that it was asked for, where that matters
  absl::InlinedVector<core::LinkShare, 16> shares_; // no allocation for as many devices as a machine has
};

// Bytes by direction, of which there may be more than are counted.
struct MostBytes {
  double h2d = 0, d2h = 0;
};
// M_o: the most that a placement can move within a window; the longest double if it is not known how short its
// iterations are.
MostBytes mostBytesIn(double windowNs, const BusPlacement &placement);
// Whether `prefill` and `decode` serve one request, one after the other.
bool isPair(const BusLoad &prefill, const BusLoad &decode);
// M_o beside a stage of `load`: the most that `other` can move with its placement until the objective of that stage.
MostBytes mostBytesBeside(const BusLoad &load, Stage stage, const BusLoad &other, const BusPlacement &placement);
// What a device copies in a stage, and whether both directions may be at work at once: a stage that copies from the
// device may have copies to it beside.
struct OwnBytes {
  double h2d = 0, d2h = 0;
  bool bothWays = false;
};
OwnBytes ownBytes(const BusPlacement &placement, Stage stage);
// What these lose to so much of somebody else's, at most.
double lostNs(const Bus &bus, const OwnBytes &own, const MostBytes &others);

// The bound for each load, with loads[i].placements[choice[i]]; devices differ.
std::vector<double> contendedNs(const Bus &bus, absl::Span<const BusLoad> loads, absl::Span<const uint32_t> choice,
                                Stage stage = Stage::Iteration);
// Whether every load's bounds, of both stages, are within its objectives.
bool admissible(const Bus &bus, absl::Span<const BusLoad> loads, absl::Span<const uint32_t> choice);

} // namespace headrace::serve
