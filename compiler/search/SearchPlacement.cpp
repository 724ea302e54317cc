// SPDX-License-Identifier: Apache-2.0
#include "compiler/search/SearchPlacement.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "compiler/evaluate/MemoryUse.h"
#include "compiler/evaluate/Placements.h"
#include "compiler/evaluate/Steps.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::compiler {
namespace {

// Whether the search may offload a unit: those of layers, and the head that is not tied.
bool isSearched(const SearchRequest &request, const model::Unit &unit) {
  const auto index = static_cast<int32_t>(&unit - request.layout->units.data());
  if (!request.only.empty() && std::find(request.only.begin(), request.only.end(), index) == request.only.end())
    return false;
  return unit.layer >= 0 || (unit.role == model::UnitRole::Head && !request.model->tiedEmbeddings && request.head);
}

std::string goalText(const char *name, const BucketGoal &goal) {
  return absl::StrCat(name, " of ", goal.bucket.tokens, " tokens, ", goal.bucket.sequences, " sequences at context ",
                      goal.bucket.context);
}

// The table of a tied embedding is the head's operand as well: no unit to be read directly alone.
bool embeddingAway(const SearchRequest &request) { return request.embedding && !request.model->tiedEmbeddings; }

// What the embedding frees beside the units that are searched.
uint64_t embeddingBytes(const SearchRequest &request) {
  return embeddingAway(request) ? request.layout->units[static_cast<size_t>(request.layout->embeddingUnit())].bytes : 0;
}

// The times of one class.
absl::StatusOr<algorithms::ScheduleTimes> scheduleTimes(const SearchRequest &request,
                                                        plan::IterationClass iterationClass,
                                                        const std::vector<BucketGoal> &goals, Prices &prices) {
  std::vector<cost::Bucket> buckets;
  buckets.reserve(goals.size());
  for (const BucketGoal &goal : goals)
    buckets.push_back(goal.bucket);
  const Steps steps = stepsOf(
      {request.model, request.layout, request.target, request.deviceKind, iterationClass, Target::limits(buckets)});
  algorithms::ScheduleTimes times;
  const MemoryUse use = memoryUseOf(steps);
  int64_t before = -1;
  for (size_t i = 0; i < use.units.size(); ++i) {
    if (!isSearched(request, request.layout->units[i]))
      continue;
    const MemoryUse::Unit &unit = use.units[i];
    if (unit.firstUse <= before)
      return absl::InternalError(absl::StrCat("unit ", request.layout->units[i].name, " is used out of order"));
    before = unit.lastUse;
    times.uses.push_back({static_cast<uint32_t>(unit.firstUse), static_cast<uint32_t>(unit.lastUse)});
  }
  for (const BucketGoal &goal : goals) {
    algorithms::ScheduleTimes::Bucket &timed = times.buckets.emplace_back();
    timed.sloNs = goal.sloNs;
    for (const Step &step : steps.steps)
      timed.computeNs.push_back(
          prices.computeNs(step.site(), goal.bucket, embeddingAway(request) && step.op == kernels::Op::Embed));
  }
  return times;
}

uint64_t shortestGoal(const algorithms::UnitProblem &problem) {
  uint64_t slo = std::numeric_limits<uint64_t>::max();
  for (const algorithms::ScheduleTimes &schedule : problem.schedules)
    for (const algorithms::ScheduleTimes::Bucket &bucket : schedule.buckets)
      slo = std::min(slo, bucket.sloNs);
  return slo;
}

// Of layers' units: the most bytes whose copies, each with its start-up, take `ns` together; those that are copied best
// first, the last one cut off.
uint64_t limitBytes(const algorithms::UnitProblem &problem, double ns) {
  std::vector<std::pair<double, double>> units; // bytes, ns
  for (const algorithms::OffloadableUnit &unit : problem.units)
    if (unit.layer >= 0)
      units.emplace_back(static_cast<double>(unit.bytes),
                         static_cast<double>(std::max<uint64_t>(1, problem.copyNs(unit.bytes))));
  std::sort(units.begin(), units.end(),
            [](const auto &a, const auto &b) { return a.first * b.second > b.first * a.second; });
  double bytes = 0;
  for (const auto &[size, copy] : units) {
    bytes += size * std::min(1.0, ns / copy);
    ns -= copy;
    if (ns <= 0)
      break;
  }
  return static_cast<uint64_t>(bytes);
}

// What fills the link within the shortest goal: 97% of what it can copy in that time. Where that is less than four
// layers, so that single units count: all of it but the smallest unit, the largest gap there is between sums of units;
// and then more of what is freed is given for it.
// `limits`: SearchLimits or a ChainGoal. `factor`: of every goal.
template <typename Limits> void preferFull(const algorithms::UnitProblem &problem, double factor, Limits &limits) {
  const double goal = factor * static_cast<double>(shortestGoal(problem));
  uint64_t smallest = std::numeric_limits<uint64_t>::max(), all = 0;
  int64_t layers = 0;
  for (const algorithms::OffloadableUnit &unit : problem.units) {
    if (unit.layer < 0)
      continue;
    smallest = std::min(smallest, unit.bytes);
    all += unit.bytes;
    layers = std::max<int64_t>(layers, unit.layer + 1);
  }
  const auto limit = static_cast<double>(limitBytes(problem, goal));
  const double layer = static_cast<double>(all) / static_cast<double>(layers);
  if (limit >= static_cast<double>(all))
    return;
  if (limit >= 4 * layer) {
    limits.full = static_cast<uint64_t>(0.97 * limit);
  } else {
    // Of the smallest units, whose copies' start counts most.
    const double small =
        goal * static_cast<double>(smallest) / static_cast<double>(std::max<uint64_t>(1, problem.copyNs(smallest)));
    limits.full = static_cast<uint64_t>(std::max(0.0, small - static_cast<double>(smallest)));
    limits.enough = 0.9;
  }
}

// `units`: of the problem. `ns`: of the shortest goal.
LinkUse linkUse(const algorithms::UnitProblem &problem, const std::vector<uint32_t> &units, double ns,
                uint64_t mostBytes) {
  LinkUse use;
  uint64_t all = 0, smallest = std::numeric_limits<uint64_t>::max();
  double copies = 0;
  for (const algorithms::OffloadableUnit &unit : problem.units)
    if (unit.layer >= 0) {
      all += unit.bytes;
      smallest = std::min(smallest, unit.bytes);
    }
  for (const uint32_t unit : units) {
    use.movedBytes += problem.units[unit].bytes;
    copies += static_cast<double>(problem.copyNs(problem.units[unit].bytes));
  }
  use.limitBytes = limitBytes(problem, ns);
  if (use.limitBytes >= all)
    use.bound = SearchBound::Weights;
  else if (mostBytes - std::min(mostBytes, use.movedBytes) < smallest)
    use.bound = SearchBound::Host;
  else if (use.limitBytes - std::min(use.limitBytes, use.movedBytes) < smallest)
    use.bound = SearchBound::Unit;
  else
    use.bound = copies >= 0.97 * ns ? SearchBound::Link : SearchBound::Ring;
  return use;
}

// The first goal that is missed with nothing offloaded.
absl::Status tooShort(const SearchRequest &request, const algorithms::UnitProblem &problem) {
  size_t schedule = 0;
  for (const auto &[name, goals] : {std::pair("decode", &request.decode), std::pair("mixed", &request.mixed)}) {
    if (goals->empty())
      continue;
    for (size_t i = 0; i < goals->size(); ++i) {
      uint64_t least = 0;
      for (const uint64_t ns : problem.schedules[schedule].buckets[i].computeNs)
        least += ns;
      if (least > (*goals)[i].sloNs)
        return absl::ResourceExhaustedError(absl::StrCat(goalText(name, (*goals)[i]), " cannot be done in ",
                                                         (*goals)[i].sloNs, " ns: it takes ", least,
                                                         " ns with nothing offloaded"));
    }
    ++schedule;
  }
  return absl::OkStatus();
}

// `factor`: of every goal.
SearchedPlacement described(const SearchRequest &request, const PlacementProblem &asked,
                            const algorithms::UnitPlacement &placed, double factor = 1) {
  SearchedPlacement found;
  std::vector<int32_t> units;
  for (const uint32_t unit : placed.units)
    units.push_back(asked.units[unit]);
  const bool nothing = units.empty();
  found.candidate = alike(placementOfUnits(units, placed.ringBytes), request.target->choice);
  algorithms::Wrap &wrap = found.candidate.residency.wrap;
  if (embeddingAway(request)) {
    units.push_back(request.layout->embeddingUnit());
    found.candidate.residency.setWeightsAway(units);
  }
  if (nothing) {
    found.candidate.name = "none";
    wrap = {};
  }
  size_t schedule = 0;
  if (!request.decode.empty()) {
    if (!nothing)
      wrap.decode = placed.timing.cuts[schedule];
    found.decodeNs = placed.timing.ns[schedule++];
  }
  if (!request.mixed.empty()) {
    if (!nothing)
      wrap.mixed = placed.timing.cuts[schedule];
    found.mixedNs = placed.timing.ns[schedule];
  }
  found.link = linkUse(asked.problem, placed.units, factor * static_cast<double>(shortestGoal(asked.problem)),
                       request.mostBytes);
  found.ringBytes = placed.ringBytes;
  found.freedBytes = placed.freedBytes;
  found.freedBytes += embeddingBytes(request);
  return found;
}

} // namespace

SearchRequest searchRequestOf(const CompileRequest &request, const model::WeightLayout &layout, const Target &target,
                              bool embedding) {
  const uint64_t host = request.hardware.hostLimit();
  const uint64_t table = layout.units[static_cast<size_t>(layout.embeddingUnit())].bytes;
  SearchRequest asked;
  asked.model = &*request.model;
  asked.layout = &layout;
  asked.target = &target;
  asked.deviceKind = request.hardware.kind;
  asked.embedding = embedding && request.policy.offloadEmbedding != model::AutoOnOff::Off && table <= host;
  asked.head = request.policy.offloadHead != model::AutoOnOff::Off;
  asked.mostBytes = host - (asked.embedding && !request.model->tiedEmbeddings ? table : 0);
  return asked;
}

absl::StatusOr<PlacementProblem> placementProblem(const SearchRequest &request, Prices &prices) {
  if (request.decode.empty() && request.mixed.empty())
    return absl::InvalidArgumentError("a placement is searched for at least one bucket");
  PlacementProblem found;
  for (const auto &[iterationClass, goals] : {std::pair(plan::IterationClass::Decode, &request.decode),
                                              std::pair(plan::IterationClass::Mixed, &request.mixed)}) {
    if (goals->empty())
      continue;
    absl::StatusOr<algorithms::ScheduleTimes> times = scheduleTimes(request, iterationClass, *goals, prices);
    if (!times.ok())
      return times.status();
    found.problem.schedules.push_back(*std::move(times));
  }
  const model::WeightLayout &layout = *request.layout;
  for (size_t i = 0; i < layout.units.size(); ++i)
    if (isSearched(request, layout.units[i])) {
      found.units.push_back(static_cast<int32_t>(i));
      found.problem.units.push_back(
          {layout.units[i].bytes, layout.units[i].layer, static_cast<int32_t>(layout.units[i].role)});
    }
  found.problem.copyNs = [&prices](uint64_t bytes) { return prices.copyNs(bytes, /*hostToDevice=*/true); };
  found.problem.alignment = model::kAlign;
  return found;
}

absl::StatusOr<LinkUse> linkUse(const SearchRequest &request, const std::vector<int32_t> &units, Prices &prices) {
  const absl::StatusOr<PlacementProblem> asked = placementProblem(request, prices);
  if (!asked.ok())
    return asked.status();
  std::vector<uint32_t> of;
  for (size_t i = 0; i < asked->units.size(); ++i)
    if (std::find(units.begin(), units.end(), asked->units[i]) != units.end())
      of.push_back(static_cast<uint32_t>(i));
  return linkUse(asked->problem, of, static_cast<double>(shortestGoal(asked->problem)), request.mostBytes);
}

absl::StatusOr<SearchedPlacement> searchPlacement(const SearchRequest &request, Prices &prices) {
  const absl::StatusOr<PlacementProblem> asked = placementProblem(request, prices);
  if (!asked.ok())
    return asked.status();
  RETURN_IF_ERROR(tooShort(request, asked->problem));
  algorithms::SearchLimits limits;
  limits.mostBytes = request.mostBytes;
  preferFull(asked->problem, 1, limits);
  if (limits.full > limits.mostBytes)
    limits.full = 0;
  const std::optional<algorithms::UnitPlacement> placed = algorithms::searchUnits(asked->problem, limits);
  if (!placed)
    return absl::InternalError("the search refused goals that nothing offloaded would meet");
  return described(request, *asked, *placed);
}

absl::StatusOr<FastestSearched> searchFastest(const SearchRequest &request, uint64_t leastFreed, Prices &prices) {
  const absl::StatusOr<PlacementProblem> asked = placementProblem(request, prices);
  if (!asked.ok())
    return asked.status();
  const algorithms::UnitProblem &problem = asked->problem;
  const uint64_t beside = embeddingBytes(request);
  uint64_t link = 0, all = 0, largest = 0;
  for (const algorithms::OffloadableUnit &unit : problem.units) {
    link += problem.copyNs(unit.bytes);
    all += unit.bytes;
    if (unit.layer >= 0)
      largest = std::max(largest, unit.bytes);
  }
  // No factor below `low` can be met; with `high` compute may wait for every copy, and as if nothing overlapped.
  double low = 0, high = 0;
  for (const algorithms::ScheduleTimes &schedule : problem.schedules)
    for (const algorithms::ScheduleTimes::Bucket &bucket : schedule.buckets) {
      uint64_t compute = 0;
      for (const uint64_t ns : bucket.computeNs)
        compute += ns;
      if (bucket.sloNs == 0)
        return absl::InvalidArgumentError("goals to be stretched are above 0 ns");
      const auto slo = static_cast<double>(bucket.sloNs);
      low = std::max(low, static_cast<double>(compute) / slo);
      high = std::max(high, (static_cast<double>(compute) + 2 * static_cast<double>(link)) / slo);
    }
  const uint64_t least = leastFreed - std::min(leastFreed, beside);
  const std::optional<algorithms::FastestPlacement> fastest =
      algorithms::searchFastest(problem, least, low * 1.0000001, high + 1e-6);
  if (!fastest)
    return absl::ResourceExhaustedError(
        absl::StrCat("no placement frees ", leastFreed, " bytes of ", request.model->name, ": the units of its layers",
                     " and its head take ", all, " and need a ring of at least ", largest));
  return FastestSearched{fastest->factor, described(request, *asked, fastest->placed, fastest->factor)};
}

absl::StatusOr<std::vector<ChainedPlacement>>
searchChain(const SearchRequest &request, const std::vector<ChainStep> &steps, Prices &prices, double mostLoss) {
  if (steps.empty())
    return absl::InvalidArgumentError("a chain has at least one step");
  ChainStep before{0, 0};
  for (const ChainStep &step : steps) {
    if (!(step.factor > 0) || step.factor < before.factor || step.factor > 1e6)
      return absl::InvalidArgumentError(absl::StrCat("factors of a chain's steps are positive and do not fall, got ",
                                                     step.factor, " behind ", before.factor));
    if (step.mostBytes < before.mostBytes)
      return absl::InvalidArgumentError(
          absl::StrCat("the bytes of a chain's steps do not fall, got ", step.mostBytes, " behind ", before.mostBytes));
    before = step;
  }
  SearchRequest tightest = request;
  for (std::vector<BucketGoal> *goals : {&tightest.decode, &tightest.mixed})
    for (BucketGoal &goal : *goals)
      goal.sloNs = static_cast<uint64_t>(static_cast<double>(goal.sloNs) * steps[0].factor);
  const absl::StatusOr<PlacementProblem> asked = placementProblem(request, prices);
  if (!asked.ok())
    return asked.status();
  RETURN_IF_ERROR(tooShort(tightest, asked->problem));
  std::vector<algorithms::ChainGoal> goals;
  for (const ChainStep &step : steps) {
    goals.push_back({step.factor, std::min(request.mostBytes, step.mostBytes)});
    preferFull(asked->problem, step.factor, goals.back());
    goals.back().leastFreed = step.leastFreed - std::min(step.leastFreed, embeddingBytes(request));
  }
  std::vector<ChainedPlacement> chain;
  for (const algorithms::ChainLink &link : algorithms::searchChain(asked->problem, goals, mostLoss)) {
    if (!link.placed)
      return absl::InternalError("the search refused goals that nothing offloaded would meet");
    chain.push_back({described(request, *asked, *link.placed, steps[chain.size()].factor), link.nested, link.share});
  }
  return chain;
}

} // namespace headrace::compiler
