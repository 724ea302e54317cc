// SPDX-License-Identifier: Apache-2.0
//
// An iteration with its movement, as plain values: steps in an order in which they could run one by one, the versions
// of buffers that they use and make, and where in a slot each lies. What lanes and lives are worked out from: the
// passes read it from the IR, the evaluator writes it down from a list of steps.
//
//   0  carry                      makes v0, in slot 0 at 0
//   1  compute  uses v0           makes v1
//   2  release  uses v0
//   3  bring                      makes v2, in slot 0 at 0: waits for 1
//   4  await 3
//   5  compute  uses v1 v2
//
// Not in it is what orders nothing: buffers of compute alone that persist (meta, history ...), and weights at home,
// which nobody writes.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "passes/algorithms/LayOutArena.h"

namespace headrace::algorithms {

enum class Lane : uint8_t { Compute = 0, H2D = 1, D2H = 2, Cpu = 3 };
inline constexpr size_t kLanes = 4;
// Why a step waits for another: it uses what that wrote; writes what that read; writes what that wrote; copies keep
// behind it.
enum class WaitKind : uint8_t { Raw = 0, War = 1, Waw = 2, Pacing = 3 };

struct Program {
  static constexpr int32_t kNone = -1;

  enum class Kind : uint8_t {
    Compute,  // a step
    Bring,    // a step: a copy to the device, of bytes [from, from + bytes)
    Evict,    // a step: a copy home of what it uses first, which it gives up unless `keeps`
    Carry,    // there on entry
    Claim,    // a range that the next step writes
    Release,  // gives up what it uses
    Await,    // what follows uses what the step `of` has made
    Pace,     // copies that follow wait for the step `of`
    CarryOut, // there on exit
  };

  // Where versions of a buffer lie: in a slot, or, of what a compute step makes, wherever it is put.
  struct Range {
    static constexpr uint32_t kTransient = UINT32_MAX;
    uint32_t slot = kTransient;
    uint64_t offset = 0; // in the slot
    uint64_t bytes = 0;  // of a transient
    bool claimed = false;
  };

  struct Version {
    int32_t made = kNone;  // by this op; none: exists on entry
    int32_t after = kNone; // of the version that it is made of in place
    int32_t range = kNone; // none: at home
    uint64_t held = 0;     // bytes that are there, in a slot
  };

  struct Op {
    Kind kind = Kind::Compute;
    Lane lane = Lane::Compute;           // of steps
    bool hasEvent = true;                // of steps: others can wait for it
    bool keeps = false;                  // of Evict
    int32_t of = kNone;                  // of Await and Pace
    uint32_t firstUse = 0, endUse = 0;   // into uses, in the order of operands
    uint32_t firstMade = 0, endMade = 0; // into versions
    uint64_t from = 0, bytes = 0;        // of Bring
    uint64_t workspaceBytes = 0;         // of Compute
    bool isStep() const { return kind == Kind::Compute || kind == Kind::Bring || kind == Kind::Evict; }
  };

  std::vector<Op> ops;
  std::vector<uint32_t> uses;
  std::vector<Version> versions; // those that exist on entry stand before those of the op that uses them first
  std::vector<Range> ranges;

  absl::Span<const uint32_t> usesOf(const Op &op) const {
    return absl::MakeConstSpan(uses).subspan(op.firstUse, op.endUse - op.firstUse);
  }
};

// The steps of `lane` from op `before` on start after the step `of` has ended.
struct Wait {
  uint32_t before = 0, of = 0;
  Lane lane = Lane::Compute;
  WaitKind kind = WaitKind::Raw;
};

// All that accesses to the same bytes ask for, between lanes, in program order; paces too.
std::vector<Wait> waitsOf(const Program &program);

// A step among the ops of a program.
struct LaneStep {
  uint32_t op = 0;
  Lane lane = Lane::Compute;
};

// By lane: the last step of it that is known to have ended, by its number among all steps; -1: none.
using Clock = std::array<int32_t, kLanes>;

// What of `waits`, in program order, holds something up that neither the others nor the order of lanes do.
struct OrderedLanes {
  static constexpr uint32_t kNobody = UINT32_MAX;
  std::vector<uint32_t> waiter; // by wait: the number of the step that waits; kNobody: it says nothing new
  std::vector<WaitKind> kinds;  // by wait: what stays also names the reason of what goes
  std::vector<Clock> clocks;    // by step: when it starts
};
OrderedLanes orderLanes(absl::Span<const LaneStep> steps, absl::Span<const Wait> waits);

// Lives of transients and of what slots hold, counted in compute steps; `clocks`: by step. Transients: of each compute
// step what it makes, then its workspace.
ArenaIteration livesOf(const Program &program, absl::Span<const Clock> clocks);

} // namespace headrace::algorithms
