// SPDX-License-Identifier: Apache-2.0
//
// What an iteration takes when several devices copy over one bus, bounded from above, on plain values (Select-N,
// section 4.5, corrected: a sum of mean rates below the bandwidth proves no SLO, as two copies that start together get
// half the bus each).
//
// The bus shares max-min fairly among the copies that run (core/BusShare.h); a device runs one host-to-device copy at a
// time. An iteration alone takes C + E / r + max(0, H / r - W) at rate r: C its compute, E the bytes that are copied
// while nothing computes (the transition before it), H those that are copied along with the compute, W the compute that
// these can hide behind. Two bounds of the contended time hold, and the smaller is used:
//
//   share      the same at r = f, the fair rate when every device that copies at all copies all the time. Fewer
//              copies at once never lower a rate, and a faster copy never ends an iteration later.
//   delay      alone + sum over the others o of min(H + E, M_o) / B, M_o = (H_o + E_o) k_o + F_o the most that o moves
//              in a window: k_o = ceil(window / shortest_o) + 1 are the iterations of o that a window can touch, F_o
//              the bytes of its first stage. While a device gets less than it would alone the bus B is full and no copy
//              is faster than its own: what it loses is what others move, at most as much as it moves itself. Delaying
//              copies by d in all ends an iteration at most d later.
//
// E is a bound at any rate. Alone it may be known that less is left to copy (soloNs): what the share bound takes where
// the fair rate is a device's own, but no base for a delay.
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

namespace headrace::serve {

// What a request does once before its iterations. All zero: nothing.
struct BusStage {
  double computeNs = 0;      // C
  uint64_t linkBytes = 0;    // H
  double hiddenNs = 0;       // W
  uint64_t exposedBytes = 0; // E
  // Where its rate is never below soloRate it takes no longer than this; 0: nothing is known beyond C, E, H and W.
  double soloNs = 0, soloRate = 0;
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

// Bytes per second, host to device.
struct Bus {
  double bandwidth = 0;
  std::vector<double> links; // one a device
};

// Of Select-N's rule with empty slots (cost::emptyStartNs at every rate): C, H and W of an interval; interval 0
// offloads nothing. freedBytes is 0 where the slots take as much as is offloaded.
BusPlacement selectNPlacement(const cost::LayerTimes &times, uint64_t layerBytes, int64_t interval);
// Of any plan that takes `ns` at `rate` bytes/s: at every lower rate it takes at most ns + H (1 / r - 1 / rate), as an
// iteration's time is a maximum over chains of steps, each linear in 1 / r with a slope of at most H.
BusPlacement planPlacement(double computeNs, uint64_t linkBytes, double ns, double rate);

// Bytes that turning one placement into another one copies before the iteration, and what that takes beside bytes over
// the link (the latency of copies).
struct TransitionCost {
  uint64_t bytes = 0;
  double fixedNs = 0;
  bool possible = true; // false: no transition leads there
};
// A placement while it is turned into another one. The device itself makes the transition, behind which nothing hides,
// and then an iteration with `to`. To its neighbours every iteration may be
// either, each with a transition, as a window of theirs can see several changes follow each other.
BusPlacement transitionOf(const BusPlacement &from, const BusPlacement &to, const TransitionCost &cost);

enum class Stage : uint8_t { Iteration = 0, First = 1 };
BusStage stageOf(const BusPlacement &placement, Stage stage);
uint64_t stageBytes(const BusStage &stage);         // H + E
uint64_t movedBytes(const BusPlacement &placement); // of an iteration
double timeAtRate(const BusStage &stage, double bytesPerSecond);
double delayableNs(const BusStage &stage, double bytesPerSecond);        // by C, E, H and W alone: what delays add to
double timeAtRate(const BusPlacement &placement, double bytesPerSecond); // of an iteration
// Whether `a` takes no longer than `b` at any rate, and moves no more.
bool noWorse(const BusStage &a, const BusStage &b);
// Alone on the bus.
double aloneNs(const Bus &bus, uint32_t device, const BusStage &stage);
double aloneNs(const Bus &bus, uint32_t device, const BusPlacement &placement);
// Whether it moves anything in any stage.
bool copies(const BusPlacement &placement);
// Max-min fair rate of `device` while it and the devices in `copying` (a bit each; at most 64) copy.
double fairRate(const Bus &bus, uint64_t copying, uint32_t device);
// The same where much is asked: what the last set shared is kept. The bus outlives it.
class FairRates {
public:
  explicit FairRates(const Bus &bus) : bus_(bus) {}
  double of(uint64_t copying, uint32_t device);

private:
  const Bus &bus_;
  uint64_t copying_ = 0;                            // the last set, whose devices' shares follow in their order
  absl::InlinedVector<core::LinkShare, 16> shares_; // no allocation for as many devices as a machine has
};
// M_o: the most that a placement can move within a window; the longest double if it is not known how short its
// iterations are.
double mostBytesIn(double windowNs, const BusPlacement &placement);
// Whether `prefill` and `decode` serve one request, one after the other.
bool isPair(const BusLoad &prefill, const BusLoad &decode);
// M_o beside a stage of `load`: the most that `other` can move with its placement until the objective of that stage.
double mostBytesBeside(const BusLoad &load, Stage stage, const BusLoad &other, const BusPlacement &placement);

// The bound for each load, with loads[i].placements[choice[i]]; devices differ.
std::vector<double> contendedNs(const Bus &bus, absl::Span<const BusLoad> loads, absl::Span<const uint32_t> choice,
                                Stage stage = Stage::Iteration);
// Whether every load's bounds, of both stages, are within its objectives.
bool admissible(const Bus &bus, absl::Span<const BusLoad> loads, absl::Span<const uint32_t> choice);

} // namespace headrace::serve
