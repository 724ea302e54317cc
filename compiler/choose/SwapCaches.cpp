// SPDX-License-Identifier: Apache-2.0
#include "compiler/choose/SwapCaches.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::compiler {
namespace {

constexpr size_t kTried = 4; // packing may take more than arithmetic says

int64_t ceilOf(uint64_t ns, uint64_t of) {
  return std::max<int64_t>(1, static_cast<int64_t>((ns + of - 1) / std::max<uint64_t>(1, of)));
}

Candidate swapped(Candidate candidate, int64_t layers, int64_t places, algorithms::SwapVisits visits) {
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

} // namespace

algorithms::SwapVisits SwapTimes::visits() const { return {ceilOf(inNs, computeNs), ceilOf(outNs, computeNs), both}; }

uint64_t placeBytes(const Target &target, int64_t blocks) {
  return model::alignUp(static_cast<uint64_t>(blocks) * target.kvBlockBytes);
}

std::optional<uint64_t> placesMemory(const GeneratorInputs &inputs) {
  const Target &target = inputs.target;
  if (target.kvDeviceBytes != uint64_t{0})
    return target.kvDeviceBytes;
  const int64_t places = std::max(target.kvPlaces, model::kLeastKvPlaces);
  return static_cast<uint64_t>(places) * placeBytes(target, target.kvBlocks);
}

SwapTimes swapTimes(const GeneratorInputs &inputs, const std::vector<PricedStep> &steps, Prices &prices,
                    int64_t blocks) {
  // Of as many sequences as there may be, with no more tokens than there is KV.
  cost::Bucket bucket = Target::limits(inputs.target.decode);
  const int64_t tokens = (blocks - 1) * inputs.target.blockTokens;
  bucket.context = std::clamp<int64_t>(tokens / bucket.sequences, 1, bucket.context);
  uint64_t layers = 0;
  for (const PricedStep &step : steps)
    if (step.inLayer)
      layers += prices.computeNs(step.site, bucket, /*direct=*/false);
  const uint64_t bytes = placeBytes(inputs.target, blocks), in = prices.copyNs(bytes, true),
                 out = prices.copyNs(bytes, false);
  const auto both = static_cast<uint64_t>(static_cast<double>(in + out) / prices.duplexShare());
  const double share = prices.duplexShare() / 2; // of each direction's rate
  return {
      layers / static_cast<uint64_t>(inputs.request.model->layers), std::max(in, both), std::max(out, both), in, out,
      std::clamp<int64_t>(std::llround(share * 1000), 1, 1000)};
}

SwappedCaches swappedCaches(const GeneratorInputs &inputs, const std::vector<Candidate> &candidates,
                            algorithms::SwapVisits visits) {
  const int64_t layers = inputs.request.model->layers;
  const std::optional<int64_t> stated = inputs.request.policy.kvPlaces;
  int64_t most = stated.value_or(layers - 1);
  if (const std::optional<uint64_t> memory = placesMemory(inputs))
    most = static_cast<int64_t>(
        std::min<uint64_t>(static_cast<uint64_t>(most), *memory / placeBytes(inputs.target, inputs.target.kvBlocks)));
  SwappedCaches found;
  for (const Candidate &candidate : candidates) {
    if (candidate.residency.start != algorithms::kEager)
      continue;
    int64_t places = most;
    while (places >= 2 && !inputs.family.fits(swapped(candidate, layers, places, visits), inputs.target.deviceMemory))
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

std::vector<Candidate> swapsByExpansion(const GeneratorInputs &inputs, const Candidate &weights, uint64_t bytes,
                                        const std::function<algorithms::SwapVisits(int64_t blocks)> &visitsOf) {
  const Target &target = inputs.target;
  const int64_t layers = inputs.request.model->layers, least = target.meta.maxBlocksPerSequence + 1;
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
    found.push_back(swapped(weights, layers, places, visitsOf(blocks)));
    found.back().name += absl::StrCat(", ", places, " places");
    found.back().kvBlocks = blocks;
    wanted = static_cast<double>(blocks);
    if (last && !found.empty())
      break;
  }
  return found;
}

} // namespace headrace::compiler
