// SPDX-License-Identifier: Apache-2.0
//
// The independent verifier: from a finished plan, with code that shares nothing with the passes that made it, it
// re-derives who owns each byte of the arena when, and refuses a plan that breaks a movement rule.
//
// Method. The step order, the lanes and the edges give "happens before" (one clock a lane for each step). Two accesses
// to a common byte of which one writes must be ordered by it. Then the steps are played one by one over a map from
// address ranges to contents (buffer, offset): a read must find what it names.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "runtime/plan/Plan.h"

namespace headrace::plan {

// The rules by name; DESIGN's movement rules 1-7 and the shape of a plan.
enum class Rule : uint8_t {
  Structure,       // indices, counts, sizes, enumerators, tiling of extents
  ReadBeforeReady, // 1: a read is not ordered after the write (prefetch) it needs
  UseAfterRelease, // 1: a read finds another buffer's content, or none
  OverwriteLive,   // 2: a write is not ordered after the last reader of what the range holds
  CopyOrder,       // 3: a copy is in the wrong lane for its direction
  OverBudget,      // 4: a device range beyond the arena, an arena beyond the budget
  Overlap,         // 4: two live buffers share a byte
  EntryExit,       // 5, 7: entry or exit contents are not what the steps need or leave
  HostRange,       // 6: a host side outside the slab, not one contiguous run, or not the unit's home
  SlotTooSmall,    // a content does not fit the slot it is put in
  RedundantEdge,   // a data edge that lane order and the other edges already imply
  WrongSpace,      // a compute step reads host memory without being marked direct
  Accounting // stored totals (arena, host bytes, durations, predictions) disagree with what follows from the steps
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

// The largest sum of bytes that are live at any step of a schedule: homes on the device, io, contents of slots from the
// first step that may write them to the last that reads them, transients likewise. No plan of these steps fits in less.
uint64_t largestLiveBytes(const Plan &plan, uint32_t schedule);

} // namespace headrace::plan
