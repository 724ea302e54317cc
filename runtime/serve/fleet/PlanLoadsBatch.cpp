// SPDX-License-Identifier: Apache-2.0
//
// Batches that requests join and leave. Any variant of the placement may have run before any other, as sequences end at
// any time; what runs next is one that holds all sequences at their longest, or takes no longer than that one with the
// transition before it. So the bounds hold for every batch that this one becomes until another request joins.
#include <algorithm>
#include <functional>
#include <limits>

#include "runtime/plan/value/PlacementTable.h"
#include "runtime/serve/fleet/PlanLoads.h"

namespace headrace::serve {

namespace {

int64_t ceilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

} // namespace

PlanLoads::Edge PlanLoads::edgeBefore(const Use &use, uint32_t index, uint32_t variant) const {
  Edge most;
  for (const uint32_t before : variants_.of(index)) {
    if (goesOnElsewhere(before, variant))
      continue;
    const TransitionCost way = path(exitOf(before), entryOf(variant), use.end);
    const plan::LinkBytes tail = before == variant ? plan::LinkBytes{} : use.loads[before].tail;
    most.bytes.h2d = std::max(most.bytes.h2d, way.bytes + tail.h2d);
    most.bytes.d2h = std::max(most.bytes.d2h, way.d2hBytes + tail.d2h);
    most.fixedNs = std::max(most.fixedNs, way.fixedNs);
    most.possible = most.possible && way.possible;
  }
  return most;
}

// The longest gap(u, v) alone on the bus, with `variants` those that hold all sequences.
double PlanLoads::soloNs(const Use &use, uint32_t index, const std::vector<uint32_t> &variants) const {
  const auto predicted = [&](uint32_t v) { return static_cast<double>(variants_.chosenByNs(v)); };
  double longest = 0;
  for (const uint32_t before : variants_.of(index)) {
    double most = 0; // that the one taken takes, with the transition before it
    for (const uint32_t v : variants)
      if (!goesOnElsewhere(before, v))
        most = std::max(most, predicted(v) + nsOf(path(exitOf(before), entryOf(v), use.end)));
    for (const uint32_t taken : variants_.of(index)) {
      const TransitionCost way = path(exitOf(before), entryOf(taken), use.end);
      if (!way.possible || predicted(taken) > most || goesOnElsewhere(before, taken))
        continue;
      const uint64_t own = use.loads[before].tailNs + use.loads[taken].headNs;
      longest = std::max(longest, static_cast<double>(plan::slowestNs(own, permille_[index])) + nsOf(way));
    }
  }
  return longest;
}

// What iterations take while a KV cache arrives beside them, and the one that is the first to read it.
void PlanLoads::addArrival(const Use &use, uint32_t index, const std::vector<uint32_t> &variants,
                           const RunningBatch &batch, Iterations &each) const {
  // Where caches are split, slots are filled anew then.
  for (const uint32_t before : variants_.of(index))
    for (const uint32_t v : variants) {
      if (!variants_.split())
        break;
      const auto none = paths_.config(index, 0);
      const TransitionCost out = path(exitOf(before), none, use.end), in = path(none, entryOf(v), use.end);
      const plan::LinkBytes &tail = use.loads[before].tail;
      each.exposed.h2d = std::max(each.exposed.h2d, tail.h2d + out.bytes + in.bytes);
      each.exposed.d2h = std::max(each.exposed.d2h, tail.d2h + out.d2hBytes + in.d2hBytes);
      each.exposedNs = std::max(each.exposedNs, out.fixedNs + in.fixedNs);
      const uint64_t own = use.loads[before].tailNs + use.loads[v].headNs;
      each.soloNs =
          std::max(each.soloNs, static_cast<double>(plan::slowestNs(own, permille_[index])) + nsOf(out) + nsOf(in));
    }
  // It shares the link half and half with what iterations copy: these lose what it takes, and no more than they take
  // themselves.
  const uint64_t own = each.link.h2d + each.exposed.h2d;
  if (own == 0)
    return;
  const uint64_t lost = std::min(own, batch.arrivingBytes);
  const auto copies = static_cast<double>(std::max(batch.arrivingCopies, variants_.mostCopies()));
  const double latencies = copies * plan_.hardware.copyLatency * 1e9;
  each.exposed.h2d += lost;
  each.exposedNs += latencies;
  each.soloNs += nsOf({.bytes = lost, .fixedNs = latencies});
}

// Tokens of iterations with prompts: of each mixed bucket that has room for all sequences, the largest first, which of
// equal choices is taken: the sooner prompts are through, the sooner others may join. 0: prompts are brought row by
// row, or there are none.
std::vector<int64_t> PlanLoads::budgets(uint32_t index, const RunningBatch &batch) const {
  std::vector<int64_t> budgets;
  if (batch.joining.empty() || mixedTokens_[index] == 0)
    return {0};
  for (const uint32_t v : variants_.of(index)) {
    const plan::Variant &variant = plan_.variants[v];
    if (plan_.schedules[variant.schedule].iterationClass == plan::IterationClass::Mixed &&
        variant.newTokens >= batch.sequences)
      budgets.push_back(variant.newTokens);
  }
  std::sort(budgets.begin(), budgets.end(), std::greater<>());
  budgets.erase(std::unique(budgets.begin(), budgets.end()), budgets.end());
  return budgets;
}

std::optional<BusPlacement> PlanLoads::placement(uint32_t index, const RunningBatch &batch, uint32_t from,
                                                 int64_t budget) const {
  if (batch.kvEnd > plan_.placements[index].kvBlocks)
    return std::nullopt;
  const Use use{variants_.with(batch.kvEnd), batch.kvEnd};
  const auto mixes = [&](uint32_t v) {
    return plan_.schedules[plan_.variants[v].schedule].iterationClass == plan::IterationClass::Mixed;
  };
  // All that may run: a bucket of fewer sequences, or of fewer rows of prompts, may copy more than a larger one. Adds
  // the cheapest of each context; false if nothing holds the longest. `rows`: of iterations with prompts, else 0.
  const auto add = [&](int64_t rows, int64_t sequences, std::vector<uint32_t> &to) {
    for (int64_t context = 1; context <= batch.context;) {
      const auto holds = [&](uint32_t v) {
        const plan::Variant &variant = plan_.variants[v];
        return variants_.serves(v, use.end) && (mixes(v) || rows == 0) && variant.context >= context &&
               variant.sequences >= sequences && variant.newTokens >= std::max(rows, sequences);
      };
      const auto v = std::find_if(variants_.of(index).begin(), variants_.of(index).end(), holds);
      if (v == variants_.of(index).end())
        return false;
      for (const uint32_t phase : variants_.phasesOf(*v))
        if (std::find(to.begin(), to.end(), phase) == to.end())
          to.push_back(phase);
      context = plan_.variants[*v].context + 1; // a cheaper one never begins to hold what grows
    }
    return true;
  };
  std::vector<int64_t> sizes{batch.sequences}; // what fewer sequences are a bucket of
  for (const uint32_t v : variants_.of(index))
    for (const int64_t size : {plan_.variants[v].sequences, plan_.variants[v].newTokens})
      if (size < batch.sequences && std::find(sizes.begin(), sizes.end(), size) == sizes.end())
        sizes.push_back(size);
  std::vector<uint32_t> decodes, prompts;
  for (const int64_t sequences : sizes)
    if (!add(0, sequences, decodes))
      return std::nullopt;
  int64_t iterations = 0; // with rows of prompts
  if (budget > 0) {
    int64_t rows = 0;
    for (const int64_t tokens : batch.joining)
      rows += tokens;
    // All the others may decode while a prompt is brought.
    iterations = ceilDiv(rows, budget - (batch.sequences - 1));
    if (!add(budget, batch.sequences, prompts))
      return std::nullopt;
    for (const uint32_t v : variants_.of(index))
      if (const int64_t fewer = plan_.variants[v].newTokens; mixes(v) && fewer <= budget)
        for (const int64_t sequences : sizes)
          add(fewer, std::min(sequences, fewer), prompts);
  } else if (!batch.joining.empty()) {
    iterations = *std::max_element(batch.joining.begin(), batch.joining.end());
    prompts = decodes;
  }

  const BusRates rate = rates();
  const auto slowest = [&](uint64_t ns) { return static_cast<double>(plan::slowestNs(ns, permille_[index])); };
  bool possible = true;
  const auto worst = [&](absl::Span<const uint32_t> variants) {
    Iterations all;
    for (const uint32_t v : variants) {
      all.computeNs = std::max(all.computeNs, slowest(plan_.variants[v].computeAloneNs));
      all.ns = std::max(all.ns, slowest(use.loads[v].ns));
      all.link.h2d = std::max(all.link.h2d, use.loads[v].bytes.h2d);
      all.link.d2h = std::max(all.link.d2h, use.loads[v].bytes.d2h);
      all.direct = std::max(all.direct, use.loads[v].directBytes);
      const Edge before = edgeBefore(use, index, v);
      all.exposed.h2d = std::max(all.exposed.h2d, before.bytes.h2d);
      all.exposed.d2h = std::max(all.exposed.d2h, before.bytes.d2h);
      all.exposedNs = std::max(all.exposedNs, before.fixedNs);
      possible = possible && before.possible;
    }
    return all;
  };
  const Iterations ofPrompts = worst(prompts);
  std::vector<uint32_t> variants = decodes;
  for (const uint32_t v : prompts)
    if (mixes(v))
      variants.push_back(v);
  Iterations each = worst(variants);
  double shortest = std::numeric_limits<double>::max();
  for (const uint32_t v : variants_.of(index))
    shortest = std::min(shortest, static_cast<double>(plan_.variants[v].computeAloneNs));
  const TransitionCost entered = from == index ? TransitionCost{} : change(from, index);
  if (!possible || !entered.possible)
    return std::nullopt;
  each.soloNs = soloNs(use, index, variants);
  if (batch.arrivingBytes > 0)
    addArrival(use, index, variants, batch, each);

  Iterations first = ofPrompts;
  if (iterations > 0) {
    const auto k = static_cast<double>(iterations);
    first.computeNs *= k;
    first.ns *= k;
    const auto times = static_cast<uint64_t>(iterations);
    first.link = {times * ofPrompts.link.h2d, times * ofPrompts.link.d2h};
    first.direct *= times;
    first.exposed = {entered.bytes + times * ofPrompts.exposed.h2d, entered.d2hBytes + times * ofPrompts.exposed.d2h};
    first.exposedNs = entered.fixedNs + k * ofPrompts.exposedNs;
  }

  BusPlacement p;
  p.placement = index;
  p.budget = budget;
  p.freedBytes = freedBytes_[index];
  p.deviceBytes = deviceBytes_[index];
  setIteration(p, each.stage(rate), each.direct);
  p.shortestNs = shortest;
  p.tokens = static_cast<double>(batch.sequences);
  p.besideBytes = batch.arrivingBytes;
  if (iterations > 0) {
    p.first = first.stage(rate);
    p.besideD2hBytes = first.direct;
  }
  return p;
}

absl::StatusOr<std::vector<BusPlacement>> PlanLoads::placements(const RunningBatch &batch, uint32_t from) const {
  std::vector<BusPlacement> all;
  for (uint32_t p = 0; p < plan_.placements.size(); ++p)
    for (const int64_t budget : budgets(p, batch))
      if (const std::optional<BusPlacement> one = placement(p, batch, from, budget))
        all.push_back(*one);
  if (all.empty())
    return noneFor(batch.sequences, batch.context);
  return all;
}

} // namespace headrace::serve
