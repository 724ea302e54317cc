// SPDX-License-Identifier: Apache-2.0
//
// Pie: KV caches on both sides, a layer's swapped whole, first in, first out (passes/algorithms/ScheduleKvSwap.h).
// Weights as stated, or the fewest layers away with which it fits.
//
//   all of KV on the device    beside as many weights as there may be, where what KV takes is not stated
//   places                     as many as fit, or are stated, beside the fewest weights away that leave room for two
//
// Where the expansion is found while the plan runs (sections 3.4 and 4.1) there is a placement for each of several,
// all with the same bytes of the device for KV: what there is of it is shared out among ever fewer places, which are
// ever larger, and so are all layers' caches.
//
//   of 40 layers, 4,000 blocks     40 at home   36 places   31      20
//   blocks of each layer's cache       100          111     129     200      expansion 1, 1.1, 1.3, 2
#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "compiler/choice/AmountText.h"
#include "compiler/search/GeneratorInputs.h"
#include "compiler/search/generators/WholeLayers.h"
#include "passes/algorithms/CycleOf.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::compiler {
namespace {

using algorithms::SwapVisits;

constexpr size_t kTried = 4;          // numbers of places: packing may take more than arithmetic says
constexpr size_t kMostExpansions = 8; // placements
constexpr int64_t kMemoryParts = 256; // of the memory for KV, where less of it is looked for

// Of as many sequences as decode together, with all blocks in use: a layer's compute, and its cache on the link, each
// direction as it is while the other is busy too. Nanoseconds.
struct SwapTimes {
  uint64_t computeNs = 0, inNs = 0, outNs = 0;
  // Each direction alone, and of its rate what it has while the other is busy too, in thousandths.
  uint64_t inAloneNs = 0, outAloneNs = 0;
  int64_t both = 1000;
  // In layers' compute, whole ones, while both directions are busy: swaps begin when a layer does.
  SwapVisits visits() const {
    const auto of = [&](uint64_t ns) {
      return std::max<int64_t>(1, static_cast<int64_t>((ns + computeNs - 1) / std::max<uint64_t>(1, computeNs)));
    };
    return {of(inNs), of(outNs), both};
  }
};

// A layer's cache of so many blocks: the bytes of a place.
uint64_t placeBytes(const Target &target, int64_t blocks) {
  return model::alignUp(static_cast<uint64_t>(blocks) * target.kvBlockBytes);
}

// What places may take of the device, where that is stated: all that KV may; two places where no block is to stay.
std::optional<uint64_t> placesMemory(const Target &target) {
  if (target.kvDeviceBytes != uint64_t{0})
    return target.kvDeviceBytes;
  const int64_t places = std::max(target.kvPlaces, model::kLeastKvPlaces);
  return static_cast<uint64_t>(places) * placeBytes(target, target.kvBlocks);
}

// Of caches of so many blocks.
SwapTimes swapTimes(const GeneratorInputs &in, int64_t blocks) {
  // Of as many sequences as there may be, with no more tokens than there is KV.
  cost::Bucket bucket = Target::limits(in.target.decode);
  const int64_t tokens = (blocks - 1) * in.target.blockTokens;
  bucket.context = std::clamp<int64_t>(tokens / bucket.sequences, 1, bucket.context);
  uint64_t layers = 0;
  for (const PricedStep &step : in.steps)
    if (step.inLayer)
      layers += in.prices.computeNs(step.site, bucket, /*direct=*/false);
  const uint64_t bytes = placeBytes(in.target, blocks), inNs = in.prices.copyNs(bytes, true),
                 outNs = in.prices.copyNs(bytes, false);
  const auto both = static_cast<uint64_t>(static_cast<double>(inNs + outNs) / in.prices.duplexShare());
  const double share = in.prices.duplexShare() / 2; // of each direction's rate
  return {layers / static_cast<uint64_t>(in.request.model->layers),
          std::max(inNs, both),
          std::max(outNs, both),
          inNs,
          outNs,
          std::clamp<int64_t>(std::llround(share * 1000), 1, 1000)};
}

Candidate swapped(Candidate candidate, int64_t layers, int64_t places, SwapVisits visits) {
  algorithms::Residency &residency = candidate.residency;
  if (candidate.offloadsNothing()) // nothing yet to carry over an edge
    residency.wrap.around = true;
  residency.setKvAway(layers, 0);
  residency.kv().setPlaces(places, visits);
  // Layers are swapped, in and out.
  residency.kv().decodeBack = residency.kv().mixedBack = algorithms::WriteBack::All;
  residency.wrap.decode.reset();
  residency.wrap.mixed.reset();
  return candidate;
}

std::vector<Candidate> weightsOf(const GeneratorInputs &in) {
  std::vector<Candidate> found = wholeLayers(in.request.policy, in.request.model, in.layout);
  for (Candidate &candidate : found)
    candidate = alike(std::move(candidate), in.target.choice);
  return found;
}

// Of these, the first of which offloads least, the first that leaves room for two places: with the most places that
// fit, or so many as are stated, then with fewer.
struct SwappedCaches {
  std::vector<Candidate> candidates;
  int64_t most = 0;             // places that there would be room for; 0: not for two, by arithmetic
  std::vector<Candidate> least; // where there is not: each with the fewest places
};
SwappedCaches swappedCaches(const GeneratorInputs &in, const std::vector<Candidate> &weights) {
  const int64_t layers = in.request.model->layers;
  const SwapVisits visits = swapTimes(in, in.target.kvBlocks).visits();
  const std::optional<int64_t> stated = in.request.policy.kvPlaces;
  int64_t most = stated.value_or(layers - 1);
  if (const std::optional<uint64_t> memory = placesMemory(in.target))
    most = static_cast<int64_t>(
        std::min<uint64_t>(static_cast<uint64_t>(most), *memory / placeBytes(in.target, in.target.kvBlocks)));
  SwappedCaches found;
  for (const Candidate &candidate : weights) {
    if (candidate.residency.start != algorithms::kEager)
      continue;
    int64_t places = most;
    while (places >= 2 && !in.family.fits(swapped(candidate, layers, places, visits), in.target.deviceMemory))
      places = stated ? 0 : places - 1;
    found.most = std::max(found.most, places >= 2 ? places : 0);
    for (; places >= 2 && found.candidates.size() < kTried; --places) {
      found.candidates.push_back(swapped(candidate, layers, places, visits));
      if (stated)
        break;
    }
    if (!found.candidates.empty())
      break;
    found.least.push_back(swapped(candidate, layers, stated.value_or(2), visits));
  }
  return found;
}

absl::Status check(const GeneratorInputs &in) {
  const uint64_t place = placeBytes(in.target, in.target.kvBlocks);
  const auto layers = static_cast<uint64_t>(in.request.model->layers);
  const std::optional<int64_t> places = in.request.policy.kvPlaces;
  const std::optional<uint64_t> memory = placesMemory(in.target);
  if (!memory || (*memory / place >= layers && !places))
    return absl::OkStatus();
  const auto refuse = [](absl::string_view key, const absl::AlphaNum &value, const std::string &expected) {
    return absl::InvalidArgumentError(absl::StrCat(key, " = ", value, ": expected ", expected));
  };
  if (*memory / place < 2)
    return refuse("goal.kv_device_memory", *memory,
                  absl::StrCat("at least ", std::min<uint64_t>(model::kLeastKvPlaces, layers) * place, " bytes, ",
                               layers == 1 ? "the layer's cache" : "two places of a layer's cache",
                               ", or 0 for no more than these: policy pie swaps layers whole"));
  if (places && *memory / place < static_cast<uint64_t>(*places))
    return refuse("policy.kv_places", *places,
                  absl::StrCat("at most ", *memory / place, ", what a kv_device_memory of ", *memory,
                               " bytes holds of places of ", place));
  return absl::OkStatus();
}

std::vector<Candidate> candidates(const GeneratorInputs &in) {
  const std::vector<Candidate> all = weightsOf(in);
  const int64_t layers = in.request.model->layers;
  const bool statesPlaces = in.request.policy.kvPlaces.has_value();
  const std::optional<uint64_t> memory = placesMemory(in.target);
  const bool allMayStay =
      memory && !statesPlaces && *memory / placeBytes(in.target, in.target.kvBlocks) >= static_cast<uint64_t>(layers);
  if (allMayStay || layers <= model::kLeastKvPlaces) // no fewer places than layers
    return all;
  std::vector<Candidate> found;
  if (!memory && !statesPlaces) // all of it beside as many weights as there may be
    std::copy_if(all.begin(), all.end(), std::back_inserter(found), [&](const Candidate &candidate) {
      return candidate.residency.weightsAway() == all.front().residency.weightsAway();
    });
  // Where none fits, what takes the least says what would do.
  const SwappedCaches swaps = swappedCaches(in, all);
  const std::vector<Candidate> &more = swaps.candidates.empty() ? swaps.least : swaps.candidates;
  found.insert(found.end(), more.begin(), more.end());
  return found;
}

// With these weights away, a placement for each expansion, fewest blocks first, each as much larger than the one
// before: none that has not got the blocks of one sequence. Empty: `bytes` do not hold one.
std::vector<Candidate> swapsByExpansion(const GeneratorInputs &in, const Candidate &weights, uint64_t bytes) {
  const Target &target = in.target;
  const int64_t layers = in.request.model->layers, least = target.meta.maxBlocksPerSequence + 1;
  // A place holds whole blocks, and begins where one may.
  const auto blocksOf = [&](int64_t places) {
    const uint64_t each = bytes / static_cast<uint64_t>(places) / model::kAlign * model::kAlign;
    return std::min(target.kvBlocks, static_cast<int64_t>(each / target.kvBlockBytes));
  };
  std::vector<Candidate> found;
  if (const int64_t blocks = blocksOf(layers); blocks >= least) {
    found.push_back(weights);
    found.back().name += ", all KV on the device";
    found.back().kvBlocks = blocks;
  }
  // From this number on a placement is worth having.
  double wanted = static_cast<double>(std::max(least, blocksOf(layers)));
  const double ratio =
      std::pow(static_cast<double>(target.kvBlocks) / std::max(1., wanted), 1. / (kMostExpansions - 1));
  for (int64_t places = layers - 1; places >= 2; --places) {
    const int64_t blocks = blocksOf(places);
    const bool last = blocks == target.kvBlocks || places == 2;
    if (blocks < least || (static_cast<double>(blocks) < wanted * ratio && !last))
      continue;
    found.push_back(swapped(weights, layers, places, swapTimes(in, blocks).visits()));
    found.back().name += absl::StrCat(", ", places, " places");
    found.back().kvBlocks = blocks;
    wanted = static_cast<double>(blocks);
    if (last && !found.empty())
      break;
  }
  return found;
}

// One placement for each of several expansions, all with the same bytes of the device for KV.
absl::StatusOr<std::vector<Candidate>> together(const GeneratorInputs &in, size_t nth) {
  const int64_t layers = in.request.model->layers;
  if (in.request.goal.expansion != model::kAutoExpansion || layers <= model::kLeastKvPlaces)
    return std::vector<Candidate>();
  const std::vector<Candidate> all = weightsOf(in);
  std::optional<uint64_t> memory = placesMemory(in.target);
  if (!memory) // as many places of all the KV there may be as fit beside as many weights as there may be
    memory = static_cast<uint64_t>(std::max<int64_t>(2, swappedCaches(in, all).most)) *
             placeBytes(in.target, in.target.kvBlocks);
  std::vector<const Candidate *> eager;
  for (const Candidate &weights : all)
    if (weights.residency.start == algorithms::kEager)
      eager.push_back(&weights);
  if (nth >= eager.size())
    return std::vector<Candidate>();
  const auto swapsIn = [&](int64_t parts) {
    return swapsByExpansion(in, *eager[nth], *memory / kMemoryParts * static_cast<uint64_t>(parts));
  };
  const auto fit = [&](const std::vector<Candidate> &swaps) {
    return swaps.size() >= 2 && std::all_of(swaps.begin(), swaps.end(), [&](const Candidate &candidate) {
             return in.family.fits(candidate, in.target.deviceMemory);
           });
  };
  std::vector<Candidate> swaps = swapsIn(kMemoryParts);
  if (swaps.size() < 2)
    return absl::InvalidArgumentError(
        absl::StrCat("goal.kv_device_memory = ", *memory, ": expected at least ",
                     placeBytes(in.target, in.target.meta.maxBlocksPerSequence + 1) * static_cast<uint64_t>(layers),
                     " bytes where policy pie finds the expansion: ", layers,
                     " layers' caches of one sequence of context ", in.target.context));
  if (fit(swaps))
    return swaps;
  // As much of the memory as leaves room for each of them.
  int64_t fits = 0, doesNot = kMemoryParts;
  while (doesNot - fits > 1) {
    const int64_t middle = fits + (doesNot - fits) / 2;
    (fit(swapsIn(middle)) ? fits : doesNot) = middle;
  }
  return fits > 0 ? swapsIn(fits) : swaps;
}

// Of the paper's protocol, in which swaps go on over the edges of iterations.
std::string protocolText(int64_t layers, int64_t places, const SwapTimes &times) {
  const SwapVisits visits = times.visits();
  const bool shared = times.both < 1000;
  const auto whole = [](uint64_t ns) { return std::max<int64_t>(1, static_cast<int64_t>(ns)); };
  const algorithms::KvSwapProblem problem = {
      static_cast<int32_t>(layers), static_cast<int32_t>(places),
      shared
          ? algorithms::KvSwapTimes{whole(times.computeNs), whole(times.inAloneNs), whole(times.outAloneNs), times.both}
          : algorithms::KvSwapTimes{1, visits.in, visits.out}};
  const bool waits = algorithms::kvSwapWaits(problem);
  std::string text = absl::StrCat("the protocol ", waits ? "waits" : "never waits");
  if (shared)
    absl::StrAppend(&text, ", played on the link that both directions share");
  else if (visits.in == visits.out)
    absl::StrAppend(&text, ", ", visits.in, " x (", layers - places, " + 2) ", waits ? "> " : "<= ", layers - 1);
  return text;
}

// Of the plan, in which they end with their iteration.
std::string planText(const algorithms::Residency &residency, int64_t layers) {
  const algorithms::SwapWay way = algorithms::swapWayOf(residency, layers);
  if (way.turning > 0) {
    const int64_t stay = residency.kv().places() - way.turning;
    const std::string others = stay > 0 ? absl::StrCat(", and ", stay, stay == 1 ? " stays" : " stay") : "";
    return absl::StrCat(
        "; as planned ", stay > 0 ? "" : "all ", layers - stay, " layers take turns in ", way.turning,
        way.turning == 1 ? " place, one comes once another is home" : " places, one goes while another comes", others);
  }
  const std::optional<algorithms::KvSwapCycle> cycle =
      algorithms::kvSwapCycle(algorithms::kvSwapProblem(residency, layers), plan::kMostPhases * 4);
  if (!cycle)
    return "";
  return absl::StrCat("; with no swap over an iteration's edge, as planned, compute ",
                      cycle->waited == 0 ? std::string("never waits")
                                         : absl::StrCat("waits for ", cycle->waited, " layers' time in ", cycle->period,
                                                        " iterations"));
}

// "Caches of 10 of 40 layers are away at a time, ..."
std::string swapText(const GeneratorInputs &in, const algorithms::Residency &residency) {
  const SwapTimes times = swapTimes(in, in.target.kvBlocks);
  const int64_t n = in.request.model->layers, places = residency.kv().places(), m = n - places;
  const SwapVisits visits = times.visits();
  // Of the link: t_swap m = t_compute n.
  const double most = static_cast<double>(times.computeNs) * static_cast<double>(n) /
                      static_cast<double>(std::max<uint64_t>(1, std::max(times.inNs, times.outNs)));
  return absl::StrCat("Caches of ", m, " of ", n, " layers are away at a time, ", places, " places of ",
                      bytesText(placeBytes(in.target, in.target.kvBlocks)),
                      " on the device hold the others and what is under way: expansion ",
                      absl::StrFormat("%.2f", static_cast<double>(n) / static_cast<double>(places)),
                      " (printed: (n + 4) / (n - m + 2) = ",
                      absl::StrFormat("%.2f", static_cast<double>(n + 4) / static_cast<double>(places + 2)),
                      "). A swap takes ", visits.in, visits.in == 1 ? " layer's" : " layers'", " compute in and ",
                      visits.out, " out (", msText(times.inNs), " and ", msText(times.outNs), " of ",
                      msText(times.computeNs), "): ", protocolText(n, places, times), "; the link alone would do for ",
                      absl::StrFormat("%.1f", std::min(most, static_cast<double>(n))), " away", planText(residency, n));
}

// "Expansion is found while the plan runs, among 1.00 (all on the device, 100 blocks a layer), 1.33 (30 places, 133)".
std::string expansionsText(const std::vector<Candidate> &swaps, int64_t layers) {
  std::vector<std::string> each;
  each.reserve(swaps.size());
  for (const Candidate &swap : swaps) {
    const algorithms::Residency &residency = swap.residency;
    const int64_t places = residency.kv().fifo() ? residency.kv().places() : layers;
    each.push_back(
        absl::StrCat(absl::StrFormat("%.2f", static_cast<double>(layers) / static_cast<double>(places)), " (",
                     residency.kv().fifo() ? absl::StrCat(places, " places") : std::string("all on the device"), ", ",
                     swap.kvBlocks, each.empty() ? " blocks a layer)" : ")"));
  }
  return absl::StrCat("Expansion is found while the plan runs, among ", absl::StrJoin(each, ", "));
}

std::string why(const GeneratorInputs &in, const std::vector<Candidate> &placements) {
  if (placements.size() > 1)
    return expansionsText(placements, in.request.model->layers);
  const algorithms::Residency &residency = placements.front().residency;
  return residency.kv().fifo() ? swapText(in, residency) : "";
}

} // namespace

extern const Generator kPieGenerator;
const Generator kPieGenerator = {
    .name = "pie",
    .summary = "Pie: where KV caches do not fit, layers' caches are swapped whole, first in, first out",
    .statesPlacement = true,
    .onePlacement = true,
    .splitsCaches = true,
    .swapsLayers = true,
    .colour = 12,
    .check = check,
    .candidates = candidates,
    .together = together,
    .why = why,
};

} // namespace headrace::compiler
