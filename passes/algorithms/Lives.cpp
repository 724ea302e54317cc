// SPDX-License-Identifier: Apache-2.0
//
// Lives are counted in steps of the compute lane: transients are made by these, and read by these or by steps of other
// lanes. What another lane reads is there up to the step before the first that knows that it has been read. What a slot
// holds is there from the first step during which its copy may run, as the order of lanes and waits says, to the last
// that reads it; and beside each transient that another lane may still be reading then.
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
        brought_.push_back({held_[static_cast<size_t>(program_.versions[op.firstMade].range)], step_});
        break;
      case Kind::Evict: // read by another lane: free when the iteration has ended
      case Kind::CarryOut:
        use(program_.uses[op.firstUse], kToTheEnd);
        break;
      case Kind::Compute:
        op.lane == Lane::Compute ? compute(op) : elsewhere(op);
        break;
      case Kind::Release:
      case Kind::Await:
      case Kind::Pace:
        break;
      }
      step_ += op.isStep();
    }
    for (const size_t read : pending_)
      arena_.transients[reads_[read].transient].last = kToTheEnd;
    for (const Brought &copy : brought_)
      for (const Read &read : reads_)
        keepApart(arena_.slotUses[copy.slotUse], clocks_[copy.step], read);
    for (SlotUse &use : arena_.slotUses)
      use.bytes = alignUp(use.bytes);
    return std::move(arena_);
  }

private:
  static constexpr size_t kNone = SIZE_MAX;

  struct Read {
    size_t transient;
    Lane lane;
    int32_t step;
  };
  struct Brought {
    size_t slotUse, step;
  };
  static bool knows(const Clock &clock, const Read &read) { return clock[static_cast<size_t>(read.lane)] >= read.step; }

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

  // In another lane.
  void elsewhere(const Program::Op &op) {
    for (const uint32_t used : program_.usesOf(op))
      if (const int32_t range = program_.versions[used].range;
          range != Program::kNone && transients_[static_cast<size_t>(range)] != kNone) {
        pending_.push_back(reads_.size());
        reads_.push_back({transients_[static_cast<size_t>(range)], op.lane, static_cast<int32_t>(step_)});
      }
    number_.resize(step_ + 1);
  }
  // The step that comes now knows that these have been read.
  void endReads() {
    std::erase_if(pending_, [&](size_t of) {
      const Read &read = reads_[of];
      if (!knows(clocks_[step_], read))
        return false;
      int64_t &last = arena_.transients[read.transient].last;
      last = std::max(last, now_ - 1);
      return true;
    });
  }
  // What is brought may be written while the transient is still being read, unless its last reader came before that.
  void keepApart(SlotUse &content, const Clock &copy, const Read &read) const {
    const LiveRange &transient = arena_.transients[read.transient];
    if (!knows(copy, read) && content.last >= transient.first)
      content.first = std::min(content.first, transient.last);
  }

  void compute(const Program::Op &op) {
    endReads();
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
  std::vector<Read> reads_;               // by steps of other lanes
  std::vector<size_t> pending_;           // of them, those not known to have ended
  std::vector<Brought> brought_;
};

} // namespace

ArenaIteration livesOf(const Program &program, absl::Span<const Clock> clocks) { return Lives(program, clocks).run(); }

} // namespace headrace::algorithms
