// SPDX-License-Identifier: Apache-2.0
//
// The KV cache of a request that one instance prefilled, on its way to the one that decodes it, beside the iterations
// of both.
#include <algorithm>
#include <cmath>

#include "runtime/base/StatusMacros.h"
#include "runtime/serve/fleet/FleetImpl.h"

namespace headrace::serve {

namespace {
constexpr double kLooks = 32; // while a hand-over takes what it takes at fair rates
}

double Fleet::Impl::handoverNs(uint64_t blocks, const FleetInstance &from, const FleetInstance &to,
                               double waitNs) const {
  const uint64_t bytes = handoverBytes(to.plan, blocks);
  // What a prefill instance has is one request's, in blocks that follow each other.
  const auto latency = [&](const FleetInstance &on, uint64_t runs) {
    return static_cast<double>(handoverCopies(from.plan, to.plan, blocks, runs)) * on.plan.hardware.copyLatency * 1e9;
  };
  // Behind its tokens the sender still copies, and writes home what is only in its slots.
  plan::LinkBytes tail;
  for (uint32_t p = 0; p < from.plan.placements.size(); ++p) {
    const plan::LinkBytes &of = from.loads.mostTail(p);
    tail.h2d = std::max(tail.h2d, of.h2d);
    tail.d2h = std::max(tail.d2h, of.d2h + (from.loads.copiesBack() ? of.h2d : 0));
  }
  BusStage left, out;
  left.exposedBytes = tail.h2d;
  left.exposedD2hBytes = tail.d2h;
  out.exposedD2hBytes = bytes;
  // Beside iterations half of the link is theirs.
  const double share = waitNs > 0 ? 2 : 1;
  const double outNs = fairNs(out, from.index), inNs = share * fairNs({0, 0, 0, bytes}, to.index);
  const double latencies = latency(from, 1) + share * latency(to, waitNs > 0 ? blocks : 1);
  // Where all slots hold it, portions go out while others come in: whatever the portion up to which the time is that of
  // going out and from which it is that of coming in, these are no more bytes than all and that portion's.
  const auto rounds = static_cast<double>(handoverRounds(from.plan, to.plan, bytes));
  const double portion = static_cast<double>(std::min(bytes, handoverPortion(from.plan, to.plan, bytes)));
  const double flows = rounds > 1
                           ? outNs + inNs
                           : std::max(outNs, inNs) * (1 + portion / static_cast<double>(std::max<uint64_t>(bytes, 1)));
  const double moves = fairNs(left, from.index) + flows + latencies;
  // Copies begin behind the iteration in flight, and what has come is read from the next edge on. What has gone out,
  // and what has come in, is seen at the next look.
  return (moves + (rounds + 1) * waitNs) * (1 + 2 * rounds / kLooks);
}

// The prompts are through; its KV cache stays where it is until it has moved.
absl::Status Fleet::Impl::beginHandover(uint32_t request, FleetInstance &from, int64_t visibleNs) {
  ServedRequest &of = served[request];
  FleetInstance &to = instance(of.decode);
  const uint32_t last = *from.lastVariant;
  of.phase = RequestPhase::Handover;
  of.tokensNs = visibleNs;
  const FleetRequest &a = *of.asked;
  const auto stops = [&](int32_t token) {
    return std::find(a.stopTokens.begin(), a.stopTokens.end(), token) != a.stopTokens.end();
  };
  // Blocks that follow each other here are to do so there as well.
  struct Block {
    int32_t from = 0;
    uint32_t sequence = 0;
    size_t index = 0;
  };
  std::vector<Block> blocks;
  of.blocks.assign(a.prompts.size(), {});
  for (uint32_t s = 0; s < a.prompts.size(); ++s) {
    if (stops(result.requests[request].tokens[s].at(0)))
      continue;
    const auto count =
        static_cast<size_t>(to.spec.runtime->kvBlocks().blocksFor(static_cast<int64_t>(a.prompts[s].size())));
    of.blocks[s].resize(count);
    for (size_t i = 0; i < count; ++i)
      blocks.push_back({from.engine->blocksOf(of.ids[s])[i], s, i});
  }
  std::sort(blocks.begin(), blocks.end(), [](const Block &x, const Block &y) { return x.from < y.from; });
  drain(from, last, handoverBytes(to.plan, blocks.size()));
  if (blocks.empty()) // all have ended with their first token
    return absl::OkStatus();
  std::vector<int32_t> out, in;
  absl::Status grown = to.spec.runtime->kvBlocks().grow(in, static_cast<int64_t>(blocks.size()) * to.plan.blockTokens);
  if (!grown.ok()) {
    of.blocks.clear(); // they were not taken
    return grown;
  }
  std::sort(in.begin(), in.end());
  out.reserve(blocks.size());
  for (size_t i = 0; i < blocks.size(); ++i) {
    out.push_back(blocks[i].from);
    of.blocks[blocks[i].sequence][blocks[i].index] = in[i];
  }
  RETURN_IF_ERROR(to.handover.begin(*from.spec.runtime, out, *to.spec.runtime, in));
  of.lookEveryNs = std::max<int64_t>(1, static_cast<int64_t>(of.handoverNs / kLooks));
  of.lookNs = nowNs();
  return absl::OkStatus();
}

void Fleet::Impl::handOver() {
  for (size_t at = 0; at < alive.size();) {
    const uint32_t request = alive[at];
    const ServedRequest &of = served[request];
    if (of.phase == RequestPhase::Handover)
      if (absl::Status status = advanceHandover(request); !status.ok())
        failHandover(request, status);
    if (of.phase != RequestPhase::Ended)
      ++at;
  }
}

absl::Status Fleet::Impl::advanceHandover(uint32_t request) {
  ServedRequest &of = served[request];
  FleetInstance &to = instance(of.decode);
  if (to.handover.active()) {
    // Where it is to be depends on the placement: not before the change that the start of the request may need.
    ASSIGN_OR_RETURN(there, to.handover.advance(!to.enters || to.unended == 0));
    if (!there) {
      if (of.lookNs <= nowNs())
        of.lookNs = nowNs() + of.lookEveryNs;
      return absl::OkStatus();
    }
    of.lookNs = core::kForeverNs;
    if (to.engine->inFlight() != 0)
      return absl::OkStatus(); // at the edge
    RETURN_IF_ERROR(to.handover.finish());
  }
  return finishHandover(request);
}

absl::Status Fleet::Impl::finishHandover(uint32_t request) {
  ServedRequest &of = served[request];
  FleetInstance &from = instance(of.prefill), &to = instance(of.decode);
  const FleetRequest &a = *of.asked;
  of.running = 0;
  for (uint32_t s = 0; s < of.blocks.size(); ++s) {
    if (of.blocks[s].empty())
      continue;
    const int32_t first = result.requests[request].tokens[s].at(0);
    ASSIGN_OR_RETURN(id, to.engine->submitPrefilled(engineRequest(a, s, a.maxNewTokens, false), first, of.blocks[s]));
    to.members.push_back({id, request, s});
    ++to.unended;
    ++of.running;
  }
  if (from.drainedNs != FleetInstance::kNothing)
    drained(from);
  release(request, from);
  of.prefill = of.decode;
  of.phase = RequestPhase::Decode;
  if (of.joined)
    to.arrivedLate = lostSince(of.dirty, of.losses);
  std::erase(to.wave, request);
  result.requests[request].handoverNs = nowNs() - of.tokensNs;
  deliverFirst(request, nowNs());
  tryQueue = tryQueue || !queue.empty();
  if (of.running == 0) {
    end(request, absl::OkStatus());
    return absl::OkStatus();
  }
  if (of.joined) {
    to.arrived = true;
    return absl::OkStatus();
  }
  return coordinator.firstDone(to.index);
}

// A device that does not do what it is asked is lost, and with it the request; else the request alone.
void Fleet::Impl::failHandover(uint32_t request, const absl::Status &why) {
  const core::Runtime *failed = instance(served[request].decode).handover.failed();
  for (const auto &on : instances)
    if (failed != nullptr && !on->lost && on->spec.runtime == failed)
      lose(*on, why);
  if (served[request].phase != RequestPhase::Ended)
    end(request, why);
}

// It ends before it is there.
void Fleet::Impl::giveUpHandover(ServedRequest &of) {
  FleetInstance &to = instance(of.decode);
  to.handover.abandon();
  for (std::vector<int32_t> &blocks : of.blocks)
    to.spec.runtime->kvBlocks().release(blocks);
  if (FleetInstance &from = instance(of.prefill); from.drainedNs != FleetInstance::kNothing)
    drained(from);
}

} // namespace headrace::serve
