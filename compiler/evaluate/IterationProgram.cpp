// SPDX-License-Identifier: Apache-2.0
//
// Versions get numbers of their own first: those of compute steps, as all that is moved were on the device; then those
// of copies, in the order of the plan, which is not that of the program. They are numbered anew in program order.
#include "compiler/evaluate/IterationProgram.h"

#include <utility>

namespace headrace::compiler {
namespace {

using algorithms::MovableKind;
using algorithms::Movement;
using algorithms::Program;
using algorithms::Written;
using kernels::Op;
using Kind = Program::Kind;

constexpr int32_t kNone = Program::kNone;

class Weaver {
public:
  Weaver(const Steps &steps, const Homes &homes, const MovedBuffers &moved, const algorithms::MovementPlan &plan)
      : steps_(steps), homes_(homes), moved_(moved), plan_(plan), blocks_(cacheBlocksOf(homes)),
        movableOf_(steps.buffers.size(), kNone), current_(steps.buffers.size(), kNone),
        home_(steps.buffers.size(), kNone), mirror_(steps.buffers.size(), kNone), streamHome_(steps.own.size(), kNone),
        first_(moved.moved.size(), kNone), last_(moved.moved.size(), kNone), here_(moved.moved.size(), kNone),
        tokens_(moved.moved.size(), kNone), held_(plan.holdings, kNone), behind_(steps.steps.size() + 1) {
    for (size_t i = 0; i < moved.buffers.size(); ++i)
      movableOf_[static_cast<size_t>(moved.buffers[i])] = static_cast<int32_t>(i);
    versions_.reserve(4 * steps.steps.size());
    nodes_.reserve(2 * steps.steps.size() + plan.movements.size());
  }

  IterationProgram run() {
    declare();
    for (size_t i = 0; i < steps_.steps.size(); ++i)
      compute(i);
    for (size_t i = 0; i < plan_.movements.size(); ++i)
      move(i);
    for (size_t i = 0; i < streamHome_.size() && publish_ != kNone; ++i) // as they have come home
      nodes_[static_cast<size_t>(publish_)].uses.push_back(streamHome_[i]);
    std::vector<int32_t> out;
    for (const algorithms::CarriedOut &carried : plan_.out)
      out.push_back(carried.used ? lastOnDevice(carried.moved) : held_[carried.holding]);
    // What steps find of a movable is what brought it.
    for (size_t i = 0; i < first_.size(); ++i)
      if (first_[i] != kNone)
        versions_[static_cast<size_t>(first_[i])].is = here_[i];
    return flatten(out);
  }

private:
  struct Version {
    int32_t after = kNone, range = kNone;
    uint64_t held = 0;
    int32_t is = kNone;     // another one, which takes its place
    int32_t number = kNone; // in the program
  };
  struct Node {
    Program::Op op;
    int32_t origin = kNone, of = kNone; // of: the node that it waits for
    std::vector<int32_t> uses, made;
    int32_t number = kNone;
  };

  // --- what exists on entry ---
  void declare() {
    for (size_t buffer = 0; buffer < steps_.buffers.size(); ++buffer) {
      const StepBuffer &of = steps_.buffers[buffer];
      if (of.is(MovableKind::Kv)) {
        if (blocks_.resident > 0)
          current_[buffer] = version();
        if (blocks_.tail())
          home_[buffer] = version();
        if (homes_.mirroredFrom && *homes_.mirroredFrom < blocks_.resident)
          mirror_[buffer] = version();
      } else if (of.isMovable() && of.traits().written == Written::Appended) {
        home_[buffer] = version();
      } else if (of.isMovable() && of.traits().written == Written::Whole) {
        int32_t &home = streamHome_[static_cast<size_t>(of.miniBatch)];
        home_[buffer] = home = home == kNone ? version() : home;
      }
      if ((of.kind == StepBuffer::Kind::Io && of.io != plan::Io::Meta) || of.kind == StepBuffer::Kind::Staging)
        current_[buffer] = version();
      if (movableOf_[buffer] != kNone)
        first_[static_cast<size_t>(movableOf_[buffer])] = last_[static_cast<size_t>(movableOf_[buffer])] = version();
    }
  }

  int32_t version(int32_t after = kNone, int32_t range = kNone, uint64_t held = 0) {
    versions_.push_back({after, range, held});
    return static_cast<int32_t>(versions_.size() - 1);
  }
  int32_t range(const Program::Range &of) {
    ranges_.push_back(of);
    return static_cast<int32_t>(ranges_.size() - 1);
  }

  // --- steps ---
  Node &node(Kind kind, int32_t origin) {
    Node &made = nodes_.emplace_back();
    made.op.kind = kind;
    made.origin = origin;
    return made;
  }

  // The latest version of what a step finds on the device; none: of a buffer that orders nothing.
  int32_t *latest(BufferIndex buffer) {
    if (buffer == kNoBuffer)
      return nullptr;
    const auto of = static_cast<size_t>(buffer);
    if (movableOf_[of] != kNone)
      return &last_[static_cast<size_t>(movableOf_[of])];
    return current_[of] != kNone ? &current_[of] : nullptr;
  }
  static void read(Node &node, const int32_t *version) {
    if (version != nullptr && *version != kNone)
      node.uses.push_back(*version);
  }
  // In place: its next version.
  void update(Node &node, int32_t *of) {
    if (of == nullptr || *of == kNone)
      return;
    node.made.push_back(version(*of));
    *of = node.made.back();
  }
  void makes(Node &node, BufferIndex buffer) {
    const StepBuffer &of = steps_.buffer(buffer);
    node.made.push_back(version(kNone, range({Program::Range::kTransient, 0, of.bytes, false})));
    current_[static_cast<size_t>(buffer)] = node.made.back();
  }

  void compute(size_t index) {
    const Step &step = steps_.steps[index];
    Node &node = this->node(Kind::Compute, static_cast<int32_t>(index));
    computeNodes_.push_back(static_cast<int32_t>(nodes_.size() - 1));
    node.op.workspaceBytes = step.workspaceBytes;
    node.op.lane = static_cast<algorithms::Lane>(step.lane);
    if (step.copiesDown()) {
      read(node, latest(step.x));
      make(step, node);
      return;
    }
    if (step.onCpu()) {
      onCpu(step, node);
      return;
    }
    if (!step.op) {
      node.op.hasEvent = false;
      read(node, latest(steps_.output));
      publish_ = step.sends ? static_cast<int32_t>(nodes_.size() - 1) : kNone;
      return;
    }
    const Steps::Own &own = steps_.own[static_cast<size_t>(step.miniBatch)];
    switch (*step.op) {
    case Op::Embed: // its table is read where it is
      read(node, latest(own.sampled));
      read(node, latest(own.history));
      make(step, node);
      update(node, latest(own.history));
      return;
    case Op::KeepIds:
      read(node, latest(own.sampled));
      read(node, latest(own.history));
      update(node, latest(own.history));
      return;
    case Op::Sample:
      read(node, latest(step.x));
      for (const BufferIndex io : {own.history, own.sampled, steps_.output})
        read(node, latest(io));
      update(node, latest(own.sampled));
      update(node, latest(steps_.output));
      return;
    case Op::RopeAppend:
      append(step, node);
      return;
    case Op::Rotate:
      read(node, latest(step.x));
      read(node, latest(step.unit));
      update(node, latest(step.x));
      return;
    case Op::Attention:
      read(node, latest(step.x));
      forCache(step, [&](int32_t *version) { read(node, version); });
      break;
    case Op::ActAppend: { // to its home, wherever that is
      int32_t *const act = &home_[static_cast<size_t>(step.act)];
      read(node, latest(step.x));
      read(node, act);
      update(node, act);
      return;
    }
    case Op::RebuildKv:
      read(node, movableOf_[static_cast<size_t>(step.act)] != kNone ? latest(step.act)
                                                                    : &home_[static_cast<size_t>(step.act)]);
      read(node, latest(step.unit));
      break;
    default:
      read(node, latest(step.x));
      read(node, latest(step.unit));
      break;
    }
    make(step, node);
  }

  // All that it uses is the host's; a cache at its home.
  void onCpu(const Step &step, Node &node) {
    const Steps::Own &own = steps_.own[static_cast<size_t>(step.miniBatch)];
    int32_t *const home = &home_[static_cast<size_t>(step.kv)];
    read(node, latest(own.staging[static_cast<size_t>(Staging::Meta)]));
    read(node, latest(step.x));
    read(node, home);
    if (step.op == Op::Append)
      return update(node, home);
    make(step, node);
    read(node, latest(own.staging[static_cast<size_t>(Staging::Scratch)]));
  }

  // What a step makes: a new buffer, or the next version of one.
  void make(const Step &step, Node &node) {
    if (!step.inPlace)
      return makes(node, step.y);
    read(node, latest(step.y));
    update(node, latest(step.y));
  }

  // The parts of a cache that are on the device, with what is rebuilt.
  template <class Visit> void forCache(const Step &step, Visit &&visit) {
    visit(&current_[static_cast<size_t>(step.kv)]);
    if (const int32_t tail = movableOf_[static_cast<size_t>(step.kv)]; tail != kNone)
      visit(&last_[static_cast<size_t>(tail)]);
    if (step.rebuilt != kNoBuffer)
      visit(&current_[static_cast<size_t>(step.rebuilt)]);
  }

  void append(const Step &step, Node &node) {
    const auto kv = static_cast<size_t>(step.kv);
    const bool home = movableOf_[kv] != kNone && writeBackOf(homes_) == algorithms::WriteBack::Mirror;
    const auto forAll = [&](auto &&visit) {
      forCache(step, visit);
      if (home)
        visit(&home_[kv]);
      visit(&mirror_[kv]);
    };
    read(node, latest(step.x));
    forAll([&](int32_t *version) { read(node, version); });
    read(node, latest(step.unit));
    update(node, latest(step.x));
    forAll([&](int32_t *version) { update(node, version); });
  }

  // --- movement ---
  std::vector<int32_t> &behind(const Movement &movement) { return behind_[static_cast<size_t>(movement.behind + 1)]; }
  int32_t &homeOf(size_t moved) { // of weights none
    const auto buffer = static_cast<size_t>(moved_.buffers[moved]);
    const StepBuffer &of = steps_.buffers[buffer];
    return of.traits().written == Written::Whole ? streamHome_[static_cast<size_t>(of.miniBatch)] : home_[buffer];
  }
  // What the last step that uses a movable finds: here, or as a step has updated it.
  int32_t lastOnDevice(size_t i) const { return last_[i] == first_[i] ? here_[i] : last_[i]; }

  void move(size_t index) {
    const Movement &movement = plan_.movements[index];
    const size_t i = movement.moved;
    const auto origin = static_cast<int32_t>(index);
    const uint64_t whole = moved_.moved[i].bytes;
    behind(movement).push_back(static_cast<int32_t>(nodes_.size()));
    switch (movement.kind) {
    case Movement::Kind::Carry:
    case Movement::Kind::Claim: {
      const bool claimed = movement.kind == Movement::Kind::Claim;
      Node &node = this->node(claimed ? Kind::Claim : Kind::Carry, origin);
      node.made.push_back(
          version(kNone, range({movement.slot, movement.offset, 0, claimed}), claimed ? whole : movement.bytes));
      here_[i] = held_[movement.holding] = node.made.back();
      return;
    }
    case Movement::Kind::Pace:
      node(Kind::Pace, kNone).of = computeNodes_[static_cast<size_t>(movement.after)];
      return;
    case Movement::Kind::Bring: {
      Node &node = this->node(Kind::Bring, origin);
      node.op.lane = algorithms::Lane::H2D;
      node.op.from = movement.from;
      node.op.bytes = movement.bytes;
      const bool part = movement.from > 0;
      if (algorithms::traitsOf(moved_.moved[i].kind).written != Written::Never)
        node.uses.push_back(movement.homeAsWritten ? homeOf(i) : firstHome(i));
      const int32_t before = held_[movement.holding];
      if (part)
        node.uses.push_back(before);
      node.made.push_back(part ? version(before, kNone, movement.from + movement.bytes)
                               : version(kNone, range({movement.slot, movement.offset, 0, false}), movement.bytes));
      held_[movement.holding] = node.made.back();
      if (movement.forNext)
        return;
      here_[i] = node.made.back();
      tokens_[i] = static_cast<int32_t>(nodes_.size() - 1);
      return;
    }
    case Movement::Kind::GiveUp: {
      const int32_t buffer = movement.used ? lastOnDevice(i) : held_[movement.holding];
      Node &node = this->node(movement.back ? Kind::Evict : Kind::Release, origin);
      node.uses.push_back(buffer);
      if (!movement.back)
        return;
      node.op.lane = algorithms::Lane::D2H;
      node.op.keeps = movement.keeping;
      int32_t &home = homeOf(i);
      node.uses.push_back(home);
      update(node, &home);
      return;
    }
    }
  }

  // As it is on entry.
  int32_t firstHome(size_t i) {
    int32_t home = homeOf(i);
    while (versions_[static_cast<size_t>(home)].after != kNone)
      home = versions_[static_cast<size_t>(home)].after;
    return home;
  }

  // --- in program order ---
  IterationProgram flatten(const std::vector<int32_t> &out) {
    IterationProgram program;
    program.ops.reserve(nodes_.size() + moved_.moved.size());
    std::vector<std::vector<int32_t>> awaited(steps_.steps.size()); // by step: movables
    for (size_t i = 0; i < tokens_.size(); ++i)
      if (tokens_[i] != kNone)
        awaited[static_cast<size_t>(plan_.awaitedBefore[i])].push_back(static_cast<int32_t>(i));
    rangeNumber_.assign(ranges_.size(), kNone);
    for (size_t step = 0;; ++step) {
      for (const int32_t node : behind_[step])
        emit(program, nodes_[static_cast<size_t>(node)]);
      if (step == steps_.steps.size())
        break;
      for (const int32_t i : awaited[step]) {
        Node wait;
        wait.op.kind = Kind::Await;
        wait.of = tokens_[static_cast<size_t>(i)];
        emit(program, wait);
      }
      emit(program, nodes_[static_cast<size_t>(computeNodes_[step])]);
    }
    for (size_t i = 0; i < out.size(); ++i) {
      Node carried;
      carried.op.kind = Kind::CarryOut;
      carried.origin = static_cast<int32_t>(i);
      carried.uses.push_back(out[i]);
      emit(program, carried);
    }
    return program;
  }

  size_t resolved(int32_t version) const {
    while (versions_[static_cast<size_t>(version)].is != kNone)
      version = versions_[static_cast<size_t>(version)].is;
    return static_cast<size_t>(version);
  }

  uint32_t number(IterationProgram &program, size_t version, int32_t made) {
    Version &of = versions_[version];
    if (of.number != kNone)
      return static_cast<uint32_t>(of.number);
    Program::Version numbered;
    numbered.made = made;
    if (of.after != kNone) {
      numbered.after = versions_[resolved(of.after)].number;
      const Program::Version &before = program.versions[static_cast<size_t>(numbered.after)];
      numbered.range = before.range;
      numbered.held = of.held > 0 ? of.held : before.held;
    } else if (of.range != kNone) {
      int32_t &range = rangeNumber_[static_cast<size_t>(of.range)];
      if (range == kNone) {
        range = static_cast<int32_t>(program.ranges.size());
        program.ranges.push_back(ranges_[static_cast<size_t>(of.range)]);
      }
      numbered.range = range;
      numbered.held = of.held;
    }
    of.number = static_cast<int32_t>(program.versions.size());
    program.versions.push_back(numbered);
    return static_cast<uint32_t>(of.number);
  }

  void emit(IterationProgram &program, Node &node) {
    const auto index = static_cast<int32_t>(program.ops.size());
    node.number = index;
    Program::Op op = node.op;
    if (node.of != kNone)
      op.of = nodes_[static_cast<size_t>(node.of)].number;
    op.firstUse = static_cast<uint32_t>(program.uses.size());
    // What exists on entry is numbered where it is used first.
    for (const int32_t use : node.uses)
      program.uses.push_back(number(program, resolved(use), kNone));
    op.endUse = static_cast<uint32_t>(program.uses.size());
    op.firstMade = static_cast<uint32_t>(program.versions.size());
    for (const int32_t made : node.made)
      number(program, static_cast<size_t>(made), index);
    op.endMade = static_cast<uint32_t>(program.versions.size());
    program.ops.push_back(op);
    program.origin.push_back(node.origin);
  }

  const Steps &steps_;
  const Homes &homes_;
  const MovedBuffers &moved_;
  const algorithms::MovementPlan &plan_;
  const CacheBlocks blocks_;
  std::vector<Version> versions_;
  std::vector<Program::Range> ranges_;
  std::vector<int32_t> rangeNumber_;
  std::vector<Node> nodes_;
  std::vector<int32_t> computeNodes_;            // by step
  std::vector<int32_t> movableOf_;               // by buffer
  std::vector<int32_t> current_, home_, mirror_; // by buffer: versions on the device, at home elsewhere, mirrored
  std::vector<int32_t> streamHome_;              // by mini-batch
  int32_t publish_ = kNone;                      // the node that sends them
  std::vector<int32_t> first_, last_, here_;     // by movable: what steps find, leave; what brought it
  std::vector<int32_t> tokens_;                  // by movable: the copy that is waited for
  std::vector<int32_t> held_;                    // by holding
  std::vector<std::vector<int32_t>> behind_;     // by step, from the start on: nodes
};

} // namespace

IterationProgram programOf(const Steps &steps, const Homes &homes, const MovedBuffers &moved,
                           const algorithms::MovementPlan &plan) {
  return Weaver(steps, homes, moved, plan).run();
}

} // namespace headrace::compiler
