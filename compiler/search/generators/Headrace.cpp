// SPDX-License-Identifier: Apache-2.0
//
// Single units through a ring, as a search finds them (SearchPlacement.h), and beside them the plainest placements:
// any number of whole layers under both rules, in as many slots as the rule asks for and in fewer, with and without the
// embedding and the head; and Select-N's.
//
// In a search over all mechanisms the single units, with all KV on the device: where latency is preferred, what is
// fastest of all that frees what memory lacks; where memory is, or where nothing else holds the objectives, what frees
// the most within them.
#include <algorithm>
#include <optional>

#include "compiler/search/GeneratorInputs.h"
#include "compiler/search/SearchPlacement.h"
#include "compiler/search/Space.h"
#include "compiler/search/generators/Generators.h"
#include "compiler/search/generators/WholeLayers.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/plan/value/PlacementTable.h"

namespace headrace::compiler {
namespace {

std::vector<Candidate> candidates(const GeneratorInputs &in) {
  std::vector<Candidate> found;
  for (const model::StartRule rule : {model::StartRule::Eager, model::StartRule::Paper}) {
    if (in.target.choice.residency.movesBack() && rule != model::StartRule::Eager)
      continue;
    model::Policy any = in.request.policy;
    any.startRule = rule;
    appendNew(found, wholeLayers(any, in.request.model, in.layout));
  }
  if (!in.target.choice.residency.movesBack()) // whose rule is paper
    appendNew(found, kSelectNGenerator.candidates(in));
  return found;
}

constexpr double kPartsOfLimits[] = {1.0, 0.99, 0.97, 0.94}; // what gaps between tokens add to iterations
constexpr int kTries = 3;                                    // a placement may take more beside what is freed

// Single units are of one mini-batch's layer, and of what nobody states.
bool searchesUnits(const Space &space) {
  const model::Policy &asked = space.request().policy;
  const Space::Free &free = space.free();
  return free.layers && free.slots && free.kv && space.origin().miniBatches == 1 && space.origin().actAway == 0 &&
         asked.residuals == model::Residuals::Device && asked.offloadHead != model::AutoOnOff::On &&
         !(space.request().model->tiedEmbeddings && asked.offloadEmbedding == model::AutoOnOff::On);
}

SearchRequest searchRequest(Space &space, const Coordinates &at, bool embedding) {
  return searchRequestOf(space.request(at), space.layout(at), space.target(at), embedding);
}

// The largest of a class that the aim has.
std::optional<PlayPoint> largest(const Aim &aim, plan::IterationClass iterationClass) {
  std::optional<PlayPoint> found;
  for (const AimPoint &point : aim.points)
    if (point.at.iterationClass == iterationClass && (!found || found->bucket.context <= point.at.bucket.context))
      found = point.at;
  return found;
}

// What each of the limits' iterations may take, or a part of that: of a prompt's chunks each its own.
void addLimits(Space &space, const Coordinates &at, double part, SearchRequest &request) {
  const uint32_t slowest = space.prices(at).slowestPermille();
  for (const Limit &limit : space.limits(at)) {
    uint64_t ns = plan::predictedWithin(limitNs(space.objectives(), limit), slowest);
    double weight = 0;
    for (const AimPoint &point : limit.points)
      weight += point.weight;
    ns = std::max<uint64_t>(1, static_cast<uint64_t>(part * static_cast<double>(ns) / weight));
    for (const AimPoint &point : limit.points)
      (limit.decode ? request.decode : request.mixed).push_back({point.at.bucket, ns});
  }
}

// The placement that frees what memory lacks with which the aim's largest iterations, or those that have limits, are
// the fastest, by a common factor of what they take with nothing on the host.
void listFastest(Space &space, const Coordinates &at, bool embedding, bool ofLimits, std::vector<Coordinates> &seeds) {
  const Candidate nothing = space.candidate(at, space.target(at).kvBlocks);
  const uint64_t memory = space.target(at).deviceMemory;
  const auto lacking = [&](const Candidate &candidate) {
    const uint64_t bytes = space.need(at, candidate).bytes;
    return bytes - std::min(bytes, memory);
  };
  uint64_t freed = lacking(nothing);
  if (freed == 0)
    return;
  SearchRequest request = searchRequest(space, at, embedding);
  if (embedding && !request.embedding)
    return;
  std::vector<PlayPoint> points, limited;
  for (const plan::IterationClass of : {plan::IterationClass::Decode, plan::IterationClass::Mixed})
    if (const std::optional<PlayPoint> point = largest(space.aim(at), of))
      points.push_back(*point);
  for (const Limit &limit : space.limits(at))
    for (const AimPoint &point : limit.points)
      limited.push_back(point.at);
  if (ofLimits && limited == points)
    return; // it is listed
  if (ofLimits)
    points = std::move(limited);
  const std::vector<Played> resident = space.resident(at, points);
  for (size_t i = 0; i < points.size(); ++i)
    (points[i].iterationClass == plan::IterationClass::Decode ? request.decode : request.mixed)
        .push_back({points[i].bucket, std::max<uint64_t>(1, resident[i].ns)});
  if (request.decode.empty() && request.mixed.empty())
    return;
  for (int tries = 0; tries < kTries; ++tries) {
    absl::StatusOr<FastestSearched> found = searchFastest(request, freed, space.prices(at));
    if (!found.ok())
      return;
    const uint64_t more = lacking(found->placement.candidate);
    freed += more;
    if (more > 0 && tries + 1 < kTries)
      continue;
    seeds.push_back(at);
    seeds.back().listed = space.list(std::move(found->placement.candidate));
    return;
  }
}

void listMostFreed(Space &space, const Coordinates &at, bool embedding, double part, std::vector<Coordinates> &seeds) {
  SearchRequest request = searchRequest(space, at, embedding);
  if (embedding && !request.embedding)
    return;
  addLimits(space, at, part, request);
  if (request.decode.empty() && request.mixed.empty())
    return;
  const absl::StatusOr<SearchedPlacement> &found = space.searchUnits(at, request);
  if (!found.ok() || found->candidate.offloadsNothing())
    return;
  seeds.push_back(at);
  seeds.back().listed = space.list(found->candidate);
}

// The table of an embedding that is not tied costs next to nothing on the host, but what an objective as short as the
// resident iteration has not.
std::vector<Coordinates> mostFreed(Space &of, const Coordinates &at) {
  std::vector<Coordinates> found;
  if (!searchesUnits(of) || !of.exists(at))
    return found;
  for (const bool embedding : {false, true})
    for (const double part : kPartsOfLimits)
      listMostFreed(of, at, embedding, part, found);
  return found;
}

// The same, until one of them holds the objectives with the memory that there is, or brings too much: others would have
// more blocks of caches leave, and bring no less.
std::vector<Coordinates> mostFreedThatFits(Space &of, const Coordinates &at) {
  std::vector<Coordinates> found;
  if (!searchesUnits(of) || !of.exists(at))
    return found;
  for (const bool embedding : {true, false})
    for (const double part : kPartsOfLimits) {
      const size_t before = found.size();
      listMostFreed(of, at, embedding, part, found);
      if (found.size() == before)
        break;
      const Scored *const scored = of.score(found.back());
      if (scored == nullptr || scored->overBytes > 0 || scored->late <= 0 || !of.mayHold(*scored))
        return found; // less of the time or of the table frees less
    }
  return found;
}

std::vector<Coordinates> seeds(Space &of, const Coordinates &at) {
  if (of.prefersMemory())
    return mostFreed(of, at);
  std::vector<Coordinates> found;
  if (!searchesUnits(of) || !of.exists(at))
    return found;
  for (const bool ofLimits : {false, true}) {
    const size_t before = found.size();
    listFastest(of, at, /*embedding=*/true, ofLimits, found);
    if (found.size() == before)
      listFastest(of, at, /*embedding=*/false, ofLimits, found);
  }
  return found;
}

} // namespace

extern const Generator kHeadraceGenerator;
const Generator kHeadraceGenerator = {
    .name = "headrace",
    .summary = "of all placements the one that frees the most device memory within the objective",
    .order = Order::MostFreed,
    .allowsForSlowest = true,
    .countsGaps = true,
    .searchesUnits = true,
    .splitsCaches = true,
    .colour = 4,
    .candidates = candidates,
    .seeds = seeds,
    .holds = [](const Coordinates &at) { return at.listed > 0; },
};

const Generator kMostFreedGenerator = {
    .name = "units within objectives",
    .summary = "the single units of weights that free the most within the objectives",
    .seeds = mostFreedThatFits,
    .holds = [](const Coordinates &at) { return at.listed > 0; },
};

} // namespace headrace::compiler
