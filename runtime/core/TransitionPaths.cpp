// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/TransitionPaths.h"

#include <algorithm>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "runtime/core/DirtyStates.h"
#include "runtime/plan/value/CacheMap.h"

namespace headrace::core {
namespace {

using Config = TransitionPaths::Config;
using plan::Content;
using plan::kNone;

bool byAddress(const Content &a, const Content &b) { return a.address < b.address; }

// Every byte of `want` is in `have`, which is sorted by address; pieces that follow each other count as one.
bool covers(const std::vector<Content> &have, const Content &want) {
  uint64_t covered = 0;
  auto it = std::upper_bound(have.begin(), have.end(), want, byAddress);
  if (it != have.begin())
    --it;
  for (; it != have.end() && covered < want.bytes && it->address <= want.address + covered; ++it) {
    const uint64_t from = want.address + covered, skip = from - it->address;
    if (skip >= it->bytes)
      continue;
    if (it->buffer != want.buffer || it->bufferOffset + skip != want.bufferOffset + covered)
      return false;
    covered += std::min(want.bytes - covered, it->bytes - skip);
  }
  return covered == want.bytes;
}
bool covers(const std::vector<Content> &have, const std::vector<Content> &want) {
  return std::all_of(want.begin(), want.end(), [&](const Content &content) { return covers(have, content); });
}

// The weights that a placement has at home on the device, by address.
std::vector<Content> homesOf(const plan::Plan &plan, const plan::Placement &placement) {
  std::vector<Content> homes;
  for (const plan::Extent &e : placement.extents)
    if (e.space == plan::Space::Device && plan.buffers[e.buffer].kind == plan::BufferKind::Weight)
      homes.push_back({e.buffer, e.bufferOffset, e.bytes, e.address});
  std::sort(homes.begin(), homes.end(), byAddress);
  return homes;
}

// The KV blocks that `want` has at home on the device, as far as there are such in `have`, are there already.
bool keepsBlocks(const plan::CacheMap &have, const plan::CacheMap &want) {
  return std::min(want.resident(), have.blocks()) <= have.resident();
}

// What each configuration has on the device, and so which of them holds which.
class Holdings {
public:
  // The placement and the state of each configuration, and whether that is dirty.
  Holdings(const plan::Plan &plan, const std::vector<uint32_t> &placementOf, const std::vector<uint32_t> &stateOf,
           const std::vector<bool> &dirty)
      : plan_(plan), placementOf_(placementOf), stateOf_(stateOf), dirty_(dirty), placements_(plan.placements.size()),
        keepsHomes_(placements_ * placements_), all_(placementOf.size()) {
    std::vector<std::vector<Content>> homes;
    for (const plan::Placement &placement : plan.placements)
      homes.push_back(homesOf(plan, placement));
    const std::vector<plan::CacheMap> caches = plan::cacheMaps(plan);
    for (size_t a = 0; a < placements_; ++a)
      for (size_t b = 0; b < placements_; ++b)
        keepsHomes_[a * placements_ + b] = a == b || (keepsBlocks(caches[a], caches[b]) && covers(homes[a], homes[b]));
    for (size_t c = 0; c < all_.size(); ++c) {
      const std::vector<Content> &home = homes[placementOf[c]], &held = plan.states[stateOf[c]].contents;
      std::merge(home.begin(), home.end(), held.begin(), held.end(), std::back_inserter(all_[c]), byAddress);
    }
  }

  bool holds(Config have, Config want) const {
    if (have != want && (dirty_[have] || dirty_[want]))
      return false;
    return keepsHomes_[placementOf_[have] * placements_ + placementOf_[want]] != 0 &&
           covers(all_[have], plan_.states[stateOf_[want]].contents);
  }

private:
  const plan::Plan &plan_;
  const std::vector<uint32_t> &placementOf_, &stateOf_;
  const std::vector<bool> &dirty_;
  size_t placements_;
  std::vector<char> keepsHomes_;          // [have][want]: the homes of `want` are homes of `have`
  std::vector<std::vector<Content>> all_; // of each configuration, homes and slots, by address
};

// An edge of the graph of configurations: a transition, or a free change.
struct Step {
  Config to;
  uint32_t transition;
  uint64_t ns;
};
using Steps = std::vector<std::vector<Step>>; // by the configuration they lead from

// The free changes, and from each configuration the transitions of the plan whose start it holds.
Steps stepsOf(const plan::Plan &plan, const TransitionPaths &paths, const Holdings &holdings, size_t configs) {
  std::vector<std::vector<uint32_t>> starts(configs); // transitions by the configuration they start from
  for (uint32_t t = 0; t < plan.transitions.size(); ++t) {
    const plan::Transition &transition = plan.transitions[t];
    const plan::Schedule &schedule = plan.schedules[transition.schedule];
    const uint32_t placement = schedule.fromPlacement == kNone ? schedule.placement : schedule.fromPlacement;
    starts[paths.config(placement, transition.fromState)].push_back(t);
  }
  Steps steps(configs);
  for (Config have = 0; have < configs; ++have)
    for (Config want = 0; want < configs; ++want) {
      if (!holdings.holds(have, want))
        continue;
      if (have != want)
        steps[have].push_back({want, TransitionPaths::kFree, 0});
      for (const uint32_t t : starts[want]) {
        const plan::Transition &transition = plan.transitions[t];
        const Config to = paths.config(plan.schedules[transition.schedule].placement, transition.toState);
        steps[have].push_back({to, t, transition.predictedNs});
      }
    }
  return steps;
}

// The best way found to a configuration.
struct Reached {
  uint64_t ns = ~uint64_t{0};
  uint32_t launches = ~0u, hops = ~0u;
  uint32_t first = kNone; // the way's first step; kNone: none was found
  Config next = 0;
  bool done = false;
  auto cost() const { return std::tie(ns, launches, hops); }
};

// Dijkstra's algorithm from one configuration, over few enough to look for the nearest one by one. `reached` has one
// entry a configuration.
void findPaths(const Steps &steps, Config from, std::vector<Reached> &reached) {
  std::fill(reached.begin(), reached.end(), Reached());
  reached[from] = {0, 0, 0, TransitionPaths::kFree, from, false};
  for (;;) {
    Reached *nearest = nullptr;
    for (Reached &r : reached)
      if (!r.done && r.first != kNone && (nearest == nullptr || r.cost() < nearest->cost()))
        nearest = &r;
    if (nearest == nullptr)
      return;
    nearest->done = true;
    const auto at = static_cast<Config>(nearest - reached.data());
    for (const Step &step : steps[at]) {
      Reached way = *nearest;
      way.ns += step.ns;
      way.launches += step.transition != TransitionPaths::kFree;
      ++way.hops;
      way.done = false;
      if (at == from) {
        way.first = step.transition;
        way.next = step.to;
      }
      if (Reached &there = reached[step.to]; !there.done && way.cost() < there.cost())
        there = way;
    }
  }
}

} // namespace

absl::Status TransitionPaths::check(const plan::Plan &plan) {
  const size_t configs = plan.placements.size() + plan.states.size() - 1;
  if (configs <= kMostConfigs)
    return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("plan: ", plan.placements.size(), " placements and ",
                                                 plan.states.size(), " states, expected at most ", kMostConfigs,
                                                 " together"));
}

TransitionPaths::TransitionPaths(const plan::Plan &plan) : placements_(static_cast<uint32_t>(plan.placements.size())) {
  std::vector<uint32_t> stateOf(placements_, 0);
  for (uint32_t p = 0; p < placements_; ++p)
    placementOf_.push_back(p);
  dirty_.resize(placements_, false);
  for (uint32_t s = 1; s < plan.states.size(); ++s) {
    placementOf_.push_back(plan.states[s].placement);
    dirty_.push_back(isDirty(plan.states[s]));
    stateOf.push_back(s);
  }
  const size_t configs = placementOf_.size();
  const Steps steps = stepsOf(plan, *this, Holdings(plan, placementOf_, stateOf, dirty_), configs);
  table_.resize(configs * configs);
  std::vector<Reached> reached(configs);
  for (Config from = 0; from < configs; ++from) {
    findPaths(steps, from, reached);
    for (Config to = 0; to < configs; ++to)
      table_[from * configs + to] = {reached[to].first == kNone ? 0 : reached[to].ns, reached[to].first,
                                     reached[to].next};
  }
}

} // namespace headrace::core
