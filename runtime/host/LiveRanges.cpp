// SPDX-License-Identifier: Apache-2.0
#include "runtime/host/LiveRanges.h"

#include "kernels/Kernels.h"
#include "runtime/plan/value/BlockRuns.h"

#include <algorithm>
#include <map>

namespace headrace::host {
namespace {

// Bytes that are live between two steps, both included; -1: from the start.
struct Life {
  ByteRange range;
  int64_t first;
  int64_t last;
};

// What slots hold while the steps are played: ranges that do not overlap, by address.
class SlotContents {
public:
  explicit SlotContents(std::vector<Life> &ended) : ended_(ended) {}

  void write(ByteRange range, int64_t step) {
    split(range);
    for (auto it = held_.lower_bound(range.begin); it != held_.end() && it->first < range.end; it = held_.erase(it))
      end(it->first, it->second);
    held_[range.begin] = {range.end, step, step};
  }
  void use(ByteRange range, int64_t step) {
    split(range);
    for (auto it = held_.lower_bound(range.begin); it != held_.end() && it->first < range.end; ++it)
      it->second.last = step;
  }
  void endAll() {
    for (const auto &[begin, part] : held_)
      end(begin, part);
    held_.clear();
  }

private:
  struct Part {
    uint64_t endByte;
    int64_t first, last;
  };
  void end(uint64_t begin, const Part &part) { ended_.push_back({{begin, part.endByte}, part.first, part.last}); }
  void split(ByteRange range) {
    for (uint64_t at : {range.begin, range.end}) {
      auto it = held_.upper_bound(at);
      if (it == held_.begin())
        continue;
      --it;
      if (it->first == at || it->second.endByte <= at)
        continue;
      held_[at] = it->second;
      it->second.endByte = at;
    }
  }
  std::map<uint64_t, Part> held_;
  std::vector<Life> &ended_;
};

// `range` without what `lives` cover from one step into the next.
std::vector<ByteRange> without(ByteRange range, const std::vector<Life> &lives, int64_t step) {
  std::vector<ByteRange> rest;
  if (range.begin < range.end)
    rest.push_back(range);
  for (const Life &life : lives) {
    if (life.first > step || life.last <= step)
      continue;
    std::vector<ByteRange> next;
    for (const ByteRange &r : rest) {
      if (life.range.end <= r.begin || life.range.begin >= r.end) {
        next.push_back(r);
        continue;
      }
      if (r.begin < life.range.begin)
        next.push_back({r.begin, life.range.begin});
      if (life.range.end < r.end)
        next.push_back({life.range.end, r.end});
    }
    rest = std::move(next);
  }
  return rest;
}

// How many bytes of an extent, from its first on, are at home at the same place in `placement`: all or none, but of an
// interleaved one its first blocks.
uint64_t bytesKept(const plan::Placement &placement, const plan::Extent &extent) {
  for (const plan::Extent &other : placement.extents)
    if (other.space == plan::Space::Device && other.buffer == extent.buffer && other.address == extent.address &&
        other.bufferOffset == extent.bufferOffset && other.interleaved == extent.interleaved &&
        (other.bytes == extent.bytes || extent.interleaved))
      return std::min(other.bytes, extent.bytes);
  return 0;
}

} // namespace

DeadRanges deadRanges(const plan::Plan &plan, const plan::Schedule &schedule) {
  const int64_t steps = static_cast<int64_t>(schedule.steps.size());
  std::vector<Life> lives;
  std::vector<ByteRange> brought; // homes that a change of placement copies to the device
  for (const plan::Extent &extent : plan.placements[schedule.placement].extents)
    if (extent.space == plan::Space::Device) {
      const bool stays = schedule.fromPlacement == plan::kNone;
      plan::Extent kept = extent, rest = extent;
      kept.bytes = stays ? extent.bytes : bytesKept(plan.placements[schedule.fromPlacement], extent);
      rest.bytes -= kept.bytes;
      // What lies between an interleaved extent's blocks are those of the other layers.
      const uint64_t keptEnd = extent.address + plan::spannedBytes(plan, kept);
      if (kept.bytes > 0)
        lives.push_back({{extent.address, keptEnd}, -1, steps});
      rest.address = plan::addressAt(plan, extent, kept.bytes);
      plan::forEachRun(plan, rest, [&](uint64_t begin, uint64_t bytes) { brought.push_back({begin, begin + bytes}); });
    }

  SlotContents slots(lives);
  std::vector<Life> locals(schedule.locals.size(), {{0, 0}, steps, -1});
  for (size_t l = 0; l < locals.size(); ++l)
    if (schedule.locals[l].address != plan::kNowhere)
      locals[l].range = {schedule.locals[l].address, schedule.locals[l].address + schedule.locals[l].buffer.bytes};
  for (const plan::Content &content : plan.states[schedule.entryState].contents)
    slots.write({content.address, content.address + content.bytes}, -1);
  for (int64_t i = 0; i < steps; ++i) {
    const plan::Step &step = schedule.steps[static_cast<size_t>(i)];
    for (uint32_t o = 0; o < step.operandCount; ++o) {
      const plan::Operand &operand = schedule.operands[step.firstOperand + o];
      if (operand.space != plan::Space::Device)
        continue;
      if (operand.buffer >= plan.buffers.size()) {
        Life &local = locals[operand.buffer - plan.buffers.size()];
        local.first = std::min(local.first, i);
        const bool logits =
            step.kind == plan::StepKind::Compute && step.op == kernels::Op::Sample && operand.arg == plan::Arg::X;
        local.last = logits ? steps : std::max(local.last, i);
        continue;
      }
      const bool writes = step.kind == plan::StepKind::Copy && operand.access == plan::Access::Write;
      plan::forEachRun(plan, operand, [&](uint64_t begin, uint64_t bytes) {
        writes ? slots.write({begin, begin + bytes}, i) : slots.use({begin, begin + bytes}, i);
      });
    }
  }
  for (const plan::Content &content : plan.states[schedule.exitState].contents)
    slots.use({content.address, content.address + content.bytes}, steps);
  for (const ByteRange &home : brought)
    slots.use(home, steps);
  slots.endAll();
  lives.insert(lives.end(), locals.begin(), locals.end());

  DeadRanges dead;
  dead.before = without({0, plan.arenaBytes}, lives, -1);
  dead.after.resize(schedule.steps.size());
  for (const Life &life : lives)
    if (life.last >= 0 && life.last < steps)
      for (const ByteRange &range : without(life.range, lives, life.last))
        dead.after[static_cast<size_t>(life.last)].push_back(range);
  return dead;
}

} // namespace headrace::host
