// SPDX-License-Identifier: Apache-2.0
#include "compiler/evaluate/PlayChoice.h"

#include <algorithm>
#include <utility>

#include "compiler/evaluate/Evaluate.h"
#include "compiler/evaluate/Interfere.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/sim/TimedSchedule.h"

namespace headrace::compiler {

Player::Player(Iterations &iterations)
    : iterations_(iterations), plan_(emptyDraft(iterations.request(), iterations.target(), "")) {
  PlanWriter(iterations.layout(), iterations.target(), plan_);
}

core::InUse Player::inUse(const PlayPoint &point) const {
  const Target &target = iterations_.target();
  const int64_t ofOne = (point.context + target.blockTokens - 1) / target.blockTokens;
  const int64_t all = target.actBlocks > 0 ? target.contextBlocks : target.kvBlocks - 1;
  const int64_t longest = std::max<int64_t>(1, ofOne);
  const int64_t sequences = point.blocks > 0 ? (point.blocks - 1) / longest + 1 : point.bucket.sequences;
  const int64_t blocks = std::min(point.blocks > 0 ? point.blocks : sequences * ofOne, all);
  const model::BlocksOfKinds of = model::blocksOfKinds(target.choice.actRatio, blocks, sequences, longest);
  core::InUse inUse;
  inUse.kvBlocks = std::min(of.kv + 1, target.kvBlocks);
  inUse.actBlocks = std::min(of.act, target.actBlocks);
  inUse.rows = point.bucket.tokens;
  inUse.writtenEnd = inUse.kvBlocks;
  if (point.iterationClass == plan::IterationClass::Decode) // the last block of each, and what lies between
    inUse.writtenBegin = std::max<int64_t>(1, of.kv / std::max<int64_t>(1, point.bucket.sequences));
  else if (point.blocks > 0)
    inUse.writtenBegin = std::max<int64_t>(1, inUse.kvBlocks - point.written);
  return inUse;
}

absl::StatusOr<std::vector<Played>> Player::play(const Candidate &candidate, const std::vector<PlayPoint> &points) {
  const model::Hardware &hardware = iterations_.request().hardware;
  const HostLayout host =
      layOutHost({&candidate}, iterations_.layout(), iterations_.target(), iterations_.request().model, /*all=*/true);
  const sim::LinkRates link = sim::linkRates(hardware, /*linkBandwidth=*/0);
  Prices &prices = iterations_.prices();
  std::vector<Played> played(points.size());
  for (const plan::IterationClass iterationClass : iterations_.classes()) {
    const auto playedIn = [&](const PlayPoint &point, bool bringsTails) {
      // With no block of a tail in use, one runs that brings none, where there is one.
      const bool noTails = !point.whole && candidate.residency.firstKvBlockAway().value_or(0) >= inUse(point).kvBlocks;
      return point.iterationClass == iterationClass && noTails != bringsTails;
    };
    const auto asked = [&](const IterationOf &of) {
      return of.iterationClass == iterationClass &&
             std::any_of(points.begin(), points.end(),
                         [&](const PlayPoint &point) { return playedIn(point, of.kvBlocks == 0); });
    };
    if (std::none_of(points.begin(), points.end(),
                     [&](const PlayPoint &of) { return of.iterationClass == iterationClass; }))
      continue;
    ASSIGN_OR_RETURN(placed, moveCandidate(iterations_, candidate, host, asked));
    plan_.placements = {placementOf(iterations_, plan_, placed)};
    std::vector<size_t> phases(points.size(), 0);
    for (size_t i = 0; i < placed.iterations.size(); ++i) {
      const PlacedSchedule made = scheduleOf(iterations_, plan_, placed, i, /*placement=*/0);
      const plan::Schedule &schedule = made.schedule;
      const sim::Simulator simulator(plan_, schedule);
      for (size_t p = 0; p < points.size(); ++p) {
        const PlayPoint &point = points[p];
        const core::InUse used = inUse(point);
        if (!playedIn(point, schedule.kvBlocks == 0))
          continue;
        cost::Bucket rows = point.bucket;
        if (point.sequences > 0) {
          rows.actRows = rows.actRows * point.sequences / rows.sequences;
          rows.sequences = point.sequences;
        }
        std::vector<uint64_t> ns = prices.durations(plan_, schedule, made.sites, rows);
        std::vector<sim::SizedTime> sized;
        if (!point.whole) {
          ASSIGN_OR_RETURN(times, sim::sizedTimes(plan_, schedule, ns, point.bucket.tokens, link));
          sized = std::move(times);
        }
        Played &of = played[p];
        Played now;
        const core::LaunchInUse launch(used);
        std::vector<uint64_t> bytes(schedule.steps.size());
        for (size_t step = 0; step < schedule.steps.size(); ++step)
          bytes[step] = schedule.steps[step].kind == plan::StepKind::Copy ? schedule.steps[step].linkBytes : 0;
        for (const sim::SizedTime &copy : sized) {
          bytes[copy.step] = core::bytesInUse(copy.size, launch);
          ns[copy.step] = copy.nsOf(bytes[copy.step]);
        }
        simulator.run(ns, prices.sharing(), timeline_);
        if (interfere(schedule, prices.interference(), timeline_, ns))
          simulator.run(ns, prices.sharing(), timeline_);
        now.ns = timeline_.iterationNs;
        uint64_t h2d = 0, d2h = 0;
        for (size_t step = 0; step < schedule.steps.size(); ++step) {
          const plan::Lane lane = sim::playedIn(schedule.steps[step].lane, hardware.kind == model::DeviceKind::Host);
          if (lane == plan::Lane::Compute) {
            now.computeNs += ns[step];
            now.layersNs += schedule.steps[step].layer >= 0 ? ns[step] : 0;
          } else if (lane == plan::Lane::Cpu)
            now.cpuNs += ns[step];
          else if (plan::toDevice(lane))
            h2d += ns[step], now.h2dBytes += bytes[step];
          else
            d2h += ns[step], now.d2hBytes += bytes[step];
        }
        now.linkNs = std::max(h2d, d2h);
        of.ns += now.ns;
        of.slowestNs = std::max(of.slowestNs, now.ns);
        of.headNs += timeline_.publishNs;
        of.computeNs += now.computeNs;
        of.layersNs += now.layersNs;
        of.linkNs += now.linkNs;
        of.cpuNs += now.cpuNs;
        of.h2dBytes += now.h2dBytes;
        of.d2hBytes += now.d2hBytes;
        ++phases[p];
      }
    }
    for (size_t p = 0; p < points.size(); ++p)
      if (const size_t n = phases[p]; n > 1)
        for (uint64_t *sum : {&played[p].ns, &played[p].headNs, &played[p].computeNs, &played[p].layersNs,
                              &played[p].linkNs, &played[p].cpuNs, &played[p].h2dBytes, &played[p].d2hBytes})
          *sum /= n;
  }
  return played;
}

} // namespace headrace::compiler
