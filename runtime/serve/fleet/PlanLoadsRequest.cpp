// SPDX-License-Identifier: Apache-2.0
//
// A request that has an instance to itself.
#include <algorithm>
#include <limits>

#include "runtime/plan/value/PlacementTable.h"
#include "runtime/serve/fleet/PlanLoads.h"

namespace headrace::serve {

using core::TransitionPaths;

namespace {
constexpr double kNs = 1e9;
}

// As the engine composes them with Prefill::Separate: prompts alone, until no prompt has more than one token left; from
// then on those that are through decode beside them.
std::optional<std::vector<uint32_t>> PlanLoads::prefillVariants(int64_t kvBlocks, uint32_t placement,
                                                                const BatchWork &batch) const {
  const std::vector<int64_t> &prompts = batch.promptTokens;
  std::vector<int64_t> rows(prompts.size(), 0);
  std::vector<uint32_t> variants;
  for (;;) {
    const auto left = [&](size_t s) { return std::max<int64_t>(0, prompts[s] - rows[s]); };
    int64_t longest = 0;
    for (size_t s = 0; s < rows.size(); ++s)
      longest = std::max(longest, left(s));
    if (longest == 0)
      return variants;
    Bucket bucket;
    const auto add = [&](size_t s, int64_t count) {
      rows[s] += count;
      bucket.tokens += count;
      ++bucket.sequences;
      bucket.context = std::max(bucket.context, rows[s]);
    };
    std::vector<size_t> reading;
    for (size_t s = 0; s < rows.size(); ++s) {
      if (left(s) > 0)
        reading.push_back(s);
      else if (longest == 1 && rows[s] - prompts[s] + 1 < batch.newTokens) // it has so many of its tokens
        add(s, 1);
    }
    for (const size_t s : reading) {
      const int64_t most = mixedTokens_[placement];
      const int64_t chunk = most == 0 ? std::min<int64_t>(left(s), 1) : std::min(left(s), most - bucket.tokens);
      if (chunk > 0)
        add(s, chunk);
    }
    if (bucket.tokens == 0)
      return std::nullopt; // no room for any of them
    const std::optional<uint32_t> variant = cheapest(kvBlocks, placement, bucket);
    if (!variant)
      return std::nullopt;
    variants.push_back(*variant);
  }
}

// One of each that the growing context goes through.
std::optional<std::vector<uint32_t>> PlanLoads::decodeVariants(int64_t kvBlocks, uint32_t placement,
                                                               const BatchWork &batch) const {
  const auto sequences = static_cast<int64_t>(batch.promptTokens.size());
  const int64_t longest = *std::max_element(batch.promptTokens.begin(), batch.promptTokens.end());
  std::vector<uint32_t> variants;
  for (int64_t context = longest + 1; context < longest + batch.newTokens;) {
    const std::optional<uint32_t> variant = cheapest(kvBlocks, placement, {sequences, sequences, context});
    if (!variant)
      return std::nullopt;
    variants.push_back(*variant);
    // A cheaper one never begins to hold what grows.
    context = plan_.variants[*variant].context + 1;
  }
  return withPhases(std::move(variants));
}

std::vector<uint32_t> PlanLoads::withEarlier(std::vector<uint32_t> variants, int64_t kvBlocks) const {
  for (size_t i = 0, end = variants.size(); i < end; ++i)
    if (const std::optional<uint32_t> earlier = variants_.withoutTails(variants[i]);
        earlier && !variants_.serves(*earlier, kvBlocks))
      variants.push_back(*earlier);
  return variants;
}

int64_t PlanLoads::inUseBetween(uint32_t before, uint32_t after, const BatchWork &batch, int64_t end) const {
  const int64_t limit = plan_.schedules[plan_.variants[before].schedule].kvBlocks;
  const bool begins = limit > 0 && plan_.schedules[plan_.variants[after].schedule].kvBlocks == 0;
  return begins ? std::min(end, limit + static_cast<int64_t>(batch.promptTokens.size())) : end;
}

// The longest gap(u, v) between iterations of a request alone on the bus. To spare a transition the runtime may take
// another variant than the fastest that holds the size, one that takes no longer than that with its transition
// (core::VariantTable); which then is what the next gap begins with.
double PlanLoads::soloNs(const Use &use, uint32_t index, const BatchWork &batch, const std::vector<uint32_t> &tokens,
                         const std::vector<uint32_t> &prompts) const {
  const int64_t least = batch.mayStopEarly ? 1 : static_cast<int64_t>(batch.promptTokens.size());
  const int64_t context = *std::max_element(batch.promptTokens.begin(), batch.promptTokens.end()) + 1;
  const auto predicted = [&](uint32_t v) { return static_cast<double>(variants_.chosenByNs(v)); };
  std::vector<uint32_t> befores = batch.mayStopEarly ? variants_.of(index) : withEarlier(tokens, use.end);
  const auto add = [&](uint32_t v) {
    if (std::find(befores.begin(), befores.end(), v) == befores.end())
      befores.push_back(v);
  };
  if (!prompts.empty()) {
    double wayNs = 0; // to the last of the prompts, from whatever another one leaves
    for (uint32_t before : variants_.of(index))
      wayNs = std::max(wayNs, nsOf(path(exitOf(before), entryOf(prompts.back()))));
    for (uint32_t v : variants_.of(index))
      if (predicted(v) <= predicted(prompts.back()) + wayNs &&
          plan_.schedules[plan_.variants[v].schedule].iterationClass == plan::IterationClass::Mixed)
        add(v);
    for (const uint32_t v : withEarlier(withPhases({prompts.back()}), use.end))
      add(v);
  }
  double longest = 0;
  for (size_t at = 0; at < befores.size(); ++at) { // grows
    const uint32_t before = befores[at];
    for (uint32_t v : tokens) {
      if (goesOnElsewhere(before, v))
        continue;
      const double most =
          predicted(v) + nsOf(path(exitOf(before), entryOf(v), inUseBetween(before, v, batch, use.end)));
      for (uint32_t taken : variants_.of(index)) {
        const plan::Variant &t = plan_.variants[taken];
        const int64_t between = inUseBetween(before, taken, batch, use.end);
        const TransitionCost way = path(exitOf(before), entryOf(taken), between);
        const VariantLoads::Loads &loads = between < use.end ? variants_.with(between) : use.loads;
        if (t.newTokens < least || t.sequences < least || t.context < context || !way.possible ||
            predicted(taken) > most || goesOnElsewhere(before, taken))
          continue;
        add(taken);
        const uint64_t own = use.loads[before].tailNs + loads[taken].headNs;
        longest = std::max(longest, static_cast<double>(plan::slowestNs(own, permille_[index])) + nsOf(way));
      }
    }
  }
  return longest;
}

std::optional<BusPlacement> PlanLoads::placement(uint32_t index, const BatchWork &batch, Role role, uint32_t from,
                                                 uint64_t kvBytes) const {
  const BusRates rate = rates();
  const bool decodes = role != Role::Prefill && batch.newTokens > 1, prefills = role != Role::Decode;
  int64_t blocks = 0; // of its KV cache, to its end
  for (int64_t prompt : batch.promptTokens)
    blocks += (prompt + (role == Role::Prefill ? 1 : batch.newTokens) + plan_.blockTokens - 1) / plan_.blockTokens;
  if (blocks > plan_.placements[index].kvBlocks - 1)
    return std::nullopt;
  // One request at a time has a device: its blocks are the lowest, behind the scratch block.
  const Use use{variants_.with(blocks + 1), blocks + 1};
  std::optional<std::vector<uint32_t>> prompts, tokens;
  if (prefills && !(prompts = prefillVariants(use.end, index, batch)))
    return std::nullopt;
  if (decodes && !(tokens = decodeVariants(use.end, index, batch)))
    return std::nullopt;
  bool possible = true;
  const auto change = [&](Iterations &to, const TransitionCost &cost) {
    to.exposed.h2d += cost.bytes;
    to.exposed.d2h += cost.d2hBytes;
    to.exposedNs += cost.fixedNs;
    possible = possible && cost.possible;
  };

  const auto slowest = [&](uint64_t ns) { return static_cast<double>(plan::slowestNs(ns, permille_[index])); };
  const auto add = [&](Iterations &to, uint32_t v) {
    to.ns = std::max(to.ns, slowest(use.loads[v].ns));
    to.link.h2d = std::max(to.link.h2d, use.loads[v].bytes.h2d);
    to.link.d2h = std::max(to.link.d2h, use.loads[v].bytes.d2h);
    to.direct = std::max(to.direct, use.loads[v].directBytes);
  };
  Iterations first;
  first.exposed = mostTail_[from]; // of the request before
  double shortestPrompts = 0;
  TransitionPaths::Config state = paths_.config(from, 0);
  if (prefills) {
    for (uint32_t v : *prompts) {
      Iterations one; // the worst of its phases
      double shortest = std::numeric_limits<double>::max();
      uint32_t enters = v;
      for (const uint32_t phase : variants_.phasesOf(v)) {
        shortest = std::min(shortest, static_cast<double>(plan_.variants[phase].computeAloneNs));
        one.computeNs = std::max(one.computeNs, slowest(plan_.variants[phase].computeAloneNs));
        add(one, phase);
        enters = entryOf(phase) == state ? phase : enters;
      }
      shortestPrompts += shortest;
      first.computeNs += one.computeNs;
      first.ns += one.ns;
      first.link.h2d += one.link.h2d;
      first.link.d2h += one.link.d2h;
      first.direct += one.direct;
      change(first, path(state, entryOf(enters)));
      state = exitOf(enters);
    }
  } else {
    change(first, path(state, tokens && !tokens->empty() ? entryOf(tokens->front()) : paths_.config(index, 0)));
    first.exposed.h2d += kvBytes;
  }

  Iterations each;
  double shortest = std::numeric_limits<double>::max();
  if (decodes) {
    for (uint32_t v : *tokens) {
      const plan::Variant &variant = plan_.variants[v];
      each.computeNs = std::max(each.computeNs, slowest(variant.computeAloneNs));
      add(each, v);
      shortest = std::min(shortest, static_cast<double>(variant.computeAloneNs));
      // After whatever may run before it.
      const auto after = [&](uint32_t before) {
        if (goesOnElsewhere(before, v))
          return;
        Iterations one;
        if (before != v)
          one.exposed = use.loads[before].tail;
        const int64_t between = inUseBetween(before, v, batch, use.end);
        change(one, path(exitOf(before), entryOf(v), between));
        // Where it begins to bring tails it brings less of them than at the request's end: by so much it is shorter.
        double sparedNs =
            static_cast<double>(use.loads[v].ns - std::min(use.loads[v].ns, variants_.with(between)[v].ns));
        const double sparedOfChange = std::min(sparedNs, one.exposedNs);
        one.exposedNs -= sparedOfChange;
        sparedNs -= sparedOfChange;
        one.exposed.h2d -= std::min(one.exposed.h2d, static_cast<uint64_t>(sparedNs * rate.h2d / kNs));
        each.exposed.h2d = std::max(each.exposed.h2d, one.exposed.h2d);
        each.exposed.d2h = std::max(each.exposed.d2h, one.exposed.d2h);
        each.exposedNs = std::max(each.exposedNs, one.exposedNs);
      };
      for (uint32_t before : batch.mayStopEarly ? variants_.of(index) : withEarlier(*tokens, use.end))
        after(before);
      if (prefills)
        for (uint32_t before : withEarlier(withPhases({prompts->back()}), use.end))
          after(before);
    }
    if (batch.mayStopEarly)
      for (uint32_t v : variants_.of(index))
        shortest = std::min(shortest, static_cast<double>(plan_.variants[v].computeAloneNs));
  }
  if (decodes)
    each.soloNs = soloNs(use, index, batch, *tokens, prefills ? *prompts : std::vector<uint32_t>());
  // Of split caches slots hold nothing when these were handed over: the first iteration brings it.
  if (decodes && kvBytes > 0 && variants_.split())
    for (uint32_t v : *tokens) {
      const TransitionCost in = path(paths_.config(index, 0), entryOf(v), use.end);
      change(each, {.bytes = in.bytes - std::min(in.bytes, each.exposed.h2d),
                    .fixedNs = std::max(0.0, in.fixedNs - each.exposedNs),
                    .possible = in.possible});
      const auto head = static_cast<double>(plan::slowestNs(use.loads[v].headNs, permille_[index]));
      each.soloNs = std::max(each.soloNs, head + nsOf(in));
    }
  if (!possible)
    return std::nullopt;

  BusPlacement p;
  p.placement = index;
  p.freedBytes = freedBytes_[index];
  p.deviceBytes = deviceBytes_[index];
  setIteration(p, decodes ? each.stage(rate) : first.stage(rate), decodes ? each.direct : first.direct);
  p.shortestNs = decodes ? shortest : shortestPrompts;
  p.tokens = static_cast<double>(batch.promptTokens.size());
  if (decodes) {
    p.first = first.stage(rate);
    p.besideD2hBytes = first.direct;
  }
  if (role == Role::Prefill)
    p.besideD2hBytes += kvBytes;
  return p;
}

absl::StatusOr<std::vector<BusPlacement>> PlanLoads::placements(const BatchWork &batch, Role role, uint32_t from,
                                                                uint64_t kvBytes) const {
  std::vector<BusPlacement> all;
  for (uint32_t p = 0; p < plan_.placements.size(); ++p)
    if (const std::optional<BusPlacement> one = placement(p, batch, role, from, kvBytes))
      all.push_back(*one);
  if (!all.empty())
    return all;
  return noneFor(static_cast<int64_t>(batch.promptTokens.size()),
                 *std::max_element(batch.promptTokens.begin(), batch.promptTokens.end()) + batch.newTokens - 1);
}

} // namespace headrace::serve
