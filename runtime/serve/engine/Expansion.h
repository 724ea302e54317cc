// SPDX-License-Identifier: Apache-2.0
//
// Adaptive expansion (Pie, section 3.4): how many KV blocks serve. Blocks not in use are not moved, and the engine
// knows who waits for blocks: with little load a larger expansion need not be tried (3.4.2), it costs nothing and is
// there at once. Values in, values out: the engine's part is in EngineExpansion.cpp.
//
// Any number will do where the blocks beyond the device's are brought for each iteration. It begins with the device's
// own, and looks at iterations, some at a time (a window):
//
//   compute waited for copies in most of them, and most
//   of the time                                           fewer, by as much as it waited
//   it hardly waited, and a request waits for blocks      more, twice as many more as the last time
//   iterations take as much longer as there are more      these are taken back: the workload does not scale
//   else                                                  as they are
//
//   blocks   |                     ____                        _        it waits: less
//            |               _____|    |______________________| |____
//            |          ____|                                        |        the link has less bandwidth: it waits
//   device's |_________|                                             |_____
//            +------------------------------------------------------------------> iterations
//
// Most of the time: so much that more blocks would make iterations longer by more than there are more. An iteration
// that waits for copies takes in proportion to the blocks on the host; one that has long prompts to compute does not
// wait.
//
// Whether it scales is seen in iterations that only decode: blocks in use by their time, which are tokens/s but for how
// long sequences are; that differs from hour to hour, and is nothing of the expansion's.
//
// Once it was too many it grows no more for a while, and for twice as long each time that it was so again at about the
// same number. What passes within half a window changes nothing.
//
// Only some numbers, the levels, can be had where they are those of a plan's placements (4.1: layers are swapped whole,
// and each layer less on the device makes all caches larger). It begins with the fewest, and climbs:
//
//   tokens/s of a level    | 3364   3991   4302   4528 | 2870
//                          |   0 ---> 1 ---> 2 ---> 3 ---> 4      a level that has less: back to the best
//                          |                        3 <----       not tried again for a while, then for twice as long
//
// How throughput rises with the expansion is no smooth curve, with how many layers' time a swap takes in whole ones; so
// levels are measured, by the median of some iterations that only decode: blocks offered by time, which are tokens/s
// but for how long sequences are. On a plateau the largest does: fewer sequences wait, or are preempted. What is
// measured is measured anew whenever it serves. A level that has served for a while is left once it falls by more than
// it drifts, or at once where most iterations of a window fall far: the link has become slower.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace headrace::serve {

// The paper gives no figures; these are ours. Each halved or doubled costs at most 3% of the throughput
// (tests/unit/serve/ExpansionTest.cpp).
struct ExpansionTuning {
  int64_t window = 16; // iterations; a disturbance of half as many changes nothing
  double waits = 0.03; // the part of an iteration from which on compute counts as waiting, beyond what it waits without
                       // blocks on the host
  double room = 0.6;   // the most that iterations may get longer by with more blocks, in proportion, for more; with 1
                       // tokens/s no longer rise
  double scales = 0.1; // of the blocks that were added, in proportion, what tokens/s have to rise by at least
  double judged = 0.125;      // as soon as so many were added, in proportion
  double firstStep = 1. / 64; // of the blocks on the host, the first more
  int64_t judgedWindows = 4;  // in so many windows
  int64_t lookAgain = 512;    // iterations until more are tried again, at first
  int64_t longestPause = 16;  // times that, at last
  // Of levels, parts of the best's tokens/s: what a larger level may lose for a still larger one to
  // be tried; what one that serves may before it is left; and what it may not lose in most iterations of a window.
  int64_t longestClimbPause = 4; // times lookAgain, until a level that was left is tried again, at last
  double loses = 0.02, drifts = 0.05, falls = 0.2;
};

// Blocks of a pool, of one mini-batch.
struct ExpansionBounds {
  int64_t least = 1; // the device's own, or as many as a sequence may need
  int64_t most = 1;
  bool operator==(const ExpansionBounds &) const = default;
};

// An iteration, once it has ended.
struct IterationWaits {
  int64_t ns = 0;       // that it took: to its end, from the end of the one before
  int64_t waitNs = 0;   // of it compute waited for copies
  int64_t linkNs = 0;   // of it the busier direction of the link was busy
  int64_t used = 0;     // blocks that are in use, of the pool that has most
  int64_t away = 0;     // of them, at home on the host
  bool wanted = false;  // a request has a seat, and waits for blocks
  bool prefill = false; // it has rows of prompts
  // No: more are in use than are offered, or they are being moved together. That it waits says nothing then.
  bool settled = true;
};

class Expansion {
public:
  // Any number of blocks within these.
  explicit Expansion(const ExpansionBounds &bounds, const ExpansionTuning &tuning = {});
  // One of these: ascending, one at least.
  explicit Expansion(const std::vector<int64_t> &levels, const ExpansionTuning &tuning = {});

  // Where the placement has changed; not of levels. Begins anew, with as many as were offered, within these.
  void setBounds(const ExpansionBounds &bounds);

  // Blocks that may be in use.
  int64_t offered() const { return offered_; }
  void saw(const IterationWaits &iteration);

  uint64_t grown() const { return grown_; }
  uint64_t shrunk() const { return shrunk_; }

private:
  // Of the iterations since the window began.
  struct Window {
    int64_t iterations = 0, wanted = 0;
    int64_t slow = 0; // they waited, or were far below the best level
    int64_t ns = 0, waitNs = 0, mostUsed = 0, mostAway = 0;
    int64_t waitingNs = 0, linkNs = 0; // of those that wait, and of the others
    int64_t decodeNs = 0;              // of those without rows of prompts
    int64_t decodeUsed = 0;            // the sum of the blocks in use in these
  };
  struct Level {
    int64_t blocks = 0;
    double rate = 0; // blocks by time; 0: not known
    int64_t tryAgainAt = 0, pause = 0;
  };
  void begin(int64_t blocks);
  void offer(int64_t blocks);
  // Of any number.
  void sawWithin(const IterationWaits &iteration);
  void look();
  double waited() const;
  double longer() const;
  void shrink();
  void grow();
  bool scales();
  void fewer(int64_t blocks);
  // Of levels.
  void sawLevel(const IterationWaits &iteration);
  void lookAtLevel();
  void measure();
  size_t best() const;
  void leave();
  void goTo(size_t level);

  ExpansionBounds bounds_;
  const ExpansionTuning tuning_;
  int64_t offered_;
  Window window_;
  int64_t seen_ = 0; // iterations
  uint64_t grown_ = 0, shrunk_ = 0;

  double floor_ = 0; // the part that compute waits without blocks on the host
  int64_t lookAgainAt_ = 0, lookAgainAfter_;
  int64_t tooMany_ = 0; // that they were the last time
  int64_t step_ = 0;    // of the last growth; 0: there was none since they were too many
  // What growth is held against: blocks offered, and blocks in use a time. 0: the next growth says.
  int64_t before_ = 0;
  double rateBefore_ = 0;
  // Of windows at this number in which more were wanted.
  int64_t judgedWindows_ = 0, judgedNs_ = 0, judgedUsed_ = 0;

  std::vector<Level> levels_; // empty: any number
  size_t at_ = 0;
  std::vector<double> rates_;         // of this level, iteration by iteration
  int64_t skip_ = 0, freshUntil_ = 0; // iterations
};

} // namespace headrace::serve
