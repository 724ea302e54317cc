// SPDX-License-Identifier: Apache-2.0
//
// One walk in program order that remembers who wrote what and which ranges were given up, and says a wait wherever a
// step depends on a step of another lane:
//
//   raw   a step uses what another wrote: an evict what an append wrote, a prefetch what was written back. A program
//         wait for it says where: it becomes the wait of the lanes that use it.
//   war   a copy goes to a range that was given up: it waits for the step before that, in each lane that used the
//         range; an in-place update waits for the readers of the old version, and so does what is written back.
//   waw   a copy goes to a range whose content another lane brought and nobody used.
//   A step that writes into a range that was claimed waits as a copy into it would.
//   pacing waits are there already.
//
// Then each step has a clock: for each lane, the last step of it that is known to have ended when this one starts. A
// wait that the clocks of the lane's step before, or of another awaited step, cover already says nothing new.
//
//   h2d       A       B         C waits for A and for B; B's lane has run A before, so the wait for A goes
//   compute               C
#include <algorithm>
#include <cassert>
#include <utility>

#include "passes/algorithms/Program.h"
#include "passes/algorithms/RangeMap.h"

namespace headrace::algorithms {
namespace {

using Kind = Program::Kind;
constexpr int32_t kNone = Program::kNone;

// What must have ended before a range that was given up is written.
struct Use {
  uint32_t step;
  WaitKind kind;
};

class Waits {
public:
  explicit Waits(const Program &program)
      : program_(program), lanesOf_(program.versions.size()), readers_(program.versions.size()),
        waitedFor_(program.ops.size()), written_(program.ranges.size()) {
    last_.fill(kNone);
    for (const Program::Op &op : program.ops)
      if (op.isStep())
        for (const uint32_t used : program.usesOf(op))
          lanesOf_[used] |= bit(op.lane);
  }

  std::vector<Wait> run() {
    for (at_ = 0; at_ < program_.ops.size(); ++at_) {
      const Program::Op &op = program_.ops[at_];
      if (op.kind == Kind::Await)
        convert(static_cast<uint32_t>(op.of));
      else if (op.kind == Kind::Pace)
        waits_.push_back({at_, static_cast<uint32_t>(op.of), Lane::H2D, WaitKind::Pacing});
      else if (op.kind == Kind::Release)
        giveUp(program_.uses[op.firstUse]);
      if (!op.isStep())
        continue;
      order(op);
      if (op.hasEvent)
        last_[static_cast<size_t>(op.lane)] = static_cast<int32_t>(at_);
      for (const uint32_t used : program_.usesOf(op))
        readers_[used].push_back(at_);
      if (op.kind == Kind::Evict && !op.keeps)
        giveUp(program_.uses[op.firstUse]); // the evict is one of its readers
    }
    return std::move(waits_);
  }

private:
  static uint8_t bit(Lane lane) { return static_cast<uint8_t>(1U << static_cast<unsigned>(lane)); }
  const Program::Op &op(uint32_t index) const { return program_.ops[index]; }
  const Program::Version &version(uint32_t index) const { return program_.versions[index]; }

  // The step that is being looked at starts after `of`; raw waits for one step are needed once a lane.
  void await(uint32_t of, WaitKind kind) {
    const Lane lane = op(at_).lane;
    if (op(of).lane == lane)
      return;
    if (kind == WaitKind::Raw && (std::exchange(waitedFor_[of], waitedFor_[of] | bit(lane)) & bit(lane)) != 0)
      return;
    waits_.push_back({at_, of, lane, kind});
  }

  // A program wait holds up the steps behind it that use what the awaited step wrote.
  void convert(uint32_t of) {
    const Program::Op &awaited = op(of);
    for (uint32_t made = awaited.firstMade; made < awaited.endMade; ++made)
      for (size_t lane = 0; lane < kLanes; ++lane) {
        const uint8_t its = bit(static_cast<Lane>(lane));
        if ((lanesOf_[made] & its) == 0 || awaited.lane == static_cast<Lane>(lane) || (waitedFor_[of] & its) != 0)
          continue;
        waitedFor_[of] |= its;
        waits_.push_back({at_, of, static_cast<Lane>(lane), WaitKind::Raw});
      }
  }

  void order(const Program::Op &step) {
    // Reads, and updates in place, of what a step wrote.
    for (const uint32_t used : program_.usesOf(step))
      if (const int32_t by = version(used).made; by != kNone && op(static_cast<uint32_t>(by)).isStep())
        await(static_cast<uint32_t>(by), WaitKind::Raw);
    // Updates in place come after the readers of the old version.
    for (uint32_t made = step.firstMade; made < step.endMade; ++made)
      if (const int32_t before = version(made).after; before != kNone)
        for (const uint32_t reader : readers_[static_cast<size_t>(before)])
          if (op(reader).hasEvent)
            await(reader, WaitKind::War);
    if (step.kind == Kind::Bring) {
      const Program::Range &in = program_.ranges[static_cast<size_t>(version(step.firstMade).range)];
      orderInSlot(in, in.offset + step.from, step.bytes);
    }
    for (const uint32_t used : program_.usesOf(step))
      if (const int32_t range = version(used).range; range != kNone && version(used).after == kNone) {
        const Program::Range &in = program_.ranges[static_cast<size_t>(range)];
        if (in.claimed && std::exchange(written_[static_cast<size_t>(range)], 1) == 0)
          orderInSlot(in, in.offset, version(used).held);
      }
  }

  // What writes a range of a slot comes after whatever used it.
  void orderInSlot(const Program::Range &in, uint64_t begin, uint64_t bytes) {
    if (in.slot >= given_.size())
      return; // nothing of it was given up
    RangeMap<std::vector<Use>> &slot = given_[in.slot];
    seen_.clear();
    slot.forEach(begin, begin + bytes, [&](uint64_t, uint64_t, const std::vector<Use> &uses) {
      for (const Use &use : uses)
        if (std::find(seen_.begin(), seen_.end(), use.step) == seen_.end()) {
          seen_.push_back(use.step);
          await(use.step, use.kind);
        }
    });
    slot.erase(begin, begin + bytes);
  }

  // The range of a version is free once each lane that used it has come to where the program is now.
  void giveUp(uint32_t given) {
    const Program::Version &last = version(given);
    uint8_t lanes = 0;
    for (auto part = static_cast<int32_t>(given); part != kNone; part = version(static_cast<uint32_t>(part)).after)
      for (const uint32_t reader : readers_[static_cast<size_t>(part)])
        if (op(reader).kind != Kind::Bring)
          lanes |= bit(op(reader).lane);
    std::vector<Use> uses;
    for (size_t lane = 0; lane < kLanes; ++lane)
      if ((lanes & bit(static_cast<Lane>(lane))) != 0 && last_[lane] != kNone)
        uses.push_back({static_cast<uint32_t>(last_[lane]), WaitKind::War});
    if (uses.empty() && last.made != kNone && op(static_cast<uint32_t>(last.made)).kind == Kind::Bring)
      uses.push_back({static_cast<uint32_t>(last.made), WaitKind::Waw});
    const Program::Range &range = program_.ranges[static_cast<size_t>(last.range)];
    if (range.slot >= given_.size())
      given_.resize(range.slot + 1);
    given_[range.slot].assign(range.offset, range.offset + last.held, std::move(uses));
  }

  const Program &program_;
  uint32_t at_ = 0; // the op that is being looked at
  std::vector<Wait> waits_;
  std::vector<uint8_t> lanesOf_;                  // by version: lanes that use it, anywhere
  std::vector<std::vector<uint32_t>> readers_;    // by version: steps so far
  std::vector<uint8_t> waitedFor_;                // by op: lanes that have waited for what it wrote
  std::vector<uint8_t> written_;                  // by range: a step has written what was claimed
  std::array<int32_t, kLanes> last_;              // by lane: its last step that can be waited for
  std::vector<RangeMap<std::vector<Use>>> given_; // by slot: what was given up
  std::vector<uint32_t> seen_;
};

class Elision {
public:
  Elision(absl::Span<const LaneStep> steps, absl::Span<const Wait> waits) : steps_(steps), waits_(waits) {
    for (Clock &clock : now_)
      clock.fill(-1);
    order_.waiter.assign(waits.size(), OrderedLanes::kNobody);
    order_.clocks.reserve(steps.size());
    for (const Wait &wait : waits)
      order_.kinds.push_back(wait.kind);
    const uint32_t ops = steps.empty() ? 0 : steps.back().op + 1;
    numberOf_.resize(ops);
    for (uint32_t number = 0; number < steps.size(); ++number)
      numberOf_[steps[number].op] = number;
  }

  OrderedLanes run() {
    size_t wait = 0;
    for (const LaneStep &step : steps_) {
      for (; wait < waits_.size() && waits_[wait].before <= step.op; ++wait)
        pending_[static_cast<size_t>(waits_[wait].lane)].push_back(wait);
      start(static_cast<size_t>(step.lane));
    }
    return std::move(order_);
  }

private:
  struct Awaited {
    size_t wait;
    int32_t step;
    size_t lane;
    bool keep = true;
  };

  // Having waited for `awaited` says: it has ended, and all that had ended when it started.
  bool covers(const Awaited &by, const Awaited &awaited) const {
    return (by.lane == awaited.lane && by.step >= awaited.step) ||
           order_.clocks[static_cast<size_t>(by.step)][awaited.lane] >= awaited.step;
  }

  void start(size_t lane) {
    Clock &clock = now_[lane];
    awaited_.clear();
    for (const size_t wait : pending_[lane]) {
      const uint32_t step = numberOf_[waits_[wait].of];
      assert(step < order_.clocks.size() && "what is awaited stands before the wait");
      awaited_.push_back({wait, static_cast<int32_t>(step), static_cast<size_t>(steps_[step].lane)});
    }
    pending_[lane].clear();

    for (Awaited &a : awaited_)
      a.keep = clock[a.lane] < a.step;
    // Of two that cover each other (the same step twice) the stronger kind stays, then the first.
    for (size_t i = 0; i < awaited_.size(); ++i)
      for (size_t j = 0; j < awaited_.size() && awaited_[i].keep; ++j) {
        if (i == j || !awaited_[j].keep || !covers(awaited_[j], awaited_[i]))
          continue;
        const auto rank = [&](size_t k) { return std::pair(order_.kinds[awaited_[k].wait], k); };
        if (awaited_[j].step == awaited_[i].step && rank(i) < rank(j))
          continue;
        awaited_[i].keep = false;
        // What stays carries the dependence of what goes.
        if (WaitKind &stays = order_.kinds[awaited_[j].wait]; stays == WaitKind::Pacing)
          stays = order_.kinds[awaited_[i].wait];
      }

    const auto number = static_cast<uint32_t>(order_.clocks.size());
    for (const Awaited &a : awaited_)
      if (a.keep) {
        learn(clock, a.step, a.lane);
        order_.waiter[a.wait] = number;
      }
    order_.clocks.push_back(clock);
    clock[lane] = static_cast<int32_t>(number);
  }

  void learn(Clock &clock, int32_t step, size_t lane) const {
    const Clock &of = order_.clocks[static_cast<size_t>(step)];
    for (size_t i = 0; i < kLanes; ++i)
      clock[i] = std::max(clock[i], of[i]);
    clock[lane] = std::max(clock[lane], step);
  }

  const absl::Span<const LaneStep> steps_;
  const absl::Span<const Wait> waits_;
  OrderedLanes order_;
  std::vector<uint32_t> numberOf_;                  // of steps, by op
  std::array<Clock, kLanes> now_;                   // when the next step of a lane starts
  std::array<std::vector<size_t>, kLanes> pending_; // by lane: waits for its next step
  std::vector<Awaited> awaited_;
};

} // namespace

std::vector<Wait> waitsOf(const Program &program) { return Waits(program).run(); }

OrderedLanes orderLanes(absl::Span<const LaneStep> steps, absl::Span<const Wait> waits) {
  return Elision(steps, waits).run();
}

} // namespace headrace::algorithms
