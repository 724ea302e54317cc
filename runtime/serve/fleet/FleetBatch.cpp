// SPDX-License-Identifier: Apache-2.0
//
// Requests that join those that an instance decodes: what it serves with them, in the coordinator's terms, and what it
// serves when some have ended.
#include <algorithm>
#include <limits>

#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/serve/fleet/FleetImpl.h"

namespace headrace::serve {

using model::cat;

BatchWork loneWork(const FleetRequest &asked) {
  BatchWork work;
  for (const std::vector<int32_t> &prompt : asked.prompts)
    work.promptTokens.push_back(static_cast<int64_t>(prompt.size()));
  work.newTokens = asked.maxNewTokens;
  work.mayStopEarly = !asked.stopTokens.empty();
  return work;
}

int64_t Fleet::Impl::blocksFor(const FleetInstance &on, const FleetRequest &a, int64_t newTokens) const {
  int64_t blocks = 0;
  for (const std::vector<int32_t> &prompt : a.prompts)
    blocks += (static_cast<int64_t>(prompt.size()) + newTokens + on.plan.blockTokens - 1) / on.plan.blockTokens;
  return blocks;
}

// The pool gives out the lowest free block, so those of a request are below what was set aside for all at any time that
// it was there.
void Fleet::Impl::countBlocks(FleetInstance &on) {
  int64_t blocks = 0;
  for (const uint32_t r : on.requests)
    blocks += served[r].kvBlocks;
  for (const uint32_t r : on.requests)
    served[r].kvEnd = std::max(served[r].kvEnd, blocks + 1); // block 0 is scratch
}

RunningBatch Fleet::Impl::batchOf(const FleetInstance &on) const {
  RunningBatch batch;
  for (const uint32_t r : on.requests) {
    const ServedRequest &of = served[r];
    const bool decodes = of.phase == RequestPhase::Decode;
    batch.sequences += static_cast<int64_t>(decodes ? of.running : of.asked->prompts.size());
    batch.kvEnd = std::max(batch.kvEnd, of.kvEnd);
    for (const std::vector<int32_t> &prompt : of.asked->prompts) {
      const auto tokens = static_cast<int64_t>(prompt.size());
      batch.context = std::max(batch.context, tokens + of.asked->maxNewTokens - 1);
      if (!decodes && !of.apart())
        batch.joining.push_back(tokens);
    }
    if (!decodes && of.apart()) {
      const uint64_t blocks = of.kvBytes / handoverBytes(on.plan, 1);
      batch.arrivingBytes += of.kvBytes;
      batch.arrivingCopies += handoverCopies(instances[of.prefill]->plan, on.plan, blocks, blocks);
    }
  }
  return batch;
}

// All that the instance serves, as one load; its objectives are the tightest.
absl::StatusOr<BusRequest> Fleet::Impl::loadOf(const FleetInstance &on) const {
  BusRequest load{on.index, std::numeric_limits<double>::max(), 0, {}};
  uint32_t tightest = 0;
  for (const uint32_t r : on.requests)
    if (served[r].asked->tpotNs() < load.sloNs) {
      load.sloNs = served[r].asked->tpotNs();
      tightest = r;
    }
  for (const uint32_t r : on.wave) {
    const double ttft = served[r].asked->ttftNs(), waited = static_cast<double>(nowNs() - result.requests[r].arrivalNs);
    if (!(ttft - waited > 0))
      return absl::ResourceExhaustedError(cat("its TTFT of ", ms(ttft), " ms is spent"));
    if (!served[r].apart() && (load.firstSloNs == 0 || ttft - waited < load.firstSloNs - load.waitedNs)) {
      load.firstSloNs = ttft;
      load.waitedNs = waited;
    }
  }
  load.name = nameOf(on.requests.back());
  if (on.requests.size() > 1)
    load.name += cat(" and ", on.requests.size() - 1, " more, of which ", nameOf(tightest), " has the least TPOT");
  ASSIGN_OR_RETURN(placements, on.loads.placements(batchOf(on), on.spec.runtime->placement()));
  load.placements = std::move(placements);
  return load;
}

// The last of its requests, which is one of the wave, is to run with the others.
absl::Status Fleet::Impl::joinLast(FleetInstance &on) {
  const int64_t seats = on.engine->maxNumSeqs();
  if (const int64_t sequences = batchOf(on).sequences; sequences > seats)
    return absl::ResourceExhaustedError(
        cat("instance ", on.spec.name, " runs ", seats, " sequences at most: with it there were ", sequences));
  int64_t blocks = 0, most = 0;
  for (const uint32_t r : on.requests)
    blocks += served[r].kvBlocks;
  for (const plan::Placement &p : on.plan.placements)
    most = std::max(most, p.kvBlocks - 1);
  if (blocks > most)
    return absl::ResourceExhaustedError(
        cat("instance ", on.spec.name, " has ", most, " KV blocks: with it ", blocks, " were set aside"));
  countBlocks(on);
  ASSIGN_OR_RETURN(load, loadOf(on));
  if (absl::Status refused = coordinator.join(load); !refused.ok()) {
    uint32_t tightest = on.requests.front();
    for (const uint32_t r : on.requests)
      if (served[r].asked->tpotNs() < served[tightest].asked->tpotNs())
        tightest = r;
    if (tightest == on.requests.back())
      return refused;
    return absl::Status(refused.code(), cat(std::string(refused.message()), " (with ", on.requests.size() - 1,
                                            " more; the least TPOT is that of ", nameOf(tightest), ")"));
  }
  on.joinsFrom = on.spec.runtime->placement();
  on.joinsSinceNs = nowNs();
  return absl::OkStatus();
}

// What was set aside for the others counts from now on, whether it joins or not: that is never too little.
absl::Status Fleet::Impl::joinTo(uint32_t request, FleetInstance &on) {
  on.requests.push_back(request);
  on.wave.push_back(request);
  on.waveStarted = false;
  absl::Status status = joinLast(on);
  if (!status.ok()) {
    on.requests.pop_back();
    on.wave.pop_back();
  }
  return status;
}

// Some have ended, or the wave is through: less is to be held.
void Fleet::Impl::shrink(FleetInstance &on) {
  if (!on.batched || on.arrived || !on.wave.empty() || coordinator.state(on.index) != DeviceState::Running)
    return;
  if (absl::StatusOr<BusRequest> load = loadOf(on); load.ok())
    (void)coordinator.update(*load);
  else
    (void)coordinator.firstDone(on.index);
}

// Those that join start together, at an edge, once what the others run leaves room.
void Fleet::Impl::startJoining() {
  for (const auto &i : instances) {
    FleetInstance &on = *i;
    if (on.lost || !on.waveWaits() || !coordinator.joining(on.index) || on.engine->inFlight() != 0 ||
        served[on.wave.front()].apart())
      continue;
    absl::Status failed;
    if (on.joinsFrom != on.spec.runtime->placement()) // it changed its placement meanwhile
      failed = joinLast(on);
    bool starts = false;
    if (failed.ok()) {
      const absl::StatusOr<bool> started = coordinator.start(on.index, static_cast<double>(nowNs() - on.joinsSinceNs));
      failed = started.status();
      starts = started.ok() && *started;
    }
    const std::vector<uint32_t> wave = on.wave;
    if (!failed.ok()) { // each for itself may do better, but where there is no way at all
      coordinator.leaveOut(on.index);
      for (const uint32_t request : wave)
        putBack(request, absl::Status(failed.code(), cat(nameOf(request), ": ", std::string(failed.message()))));
      tryQueue = tryQueue || failed.code() != absl::StatusCode::kUnavailable;
    }
    if (!starts)
      continue;
    on.waveStarted = on.batched = true;
    result.joined += wave.size();
    for (const uint32_t request : wave)
      if (absl::Status status = begin(request); !status.ok())
        end(request, status);
  }
}

} // namespace headrace::serve
