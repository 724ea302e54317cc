// SPDX-License-Identifier: Apache-2.0
//
// Pie's swapping (Pie, section 3.3): the caches of n layers in n - m spaces on the device, the others on the host, each
// layer swapped whole, in and out at once, while other layers compute.
//
// When a layer starts to compute:
//   - if no swap-in is under way and a space is free, the hottest layer on the host (needed next) is swapped in;
//   - if no swap-out is under way, the coldest layer on the device (needed last: the one just computed) is swapped out,
//     unless every layer on the host is colder.
// A layer that is not on the device when it is to compute is waited for. Layers leave and come back in one order, first
// in, first out. Figure 4, layers and spaces from 0 on: nine layers, seven spaces, a swap takes two layers' compute:
//
//   computes   0     1     2     3     4     5     6     7     8     0     1    ...
//   swapped in .     .     .     7 --------- 8 --------- 0 --------- 2 ---------
//   out        .     0 --------- 2 --------- 4 --------- 6 --------- 8 ---------
//
// It never waits exactly when ceil(swap / compute) x (m + 2) <= n - 1 (equal times both ways); the link alone would do
// for swap x m <= compute x n. Times are whole numbers of any unit. Where both directions share the link each is slower
// while the other is at work, and no longer:
//
//   both 500    in, 4 alone    0 ------------ 6   half done by 4, the rest alone
//               out, 2 alone   0 -------- 4       all of it at half its rate
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "passes/algorithms/CyclePlaces.h"

namespace headrace::algorithms {

struct KvSwapTimes {
  int64_t compute = 1, in = 1, out = 1; // of a layer, each alone on the link; above 0
  // Of its rate a direction has this while the other is at work, in thousandths: 1 to 1000. A swap ends with a whole
  // unit of time.
  int64_t both = 1000;
};

struct KvSwapProblem {
  // layers > places >= 2: n, and n - m, spaces that are being filled or emptied included.
  int32_t layers = 0, places = 0;
  KvSwapTimes times;
  // What the paper does not have: no swap is under way from one iteration to the next. One that would not be over by
  // the end of its iteration is not begun.
  bool endsWithIteration = false;
};

enum class KvState : uint8_t { Host = 0, SwappingIn = 1, Device = 2, SwappingOut = 3 };

// The mapping table (Figure 3), a row a layer. In two phases: its space is a layer's from the start of its swap-in on,
// and until the end of its swap-out; in between its state says that it is not to be read there.
struct KvSwapRow {
  KvState state = KvState::Host;
  int32_t place = -1;  // on the device; -1: none. Homes on the host are fixed, a layer's own
  int64_t changed = 0; // when the state was last another
};

struct KvSwapCopy {
  int32_t layer = 0, place = 0;
  bool out = false, onDemand = false; // on demand: begun because its layer, or who needs its space, waits
  int64_t begin = 0, end = 0;         // the end as far as is known: nothing else begins
  int64_t visit = 0;                  // at whose start it began, counted over iterations: iteration x n + layer
};

class KvSwap {
public:
  // Places 0 on hold layers 0 on, the last layers are on the host.
  explicit KvSwap(const KvSwapProblem &problem);

  // The next layer's compute, from its start, waited for, to its end.
  void compute();

  int64_t now() const { return now_; }
  int64_t visits() const { return visits_; }
  int64_t waited() const { return waited_; } // in all
  const std::vector<KvSwapRow> &table() const { return table_; }
  const std::vector<KvSwapCopy> &copies() const { return copies_; } // in order of their begin
  // What decides everything to come: states, places, and how long swaps under way still take. At an iteration's start.
  std::vector<int64_t> state() const;

private:
  int64_t distance(int32_t layer) const; // visits until it computes
  std::optional<int32_t> hottest() const, coldest() const;
  bool fits(int64_t duration) const;
  // A swap that is under way: of copies_, and thousandths of its time alone that are to go.
  struct UnderWay {
    size_t copy = 0;
    int64_t left = 0;
  };
  int64_t rate() const; // thousandths in a unit of time
  void foresee();
  void passTo(int64_t time);
  void confirm(); // what has ended by now
  void begin(int32_t layer, bool out, bool onDemand);
  void waitFor(const std::optional<UnderWay> &swap);
  void waitFor(int32_t layer);

  KvSwapProblem problem_;
  int64_t now_ = 0, visits_ = 0, waited_ = 0;
  std::vector<KvSwapRow> table_;
  std::vector<int32_t> free_; // spaces that nothing is in, in the order in which they are given out
  std::vector<KvSwapCopy> copies_;
  std::optional<UnderWay> in_, out_;
};

// What comes back: from iteration `first` on every `period` iterations begin in the same state.
struct KvSwapCycle {
  int64_t first = 0, period = 0;
  int64_t waited = 0; // in a period
};
// None: not within so many iterations.
std::optional<KvSwapCycle> kvSwapCycle(const KvSwapProblem &problem, int64_t iterations);

// A cycle of a problem that ends with its iterations, as what is in places.
Cycle cycleOfSwaps(const KvSwapProblem &problem, const KvSwapCycle &found);

// Whether compute waits once everything has been swapped for the first time, where swaps go on over edges: for equal
// times both ways and directions that do not share by the closed form above, else as it is played.
bool kvSwapWaits(const KvSwapProblem &problem);

} // namespace headrace::algorithms
