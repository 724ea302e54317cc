// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>
#include <utility>

#include "passes/algorithms/PlanMovement.h"

namespace headrace::algorithms {
namespace {

// Of several mini-batches each has its tail of each layer, which are visited one behind the other: what is called a
// layer here is then a layer's mini-batch.
class CyclePlanner {
public:
  CyclePlanner(const Movables &movables, const Cycle &cycle, uint64_t phase, const Cut &cut, WriteBack back)
      : movables_(movables), cycle_(cycle), phase_(phase), cut_(cut), back_(back), times_(rangeTimes(movables)) {
    for (size_t i = 0; i < movables.moved.size(); ++i)
      (moved(i).resizable() ? tails_ : weights_).push_back(i);
  }

  MovementPlan run() {
    plan_.awaitedBefore.assign(movables_.moved.size(), -1);
    plan_.error = wrongCut();
    if (!plan_.error.empty())
      return std::move(plan_);
    holding_.assign(movables_.moved.size(), 0);
    carryIn();
    planCopies();
    list();
    return std::move(plan_);
  }

private:
  // What lies in a place: a tail as it was brought or carried in; `used`: its layer's steps have run on it.
  struct Held {
    int32_t layer = -1; // none
    uint32_t holding = 0;
    bool used = false, dirty = false;
  };
  struct Copy {
    size_t moved;
    int64_t behind;                // the compute step it stands behind; -1: none
    uint64_t due;                  // the step that needs it, counted on into the next iteration
    std::optional<PlaceMove> move; // of a tail
    bool forNext;
  };

  const Moved &moved(size_t i) const { return movables_.moved[i]; }
  size_t tailOf(int32_t layer) const { return tails_[static_cast<size_t>(layer)]; }
  const Moved &tail(int32_t layer) const { return moved(tailOf(layer)); }
  int64_t stepOf(int32_t after) const { return after < 0 ? -1 : static_cast<int64_t>(tail(after).lastUse); }
  // Of the weights, in order of use: what is there on entry.
  uint64_t carriedBytes(size_t weight) const {
    return weight < cut_.units ? moved(weights_[weight]).bytes : weight == cut_.units ? cut_.bytes : 0;
  }

  std::string wrongCut() const {
    const size_t n = weights_.size();
    if (cut_.units > n || (cut_.units == n && cut_.bytes > 0))
      return "cannot wrap " + std::to_string(cut_.units) + " movables and " + std::to_string(cut_.bytes) +
             " bytes around: there are " + std::to_string(n) + " weights that are moved";
    if (cut_.units < n && cut_.bytes >= moved(weights_[cut_.units]).bytes)
      return "cannot wrap " + std::to_string(cut_.bytes) + " bytes of '" + moved(weights_[cut_.units]).name +
             "' around: it has " + std::to_string(moved(weights_[cut_.units]).bytes) + ", and part of it must be left";
    for (size_t weight = 0; weight < n && carriedBytes(weight) > 0; ++weight)
      if (times_.freeAfter[weights_[weight]] >= 0)
        return "'" + moved(weights_[weight]).name +
               "' cannot be there on entry: an earlier one lies in its range of slot " +
               std::to_string(movables_.slotOf(moved(weights_[weight])));
    return "";
  }

  Movement &add(Movement::Kind kind, int64_t behind, size_t i, uint32_t slot, uint64_t offset, uint32_t holding) {
    Movement &movement = plan_.movements.emplace_back();
    movement.kind = kind;
    movement.behind = behind;
    movement.moved = i;
    movement.slot = slot;
    movement.offset = offset;
    movement.holding = holding;
    return movement;
  }
  uint32_t placeSlot(int32_t place) const { return movables_.firstPlace + static_cast<uint32_t>(place); }

  void carryIn() {
    for (size_t weight = 0; weight < weights_.size() && carriedBytes(weight) > 0; ++weight) {
      const size_t i = weights_[weight];
      holding_[i] = plan_.holdings++;
      add(Movement::Kind::Carry, -1, i, movables_.slotOf(moved(i)), moved(i).slotOffset, holding_[i]).bytes =
          carriedBytes(weight);
    }
    const std::vector<int32_t> &entry = cycle_.phases[phase_].entry;
    for (int32_t p = 0; p < static_cast<int32_t>(entry.size()); ++p) {
      const int32_t layer = entry[static_cast<size_t>(p)];
      if (layer < 0) {
        held_.emplace_back();
        continue;
      }
      // Written in iterations before, and not written back until it is given up.
      const bool dirty = back_ == WriteBack::All && cycle_.visitedOnEntry(phase_, p);
      Movement &carry = add(Movement::Kind::Carry, -1, tailOf(layer), placeSlot(p), 0, plan_.holdings++);
      carry.bytes = tail(layer).bytes;
      carry.dirty = dirty;
      held_.push_back({layer, carry.holding, false, dirty});
    }
  }

  // In the order of what they are for, each behind the step that frees its range and not before the one ahead of it.
  void planCopies() {
    const uint64_t next = movables_.steps;
    for (size_t weight = 0; weight < weights_.size(); ++weight) {
      const size_t i = weights_[weight];
      if (carriedBytes(weight) < moved(i).bytes)
        copies_.push_back({i, times_.freeAfter[i], moved(i).firstUse, {}, false});
      if (carriedBytes(weight) > 0)
        copies_.push_back({i, times_.tailFreeAfter[i], next + moved(i).firstUse, {}, true});
    }
    for (const PlaceMove &move : cycle_.phases[phase_].moves)
      copies_.push_back({tailOf(move.layer), stepOf(move.after),
                         (move.forNext() ? next : 0) + tail(move.layer).firstUse, move, move.forNext()});
    std::stable_sort(copies_.begin(), copies_.end(), [](const Copy &a, const Copy &b) { return a.due < b.due; });
    int64_t behind = -1;
    for (Copy &copy : copies_)
      copy.behind = behind = std::max(behind, copy.behind);
  }

  void list() {
    for (const Copy &copy : copies_)
      if (!copy.forNext && copy.behind >= static_cast<int64_t>(moved(copy.moved).firstUse)) {
        plan_.error = "'" + moved(copy.moved).name + "' is used before its range is free";
        return;
      }
    auto copy = copies_.begin();
    for (int64_t step = -1; step < static_cast<int64_t>(movables_.steps); ++step) {
      visited(step);
      for (const size_t i : weights_)
        if (static_cast<int64_t>(moved(i).lastUse) == step)
          add(Movement::Kind::GiveUp, step, i, movables_.slotOf(moved(i)), moved(i).slotOffset, holding_[i]);
      for (const PlaceExit &exit : cycle_.phases[phase_].exits)
        if (stepOf(exit.after) == step)
          giveUp(held_[static_cast<size_t>(exit.place)], step);
      for (; copy != copies_.end() && copy->behind == step; ++copy)
        copy->move ? bringTail(*copy) : bringWeight(*copy);
    }
    for (const Held &held : held_)
      if (held.layer >= 0)
        plan_.out.push_back({tailOf(held.layer), held.holding, held.used, held.dirty});
  }

  // A layer's last step that uses its tail has run.
  void visited(int64_t step) {
    for (Held &held : held_) {
      if (held.layer < 0 || static_cast<int64_t>(tail(held.layer).lastUse) != step)
        continue;
      held.used = true;
      held.dirty |= back_ == WriteBack::All;
      if (back_ == WriteBack::Dirty)
        leave(held, step).keeping = true;
    }
  }

  void giveUp(Held &held, int64_t step) {
    Movement &movement = leave(held, step);
    if (!held.dirty)
      movement.back.reset();
    held = {};
  }

  // Written back.
  Movement &leave(const Held &held, int64_t step) {
    Movement &movement = add(Movement::Kind::GiveUp, step, tailOf(held.layer), 0, 0, held.holding);
    movement.used = held.used;
    movement.bytes = tail(held.layer).bytes;
    movement.back = back_ == WriteBack::All ? WriteBack::All : WriteBack::Dirty;
    return movement;
  }

  void bringTail(const Copy &copy) {
    Movement &bring =
        add(Movement::Kind::Bring, copy.behind, copy.moved, placeSlot(copy.move->place), 0, plan_.holdings++);
    bring.bytes = moved(copy.moved).bytes;
    bring.forNext = copy.forNext;
    // The steps of a tail's layer write its home, or it is written back behind them.
    bring.homeAsWritten = copy.forNext || back_ != WriteBack::Mirror;
    held_[static_cast<size_t>(copy.move->place)] = {copy.move->layer, bring.holding, false, false};
    if (!copy.forNext)
      plan_.awaitedBefore[copy.moved] = moved(copy.moved).firstUse;
  }

  void bringWeight(const Copy &copy) {
    const size_t i = copy.moved;
    const auto weight = static_cast<size_t>(std::lower_bound(weights_.begin(), weights_.end(), i) - weights_.begin());
    const uint64_t from = copy.forNext ? 0 : carriedBytes(weight);
    Movement &bring = add(Movement::Kind::Bring, copy.behind, i, movables_.slotOf(moved(i)), moved(i).slotOffset,
                          from > 0 ? holding_[i] : plan_.holdings++);
    bring.from = from;
    bring.bytes = copy.forNext ? carriedBytes(weight) : moved(i).bytes - from;
    bring.forNext = copy.forNext;
    if (copy.forNext) {
      plan_.out.push_back({i, bring.holding, false, false});
      return;
    }
    holding_[i] = bring.holding;
    plan_.awaitedBefore[i] = moved(i).firstUse;
  }

  const Movables &movables_;
  const Cycle &cycle_;
  const uint64_t phase_;
  const Cut cut_;
  const WriteBack back_;
  const RangeTimes times_;              // of weights
  std::vector<size_t> weights_, tails_; // in order of use; of tails so by layer, then mini-batch
  std::vector<uint32_t> holding_;       // of weights, by movable: of this iteration
  std::vector<Held> held_;              // by place
  std::vector<Copy> copies_;
  MovementPlan plan_;
};

} // namespace

MovementPlan planCycle(const Movables &movables, const Cycle &cycle, uint64_t phase, const Cut &carried,
                       WriteBack back) {
  return CyclePlanner(movables, cycle, phase, carried, back).run();
}

} // namespace headrace::algorithms
