// SPDX-License-Identifier: Apache-2.0
//
// The independent verifier: from a finished plan, with code that shares nothing with the passes that made it, it
// re-derives who owns each byte of the arena when, and refuses a plan that breaks a movement rule.
//
// Method. The step order, the lanes and the edges give "happens before" (Clocks.h: one clock a lane for each step).
// Then the steps are played one by one over a map from address ranges to contents (Playback.h). Two accesses to a
// common byte of which one writes must be ordered by it; a read must find what it names. If both hold, every order of
// execution that lanes and edges allow gives every step the same contents.
//
// What is checked, in order: the structure (PlanStructure.h; nothing else is looked at in a plan without it); buffers,
// operands and sizes against the model; ranges that never move; order and contents, schedule by schedule; that every
// data edge is needed; totals, predictions and transitions. Of a cache that is split, the home of its tail on the host
// is written, and so is that of a residual, so they are played over as device memory is; and of several copies of the
// same bytes it is told which is current. Time and memory are linear in the plan but for logarithms.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "runtime/plan/value/Plan.h"

namespace headrace::plan {

// The rules by name; DESIGN's movement rules 1-8 and the structure of a plan.
enum class Rule : uint8_t {
  // Indices, counts, sizes, enumerators, tiling of extents; the split of caches, and that a block has one place in all
  // placements; residuals of some mini-batches only, or with another home than one on the host; of a stage a weight or
  // a step that another has, rows that it does not publish, or ids that it does not keep; a cycle without one of its
  // phases; operands that are not the op's, or smaller than what it touches; attention that does not follow the append
  // of its rows, or rows that are rotated twice or never; in the cpu lane anything but append and attention, or with a
  // cache of which blocks are at home on the device.
  Structure,
  // 1: a read is not ordered after the write (prefetch) of bytes that it reads.
  ReadBeforeReady,
  // 1: a read finds another buffer's content, or none.
  UseAfterRelease,
  // 2: a write is not ordered after the last readers of what the range holds, or after its writer; of a residual's home
  // in a stage, before the publish.
  OverwriteLive,
  // 3: a copy is in the wrong lane for its direction.
  CopyOrder,
  // 4: a device range beyond the arena, an arena beyond the budget.
  OverBudget,
  // 4: two live buffers share a byte: homes, slots, transients (from first use to last); operands of one step of which
  // one is written; what is written or kept among the blocks of interleaved caches.
  Overlap,
  // 6, 8: a slot is read that this iteration has not written, and the entry state does not say that it holds this; a
  // state has a residual; an exit state says more than what slots hold at the end; a state that variants need cannot be
  // reached; the phases of a cycle do not meet; what is ahead of its home is no tail, or is dropped, or cannot be
  // written back.
  EntryExit,
  // 7: a host side outside the slab, not one contiguous run, not the buffer's home; a copy to the host of anything but
  // a cache's tail or a residual, or while the placement changes; a residual that a transition copies; two buffers'
  // homes, or a transient and a home, that share a byte of the slab.
  HostRange,
  // A content, or what is written of a cache's tail or a residual on the device or back from there, does not lie in one
  // slot.
  SlotTooSmall,
  // A data edge that lane order and the other edges imply, or that no conflict of its kind needs.
  RedundantEdge,
  // A compute step uses memory other than the device's without being marked direct, or one of the cpu lane other than
  // the host's.
  WrongSpace,
  // Stored totals (arena, host bytes, amounts, predictions) disagree with what follows from the steps.
  Accounting,
  // 5: what is read of a cache or a residual has since been written elsewhere only; or what a schedule leaves in slots
  // that its exit state has, at home on the device after a change of placement, or at home on the host, but where the
  // exit state says that this may be behind; or rows of a stage that are added to behind their publish.
  StaleCopy
};
const char *ruleName(Rule rule);

struct Violation {
  Rule rule;
  uint32_t schedule = kNone; // kNone: not about one schedule
  uint32_t step = kNone;
  std::string message;
};

// All violations found, at most `limit`, in a fixed order; empty for a valid plan. Once per schedule for the movement
// rules, sizes per variant.
std::vector<Violation> findViolations(const Plan &plan, size_t limit = 16);

// InvalidArgument naming the first violation.
absl::Status verifyPlan(const Plan &plan, const std::string &where);

// The largest sum of bytes that are live at any compute step of a schedule: homes on the device, io included; contents
// of slots from the first step that may run beside the copy that writes them (or from the step that does, of
// residuals) to the last that reads them, or that a copy which does waits for (or to the end, if the exit state has
// them); transients from their first use to their last. No plan of these steps and edges fits in less. The plan must be
// one for which findViolations names no Structure fault.
uint64_t largestLiveBytes(const Plan &plan, uint32_t schedule);

} // namespace headrace::plan
