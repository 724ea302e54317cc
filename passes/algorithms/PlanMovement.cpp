// SPDX-License-Identifier: Apache-2.0
#include "passes/algorithms/PlanMovement.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <sstream>
#include <utility>

#include "passes/algorithms/CycleOf.h"

namespace headrace::algorithms {
namespace {

class MovementPlanner {
public:
  MovementPlanner(const Movables &movables, const Residency &residency, const Cut &carried, WriteBack back)
      : movables_(movables), start_(residency.start), back_(back), wrapUnits_(carried.units), wrapBytes_(carried.bytes),
        times_(rangeTimes(movables)) {}

  MovementPlan run() {
    plan_.awaitedBefore.assign(movables_.moved.size(), -1);
    if (movables_.moved.empty())
      return std::move(plan_);
    // What may be there on entry, counted in order of use; that is what a cut counts, too.
    for (const Moved &of : movables_.moved)
      position_.push_back(of.mayBeCarried() ? carriable_++ : kNever);
    plan_.error = wrongWrap();
    if (!plan_.error.empty())
      return std::move(plan_);
    holding_.assign(movables_.moved.size(), 0);
    for (size_t i = 0; i < movables_.moved.size(); ++i)
      if (isCarried(i))
        add(Movement::Kind::Carry, -1, i).bytes = carriedBytes(i);
    releases_.resize(movables_.steps);
    for (size_t i = 0; i < movables_.moved.size(); ++i)
      releases_[releaseStep(i)].push_back(i);

    // Where each copy stands: behind `step`, not before the copy ahead of it in the lane.
    std::vector<Copy> copies;
    int64_t behind = -1;
    for (size_t i = 0; i < movables_.moved.size(); ++i) {
      if (isStream(i) || position_[i] < wrapUnits_)
        continue;
      behind = std::max({behind, freeAfter(i), eligibleAfter(moved(i).item, false)});
      copies.push_back({i, behind, false});
    }
    for (size_t i = 0; i < movables_.moved.size(); ++i) {
      if (!isCarried(i))
        continue;
      behind = std::max({behind, times_.tailFreeAfter[i], eligibleAfter(moved(i).item, true)});
      copies.push_back({i, behind, true});
    }
    list(withStreams(copies));
    return std::move(plan_);
  }

private:
  struct Copy {
    size_t moved;
    int64_t step; // the compute step it stands behind; -1: none
    bool nextIteration;
  };

  // Residual streams come back among the others as soon as they are home and a slot is free: one that the layer behind
  // the next needs must not keep that one's weights waiting. Each copy still stands before all that wait for steps
  // behind its first use.
  std::vector<Copy> withStreams(const std::vector<Copy> &others) {
    std::vector<Copy> streams, copies;
    std::map<int32_t, int64_t> leftAfter; // by mini-batch: behind the layer before
    int64_t behind = -1;
    for (size_t i = 0; i < movables_.moved.size(); ++i) {
      if (!isStream(i))
        continue;
      const auto left = leftAfter.try_emplace(moved(i).miniBatch, -1).first;
      if (moved(i).made) {
        claims_.push_back(i);
      } else {
        behind = std::max({behind, freeAfter(i), left->second});
        streams.push_back({i, behind, false});
      }
      left->second = moved(i).lastUse;
    }
    std::merge(streams.begin(), streams.end(), others.begin(), others.end(), std::back_inserter(copies),
               [](const Copy &a, const Copy &b) { return a.step < b.step; });
    return copies;
  }

  const Moved &moved(size_t i) const { return movables_.moved[i]; }
  bool isStream(size_t i) const { return traitsOf(moved(i).kind).written == Written::Whole; }
  bool isCarried(size_t i) const { return position_[i] < wrapUnits_ || (position_[i] == wrapUnits_ && wrapBytes_ > 0); }
  uint64_t carriedBytes(size_t i) const { return position_[i] < wrapUnits_ ? moved(i).bytes : wrapBytes_; }
  uint32_t releaseStep(size_t i) const {
    return start_.byMovable() ? moved(i).lastUse : movables_.items[moved(i).item].lastStep;
  }

  std::string wrongWrap() const {
    const size_t n = carriable_;
    if (wrapUnits_ > n || (wrapUnits_ == n && wrapBytes_ > 0))
      return "cannot wrap " + std::to_string(wrapUnits_) + " movables and " + std::to_string(wrapBytes_) +
             " bytes around: there are " + std::to_string(n) + " that are moved";
    const auto last = static_cast<size_t>(std::find(position_.begin(), position_.end(), wrapUnits_) -
                                          position_.begin()); // carried in part
    if (wrapUnits_ < n && wrapBytes_ >= moved(last).bytes)
      return "cannot wrap " + std::to_string(wrapBytes_) + " bytes of '" + moved(last).name + "' around: it has " +
             std::to_string(moved(last).bytes) + ", and part of it must be left";
    if (wrapBytes_ > 0 && moved(last).resizable())
      return "cannot wrap a part of '" + moved(last).name + "' around: how much of it is in use is not known before";
    for (size_t i = 0; i < movables_.moved.size(); ++i)
      if (isCarried(i) && times_.freeAfter[i] >= 0)
        return "'" + moved(i).name + "' cannot be there on entry: an earlier one lies in its range of slot " +
               std::to_string(movables_.slotOf(moved(i)));
    return "";
  }

  Movement &add(Movement::Kind kind, int64_t behind, size_t i) {
    Movement &movement = plan_.movements.emplace_back();
    movement.kind = kind;
    movement.behind = behind;
    movement.moved = i;
    if (kind == Movement::Kind::Carry || kind == Movement::Kind::Claim)
      holding_[i] = plan_.holdings++;
    movement.holding = holding_[i];
    movement.slot = movables_.slotOf(moved(i));
    movement.offset = moved(i).slotOffset;
    return movement;
  }

  // The step behind which the start lets an item's copies begin, for the next iteration those of its tail; -1: any.
  int64_t eligibleAfter(uint32_t item, bool nextIteration) const {
    switch (start_.rule) {
    case StartRule::Paper:
      return paperAfter(item);
    case StartRule::Ahead:
      return aheadAfter(item, nextIteration);
    case StartRule::Eager:
      break;
    }
    return -1;
  }

  // When the first layer of its interval starts; for an interval of one, when the layer before starts.
  int64_t paperAfter(uint32_t item) const {
    const MovedItem &self = movables_.items[item];
    if (item == 0)
      return self.firstStep == movables_.layersBegin ? -1 : static_cast<int64_t>(movables_.layersBegin) - 1;
    const MovedItem &before = movables_.items[item - 1];
    const bool adjacent = self.firstStep == before.lastStep + 1;
    return adjacent ? static_cast<int64_t>(before.firstStep) - 1 : before.lastStep;
  }

  // When the item so many before it on the circle has ended; 0: when the step before its own has.
  int64_t aheadAfter(uint32_t item, bool nextIteration) const {
    const auto count = movables_.items.size();
    const auto items = std::min<size_t>(static_cast<size_t>(start_.items), count);
    if (items == 0)
      return static_cast<int64_t>(movables_.items[item].firstStep) - 1;
    return nextIteration ? movables_.items[item + count - items].lastStep : movables_.items[item - items].lastStep;
  }

  // When what is moved has its range for itself.
  int64_t freeAfter(size_t i) const {
    if (start_.byMovable())
      return times_.freeAfter[i];
    // A slot is given up as a whole.
    for (uint32_t item = moved(i).item; item-- > 0;)
      if (movables_.slots.slotOf[item] == movables_.slotOf(moved(i)))
        return movables_.items[item].lastStep;
    return -1;
  }

  // Behind a step first releases, which need what was there; then the copies.
  void list(const std::vector<Copy> &copies) {
    for (const Copy &copy : copies)
      if (!copy.nextIteration && copy.step >= static_cast<int64_t>(moved(copy.moved).firstUse)) {
        plan_.error = "'" + moved(copy.moved).name + "' is used before its range is free";
        return;
      }
    size_t next = 0;
    std::optional<std::pair<uint32_t, bool>> paced; // the item, and whether for the next iteration
    for (int64_t step = -1; step < static_cast<int64_t>(movables_.steps); ++step) {
      if (step >= 0)
        for (const size_t i : releases_[static_cast<size_t>(step)])
          giveUp(i, step);
      for (const size_t i : claims_)
        if (static_cast<int64_t>(moved(i).firstUse) == step + 1)
          add(Movement::Kind::Claim, step, i);
      for (; next < copies.size() && copies[next].step == step; ++next) {
        const auto [i, at, nextIteration] = copies[next];
        if (!start_.byMovable() && paced != std::pair(moved(i).item, nextIteration)) {
          paced.emplace(moved(i).item, nextIteration);
          pace(step, eligibleAfter(moved(i).item, nextIteration), i);
        }
        bring(i, step, nextIteration);
      }
    }
  }

  void pace(int64_t behind, int64_t eligible, size_t i) {
    // A wait names what a step wrote; behind one that writes nothing (publish) the step before it has to do.
    if (eligible >= 0)
      eligible = movables_.awaitable[static_cast<size_t>(eligible)];
    if (eligible >= 0)
      add(Movement::Kind::Pace, behind, i).after = eligible;
  }

  // What the iteration has appended to a tail goes home first: the copy may run as soon as that has been written. So
  // does a residual stream, but for the last layer's, which ends there.
  void giveUp(size_t i, int64_t step) {
    Movement &movement = add(Movement::Kind::GiveUp, step, i);
    if (!moved(i).writtenBack)
      return;
    movement.bytes = moved(i).bytes;
    movement.back = back_ == WriteBack::Dirty && !isStream(i) ? WriteBack::Dirty : WriteBack::All;
  }

  // This iteration's copy of a movable is of all of it, or of what the iteration before has left.
  void bring(size_t i, int64_t step, bool nextIteration) {
    const uint64_t from = !nextIteration && isCarried(i) ? carriedBytes(i) : 0;
    const uint32_t held = holding_[i];
    Movement &movement = add(Movement::Kind::Bring, step, i);
    movement.holding = from > 0 ? held : plan_.holdings++;
    movement.from = from;
    movement.bytes = nextIteration ? carriedBytes(i) : moved(i).bytes - from;
    movement.forNext = nextIteration;
    movement.homeAsWritten = nextIteration || isStream(i);
    if (nextIteration) {
      plan_.out.push_back({i, movement.holding, false, false});
      return;
    }
    holding_[i] = movement.holding;
    // Item by item the first step of a layer waits for all that is moved of it; else the first that uses a movable.
    plan_.awaitedBefore[i] = start_.byMovable() ? moved(i).firstUse : movables_.items[moved(i).item].firstStep;
  }

  const Movables &movables_;
  const Start start_;
  const WriteBack back_;
  const size_t wrapUnits_;   // there on entry: so many whole, ...
  const uint64_t wrapBytes_; // ... and so many bytes of the one after them
  const RangeTimes times_;
  static constexpr size_t kNever = std::numeric_limits<size_t>::max();
  std::vector<size_t> position_;              // by movable: among those that may be there on entry
  size_t carriable_ = 0;                      // how many may
  std::vector<size_t> claims_;                // movables that a step makes
  std::vector<uint32_t> holding_;             // by movable: of this iteration
  std::vector<std::vector<size_t>> releases_; // movables, by step
  MovementPlan plan_;
};

} // namespace

MovementPlan planMovement(const Movables &movables, const Residency &residency, const Cut &carried, WriteBack back) {
  return MovementPlanner(movables, residency, carried, back).run();
}

Cut carriedOnEntry(const Residency &residency, const Movables &movables, const std::optional<Cut> &cut) {
  if (residency.start.rule != StartRule::Ahead)
    return cut.value_or(Cut());
  Cut first;
  for (size_t item = 0; item < movables.items.size() && item < static_cast<size_t>(residency.start.items); ++item)
    first.units += movables.items[item].moved;
  return first;
}

MovementPlan planIteration(const Movables &movables, const Residency &residency, const PlannedIteration &iteration) {
  if (!residency.cycles() || !iteration.bringsTails)
    return planMovement(movables, residency, carriedOnEntry(residency, movables, iteration.cut), iteration.back);
  const auto refused = [](const auto &...parts) {
    MovementPlan plan;
    std::ostringstream text;
    (text << ... << parts);
    plan.error = text.str();
    return plan;
  };
  const auto tails = std::count_if(movables.items.begin(), movables.items.end(),
                                   [](const MovedItem &item) { return item.kind == MovableKind::Kv; });
  const int64_t places = residency.kv().places();
  if (tails <= places)
    return refused("needs fewer places than the ", tails, " tails of caches that cycle through them, got ", places,
                   ": nothing would move");
  const Cycle cycle = cycleOf(residency, tails);
  if (iteration.period != cycle.period() || iteration.phase >= iteration.period)
    return refused("is number ", iteration.phase, " of ", iteration.period, ", but ", tails, " tails in ", places,
                   " places take a cycle of ", cycle.period());
  return planCycle(movables, cycle, iteration.phase, iteration.cut.value_or(Cut()), iteration.back);
}

} // namespace headrace::algorithms
