// SPDX-License-Identifier: Apache-2.0
//
// Plans by hand whose caches are split, in the forms that MakePlan.h and SplitCachePlan.h do not have: tails that
// copies write back, cycles of schedules, caches of which no block is at home on the device.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/plan/value/Plan.h"

namespace headrace::plan::test {

// A layer's tail is copied between its home and a slot.
struct TailMove {
  int32_t after = -1; // the layer whose attention stands before it; -1: none, it is at the start
  bool out = false;   // from the slot to the home
  int32_t layer = 0;
  uint32_t slot = 0;
  bool dirtyOnly = false;
};
struct CarriedTail {
  int32_t layer = 0;
  uint32_t slot = 0;
  bool dirty = false;
};
// One iteration: what slots hold when it starts, by slot, and what moves.
struct Phase {
  std::vector<CarriedTail> entry;
  std::vector<TailMove> moves;
};
struct Tails {                        // of one placement
  int64_t resident = 0, blocks = 0;   // of a layer, on the device and in all
  uint32_t slots = 0;                 // behind the arena, each for a whole tail
  bool mirror = true;                 // appends write the home of the tail as well
  std::vector<Phase> phases;          // one: no cycle. Of each class the same
  std::vector<bool> withoutTail = {}; // by schedule of the placement: it uses what is resident, and nothing moves
};

// Of a plan that offloads nothing, with as many placements: blocks of all layers from the arena's start on, layer l's
// block b at (b * layers + l) * kvBlockBytes(); homes in the slab one behind the other. Schedules of phases above 0
// come behind all others, then transitions: for each placement from state 0 to each entry, from each dirty one to state
// 0; then from each placement to each other that has more on the device of what exists. An edge stands wherever nothing
// else orders two steps that need it.
void moveTails(Plan &plan, const std::vector<Tails> &placements);

// The edges of a schedule anew: of the conflicts between its lanes those that no others and no lane's order imply.
void orderSteps(Schedule &schedule);

enum class WriteBack { Mirror, All, Dirty };
// Each layer's tail is brought in each iteration, layer l's to slot l % slots, and written back behind its attention.
Phase inTurns(int32_t layers, uint32_t slots, WriteBack how);
// Three layers' tails in two slots: slot 1 keeps layer 1's, in slot 0 layers 0 and 2 take turns. What it holds at the
// edge of an iteration is layer 0's, then layer 2's. All: back goes what is given up, and only then.
//
//   phase      0                          1
//   slot 0     0 ------ 2 ------------ | 2  0 ------ 2 ---------- 0
//   slot 1     1 --------------------- | 1 -----------------------
std::vector<Phase> staying(WriteBack how);

} // namespace headrace::plan::test
