// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/plan/MakePlan.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "kernels/Kernels.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/model/WeightLayout.h"
#include "tests/unit/plan/PlanParts.h"

namespace headrace::plan::test {
namespace {

using model::alignUp;
using model::TensorRole;
using model::UnitRole;

// What takes turns in a slot: the units of a layer, or the head.
struct Item {
  std::vector<uint32_t> units;
  uint32_t slot = 0;
};

// A compute step before it has a place among the copies.
struct PlannedCompute {
  Step step;
  std::vector<Operand> operands;
  int waitsFor = -1; // the last copy it needs, by number
};

class PlacementBuilder {
public:
  PlacementBuilder(Plan &plan, const model::WeightLayout &layout, const PlacementOptions &options, uint32_t index,
                   uint64_t localsAt, const LimitOptions &largest, bool switches)
      : plan_(plan), layout_(layout), options_(options), index_(index), localsAt_(localsAt), largest_(largest),
        switches_(switches) {
    chooseItems();
    place();
    for (const LimitOptions &limits : options.limits)
      addSchedule(limits);
  }

  // One schedule of copies for each pair of states that the variants of this placement may need.
  void addTransitions() {
    std::set<uint32_t> entries, exits = {0};
    for (const Schedule &s : plan_.schedules)
      if (s.placement == index_ && s.iterationClass != IterationClass::Transition) {
        entries.insert(s.entryState);
        exits.insert(s.exitState);
      }
    for (const uint32_t from : exits)
      for (const uint32_t to : entries)
        if (from != to && !plan_.states[to].contents.empty())
          addTransition(from, to);
  }

private:
  // Items in order of use. Two that follow each other have different slots; with wrap-around so do the last and the
  // first.
  void chooseItems() {
    const bool eager = options_.rule == model::StartRule::Eager;
    bool adjacent = eager;
    for (size_t i = 1; i < options_.layers.size(); ++i)
      adjacent |= options_.layers[i] == options_.layers[i - 1] + 1;
    const uint32_t turns = adjacent && options_.layers.size() > 1 ? 2 : 1;
    for (size_t i = 0; i < options_.layers.size(); ++i) {
      Item item;
      for (const UnitRole role : {UnitRole::Qkv, UnitRole::Out, UnitRole::Up, UnitRole::Down})
        item.units.push_back(static_cast<uint32_t>(layout_.layerUnit(options_.layers[i], role)));
      item.slot = static_cast<uint32_t>(i) % turns;
      if (eager && turns == 2 && options_.layers.size() % 2 == 1 && i + 1 == options_.layers.size())
        item.slot = 2; // of an odd number, the last would meet the first in slot 0
      slots_ = std::max(slots_, item.slot + 1);
      items_.push_back(item);
    }
    if (options_.offloadHead)
      items_.push_back({{static_cast<uint32_t>(layout_.headUnit())}, slots_++});
  }

  // Homes and slots behind the transients.
  void place() {
    Placement p;
    p.kvBlocks = plan_.kvBlocks;
    p.name = options_.name;
    p.startRule = options_.rule;
    p.offloadedLayers = static_cast<int32_t>(options_.layers.size());
    p.offloadsEmbedding = options_.offloadEmbedding;
    p.offloadsHead = options_.offloadHead;
    std::set<uint32_t> offloaded;
    for (const Item &item : items_)
      offloaded.insert(item.units.begin(), item.units.end());
    uint64_t at = localsAt_ + localsBytes();
    for (uint32_t unit = 0; unit < layout_.units.size(); ++unit) {
      const uint64_t bytes = layout_.units[unit].bytes;
      Extent e{unit, Space::Device, Encoding::Bytes, false, 0, bytes, at};
      if (offloaded.contains(unit) || (unit == 0 && options_.offloadEmbedding)) {
        e.space = Space::Host;
        e.direct = unit == 0;
        e.address = hostAddress(unit);
        plan_.hostBytes = std::max(plan_.hostBytes, e.address + bytes);
      } else {
        at += bytes;
      }
      if (switches_) // every unit keeps its place free, at home or not
        at = localsAt_ + localsBytes() + hostAddress(unit) + bytes;
      p.extents.push_back(e);
    }
    uint64_t fixed = 0; // kv and io, from the arena's start
    for (uint32_t buffer = plan_.kvBuffer(0); buffer < plan_.buffers.size(); ++buffer) {
      p.extents.push_back({buffer, Space::Device, Encoding::Bytes, false, 0, plan_.buffers[buffer].bytes, fixed});
      fixed += plan_.buffers[buffer].bytes;
    }
    for (uint32_t slot = 0; slot < slots_; ++slot) {
      uint64_t bytes = 0;
      uint32_t first = kNone; // of the units that take turns
      for (const Item &item : items_)
        if (item.slot == slot) {
          bytes = std::max(bytes, itemBytes(item));
          first = std::min(first, item.units.front());
        }
      if (switches_) { // where the first of them has its home in other placements
        p.slots.push_back({localsAt_ + localsBytes() + hostAddress(first), bytes});
        continue;
      }
      p.slots.push_back({at, bytes});
      at += bytes;
    }
    plan_.arenaBytes = std::max(plan_.arenaBytes, at);
    plan_.placements.push_back(std::move(p));
    for (const Item &item : items_) {
      uint64_t address = placement().slots[item.slot].address;
      for (const uint32_t unit : item.units) {
        slotAddress_[unit] = address;
        address += layout_.units[unit].bytes;
      }
    }
  }

  // The slab has every unit that some placement offloads; here all of them, so that the address is the same in each.
  uint64_t hostAddress(uint32_t unit) const { return test::hostAddress(plan_, unit); }
  uint64_t itemBytes(const Item &item) const {
    uint64_t bytes = 0;
    for (const uint32_t unit : item.units)
      bytes += layout_.units[unit].bytes;
    return bytes;
  }
  const Placement &placement() const { return plan_.placements[index_]; }

  // Transients, each at an address of its own but for up and act, which take turns with qkv and attn.
  struct LocalSizes {
    uint64_t x, h, qkv, attn, up, act, rows, logits, workspace;
  };
  LocalSizes sizes(const LimitOptions &limits) const {
    const model::ModelSpec &m = plan_.model;
    const auto of = [](int64_t rows, int64_t columns) { return alignUp(static_cast<uint64_t>(rows * columns) * 4); };
    uint64_t workspace = std::max(
        kernels::sampleWorkspaceBytes(kernels::Backend::Host, limits.sequences, m.vocab),
        kernels::attentionWorkspaceBytes(kernels::Backend::Host, limits.sequences, m.heads, m.headDim, limits.context));
    for (const model::Unit &unit : layout_.units)
      for (const model::Tensor &t : unit.tensors)
        if (t.linearOperand)
          workspace =
              std::max(workspace, kernels::linearWorkspaceBytes(kernels::Backend::Host, limits.tokens, t.rows, t.cols));
    return {of(limits.tokens, m.hidden),    of(limits.tokens, m.hidden),   of(limits.tokens, m.qkvRows()),
            of(limits.tokens, m.qRows()),   of(limits.tokens, m.upRows()), of(limits.tokens, m.intermediate),
            of(limits.sequences, m.hidden), of(limits.sequences, m.vocab), alignUp(workspace)};
  }
  uint64_t localsBytes() const {
    const LocalSizes s = sizes(largest_);
    return s.x + s.h + std::max(s.qkv + s.attn, s.up + s.act) + 2 * s.rows + s.logits + s.workspace;
  }
  // What a transient is for. Each value is a buffer of its own, with a life of its own; those for one thing share
  // bytes.
  enum Role : uint32_t { X, H, Qkv, Attn, Up, Act, Rows, RowsNormed, Logits, Workspace };
  // A new buffer, which `local` then means.
  void fresh(Role role) {
    const LocalSizes s = sizes(*limits_), l = sizes(largest_);
    const uint64_t h = localsAt_ + l.x, shared = h + l.h;
    const uint64_t rows = shared + std::max(l.qkv + l.attn, l.up + l.act), logits = rows + 2 * l.rows;
    const auto add = [&](const char *name, uint64_t bytes, uint64_t address, BufferKind kind = BufferKind::Activation) {
      current_[role] = static_cast<uint32_t>(schedule_->locals.size());
      schedule_->locals.push_back({{name, kind, -1, bytes}, address});
    };
    switch (role) {
    case X:
      return add("x", s.x, localsAt_);
    case H:
      return add("h", s.h, h);
    case Qkv:
      return add("qkv", s.qkv, shared);
    case Attn:
      return add("attn", s.attn, shared + l.qkv);
    case Up:
      return add("up", s.up, shared);
    case Act:
      return add("act", s.act, shared + l.up);
    case Rows:
      return add("rows", s.rows, rows);
    case RowsNormed:
      return add("rows normed", s.rows, rows + l.rows);
    case Logits: {
      const bool inSlot = options_.logitsInSlot && s.logits <= placement().slots.front().bytes;
      return add("logits", s.logits, inSlot ? placement().slots.front().address : logits);
    }
    case Workspace:
      return add("workspace", s.workspace, logits + l.logits, BufferKind::Workspace);
    }
  }

  // --- steps ---------------------------------------------------------------------------------------------------------

  Operand whole(Arg arg, Access access, uint32_t buffer) const {
    const Extent &e = placement().extents[buffer];
    return {buffer, e.space, access, arg, 0, e.bytes, e.address};
  }
  // The newest buffer for a role; a new one where it is written as a whole.
  Operand local(Arg arg, Access access, Role role, bool inPlace = false) {
    if (access == Access::Write && !inPlace)
      fresh(role);
    const Local &l = schedule_->locals[current_[role]];
    return {static_cast<uint32_t>(plan_.buffers.size()) + current_[role],
            Space::Device,
            access,
            arg,
            0,
            l.buffer.bytes,
            l.address};
  }
  // Bytes of a unit from one tensor to the end of another, at the unit's home or in its slot.
  Operand weight(Arg arg, uint32_t unit, const model::Tensor &first, const model::Tensor &last) const {
    const Extent &e = placement().extents[unit];
    const auto inSlot = slotAddress_.find(unit);
    const uint64_t at = inSlot != slotAddress_.end() ? inSlot->second : e.address;
    const Space space = inSlot != slotAddress_.end() ? Space::Device : e.space;
    return {unit, space, Access::Read, arg, first.offset, last.offset + last.bytes - first.offset, at + first.offset};
  }
  Operand weight(Arg arg, uint32_t unit, TensorRole role) const {
    const model::Tensor &t = *layout_.units[unit].find(role);
    return weight(arg, unit, t, t);
  }

  void compute(kernels::Op op, Part part, int64_t layer, std::vector<Operand> operands, bool direct = false) {
    Step step;
    step.op = op;
    step.part = part;
    step.layer = static_cast<int32_t>(layer);
    step.direct = direct;
    step.flops = 1000;
    operands.push_back(whole(Arg::Meta, Access::Read, plan_.ioBuffer(plan::Io::Meta)));
    for (const Operand &operand : operands)
      (operand.space == Space::Host ? step.linkBytes : step.deviceBytes) += operand.bytes;
    computes_.push_back({step, std::move(operands)});
  }
  void norm(Part part, int64_t layer, uint32_t unit, Role from, Role to) {
    const model::Unit &u = layout_.units[unit];
    const model::Tensor *bias = u.find(TensorRole::NormBias);
    const model::Tensor &gain = *u.find(TensorRole::NormWeight);
    compute(kernels::Op::Norm, part, layer,
            {local(Arg::X, Access::Read, from), weight(Arg::NormWeights, unit, gain, bias ? *bias : gain),
             local(Arg::Y, Access::Write, to)});
  }
  void linear(Part part, int64_t layer, uint32_t unit, Role from, Role to, bool residual = false) {
    std::vector<Operand> operands = {local(Arg::X, Access::Read, from), local(Arg::Y, Access::Write, to, residual),
                                     local(Arg::Workspace, Access::Write, Workspace)};
    const model::Unit &u = layout_.units[unit];
    const bool tiedHead = u.role == UnitRole::Head && plan_.model->tiedEmbeddings;
    operands.push_back(tiedHead ? weight(Arg::Weight, 0, TensorRole::TokenTable)
                                : weight(Arg::Weight, unit, TensorRole::Matrix));
    if (u.find(TensorRole::Bias))
      operands.push_back(weight(Arg::Bias, unit, TensorRole::Bias));
    if (residual)
      operands.push_back(local(Arg::Residual, Access::Read, to));
    compute(kernels::Op::Linear, part, layer, std::move(operands));
  }

  void addCompute() {
    std::vector<Operand> embed = {weight(Arg::Table, 0, TensorRole::TokenTable),
                                  whole(Arg::Sampled, Access::Read, plan_.ioBuffer(plan::Io::Sampled)),
                                  local(Arg::X, Access::Write, X)};
    if (plan_.model->learnedPositions)
      embed.push_back(weight(Arg::Positions, 0, TensorRole::PositionTable));
    compute(kernels::Op::Embed, Part::Embedding, -1, embed, options_.offloadEmbedding);
    for (int64_t layer = 0; layer < plan_.model->layers; ++layer) {
      const auto unit = [&](UnitRole role) { return static_cast<uint32_t>(layout_.layerUnit(layer, role)); };
      norm(Part::Attention, layer, unit(UnitRole::Qkv), X, H);
      linear(Part::Attention, layer, unit(UnitRole::Qkv), H, Qkv);
      std::vector<Operand> rope = {local(Arg::X, Access::ReadWrite, Qkv),
                                   whole(Arg::Kv, Access::ReadWrite, plan_.kvBuffer(layer))};
      if (plan_.model->qkNorm)
        rope.push_back(weight(Arg::NormWeights, unit(UnitRole::Qkv), TensorRole::HeadNorms));
      compute(kernels::Op::RopeAppend, Part::Attention, layer, rope);
      compute(kernels::Op::Attention, Part::Attention, layer,
              {local(Arg::X, Access::Read, Qkv), whole(Arg::Kv, Access::Read, plan_.kvBuffer(layer)),
               local(Arg::Y, Access::Write, Attn), local(Arg::Workspace, Access::Write, Workspace)});
      linear(Part::Attention, layer, unit(UnitRole::Out), Attn, X, true);
      norm(Part::Mlp, layer, unit(UnitRole::Up), X, H);
      linear(Part::Mlp, layer, unit(UnitRole::Up), H, Up);
      if (plan_.model->gated())
        compute(kernels::Op::Activate, Part::Mlp, layer,
                {local(Arg::X, Access::Read, Up), local(Arg::Y, Access::Write, Act)});
      linear(Part::Mlp, layer, unit(UnitRole::Down), plan_.model->gated() ? Act : Up, X, true);
    }
    const auto head = static_cast<uint32_t>(layout_.headUnit());
    compute(kernels::Op::GatherRows, Part::Head, -1,
            {local(Arg::X, Access::Read, X), local(Arg::Y, Access::Write, Rows)});
    norm(Part::Head, -1, head, Rows, RowsNormed);
    linear(Part::Head, -1, head, RowsNormed, Logits);
    compute(kernels::Op::Sample, Part::Head, -1,
            {local(Arg::X, Access::Read, Logits),
             whole(Arg::Sampled, Access::ReadWrite, plan_.ioBuffer(plan::Io::Sampled)),
             whole(Arg::Output, Access::Write, plan_.ioBuffer(plan::Io::Output)),
             local(Arg::Workspace, Access::Write, Workspace)});
    Step publish;
    publish.kind = StepKind::Publish;
    publish.part = Part::Head;
    computes_.push_back({publish, {whole(Arg::Output, Access::Read, plan_.ioBuffer(plan::Io::Output))}});
  }

  // --- copies --------------------------------------------------------------------------------------------------------

  // The last compute step that reads slot bytes [address, address + bytes), looking at steps before `before`.
  int lastReader(uint64_t address, uint64_t bytes, int before) const {
    for (int i = std::min(before, static_cast<int>(computes_.size())) - 1; i >= 0; --i)
      for (const Operand &o : computes_[i].operands)
        if (o.space == Space::Device && o.address < address + bytes && address < o.address + o.bytes)
          return i;
    return kNever;
  }
  int firstReader(uint32_t unit) const {
    for (size_t i = 0; i < computes_.size(); ++i)
      for (const Operand &o : computes_[i].operands)
        if (o.buffer == unit)
          return static_cast<int>(i);
    return static_cast<int>(computes_.size());
  }
  int lastReader(uint32_t unit) const {
    int last = kNever;
    for (size_t i = 0; i < computes_.size(); ++i)
      for (const Operand &o : computes_[i].operands)
        if (o.buffer == unit)
          last = static_cast<int>(i);
    return last;
  }

  PlannedCopy part(uint32_t unit, uint64_t offset, uint64_t bytes, int after) const {
    return {unit, offset, bytes, slotAddress_.at(unit) + offset, after};
  }

  // Paper: the units of an item together, once the item that had the slot before is through.
  void addCopiesOfPaper() {
    std::map<uint32_t, int> free; // slot -> the step after which it is free
    for (const Item &item : items_) {
      const int after = free.contains(item.slot) ? free[item.slot] : kNever;
      for (const uint32_t unit : item.units)
        copies_.push_back(part(unit, 0, layout_.units[unit].bytes, after));
      const int last = static_cast<int>(copies_.size()) - 1;
      for (const uint32_t unit : item.units)
        for (PlannedCompute &c : computes_)
          for (const Operand &o : c.operands)
            if (o.buffer == unit)
              c.waitsFor = std::max(c.waitsFor, last);
      for (const uint32_t unit : item.units)
        free[item.slot] = std::max(free[item.slot], lastReader(unit));
    }
  }

  // Eager: unit by unit, each once its own bytes are free; then the prefix of the next iteration.
  void addCopiesOfEager(const LimitOptions &limits, State &prefix) {
    int number = 0;
    std::vector<PlannedCopy> tail;
    for (const Item &item : items_)
      for (const uint32_t unit : item.units) {
        const uint64_t bytes = layout_.units[unit].bytes;
        const uint64_t there = number < limits.cutUnits ? bytes : number == limits.cutUnits ? limits.cutBytes : 0;
        ++number;
        const uint64_t address = slotAddress_.at(unit);
        if (there < bytes) {
          copies_.push_back(part(unit, there, bytes - there, lastReader(address, bytes, firstReader(unit))));
          const int copy = static_cast<int>(copies_.size()) - 1;
          for (PlannedCompute &c : computes_)
            for (const Operand &o : c.operands)
              if (o.buffer == unit && o.bufferOffset + o.bytes > there)
                c.waitsFor = std::max(c.waitsFor, copy);
        }
        if (there > 0) {
          prefix.contents.push_back({unit, 0, there, address});
          tail.push_back(part(unit, 0, there, lastReader(address, there, static_cast<int>(computes_.size()))));
        }
      }
    copies_.insert(copies_.end(), tail.begin(), tail.end());
    std::sort(prefix.contents.begin(), prefix.contents.end(),
              [](const Content &a, const Content &b) { return a.address < b.address; });
  }

  // --- putting it together -------------------------------------------------------------------------------------------

  uint32_t stateFor(State state) {
    if (state.contents.empty())
      return 0;
    const auto key = [](const Content &c) { return std::tie(c.buffer, c.bufferOffset, c.bytes, c.address); };
    for (uint32_t i = 0; i < plan_.states.size(); ++i)
      if (plan_.states[i].placement == index_ &&
          std::equal(plan_.states[i].contents.begin(), plan_.states[i].contents.end(), state.contents.begin(),
                     state.contents.end(), [&](const Content &a, const Content &b) { return key(a) == key(b); }))
        return i;
    plan_.states.push_back(std::move(state));
    return static_cast<uint32_t>(plan_.states.size() - 1);
  }

  // Copies stand as early as they may start. An edge is left out if the lane has waited for as much before.
  void merge(Schedule &s) {
    std::vector<uint32_t> computeStep(computes_.size()), copyStep(copies_.size());
    size_t copy = 0;
    int computeKnown = kNever, copyKnown = -1;
    const auto addCopiesAfter = [&](int compute) {
      for (; copy < copies_.size() && copies_[copy].after <= compute; ++copy) {
        const PlannedCopy &c = copies_[copy];
        copyStep[copy] = static_cast<uint32_t>(s.steps.size());
        if (c.after > computeKnown) {
          computeKnown = c.after;
          s.edges.push_back({computeStep[c.after], copyStep[copy], EdgeKind::War});
        }
        addCopy(plan_, s, c);
      }
    };
    addCopiesAfter(kNever);
    for (size_t i = 0; i < computes_.size(); ++i) {
      computeStep[i] = static_cast<uint32_t>(s.steps.size());
      if (computes_[i].waitsFor > copyKnown) {
        copyKnown = computes_[i].waitsFor;
        s.edges.push_back({copyStep[copyKnown], computeStep[i], EdgeKind::Raw});
      }
      addStep(s, computes_[i].step, computes_[i].operands);
      addCopiesAfter(static_cast<int>(i));
    }
  }

  void addSchedule(const LimitOptions &limits) {
    Schedule s;
    s.name = options_.name + (limits.iterationClass == IterationClass::Decode ? " decode" : " mixed");
    s.placement = index_;
    s.iterationClass = limits.iterationClass;
    s.maxTokens = limits.tokens;
    s.maxSequences = limits.sequences;
    s.maxContext = limits.context;
    computes_.clear();
    copies_.clear();
    schedule_ = &s;
    limits_ = &limits;
    addCompute();
    State prefix{index_, {}};
    if (options_.rule == model::StartRule::Paper)
      addCopiesOfPaper();
    else
      addCopiesOfEager(limits, prefix);
    merge(s);
    s.entryState = s.exitState = stateFor(std::move(prefix));
    for (const int64_t tokens : limits.buckets) {
      Variant v;
      v.newTokens = tokens;
      v.sequences = std::min(tokens, limits.sequences);
      v.context = limits.context;
      v.placement = index_;
      v.schedule = static_cast<uint32_t>(plan_.schedules.size());
      for (const Step &step : s.steps)
        v.durationsNs.push_back(step.lane == Lane::Compute ? 500 + 10 * static_cast<uint64_t>(tokens)
                                                           : 100 + step.linkBytes / 8);
      std::tie(v.predictedNs, v.computeAloneNs, v.linkAloneNs) = times(s, v.durationsNs);
      plan_.variants.push_back(std::move(v));
    }
    plan_.schedules.push_back(std::move(s));
  }

  void addTransition(uint32_t from, uint32_t to) {
    Schedule s;
    s.name = "to state " + std::to_string(to);
    s.placement = index_;
    s.iterationClass = IterationClass::Transition;
    s.exitState = to;
    for (const Content &c : plan_.states[to].contents)
      addCopy(plan_, s, {c.buffer, c.bufferOffset, c.bytes, c.address, kNever});
    test::addTransition(plan_, std::move(s), from, to);
  }
  Plan &plan_;
  const model::WeightLayout &layout_;
  const PlacementOptions &options_;
  const uint32_t index_;
  const uint64_t localsAt_;
  const LimitOptions &largest_;
  const bool switches_;
  std::vector<Item> items_;
  uint32_t slots_ = 0;
  std::map<uint32_t, uint64_t> slotAddress_; // of a unit that takes turns
  // Of the schedule being made.
  Schedule *schedule_ = nullptr;
  const LimitOptions *limits_ = nullptr;
  uint32_t current_[Workspace + 1] = {}; // by role
  std::vector<PlannedCompute> computes_;
  std::vector<PlannedCopy> copies_;
};

} // namespace

Plan makePlan(const PlanOptions &options) {
  Plan plan;
  plan.compilerVersion = "test";
  plan.model = options.model;
  plan.hardware.kind = model::DeviceKind::Host;
  plan.modelHash = "00";
  plan.hardware.name = "test";
  plan.reason = "put together by hand";
  plan.limitingResource = "link h2d";
  const model::WeightLayout layout = model::layoutWeights(plan.model);
  // The limits over all schedules; each schedule is no larger in any of them.
  LimitOptions largest{IterationClass::Mixed, 1, 1, 1};
  for (const PlacementOptions &placement : options.placements)
    for (const LimitOptions &limits : placement.limits) {
      largest.tokens = std::max(largest.tokens, limits.tokens);
      largest.sequences = std::max(largest.sequences, limits.sequences);
      largest.context = std::max(largest.context, limits.context);
    }
  plan.maxContext = largest.context;
  const int64_t blocks = (largest.context + plan.blockTokens - 1) / plan.blockTokens;
  plan.metaLayout = {largest.tokens, largest.sequences, blocks};
  plan.kvBlocks = 1 + largest.sequences * blocks;
  for (uint32_t index = 0; const model::Unit &unit : layout.units)
    plan.buffers.push_back({unit.name, BufferKind::Weight, unit.layer, unit.bytes, index++});
  const auto kv = static_cast<uint64_t>(plan.kvBlocks * 2 * plan.model->kvRows() * plan.blockTokens) * 4;
  for (int32_t layer = 0; layer < plan.model->layers; ++layer)
    plan.buffers.push_back({"kv." + std::to_string(layer), BufferKind::Kv, layer, alignUp(kv)});
  plan.buffers.push_back({"meta", BufferKind::Io, -1, kernels::metaBytes(plan.metaLayout)});
  const uint64_t ids = alignUp(static_cast<uint64_t>(largest.sequences) * 4);
  plan.buffers.push_back({"sampled", BufferKind::Io, -1, ids, 1});
  plan.buffers.push_back({"output", BufferKind::Io, -1, ids, 2});
  plan.states.push_back({});
  uint64_t fixed = 0;
  for (uint32_t buffer = plan.kvBuffer(0); buffer < plan.buffers.size(); ++buffer)
    fixed += plan.buffers[buffer].bytes;
  for (uint32_t i = 0; i < options.placements.size(); ++i)
    PlacementBuilder(plan, layout, options.placements[i], i, fixed, largest, options.switches).addTransitions();
  if (options.switches)
    for (uint32_t from = 0; from < plan.placements.size(); ++from)
      for (uint32_t to = 0; to < plan.placements.size(); ++to)
        addSwitch(plan, from, to);
  plan.deviceMemory = plan.arenaBytes;
  plan.hardware.memoryBytes = plan.deviceMemory;
  std::stable_sort(plan.variants.begin(), plan.variants.end(), [](const Variant &a, const Variant &b) {
    return std::tie(a.placement, a.newTokens, a.sequences, a.context) <
           std::tie(b.placement, b.newTokens, b.sequences, b.context);
  });
  return plan;
}

} // namespace headrace::plan::test
