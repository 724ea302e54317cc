// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/plan/Oracle.h"

#include <algorithm>
#include <map>

#include "kernels/Kernels.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/model/WeightLayout.h"
#include "tests/unit/plan/OracleMemory.h"

namespace headrace::plan::test {
namespace {

class PlanOracle {
public:
  explicit PlanOracle(const Plan &plan)
      : plan_(plan), layout_(model::layoutWeights(plan.model)),
        caches_(kvEncodingIsRight(plan) ? cachesOf(plan) : Caches{}) {} // else a block may have no bytes

  std::set<Rule> run() {
    if (!structureIsRight())
      return {Rule::Structure};
    breaks(!ioIsRight(plan_) || !encodingsAreRight(plan_), Rule::Structure);
    for (const Schedule &s : plan_.schedules) {
      breaks(!publishesAll(plan_, s) || !stageStepsAreRight(plan_, s) || !attendsToItsRows(plan_, s) ||
                 !attendsToWhatIsRebuilt(plan_, s),
             Rule::Structure);
      breaks(!homesAreLeftInTime(plan_, s), Rule::OverwriteLive);
      breaks(!publishesTheLast(plan_, s), Rule::StaleCopy);
      for (const Step &step : s.steps)
        operandSizes(s, step);
    }
    memory();
    addBrokenCacheRules(plan_, caches_, rules_);
    addBrokenResidualRules(plan_, rules_);
    addBrokenActRules(plan_, caches_, rules_);
    for (const Placement &p : plan_.placements)
      homes(p);
    mirrors();
    states();
    for (uint32_t i = 0; i < plan_.schedules.size(); ++i)
      addBrokenRules(plan_, i, rules_);
    totals();
    addBrokenTransitionRules(plan_, rules_);
    return rules_;
  }

private:
  void breaks(bool broken, Rule rule) {
    if (broken)
      rules_.insert(rule);
  }

  static uint32_t placementBefore(const Schedule &s) {
    return s.fromPlacement == kNone ? s.placement : s.fromPlacement;
  }
  const model::Unit *unitOf(uint32_t buffer) const { // null: not a weight
    const bool weight = buffer < plan_.buffers.size() && plan_.buffers[buffer].kind == BufferKind::Weight;
    return weight && plan_.buffers[buffer].index < layout_.units.size() ? &layout_.units[plan_.buffers[buffer].index]
                                                                        : nullptr;
  }
  bool isOf(uint32_t state, uint32_t placement) const {
    return plan_.states[state].contents.empty() || plan_.states[state].placement == placement;
  }

  // Only what mutations of MakePlan's plans can get wrong.
  bool structureIsRight() const {
    if (!kvEncodingIsRight(plan_) || !miniBatchesAreRight(plan_) || !residualsAreRight(plan_) ||
        !actBuffersAreRight(plan_) || !stageIsRight(plan_, layout_))
      return false;
    bool ok = cachesAreRight(plan_) && (plan_.metaOnHost == kNowhere || plan_.metaOnHost % 256 == 0);
    const auto isSplit = [&](uint32_t buffer) { // its blocks need not be aligned
      return caches_.byBlocks && buffer < plan_.buffers.size() && plan_.buffers[buffer].kind == BufferKind::Kv;
    };
    const auto fits = [&](uint32_t buffer, uint64_t offset, uint64_t bytes, uint64_t size, uint64_t address) {
      ok &= bytes > 0 && offset <= size && offset + bytes <= size &&
            (isSplit(buffer) || (address - offset) % 256 == 0) && address <= uint64_t{1} << 53;
    };
    for (const Placement &p : plan_.placements) {
      std::vector<uint64_t> covered(plan_.buffers.size());
      for (const Extent &e : p.extents) {
        ok &= e.bufferOffset == covered[e.buffer];
        fits(e.buffer, e.bufferOffset, e.bytes, plan_.buffers[e.buffer].bytes, e.address);
        covered[e.buffer] += e.bytes;
        ok &= !e.direct || e.space == Space::Host;
        ok &= !e.interleaved || plan_.buffers[e.buffer].kind == BufferKind::Kv;
      }
      for (size_t i = 0; i < covered.size(); ++i)
        ok &= isSplit(static_cast<uint32_t>(i)) || covered[i] == plan_.buffers[i].bytes;
      for (const Slot &slot : p.slots)
        ok &= slot.bytes > 0 && slot.bytes % 256 == 0 && slot.address % 256 == 0;
    }
    for (const State &state : plan_.states)
      for (size_t i = 0; i < state.contents.size(); ++i) {
        const Content &c = state.contents[i];
        fits(c.buffer, c.bufferOffset, c.bytes, plan_.buffers[c.buffer].bytes, c.address);
        ok &= i == 0 || state.contents[i - 1].address + state.contents[i - 1].bytes <= c.address;
      }
    for (const Schedule &s : plan_.schedules) {
      ok &= s.fromPlacement == kNone || (s.iterationClass == IterationClass::Transition &&
                                         s.fromPlacement != s.placement && s.fromPlacement < plan_.placements.size());
      ok &= !s.steps.empty() && isOf(s.entryState, placementBefore(s)) && isOf(s.exitState, s.placement);
      for (const Operand &o : s.operands) {
        fits(o.buffer, o.bufferOffset, o.bytes, plan_.buffer(s, o.buffer).bytes, o.address);
        ok &= !o.interleaved || (isSplit(o.buffer) && o.space == Space::Device);
      }
      ok &= localsAreRight(plan_, s) && copiesDownAreRight(plan_, s);
      for (const Step &step : s.steps) {
        if (step.kind != StepKind::Copy) {
          ok &= s.iterationClass != IterationClass::Transition && !step.resizable && !step.dirtyOnly;
          continue;
        }
        const Operand &from = s.operands[step.firstOperand], &to = s.operands[step.firstOperand + 1];
        ok &= from.buffer == to.buffer && from.bufferOffset == to.bufferOffset && from.bytes == to.bytes &&
              from.access == Access::Read && to.access == Access::Write;
        ok &= !isAct(plan_, to.buffer) ||
              (to.bufferOffset == 0 && to.bytes == plan_.buffers[to.buffer].bytes && !step.dirtyOnly);
        ok &= !step.resizable || isResidual(plan_, to.buffer) || isAct(plan_, to.buffer) ||
              isStaged(plan_, s, to.buffer) || (isSplit(to.buffer) && to.bufferOffset % plan_.kvBlockBytes() == 0);
        ok &= !step.dirtyOnly ||
              (step.resizable && step.lane == Lane::D2H && s.iterationClass != IterationClass::Transition);
      }
      for (size_t i = 0; i < s.edges.size(); ++i) {
        const Edge &e = s.edges[i];
        ok &= e.from < e.to && e.to < s.steps.size() && s.steps[e.from].lane != s.steps[e.to].lane;
        ok &= i == 0 || std::pair(s.edges[i - 1].to, s.edges[i - 1].from) < std::pair(e.to, e.from);
      }
    }
    for (const Transition &t : plan_.transitions)
      ok &= isOf(t.fromState, placementBefore(plan_.schedules[t.schedule])) &&
            isOf(t.toState, plan_.schedules[t.schedule].placement);
    for (const Variant &v : plan_.variants)
      ok &= v.durationsNs.size() == plan_.schedules[v.schedule].steps.size();
    return ok && cyclesAreRight(plan_);
  }

  // Bytes an op touches behind the start of an operand, and the tensor it must cover.
  void operandSizes(const Schedule &s, const Step &step) {
    addBrokenCpuRules(plan_, caches_, s, step, rules_);
    if (step.kind == StepKind::Publish)
      for (uint32_t k = step.firstOperand; k < step.firstOperand + step.operandCount; ++k)
        breaks(s.operands[k].access != Access::Read, Rule::Structure);
    if (step.kind != StepKind::Compute)
      return;
    const model::ModelSpec &m = plan_.model;
    std::map<Arg, Operand> args;
    for (uint32_t k = step.firstOperand; k < step.firstOperand + step.operandCount; ++k)
      args[s.operands[k].arg] = s.operands[k];
    if (step.lane != Lane::Cpu)
      addBrokenCacheRules(plan_, caches_, s, step, rules_);
    addBrokenActRules(plan_, layout_, s, step, rules_);
    const int64_t tokens = s.maxTokens, sequences = s.maxSequences;
    const auto touches = [&](Arg arg, int64_t rows, int64_t columns) {
      breaks(args[arg].bytes < static_cast<uint64_t>(rows * columns) * 4 || args[arg].bufferOffset != 0 ||
                 args[arg].buffer < plan_.buffers.size(),
             Rule::Structure);
    };
    // The residual stream of all tokens.
    const bool leaves = residualsLeave(plan_);
    const auto stream = [&](Arg arg, int64_t columns) {
      if (!leaves)
        return touches(arg, tokens, columns);
      breaks(!isStream(plan_, step, args[arg]) || args[arg].bytes < static_cast<uint64_t>(tokens * columns) * 4,
             Rule::Structure);
    };
    const auto covers = [&](Arg arg, model::TensorRole role) {
      const Operand &o = args[arg];
      const model::Unit *unit = unitOf(o.buffer);
      if (unit == nullptr || !unit->find(role)) {
        rules_.insert(Rule::Structure);
        return;
      }
      const model::Tensor &t = *unit->find(role);
      breaks(o.bufferOffset > t.offset || o.bufferOffset + o.bytes < t.offset + t.bytes, Rule::Structure);
      breaks(unit->layer != step.layer, Rule::Structure);
    };
    // A letter for each access an op may make of an operand: r, w, b for both.
    const auto access = [&](Arg arg, const std::string &allowed) {
      breaks(allowed.find("rwb"[static_cast<int>(args[arg].access)]) == std::string::npos, Rule::Structure);
    };
    const auto whole = [&](Arg arg, uint32_t buffer) {
      breaks(args[arg].buffer != buffer || args[arg].bytes != plan_.buffers[buffer].bytes, Rule::Structure);
    };
    // One of as many equal ranges of a buffer as there are mini-batches: the step's own.
    const auto range = [&](Arg arg, Io io) {
      const uint32_t buffer = plan_.ioBuffer(io);
      const uint64_t bytes = plan_.buffers[buffer].bytes / plan_.miniBatches;
      breaks(args[arg].buffer != buffer || args[arg].bytes != bytes || args[arg].bufferOffset != step.miniBatch * bytes,
             Rule::Structure);
    };
    // From the step's own header to the end: block tables are behind the arrays of all.
    const uint32_t meta = plan_.ioBuffer(plan::Io::Meta);
    const uint64_t header = step.miniBatch * metaArraysBytes(plan_);
    breaks(args[Arg::Meta].buffer != meta || args[Arg::Meta].bufferOffset != header ||
               header + args[Arg::Meta].bytes != plan_.buffers[meta].bytes,
           Rule::Structure);
    for (const auto &[arg, o] : args)
      breaks(o.buffer >= plan_.buffers.size() && plan_.buffer(s, o.buffer).index != step.miniBatch, Rule::Structure);
    for (const Arg arg :
         {Arg::Meta, Arg::Table, Arg::Positions, Arg::NormWeights, Arg::Weight, Arg::Bias, Arg::Residual})
      if (args.contains(arg))
        access(arg, "r");
    if (args.contains(Arg::Y))
      access(Arg::Y, "w");
    if (args.contains(Arg::Output))
      access(Arg::Output, "wb");
    if (args.contains(Arg::Workspace))
      access(Arg::Workspace, "wb");
    switch (step.op) {
    case kernels::Op::Embed:
      covers(Arg::Table, model::TensorRole::TokenTable);
      if (m.learnedPositions)
        covers(Arg::Positions, model::TensorRole::PositionTable);
      range(Arg::Sampled, plan::Io::Sampled);
      access(Arg::Sampled, "r");
      range(Arg::History, plan::Io::History);
      access(Arg::History, "wb");
      stream(Arg::X, m.hidden);
      access(Arg::X, "w");
      break;
    case kernels::Op::KeepIds:
      range(Arg::Sampled, plan::Io::Sampled);
      access(Arg::Sampled, "r");
      range(Arg::History, plan::Io::History);
      access(Arg::History, "wb");
      break;
    case kernels::Op::Norm: {
      const int64_t rows = step.part == Part::Head ? sequences : tokens;
      covers(Arg::NormWeights, model::TensorRole::NormWeight);
      if (m.norm == model::NormKind::LayerNorm)
        covers(Arg::NormWeights, model::TensorRole::NormBias);
      if (step.part == Part::Head)
        touches(Arg::X, rows, m.hidden);
      else
        stream(Arg::X, m.hidden);
      access(Arg::X, "r");
      touches(Arg::Y, rows, m.hidden);
      break;
    }
    case kernels::Op::Linear: {
      covers(Arg::Weight, model::TensorRole::Matrix);
      if (args.contains(Arg::Bias))
        covers(Arg::Bias, model::TensorRole::Bias);
      breaks(args.contains(Arg::Bias) && args[Arg::Bias].buffer != args[Arg::Weight].buffer, Rule::Structure);
      if (unitOf(args[Arg::Weight].buffer) == nullptr)
        break;
      const model::Unit &unit = *unitOf(args[Arg::Weight].buffer);
      const model::Tensor *t = unit.find(model::TensorRole::Matrix);
      if (!t)
        break;
      breaks(!args.contains(Arg::Bias) && unit.find(model::TensorRole::Bias), Rule::Structure);
      const int64_t rows = unit.role == model::UnitRole::Head ? sequences : tokens;
      touches(Arg::X, rows, t->cols);
      access(Arg::X, "r");
      const bool adds = args.contains(Arg::Residual);
      for (const Arg arg : {Arg::Y, Arg::Residual})
        if (adds && unit.role != model::UnitRole::Head)
          stream(arg, t->rows);
        else if (adds || arg == Arg::Y)
          touches(arg, rows, t->rows);
      break;
    }
    case kernels::Op::RopeAppend:
      touches(Arg::X, tokens, m.qkvRows());
      access(Arg::X, "b");
      if (!caches_.byBlocks)
        whole(Arg::Kv, plan_.kvBuffer(step.layer, step.miniBatch));
      if (args.contains(Arg::Kv))
        access(Arg::Kv, "wb");
      if (m.qkNorm)
        covers(Arg::NormWeights, model::TensorRole::HeadNorms);
      break;
    case kernels::Op::Rotate:
      if (m.qkNorm)
        covers(Arg::NormWeights, model::TensorRole::HeadNorms);
      break;
    case kernels::Op::Append:
    case kernels::Op::FetchRows:
      break; // OracleCpu.cpp
    case kernels::Op::Attention:
      if (step.lane == Lane::Cpu)
        break; // OracleCpu.cpp
      touches(Arg::X, tokens, m.qkvRows());
      access(Arg::X, "r");
      if (!caches_.byBlocks)
        whole(Arg::Kv, plan_.kvBuffer(step.layer, step.miniBatch));
      if (args.contains(Arg::Kv))
        access(Arg::Kv, "r");
      touches(Arg::Y, tokens, m.qRows());
      break;
    case kernels::Op::Activate:
      touches(Arg::X, tokens, 2 * m.intermediate);
      access(Arg::X, "r");
      touches(Arg::Y, tokens, m.intermediate);
      break;
    case kernels::Op::GatherRows:
      stream(Arg::X, m.hidden);
      access(Arg::X, "r");
      touches(Arg::Y, sequences, m.hidden);
      break;
    case kernels::Op::Sample:
      touches(Arg::X, sequences, m.vocab);
      access(Arg::X, "r");
      range(Arg::History, plan::Io::History);
      access(Arg::History, "r");
      range(Arg::Sampled, plan::Io::Sampled);
      access(Arg::Sampled, "wb");
      whole(Arg::Output, plan_.ioBuffer(plan::Io::Output));
      break;
    case kernels::Op::ActAppend:
    case kernels::Op::RebuildKv:
      break; // OracleAct.cpp
    }
  }

  void memory() {
    uint64_t arena = 0, host = 0;
    for (const Placement &p : plan_.placements) {
      for (const Extent &e : p.extents)
        (e.space == Space::Device ? arena : host) =
            std::max(e.space == Space::Device ? arena : host, endOf(plan_, e, e.interleaved));
      for (const Slot &slot : p.slots)
        arena = std::max(arena, slot.address + slot.bytes);
    }
    for (const auto &[buffer, byte0] : caches_.byte0)
      host = std::max(host, byte0 + static_cast<uint64_t>(caches_.mirroredTo) * plan_.kvBlockBytes());
    const uint64_t metaBytes = plan_.buffers[plan_.ioBuffer(Io::Meta)].bytes;
    if (plan_.metaOnHost != kNowhere)
      host = std::max(host, plan_.metaOnHost + metaBytes);
    for (const Schedule &s : plan_.schedules)
      for (const Local &l : s.locals) {
        arena = std::max(arena, l.address == kNowhere ? 0 : l.address + l.buffer.bytes);
        host = std::max(host, l.hostAddress == kNowhere ? 0 : l.hostAddress + l.buffer.bytes);
      }
    breaks(plan_.arenaBytes != arena || plan_.hostBytes != host, Rule::Accounting);
    breaks(plan_.arenaBytes > plan_.deviceMemory, Rule::OverBudget);
  }

  template <typename Range> void homeInSlab(const Range &home) {
    breaks(home.address + home.bytes > plan_.hostBytes, Rule::HostRange);
    forEachGranule(plan_, home, false, [&](uint64_t i, const What &what) {
      slab_.resize(std::max<size_t>(slab_.size(), i + 1));
      breaks(slab_[i].buffer != kNone && slab_[i] != what, Rule::HostRange);
      slab_[i] = what;
    });
  }
  // Of blocks, too, that are at home on the device wherever they exist.
  void mirrors() {
    const uint64_t block = plan_.kvBlockBytes(), from = static_cast<uint64_t>(caches_.mirroredFrom) * block;
    for (const auto &[buffer, byte0] : caches_.byte0)
      homeInSlab(Content{buffer, from, static_cast<uint64_t>(caches_.mirroredTo) * block - from, byte0 + from});
    if (const uint32_t meta = plan_.ioBuffer(Io::Meta); plan_.metaOnHost != kNowhere)
      homeInSlab(Content{meta, 0, plan_.buffers[meta].bytes, plan_.metaOnHost});
    for (const Schedule &s : plan_.schedules)
      for (const Local &l : s.locals) {
        if (l.hostAddress == kNowhere)
          continue;
        breaks(l.hostAddress + l.buffer.bytes > plan_.hostBytes, Rule::HostRange);
        for (Granules g(l.hostAddress, l.buffer.bytes); g.first < g.last && g.first < slab_.size(); ++g.first)
          breaks(slab_[g.first].buffer != kNone, Rule::HostRange);
      }
  }
  void homes(const Placement &p) {
    std::vector<bool> taken;
    const auto take = [&](const auto &range, bool interleaved) {
      const uint64_t end = endOf(plan_, range, interleaved);
      breaks(end > plan_.arenaBytes, Rule::OverBudget);
      taken.resize(std::max(taken.size(), end / kGranule));
      forEachGranule(plan_, range, interleaved, [&](uint64_t i, const What &) {
        breaks(taken[i], Rule::Overlap);
        taken[i] = true;
      });
    };
    for (const Extent &e : p.extents) {
      const bool weight = plan_.buffers[e.buffer].kind == BufferKind::Weight;
      if (e.space == Space::Device)
        take(e, e.interleaved);
      if (e.space == Space::Host)
        homeInSlab(e);
      const bool away = e.space == Space::Host && caches_.byBlocks && plan_.buffers[e.buffer].kind == BufferKind::Kv;
      if (!weight && !away && !isResidual(plan_, e.buffer) && !isAct(plan_, e.buffer)) // of these: OracleAct.cpp
        breaks(fixed_.try_emplace(e.buffer, e.address).first->second != e.address || e.space != Space::Device,
               Rule::Structure);
    }
    for (const Slot &slot : p.slots)
      take(Content{kNone, 0, slot.bytes, slot.address}, false);
  }

  void states() {
    for (const State &state : plan_.states)
      for (const Content &c : state.contents) {
        const Placement &p = plan_.placements[state.placement];
        const auto blocks = [&](int64_t n) { return static_cast<uint64_t>(n) * plan_.kvBlockBytes(); };
        const bool tail = caches_.byBlocks && plan_.buffers[c.buffer].kind == BufferKind::Kv &&
                          c.bufferOffset >= blocks(blocksOnDevice(plan_, p)) &&
                          c.bufferOffset + c.bytes <= blocks(p.kvBlocks);
        breaks(c.dirty && !tail, Rule::EntryExit);
        if (!tail && plan_.buffers[c.buffer].kind != BufferKind::Weight) {
          rules_.insert(Rule::EntryExit);
          continue;
        }
        const auto &slots = p.slots;
        breaks(std::none_of(slots.begin(), slots.end(),
                            [&](const Slot &slot) {
                              return slot.address <= c.address && c.address + c.bytes <= slot.address + slot.bytes;
                            }),
               Rule::SlotTooSmall);
      }
  }

  void totals() {
    const auto sums = [&](const std::vector<uint64_t> &durations, uint32_t schedule) {
      std::map<Lane, uint64_t> lanes;
      for (size_t i = 0; i < durations.size(); ++i)
        lanes[plan_.schedules[schedule].steps[i].lane] += durations[i];
      return lanes;
    };
    for (const Schedule &s : plan_.schedules)
      for (const Step &step : s.steps)
        breaks(step.kind == StepKind::Copy && step.linkBytes != s.operands[step.firstOperand].bytes, Rule::Accounting);
    for (const Variant &v : plan_.variants) {
      auto lanes = sums(v.durationsNs, v.schedule);
      const uint64_t link = std::max(lanes[Lane::H2D], lanes[Lane::D2H]);
      breaks(v.computeAloneNs != lanes[Lane::Compute] || v.linkAloneNs != link ||
                 v.predictedNs < std::max(lanes[Lane::Compute], link),
             Rule::Accounting);
    }
    for (const Transition &t : plan_.transitions) {
      auto lanes = sums(t.durationsNs, t.schedule);
      breaks(t.predictedNs < std::max(lanes[Lane::H2D], lanes[Lane::D2H]), Rule::Accounting);
    }
  }

  const Plan &plan_;
  const model::WeightLayout layout_;
  const Caches caches_;
  std::set<Rule> rules_;
  std::vector<What> slab_;
  std::map<uint32_t, uint64_t> fixed_; // caches and io: where the first placement has them
};

} // namespace

std::set<Rule> brokenRules(const Plan &plan) { return PlanOracle(plan).run(); }

} // namespace headrace::plan::test
