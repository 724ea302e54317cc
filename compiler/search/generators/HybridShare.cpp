// SPDX-License-Identifier: Apache-2.0
#include "compiler/search/generators/HybridShare.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "compiler/choice/Packing.h"
#include "compiler/choice/Resolve.h"
#include "compiler/evaluate/Iterations.h"
#include "kernels/Kernels.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::compiler {
namespace {

constexpr int64_t kSamples = 8;

// How often each op stands in an iteration.
struct CountedSite {
  cost::OpSite site;
  int64_t count = 0;
};
std::vector<CountedSite> countedSites(const std::vector<PricedStep> &steps) {
  std::map<std::pair<int, int>, CountedSite> sites;
  for (const PricedStep &step : steps) {
    CountedSite &counted = sites[{static_cast<int>(step.site.op), static_cast<int>(step.site.unit)}];
    counted.site = step.site;
    ++counted.count;
  }
  std::vector<CountedSite> counted;
  counted.reserve(sites.size());
  for (const auto &[key, site] : sites)
    counted.push_back(site);
  return counted;
}

// Prices of one layer and one mini-batch of the largest decode bucket, with its context cut to eighths.
class Sampler {
public:
  Sampler(const CompileRequest &request, const Target &target, const cost::CostModel &costs,
          const std::vector<PricedStep> &steps)
      : bucket_(Target::limits(target.decode)), costs_(costs), sites_(countedSites(steps)),
        layers_(static_cast<double>(request.model->layers * target.choice.miniBatches)),
        beside_(std::max(1.0, costs.interference().computeFactor)) {}

  const cost::Bucket &bucket() const { return bucket_; }

  // Of so many tokens as whole blocks hold.
  absl::StatusOr<cost::Line> load(const char *what, int64_t blockBytes, int64_t blockTokens) {
    return line(what, [&](const cost::Bucket &bucket) -> cost::TokenSample {
      const int64_t blocks = bucket.sequences * ((bucket.context + blockTokens - 1) / blockTokens);
      return {blocks * blockTokens,
              static_cast<double>(costs_.copyNs(static_cast<uint64_t>(blocks * blockBytes), true))};
    });
  }
  // Copies run beside all that computes.
  absl::StatusOr<cost::Line> compute(const char *what, bool rebuilt) {
    return line(what, [&](cost::Bucket bucket) -> cost::TokenSample {
      const int64_t tokens = bucket.sequences * bucket.context;
      bucket.actRows = rebuilt ? tokens : 0;
      double ns = 0;
      for (const CountedSite &counted : sites_)
        if ((counted.site.op == kernels::Op::RebuildKv) == rebuilt)
          ns += static_cast<double>(counted.count) *
                static_cast<double>(costs_.computeNs(counted.site, bucket, /*direct=*/false));
      return {tokens, ns / layers_ * beside_};
    });
  }

private:
  absl::StatusOr<cost::Line> line(const char *what, const std::function<cost::TokenSample(const cost::Bucket &)> &ns) {
    std::vector<cost::TokenSample> samples;
    for (int64_t eighth = 1; eighth <= kSamples; ++eighth) {
      cost::Bucket bucket = bucket_;
      bucket.context = std::max<int64_t>(1, bucket_.context * eighth / kSamples);
      bucket.actRows = 0;
      samples.push_back(ns(bucket));
    }
    return cost::fitLine(samples, what);
  }

  cost::Bucket bucket_;
  const cost::CostModel &costs_;
  std::vector<CountedSite> sites_;
  double layers_; // times mini-batches
  double beside_;
};

cost::HostCapacity hostOf(const CompileRequest &request, const HybridRoom &room, const cost::BlockBytes &layer) {
  constexpr uint64_t kMost = uint64_t{1} << 62;
  cost::HostCapacity host;
  host.weightBytes = room.weightBytes;
  host.bytes = static_cast<int64_t>(std::min(request.hardware.hostLimit(), kMost));
  if (const auto stated = request.goal.kvHostMemory; stated && *stated < kMost)
    host.bytes = std::min(host.bytes, room.weightBytes + static_cast<int64_t>(*stated));
  host.block = {layer.kv * request.model->layers, layer.act * request.model->layers};
  return host;
}

// "2356 ACT and 1740 KV blocks (0.58: balanced)".
std::string splitText(int64_t act, int64_t kv, const std::string &why) {
  const double all = static_cast<double>(act) + static_cast<double>(kv);
  const std::string share = all > 0 ? absl::StrFormat("%.2f", static_cast<double>(act) / all) : "";
  const std::string between = share.empty() || why.empty() ? "" : ": ";
  return absl::StrCat(act, " ACT and ", kv, " KV blocks (", share, between, why, ")");
}

} // namespace

HybridRoom roomOf(Space &space, const Scored &kvAlone) {
  const Candidate &candidate = kvAlone.candidate;
  const model::ModelSpec &spec = space.request().model;
  const model::WeightLayout &layout = space.layout(kvAlone.at);
  const Target &target = space.target(kvAlone.at);
  HybridRoom room;
  for (const int32_t unit : candidate.residency.weightsAway())
    if (unit != layout.embeddingUnit() || spec.tiedEmbeddings) { // else its rows are read where they are
      const uint64_t bytes = layout.units[static_cast<size_t>(unit)].bytes;
      room.loadWeightsNs += static_cast<double>(space.prices(kvAlone.at).copyNs(bytes, /*hostToDevice=*/true));
      room.weightBytes += static_cast<int64_t>(bytes);
    }
  const uint64_t arena = space.packed(kvAlone.at, candidate), memory = target.deviceMemory;
  const int64_t blocks = candidate.residency.firstKvBlockAway().value_or(target.kvBlocks);
  room.kvDeviceBytes = target.caches(spec.layers) * blocks * static_cast<int64_t>(target.kvBlockBytes);
  room.deviceBytes = static_cast<int64_t>(memory - std::min(memory, arena)) + room.kvDeviceBytes;
  return room;
}

int64_t HybridShare::partOf(int64_t parts) const {
  return blocks == 0 ? 0 : (2 * parts * batch.blocks.act() + blocks) / (2 * blocks);
}

absl::StatusOr<HybridShare> hybridShare(const CompileRequest &asked, const Choice &choice, const HybridRoom &room) {
  const CompileRequest request = asChosen(asked, choice);
  Choice half = choice; // has steps of both kinds
  half.actRatio = model::actRatioOf(1, 1);
  half.residency.setActAway({});
  ASSIGN_OR_RETURN(target, resolve(request, half));
  std::optional<cost::Roofline> roofline;
  const cost::CostModel &costs =
      request.costs ? *request.costs : roofline.emplace(request.model, request.hardware, target.activation, target.kv);
  const model::WeightLayout layout = model::layoutWeights(request.model);
  Prices prices(costs);
  Sampler sampler(request, target, costs, Iterations(request, target, layout, prices).pricedSteps());

  const int64_t layers = request.model->layers, blockTokens = target.blockTokens;
  HybridShare share;
  share.block = {static_cast<int64_t>(target.kvBlockBytes),
                 blockTokens * request.model->hidden * static_cast<int64_t>(model::dtypeBytes(target.activation))};
  cost::HybridTimes one;
  one.blockTokens = blockTokens;
  one.loadWeightsNs = room.loadWeightsNs / static_cast<double>(layers);
  ASSIGN_OR_RETURN(loadKv, sampler.load("copies of KV", share.block.kv, blockTokens));
  ASSIGN_OR_RETURN(loadAct, sampler.load("copies of activations", share.block.act, blockTokens));
  ASSIGN_OR_RETURN(kvGen, sampler.compute("rebuilt KV", true));
  ASSIGN_OR_RETURN(forward, sampler.compute("the forward pass", false));
  one.loadKv = loadKv, one.loadAct = loadAct, one.kvGen = kvGen, one.forward = forward;
  share.times = cost::overMiniBatches(one, target.choice.miniBatches);

  share.blocksPerSequence = (sampler.bucket().context + blockTokens - 1) / blockTokens;
  share.blocks =
      target.choice.miniBatches * std::min(target.contextBlocks, sampler.bucket().sequences * share.blocksPerSequence);
  const cost::HostCapacity host = hostOf(request, room, share.block);
  share.actDevice = room.deviceBytes / host.block.act;
  if (const auto printed = cost::allocatePrinted(share.times, share.actDevice, host); printed.ok())
    share.printed = *printed;
  if (const auto corrected = cost::allocateHybrid(share.times, share.actDevice, host); corrected.ok())
    share.corrected = *corrected;
  cost::SplitLimits limits{std::max<int64_t>(0, host.bytes - host.weightBytes), room.deviceBytes, host.block};
  if (request.goal.kvDeviceMemory) // beside what moves through
    limits.kvDeviceBytes = room.kvDeviceBytes;
  ASSIGN_OR_RETURN(batch, cost::bestSplit(share.times, share.blocks, limits));
  share.batch = batch;
  return share;
}

std::string explainHybridShare(const HybridShare &share) {
  std::string text = "Algorithm 1 over the host's memory: ";
  if (share.printed)
    absl::StrAppend(&text, "as printed ", splitText(share.printed->actHost, share.printed->kvHost, ""));
  else
    absl::StrAppend(&text, "as printed none");
  if (share.corrected)
    absl::StrAppend(&text, ", corrected ",
                    splitText(share.corrected->actHost, share.corrected->kvHost,
                              std::string(cost::bindingName(share.corrected->binding))));
  const cost::HybridBlocks &blocks = share.batch.blocks;
  absl::StrAppend(
      &text, "; over this batch, corrected: ",
      splitText(blocks.act(), blocks.kvHost + blocks.kvDevice, std::string(cost::bindingName(share.batch.binding))),
      ", ", blocks.actDevice, " of ACT and ", blocks.kvDevice, " of KV on the device");
  return text;
}

} // namespace headrace::compiler
