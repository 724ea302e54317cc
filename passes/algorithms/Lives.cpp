// SPDX-License-Identifier: Apache-2.0
//
// Lives are counted in compute steps: transients are made and read by these. What a slot holds is there from the first
// step during which its copy may run, as the order of lanes and waits says, to the last that reads it.
#include <algorithm>

#include "passes/algorithms/Program.h"

namespace headrace::algorithms {
namespace {

using Kind = Program::Kind;

constexpr uint64_t kAlign = 256;
uint64_t alignUp(uint64_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

class Lives {
public:
  Lives(const Program &program, absl::Span<const Clock> clocks)
      : program_(program), clocks_(clocks), transients_(program.ranges.size(), kNone),
        held_(program.ranges.size(), kNone) {}

  ArenaIteration run() {
    for (const Program::Op &op : program_.ops) {
      switch (op.kind) {
      case Kind::Carry:
        hold(op, 0);
        break;
      case Kind::Claim: // for the next compute step
        hold(op, now_);
        break;
      case Kind::Bring:
        hold(op, firstStepOf());
        break;
      case Kind::Evict: // read by another lane: free when the iteration has ended
      case Kind::CarryOut:
        use(program_.uses[op.firstUse], kToTheEnd);
        break;
      case Kind::Compute:
        compute(op);
        break;
      case Kind::Release:
      case Kind::Await:
      case Kind::Pace:
        break;
      }
      step_ += op.isStep();
    }
    for (SlotUse &use : arena_.slotUses)
      use.bytes = alignUp(use.bytes);
    return std::move(arena_);
  }

private:
  static constexpr size_t kNone = SIZE_MAX;

  // The first compute step that may run while a copy does: the one behind the last that has ended when it starts.
  int64_t firstStepOf() const {
    const int32_t ended = clocks_[step_][static_cast<size_t>(Lane::Compute)];
    return ended < 0 ? 0 : number_[static_cast<size_t>(ended)] + 1;
  }

  void hold(const Program::Op &op, int64_t first) {
    const Program::Version &version = program_.versions[op.firstMade];
    const Program::Range &range = program_.ranges[static_cast<size_t>(version.range)];
    size_t &held = held_[static_cast<size_t>(version.range)];
    if (held == kNone) {
      held = arena_.slotUses.size();
      arena_.slotUses.push_back({range.slot, range.offset, version.held, first, first});
    } else {
      uint64_t &bytes = arena_.slotUses[held].bytes;
      bytes = std::max(bytes, version.held); // a part that grows
    }
  }

  void use(uint32_t used, int64_t step) {
    const int32_t range = program_.versions[used].range;
    if (range == Program::kNone)
      return;
    const auto of = static_cast<size_t>(range);
    if (transients_[of] != kNone) {
      int64_t &last = arena_.transients[transients_[of]].last;
      last = std::max(last, step);
    } else if (held_[of] != kNone) {
      int64_t &last = arena_.slotUses[held_[of]].last;
      last = std::max(last, step);
    }
  }

  void compute(const Program::Op &op) {
    for (const uint32_t used : program_.usesOf(op))
      use(used, now_);
    for (uint32_t made = op.firstMade; made < op.endMade; ++made)
      if (const Program::Version &version = program_.versions[made]; version.after == Program::kNone) {
        const auto of = static_cast<size_t>(version.range);
        transients_[of] = arena_.transients.size();
        add(program_.ranges[of].bytes);
      }
    if (op.workspaceBytes > 0)
      add(op.workspaceBytes);
    number_.resize(step_ + 1);
    number_.back() = now_++;
  }
  void add(uint64_t bytes) { arena_.transients.push_back({alignUp(bytes), now_, now_}); }

  const Program &program_;
  const absl::Span<const Clock> clocks_;
  ArenaIteration arena_;
  size_t step_ = 0;                       // steps so far
  int64_t now_ = 0;                       // of them, those that compute
  std::vector<int64_t> number_;           // of compute steps, by step
  std::vector<size_t> transients_, held_; // by range: into arena_
};

} // namespace

ArenaIteration livesOf(const Program &program, absl::Span<const Clock> clocks) { return Lives(program, clocks).run(); }

} // namespace headrace::algorithms
