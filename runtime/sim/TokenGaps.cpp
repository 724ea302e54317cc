// SPDX-License-Identifier: Apache-2.0
#include "runtime/sim/TokenGaps.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <tuple>

#include "runtime/sim/SimDevice.h"
#include "runtime/sim/Simulator.h"

namespace headrace::sim {

TokenGaps::TokenGaps(const plan::Plan &plan, double linkBandwidth) : plan_(plan), paths_(plan) {
  const model::Hardware &h = plan.hardware;
  const cost::Sharing sharing = cost::sharingOf(h, linkBandwidth);
  Timeline timeline;
  const auto play = [&](uint32_t index, const std::vector<uint64_t> &durationsNs) {
    const plan::Schedule &schedule = plan.schedules[index];
    Simulator(plan, schedule).run(pacedDurations(schedule, durationsNs, h, linkBandwidth), sharing, timeline);
  };
  for (const plan::Variant &variant : plan.variants) {
    play(variant.schedule, variant.durationsNs);
    times_.push_back({timeline.iterationNs, timeline.publishNs});
  }
  for (const plan::Transition &transition : plan.transitions) {
    play(transition.schedule, transition.durationsNs);
    transitionNs_.push_back(timeline.iterationNs);
  }
}

bool TokenGaps::decodes(uint32_t variant) const {
  return plan_.schedules[plan_.variants[variant].schedule].iterationClass == plan::IterationClass::Decode;
}

TokenGaps::Config TokenGaps::entryOf(uint32_t variant) const {
  const plan::Schedule &schedule = plan_.schedules[plan_.variants[variant].schedule];
  return paths_.config(schedule.placement, schedule.entryState);
}

TokenGaps::Config TokenGaps::exitOf(uint32_t variant) const {
  const plan::Schedule &schedule = plan_.schedules[plan_.variants[variant].schedule];
  return paths_.config(schedule.placement, schedule.exitState);
}

std::vector<uint32_t> TokenGaps::path(Config from, Config to) const {
  std::vector<uint32_t> transitions;
  for (Config at = from; at != to; at = paths_.next(at, to))
    if (const uint32_t transition = paths_.transition(at, to); transition != core::TransitionPaths::kFree)
      transitions.push_back(transition);
  return transitions;
}

uint64_t TokenGaps::pathNs(Config from, Config to) const {
  uint64_t ns = 0;
  for (Config at = from; at != to; at = paths_.next(at, to))
    if (const uint32_t transition = paths_.transition(at, to); transition != core::TransitionPaths::kFree)
      ns += transitionNs_[transition];
  return ns;
}

std::optional<uint64_t> TokenGaps::wayNs(uint32_t from, uint32_t to) const {
  const Config begin = exitOf(from), end = entryOf(to);
  if (begin != end && !paths_.reaches(begin, end))
    return std::nullopt;
  return pathNs(begin, end);
}

std::optional<uint64_t> TokenGaps::firstNs(uint32_t placement, uint32_t to) const {
  const Config begin = paths_.config(placement, 0), end = entryOf(to);
  if (begin != end && !paths_.reaches(begin, end))
    return std::nullopt;
  return pathNs(begin, end) + of(to).headNs;
}

// core::VariantTable::cheapest: of those with one entry the fastest, and none that takes longer, its path included,
// than the fastest of all with its own.
std::vector<uint32_t> TokenGaps::servers(uint32_t chosen, Config now, bool anyInUse) const {
  const plan::Variant &bucket = plan_.variants[chosen];
  struct Fastest {
    uint64_t ns, pathNs;
    uint32_t variant;
  };
  std::map<Config, Fastest> byEntry;
  for (uint32_t i = 0; i < plan_.variants.size(); ++i) {
    const plan::Variant &v = plan_.variants[i];
    const Config entry = entryOf(i);
    if (anyInUse && plan_.schedules[v.schedule].kvBlocks != 0)
      continue; // of fewer blocks than may be in use
    if (v.placement != bucket.placement || v.newTokens < bucket.newTokens || v.sequences < bucket.sequences ||
        v.context < bucket.context || (decodes(i) && !decodes(chosen)) || (now != entry && !paths_.reaches(now, entry)))
      continue;
    const Fastest one{v.predictedNs, now == entry ? 0 : paths_.predictedNs(now, entry), i};
    const auto [at, fresh] = byEntry.emplace(entry, one);
    if (!fresh && one.ns < at->second.ns)
      at->second = one;
  }
  const auto fastest = std::min_element(byEntry.begin(), byEntry.end(), [](const auto &a, const auto &b) {
    return std::tie(a.second.ns, a.second.pathNs) < std::tie(b.second.ns, b.second.pathNs);
  });
  std::vector<uint32_t> out;
  for (const auto &[entry, one] : byEntry)
    if (one.ns + one.pathNs <= fastest->second.ns + fastest->second.pathNs)
      out.push_back(one.variant);
  return out;
}

std::vector<uint32_t> TokenGaps::servers(uint32_t chosen, Config now) const {
  std::vector<uint32_t> out = servers(chosen, now, /*anyInUse=*/true);
  for (const uint32_t variant : servers(chosen, now, /*anyInUse=*/false))
    if (std::find(out.begin(), out.end(), variant) == out.end())
      out.push_back(variant);
  return out;
}

std::vector<TokenGaps::Longest> TokenGaps::longest(absl::Span<const uint32_t> chosen) const {
  std::set<Config> left; // what the device may hold when an iteration has ended
  for (uint32_t i = 0; i < plan_.variants.size(); ++i)
    if (std::any_of(chosen.begin(), chosen.end(),
                    [&](uint32_t c) { return plan_.variants[c].placement == plan_.variants[i].placement; }))
      left.insert(exitOf(i));
  std::vector<std::map<Config, std::vector<uint32_t>>> servers(chosen.size());
  std::map<Config, std::vector<Server>> before; // by what it leaves
  for (size_t c = 0; c < chosen.size(); ++c) {
    std::set<uint32_t> any;
    for (const Config now : left) {
      servers[c][now] = this->servers(chosen[c], now);
      any.insert(servers[c][now].begin(), servers[c][now].end());
    }
    // Prompts may have been prefilled apart from those that decode already: anything may follow.
    const int64_t most = decodes(chosen[c]) ? plan_.variants[chosen[c]].sequences : std::numeric_limits<int64_t>::max();
    for (const uint32_t variant : any)
      before[exitOf(variant)].push_back({variant, most});
  }
  std::vector<Longest> out(chosen.size());
  for (size_t c = 0; c < chosen.size(); ++c) {
    if (!decodes(chosen[c]))
      continue;
    for (const auto &[now, froms] : before)
      for (const uint32_t to : servers[c].at(now))
        for (const Server &from : froms)
          if (from.sequences >= plan_.variants[chosen[c]].sequences)
            if (const uint64_t ns = of(from.variant).tailNs() + pathNs(now, entryOf(to)) + of(to).headNs;
                ns > out[c].ns)
              out[c] = {ns, from.variant, to};
  }
  return out;
}

} // namespace headrace::sim
