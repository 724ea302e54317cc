// SPDX-License-Identifier: Apache-2.0
#include "compiler/evaluate/Draft.h"

#include <algorithm>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "compiler/evaluate/PlanTransitions.h"
#include "compiler/evaluate/PlanWriter.h"
#include "runtime/plan/value/BlockRuns.h"

namespace headrace::compiler {
namespace {

// Compares what both have, field by field, and says where the first difference is.
class Comparison {
public:
  std::string run(const plan::Plan &draft, const plan::Plan &compiled) {
    transient_ = static_cast<uint32_t>(compiled.buffers.size());
    same("plan", "arena_bytes", draft.arenaBytes, compiled.arenaBytes);
    same("plan", "host_bytes", draft.hostBytes, compiled.hostBytes);
    same("plan", "kv_blocks", draft.kvBlocks, compiled.kvBlocks);
    each("placement", draft.placements, compiled.placements, [&](const auto &a, const auto &b) { placement(a, b); });
    each("state", draft.states, compiled.states, [&](const plan::State &a, const plan::State &b) {
      same(at_, "placement", a.placement, b.placement);
      same(at_, "contents", sameContents(a.contents, b.contents), true);
    });
    each("schedule", draft.schedules, compiled.schedules, [&](const auto &a, const auto &b) { schedule(a, b); });
    each("variant", draft.variants, compiled.variants, [&](const plan::Variant &a, const plan::Variant &b) {
      same(at_, "schedule", a.schedule, b.schedule);
      same(at_, "tokens",
           std::tie(a.newTokens, a.sequences, a.context) == std::tie(b.newTokens, b.sequences, b.context), true);
      times(a.durationsNs, b.durationsNs, a.predictedNs, b.predictedNs);
    });
    each("transition", draft.transitions, compiled.transitions,
         [&](const plan::Transition &a, const plan::Transition &b) {
           same(at_, "states",
                std::tie(a.fromState, a.toState, a.schedule) == std::tie(b.fromState, b.toState, b.schedule), true);
           times(a.durationsNs, b.durationsNs, a.predictedNs, b.predictedNs);
         });
    return std::move(difference_);
  }

private:
  template <class T> void same(const std::string &where, const char *what, const T &draft, const T &compiled) {
    if (difference_.empty() && draft != compiled)
      difference_ = absl::StrCat(where, ": ", what, " ", compiled, ", the draft has ", draft);
  }
  template <class T, class Visit>
  void each(const char *what, const std::vector<T> &draft, const std::vector<T> &compiled, Visit &&visit) {
    same("plan", absl::StrCat(what, "s").c_str(), draft.size(), compiled.size());
    for (size_t i = 0; i < draft.size() && difference_.empty(); ++i) {
      at_ = absl::StrCat(what, " ", i);
      visit(draft[i], compiled[i]);
    }
  }

  void times(const std::vector<uint64_t> &draftNs, const std::vector<uint64_t> &compiledNs, uint64_t draftAll,
             uint64_t compiledAll) {
    const auto differ = std::mismatch(draftNs.begin(), draftNs.end(), compiledNs.begin(), compiledNs.end());
    if (differ.first != draftNs.end() && differ.second != compiledNs.end())
      same(at_, absl::StrCat("durations_ns of step ", differ.first - draftNs.begin()).c_str(), *differ.first,
           *differ.second);
    same(at_, "steps", draftNs.size(), compiledNs.size());
    same(at_, "predicted_ns", draftAll, compiledAll);
  }

  void placement(const plan::Placement &draft, const plan::Placement &compiled) {
    const std::string at = at_;
    same(at, "name", draft.name, compiled.name);
    same(at, "kv_blocks", draft.kvBlocks, compiled.kvBlocks);
    same(at, "extents", draft.extents.size(), compiled.extents.size());
    for (size_t i = 0; i < draft.extents.size() && difference_.empty(); ++i) {
      const plan::Extent &a = draft.extents[i], &b = compiled.extents[i];
      const std::string extent = absl::StrCat(at, ", extent ", i);
      same(extent, "buffer", a.buffer, b.buffer);
      same(extent, "space", static_cast<int>(a.space), static_cast<int>(b.space));
      same(extent, "direct", a.direct, b.direct);
      same(extent, "buffer_offset", a.bufferOffset, b.bufferOffset);
      same(extent, "bytes", a.bytes, b.bytes);
      same(extent, "address", a.address, b.address);
      same(extent, "interleaved", a.interleaved, b.interleaved);
    }
    same(at, "slots", draft.slots.size(), compiled.slots.size());
    for (size_t i = 0; i < draft.slots.size() && difference_.empty(); ++i) {
      same(absl::StrCat(at, ", slot ", i), "address", draft.slots[i].address, compiled.slots[i].address);
      same(absl::StrCat(at, ", slot ", i), "bytes", draft.slots[i].bytes, compiled.slots[i].bytes);
    }
  }

  static std::vector<std::tuple<uint64_t, uint64_t, uint64_t>> placesOf(const plan::Schedule &schedule) {
    std::vector<std::tuple<uint64_t, uint64_t, uint64_t>> places;
    for (const plan::Local &local : schedule.locals)
      places.emplace_back(local.address, local.hostAddress, local.buffer.bytes);
    std::sort(places.begin(), places.end());
    return places;
  }

  void schedule(const plan::Schedule &draft, const plan::Schedule &compiled) {
    const std::string at = at_;
    same(at, "name", draft.name, compiled.name);
    same(at, "entry_state", draft.entryState, compiled.entryState);
    same(at, "exit_state", draft.exitState, compiled.exitState);
    same(at, "kv_blocks", draft.kvBlocks, compiled.kvBlocks);
    same(at, "limits",
         std::tie(draft.maxTokens, draft.maxSequences, draft.maxContext) ==
             std::tie(compiled.maxTokens, compiled.maxSequences, compiled.maxContext),
         true);
    same(at, "phase", draft.phase, compiled.phase);
    same(at, "period", draft.period, compiled.period);
    same(at, "steps", draft.steps.size(), compiled.steps.size());
    for (size_t i = 0; i < draft.steps.size() && difference_.empty(); ++i)
      step(absl::StrCat(at, ", step ", i), draft, draft.steps[i], compiled, compiled.steps[i]);
    same(at, "edges", draft.edges.size(), compiled.edges.size());
    for (size_t i = 0; i < draft.edges.size() && difference_.empty(); ++i) {
      const plan::Edge &a = draft.edges[i], &b = compiled.edges[i];
      same(absl::StrCat(at, ", edge ", i), "from", a.from, b.from);
      same(absl::StrCat(at, ", edge ", i), "to", a.to, b.to);
      const auto overwrites =
          [](plan::EdgeKind kind) { // whether that was read or written the addresses of compute tell
            return kind == plan::EdgeKind::Waw ? plan::EdgeKind::War : kind;
          };
      same(absl::StrCat(at, ", edge ", i), "kind", static_cast<int>(overwrites(a.kind)),
           static_cast<int>(overwrites(b.kind)));
    }
    if (draft.iterationClass != plan::IterationClass::Transition)
      same(at, "locals", placesOf(draft) == placesOf(compiled), true);
  }

  void step(const std::string &at, const plan::Schedule &in, const plan::Step &draft, const plan::Schedule &of,
            const plan::Step &compiled) {
    same(at, "kind", static_cast<int>(draft.kind), static_cast<int>(compiled.kind));
    same(at, "lane", static_cast<int>(draft.lane), static_cast<int>(compiled.lane));
    same(at, "op", static_cast<int>(draft.op), static_cast<int>(compiled.op));
    same(at, "part", static_cast<int>(draft.part), static_cast<int>(compiled.part));
    same(at, "layer", draft.layer, compiled.layer);
    same(at, "mini_batch", static_cast<int>(draft.miniBatch), static_cast<int>(compiled.miniBatch));
    same(at, "direct", draft.direct, compiled.direct);
    same(at, "resizable", draft.resizable, compiled.resizable);
    same(at, "dirty_only", draft.dirtyOnly, compiled.dirtyOnly);
    same(at, "flops", draft.flops, compiled.flops);
    same(at, "device_bytes", draft.deviceBytes, compiled.deviceBytes);
    same(at, "link_bytes", draft.linkBytes, compiled.linkBytes);
    if (draft.kind != plan::StepKind::Copy || compiled.operandCount != 2)
      return;
    for (uint32_t i = 0; i < 2; ++i) {
      const plan::Operand &a = in.operands[draft.firstOperand + i], &b = of.operands[compiled.firstOperand + i];
      same(at, "operand's buffer", std::min(a.buffer, transient_), std::min(b.buffer, transient_)); // in another order
      same(at, "operand's space", static_cast<int>(a.space), static_cast<int>(b.space));
      same(at, "operand's buffer_offset", a.bufferOffset, b.bufferOffset);
      same(at, "operand's bytes", a.bytes, b.bytes);
      same(at, "operand's address", a.address, b.address);
    }
  }

  std::string at_, difference_;
  uint32_t transient_ = 0; // the first of a schedule's own buffers
};

} // namespace

void closePlan(Prices &prices, PlanWriter &writer) {
  plan::Plan &plan = writer.plan();
  addTransitions(writer, prices, plan);
  const auto key = [&](const plan::Variant &v) {
    return std::tuple(v.placement, v.newTokens, v.sequences, v.context,
                      plan::kvBlocksOf(plan, plan.schedules[v.schedule]), plan.schedules[v.schedule].phase);
  };
  std::sort(plan.variants.begin(), plan.variants.end(),
            [&](const plan::Variant &a, const plan::Variant &b) { return key(a) < key(b); });
}

std::string differenceFrom(const plan::Plan &draft, const plan::Plan &compiled) {
  return Comparison().run(draft, compiled);
}

} // namespace headrace::compiler
