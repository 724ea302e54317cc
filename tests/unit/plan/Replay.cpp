// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/plan/Replay.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <vector>

#include "kernels/Kernels.h"
#include "runtime/model/ModelSpec.h"
#include "tests/unit/plan/OracleMemory.h"

namespace headrace::plan::test {
namespace {

// What 64 bytes hold: a part of a buffer; of a block of a cache, as the launch `version` left it; of a residual, as the
// step that was the `version`-th to write one.
struct Cell {
  What what;
  int64_t version = 0;
};
constexpr int64_t kSpoiled = -1;

// What a launch is told.
struct Rows {
  std::set<int64_t> written, fresh;         // blocks; those of them that had no rows before
  int64_t inUse = 0;                        // blocks in use are below
  std::set<int64_t> actsWritten, actsFresh; // activation blocks likewise, from 0 on
  int64_t actsInUse = 0;
};

// Rows of a residual or a transient.
struct Stream {
  int64_t version = 0;
  uint64_t granules = 0; // of the rows in use
};

class Replayer {
public:
  Replayer(const Plan &plan, uint64_t seed) : plan_(plan), random_(seed), caches_(cachesOf(plan)) {
    device_.resize(plan.arenaBytes / kGranule + 1);
    host_.resize(plan.hostBytes / kGranule + 1);
    truth_.resize(plan.kvCaches(), std::vector<int64_t>(static_cast<size_t>(plan.kvBlocks)));
    actTruth_.resize(static_cast<size_t>(plan.actBlocks));
    for (const Placement &p : plan.placements)
      for (const Extent &e : p.extents)
        if (e.space == Space::Host && !isKv(e.buffer) && !isResidual(plan, e.buffer))
          forEachGranule(plan, e, false, [&](uint64_t i, const What &what) { host_[i] = {what}; });
    for (const Extent &e : plan.placements[0].extents)
      if (e.space == Space::Device)
        forEachGranule(plan, e, e.interleaved, [&](uint64_t i, const What &what) { device_[i] = {what}; });
  }

  std::string run(int iterations) {
    for (int i = 0; i < iterations && error_.empty(); ++i) {
      if (plan_.placements.size() > 1 && below(5) == 0)
        changePlacement(static_cast<uint32_t>(below(plan_.placements.size())));
      iterate();
    }
    return error_;
  }

private:
  uint64_t below(uint64_t n) { return random_() % n; }
  bool isKv(uint32_t buffer) const {
    return buffer < plan_.buffers.size() && plan_.buffers[buffer].kind == BufferKind::Kv;
  }
  int64_t blockOf(const What &what) const {
    return static_cast<int64_t>(what.granule * kGranule / plan_.kvBlockBytes());
  }
  int64_t &truth(const What &what) {
    return truth_[plan_.cacheNumber(plan_.buffers[what.buffer])][static_cast<size_t>(blockOf(what))];
  }
  bool isCurrent(const Cell &cell, const What &what) {
    if (isResidual(plan_, what.buffer))
      return cell.what == what && cell.version == streams_[what.buffer].version;
    return cell.what == what && (!isKv(what.buffer) || cell.version == truth(what));
  }
  std::vector<Cell> &memory(Space space) { return space == Space::Host ? host_ : device_; }
  void fail(const std::string &what) {
    if (error_.empty())
      error_ = "launch " + std::to_string(launch_) + " of \"" + name_ + "\": " + what;
  }

  // --- what an iteration is
  // -------------------------------------------------------------------------------------------

  void iterate() {
    const int64_t blocks = plan_.placements[placement_].kvBlocks;
    std::erase_if(used_, [&](int64_t) { return below(8) == 0; });
    Rows rows;
    for (uint64_t i = 1 + below(2); i > 0; --i) {
      int64_t block = 1;
      while (used_.contains(block)) // the lowest that is free
        ++block;
      if (block < blocks && below(2) == 0) {
        used_.insert(block);
        rows.fresh.insert(block);
        rows.written.insert(block);
      }
    }
    for (const int64_t block : used_)
      if (below(3) == 0)
        rows.written.insert(block);
    chooseActs(rows);
    rows.inUse = 1 + (used_.empty() ? 0 : *used_.rbegin());
    std::vector<uint32_t> fit;
    for (const Variant &v : plan_.variants)
      if (v.placement == placement_ && blocksInUse(plan_, plan_.schedules[v.schedule]) >= rows.inUse)
        fit.push_back(v.schedule);
    // Mostly one that can begin with what is there, as the runtime would choose.
    std::vector<uint32_t> ready = fit;
    std::erase_if(ready, [&](uint32_t s) { return plan_.schedules[s].entryState != state_; });
    if (!ready.empty() && below(8) != 0)
      fit = ready;
    const Schedule &s = plan_.schedules[fit[below(fit.size())]];
    ++launch_;
    lastInUse_ = rows.inUse;
    enter(s.entryState, rows.inUse);
    launch(s, rows);
    for (const int64_t block : rows.actsWritten)
      actTruth_[static_cast<size_t>(block)] = launch_;
    homesAreCurrent();
  }
  void chooseActs(Rows &rows) {
    std::erase_if(usedActs_, [&](int64_t) { return below(8) == 0; });
    for (int64_t block = 0; block < plan_.actBlocks; ++block)
      if (!usedActs_.contains(block) && below(4) == 0) {
        usedActs_.insert(block);
        rows.actsFresh.insert(block);
        rows.actsWritten.insert(block);
      } else if (usedActs_.contains(block) && below(3) == 0) {
        rows.actsWritten.insert(block);
      }
    rows.actsInUse = usedActs_.empty() ? 0 : 1 + *usedActs_.rbegin();
  }

  const Schedule *transition(uint32_t from, uint32_t to) const {
    for (const Transition &t : plan_.transitions)
      if (const Schedule &s = plan_.schedules[t.schedule];
          t.fromState == from && t.toState == to && s.fromPlacement == kNone && s.placement == placement_)
        return &s;
    return nullptr;
  }
  // To a state of this placement.
  void enter(uint32_t state, int64_t inUse) {
    if (state == state_)
      return;
    if (const Schedule *direct = transition(state_, state); direct != nullptr && below(2) == 0) {
      launch(*direct, {{}, {}, inUse});
      return;
    }
    if (isDirtyState(plan_.states[state_])) {
      const Schedule *flush = transition(state_, 0);
      if (flush == nullptr)
        return fail("no way from state " + std::to_string(state_) + " to the empty one");
      launch(*flush, {{}, {}, inUse});
    }
    state_ = 0;
    if (const Schedule *to = transition(0, state); to != nullptr)
      launch(*to, {{}, {}, inUse});
    else if (!plan_.states[state].contents.empty())
      fail("no way to state " + std::to_string(state));
  }
  void changePlacement(uint32_t to) {
    if (to == placement_ || (!used_.empty() && *used_.rbegin() >= plan_.placements[to].kvBlocks))
      return;
    enter(0, lastInUse_);
    for (const Schedule &s : plan_.schedules)
      if (s.fromPlacement == placement_ && s.placement == to) {
        launch(s, {{}, {}, lastInUse_});
        break;
      }
    placement_ = to;
    state_ = 0;
  }

  // --- a launch
  // -------------------------------------------------------------------------------------------------------

  // Lanes take turns by chance, or those come first that chance puts first.
  void launch(const Schedule &s, const Rows &rows) {
    name_ = s.name;
    transients_.assign(s.locals.size(), {});
    for (size_t l = 0; l < s.locals.size(); ++l)
      transients_[l].granules = 1 + below(s.locals[l].buffer.bytes / kGranule);
    for (const Operand &o : s.operands)
      if (o.space == Space::Host && (o.buffer >= plan_.buffers.size() || isMeta(plan_, o.buffer))) // of no launch
        forEachGranule(plan_, o, false, [&](uint64_t i, const What &) { host_[i] = {}; });
    for (uint32_t i = 0; i < plan_.buffers.size(); ++i)
      if (isResidual(plan_, i)) // nothing of it is anywhere, but what another stage has brought
        streams_[i] = receives(s) ? arrived(i) : Stream{++writes_, 1 + below(plan_.buffers[i].bytes / kGranule)};
    arrived_.clear();
    std::array<size_t, kLanes> order;
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random_);
    const bool fixed = below(2) == 0;
    std::array<std::vector<uint32_t>, kLanes> left;
    for (auto i = static_cast<uint32_t>(s.steps.size()); i-- > 0;)
      left[static_cast<size_t>(s.steps[i].lane)].push_back(i);
    std::vector<bool> done(s.steps.size());
    for (size_t number = 0; number < s.steps.size(); ++number) {
      if (!fixed)
        std::shuffle(order.begin(), order.end(), random_);
      const auto lane = std::find_if(order.begin(), order.end(), [&](size_t l) {
        return !left[l].empty() && std::all_of(s.edges.begin(), s.edges.end(),
                                               [&](const Edge &e) { return e.to != left[l].back() || done[e.from]; });
      });
      const uint32_t step = left[*lane].back();
      left[*lane].pop_back();
      done[step] = true;
      perform(s, s.steps[step], rows);
    }
    state_ = s.exitState;
    homesAreLeft(s);
  }

  // Rows of stages: the host takes those that a publish shows, and may put the next there at once. Behind that no step
  // may write.
  bool receives(const Schedule &s) const {
    return plan_.model->stage.first > 0 && s.iterationClass != IterationClass::Transition;
  }
  bool sends() const { return plan_.model->stage.of > plan_.model->stage.first + plan_.model->layers; }
  void forHome(uint32_t residual, const Stream &stream, auto f) {
    for (const Extent &e : plan_.placements[placement_].extents)
      if (e.buffer == residual)
        forEachGranule(plan_, e, false, [&](uint64_t i, const What &what) {
          if (what.granule < stream.granules)
            f(host_[i], what);
        });
  }
  Stream arrived(uint32_t residual) {
    if (!arrived_.contains(residual))
      arrive(residual);
    return arrived_[residual];
  }
  void arrive(uint32_t residual) {
    const Stream stream{++writes_, 1 + below(plan_.buffers[residual].bytes / kGranule)};
    arrived_[residual] = stream;
    forHome(residual, stream, [&](Cell &cell, const What &what) { cell = {what, stream.version}; });
  }
  void publish(const Schedule &s) {
    published_ = streams_;
    for (const auto &stream : published_)
      if (receives(s))
        arrive(stream.first);
  }
  void homesAreLeft(const Schedule &s) {
    for (const auto &[residual, stream] : receives(s) ? arrived_ : sends() ? published_ : std::map<uint32_t, Stream>())
      forHome(residual, stream, [&, of = residual, version = stream.version](const Cell &cell, const What &what) {
        if (!(cell.what == what && cell.version == version))
          fail("written behind the publish: " + plan_.buffers[of].name);
      });
    published_.clear();
  }

  void perform(const Schedule &s, const Step &step, const Rows &rows) {
    const std::vector<Operand> operands(s.operands.begin() + step.firstOperand,
                                        s.operands.begin() + step.firstOperand + step.operandCount);
    if (step.kind == StepKind::Copy)
      return copy(s, step, operands[0], operands[1], rows);
    for (const Operand &o : operands)
      if (o.access != Access::Write && o.arg != Arg::Workspace)
        findRows(s, o);
    for (const Operand &o : operands)
      if (o.access == Access::Read && o.buffer < plan_.buffers.size() &&
          (plan_.buffers[o.buffer].kind == BufferKind::Weight || isResidual(plan_, o.buffer)))
        forEachGranule(plan_, o, false, [&](uint64_t i, const What &what) {
          const bool wanted = !isResidual(plan_, o.buffer) || what.granule < streams_[o.buffer].granules;
          if (wanted && !isCurrent(memory(o.space)[i], what))
            fail("not there: " + plan_.buffers[o.buffer].name);
        });
    if (step.kind == StepKind::Publish)
      publish(s);
    if (step.kind == StepKind::Compute && (step.op == kernels::Op::RopeAppend || step.op == kernels::Op::Append))
      append(operands, rows);
    if (step.kind == StepKind::Compute && step.op == kernels::Op::Attention)
      attend(operands);
    if (step.kind == StepKind::Compute && plan_.actBlocks > 0)
      useActs(step, operands, rows);
    for (const Operand &o : operands)
      if (o.arg == Arg::KvRebuilt || (step.op == kernels::Op::RebuildKv && o.arg == Arg::Y))
        continue; // useActs() has written it
      else if (o.access != Access::Read && isStaged(plan_, s, o.buffer))
        writeRows(step, o);
      else if (o.access != Access::Read && o.buffer >= plan_.buffers.size())
        forEachGranule(plan_, o, false, [&](uint64_t i, const What &what) { memory(o.space)[i] = {what}; });
      else if (o.access != Access::Read && isResidual(plan_, o.buffer))
        writeStream(o);
  }
  // Of what the cpu lane works on: the launch's rows, as they were written last, wherever a step looks for them.
  void findRows(const Schedule &s, const Operand &o) {
    const bool meta = isMeta(plan_, o.buffer) && o.space == Space::Host;
    if (!meta && !isStaged(plan_, s, o.buffer))
      return;
    forEachGranule(plan_, o, false, [&](uint64_t i, const What &what) {
      const Cell &cell = memory(o.space)[i];
      const bool wanted = meta || what.granule < transient(o).granules;
      if (wanted && !(cell.what == what && (meta || cell.version == transient(o).version)))
        fail("rows that are not there: " + plan_.buffer(s, o.buffer).name);
    });
  }
  void writeRows(const Step &step, const Operand &o) {
    if (step.op != kernels::Op::FetchRows) // which brings what was written
      transient(o).version = ++writes_;
    forEachGranule(plan_, o, false, [&](uint64_t i, const What &what) {
      if (what.granule < transient(o).granules)
        memory(o.space)[i] = {what, transient(o).version};
    });
  }

  // The rows of the launch.
  void writeStream(const Operand &o) {
    Stream &stream = streams_[o.buffer];
    stream.version = ++writes_;
    forEachGranule(plan_, o, false, [&](uint64_t i, const What &what) {
      if (what.granule < stream.granules)
        memory(o.space)[i] = {what, stream.version};
    });
  }

  // Which bytes of a copy a launch moves, of those [first, second) that it must or a few more.
  std::pair<uint64_t, uint64_t> bytesOf(const Schedule &s, const Step &step, const Operand &o, const Rows &rows) {
    if (!step.resizable)
      return {0, o.bytes};
    if (isStaged(plan_, s, o.buffer))
      return {0, std::min(o.bytes, (transient(o).granules + below(2)) * kGranule)};
    if (isResidual(plan_, o.buffer))
      return {0, std::min(o.bytes, (streams_[o.buffer].granules + below(2)) * kGranule)};
    const bool acts = isAct(plan_, o.buffer);
    const auto block = static_cast<int64_t>(acts ? plan_.actBlockBytes() : plan_.kvBlockBytes());
    const auto all = static_cast<int64_t>(o.bytes);
    const int64_t share = (all / 64 + 63) / 64 * 64, before = static_cast<int64_t>(o.bufferOffset);
    int64_t from = 0, to = (acts ? rows.actsInUse : rows.inUse) * block - before;
    if (step.dirtyOnly) {
      from = to = 0;
      for (const int64_t b : rows.written)
        if ((b + 1) * block > before && b * block < before + all) {
          from = to == 0 ? b * block - before : from;
          to = (b + 1) * block - before;
        }
    }
    from = std::clamp(from - static_cast<int64_t>(below(2)) * share, int64_t{0}, all - share);
    to = std::clamp(to + static_cast<int64_t>(below(2)) * share, from + share, all);
    return {static_cast<uint64_t>(from), static_cast<uint64_t>(to)};
  }
  void copy(const Schedule &s, const Step &step, const Operand &from, const Operand &to, const Rows &rows) {
    const std::pair<uint64_t, uint64_t> bytes = bytesOf(s, step, from, rows);
    std::vector<Cell> cells;
    forEachGranule(plan_, from, from.interleaved,
                   [&](uint64_t i, const What &) { cells.push_back(memory(from.space)[i]); });
    size_t number = 0;
    forEachGranule(plan_, to, to.interleaved, [&](uint64_t i, const What &) {
      if (number * kGranule >= bytes.first && number * kGranule < bytes.second)
        memory(to.space)[i] = cells[number];
      ++number;
    });
  }

  // Rows are put beside those that a block has; where these are not the latest, what then is there is of no use.
  void append(const std::vector<Operand> &operands, const Rows &rows) {
    std::map<int64_t, int> copies; // of a block, on the device
    for (const Operand &o : operands) {
      if (o.arg != Arg::Kv && o.arg != Arg::KvTail && o.arg != Arg::KvHome)
        continue;
      forEachGranule(plan_, o, o.interleaved, [&](uint64_t i, const What &what) {
        const int64_t block = blockOf(what);
        Cell &cell = memory(o.space)[i];
        if (rows.written.contains(block))
          cell = {what, rows.fresh.contains(block) || isCurrent(cell, what) ? launch_ : kSpoiled};
        copies[block] += o.space == Space::Device || isAlone(operands) ? 1 : 0;
      });
    }
    for (const Operand &o : operands)
      if (o.arg == Arg::Kv || o.arg == Arg::KvTail || (o.arg == Arg::KvHome && isAlone(operands)))
        for (const int64_t block : rows.written) {
          if (copies[block] == 0)
            fail("rows have nowhere to go");
          truth_[plan_.cacheNumber(plan_.buffers[o.buffer])][static_cast<size_t>(block)] = launch_;
        }
  }
  // The home is all that the step has of the cache.
  static bool isAlone(const std::vector<Operand> &operands) {
    return std::none_of(operands.begin(), operands.end(),
                        [](const Operand &o) { return o.arg == Arg::Kv || o.arg == Arg::KvTail; });
  }
  void attend(const std::vector<Operand> &operands) {
    for (const Operand &o : operands)
      if (o.arg == Arg::Kv || o.arg == Arg::KvTail || o.arg == Arg::KvHome)
        forEachGranule(plan_, o, o.interleaved, [&](uint64_t i, const What &what) {
          if (used_.contains(blockOf(what)) && !isCurrent(memory(o.space)[i], what))
            fail("attention to block " + std::to_string(blockOf(what)) + " of " + plan_.buffers[o.buffer].name);
        });
  }

  // Activation blocks hold the launch that has written rows to them last. Of keys and values that are made from them a
  // cell holds for whom they were made, in this launch, and whether its rows are there.
  void useActs(const Step &step, const std::vector<Operand> &operands, const Rows &rows) {
    const int64_t turn =
        2 * (launch_ * static_cast<int64_t>(plan_.kvCaches()) + step.layer * plan_.miniBatches + step.miniBatch);
    const auto blockAt = [&](const What &what, uint64_t bytes) {
      return static_cast<int64_t>(what.granule * kGranule / bytes);
    };
    std::set<int64_t> lost; // blocks whose rows are not all there
    for (const Operand &o : operands) {
      if (o.arg != Arg::Act)
        continue;
      forEachGranule(plan_, o, false, [&](uint64_t i, const What &what) {
        const int64_t block = blockAt(what, plan_.actBlockBytes());
        if (block >= plan_.actBlocks)
          return;
        Cell &cell = memory(o.space)[i];
        const bool current = cell.what == what && cell.version == actTruth_[static_cast<size_t>(block)];
        const bool written = cell.what == what && cell.version == launch_ && rows.actsWritten.contains(block);
        if (step.op == kernels::Op::ActAppend && rows.actsWritten.contains(block))
          cell = {what, current || written || rows.actsFresh.contains(block) ? launch_ : kSpoiled};
        else if (!current && !written)
          lost.insert(block);
      });
    }
    for (const Operand &o : operands) {
      const bool makes = step.op == kernels::Op::RebuildKv && o.arg == Arg::Y;
      if (o.arg != Arg::KvRebuilt && !makes)
        continue;
      forEachGranule(plan_, o, false, [&](uint64_t i, const What &what) {
        const int64_t block = blockAt(what, plan_.kvBlockBytes());
        if (block >= plan_.actBlocks)
          return;
        Cell &cell = device_[i];
        const bool made = cell.what == what && cell.version == turn, fresh = rows.actsFresh.contains(block);
        const bool appended = cell.what == what && cell.version == turn + 1;
        if (makes)
          cell = {what, lost.contains(block) ? kSpoiled : turn};
        else if (o.access != Access::Read && rows.actsWritten.contains(block))
          cell = {what, made || appended || fresh ? turn + 1 : kSpoiled};
        else if (step.op == kernels::Op::Attention && usedActs_.contains(block) &&
                 !(rows.actsWritten.contains(block) ? appended : made))
          fail("attention to activation block " + std::to_string(block) + " of layer " + std::to_string(step.layer));
      });
    }
  }

  // But for what the state says is ahead of them.
  void homesAreCurrent() {
    std::set<std::pair<uint32_t, uint64_t>> ahead;
    for (const Content &c : plan_.states[state_].contents)
      if (c.dirty)
        forEachGranule(plan_, c, false, [&](uint64_t, const What &what) { ahead.insert({what.buffer, what.granule}); });
    for (const auto &cache : caches_.byte0)
      for (const int64_t block : used_) {
        if (block < caches_.mirroredFrom)
          continue;
        const uint64_t offset = static_cast<uint64_t>(block) * plan_.kvBlockBytes();
        const Content home{cache.first, offset, plan_.kvBlockBytes(), cache.second + offset};
        forEachGranule(plan_, home, false, [&](uint64_t i, const What &what) {
          if (!ahead.contains({what.buffer, what.granule}) && !isCurrent(host_[i], what))
            fail("the home of block " + std::to_string(block) + " of " + plan_.buffers[cache.first].name);
        });
      }
  }

  const Plan &plan_;
  std::mt19937_64 random_;
  const Caches caches_;
  std::vector<Cell> device_, host_;
  // Of residuals, by buffer: now; as the launch has published them; as the next launch finds them at home.
  std::map<uint32_t, Stream> streams_, published_, arrived_;
  Stream &transient(const Operand &o) { return transients_[o.buffer - plan_.buffers.size()]; }
  std::vector<Stream> transients_; // of the launch
  int64_t writes_ = 0;
  std::vector<std::vector<int64_t>> truth_; // by cache and block: the launch that has written rows to it last
  std::vector<int64_t> actTruth_;           // by activation block, of all layers
  std::set<int64_t> used_, usedActs_;
  uint32_t placement_ = 0, state_ = 0;
  int64_t launch_ = 0, lastInUse_ = 1;
  std::string name_, error_;
};

} // namespace

std::string replay(const Plan &plan, uint64_t seed, int iterations) { return Replayer(plan, seed).run(iterations); }

} // namespace headrace::plan::test
