// SPDX-License-Identifier: Apache-2.0
#include "compiler/search/Choices.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/choice/Packing.h"
#include "compiler/choice/Resolve.h"
#include "compiler/search/Aim.h"
#include "passes/algorithms/PickLayers.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::compiler {

using algorithms::WriteBack;

Choices::Choices(const CompileRequest &request, const model::WeightLayout &layout, const Generator *inOrder)
    : request_(request), layout_(layout), inOrder_(inOrder),
      oneCut_(inOrder == nullptr && (request.goal.tpot || request.goal.sloFactor) &&
              request.goal.instances == model::Instances::Together),
      weightEncodings_(allowedWeights(request)), kvEncodings_(allowedKv(request)) {
  const model::Policy &policy = request.policy;
  const bool tied = request.model->tiedEmbeddings;
  free_.embedding =
      policy.offloadEmbedding == model::AutoOnOff::Auto && (!tied || policy.offloadHead == model::AutoOnOff::Auto);
  free_.head = policy.offloadHead == model::AutoOnOff::Auto && !tied; // else it is the embedding
  free_.slots = !policy.slots;
  free_.kvSlots = !policy.kvPlaces && !request.goal.expansion;
  free_.writeBack = policy.kvWriteBack == model::KvWriteBack::Auto;
  free_.kv = !request.goal.kvDeviceMemory && !request.goal.expansion;
  free_.miniBatches = request.goal.autoMiniBatches;
  const model::Goal &goal = request.goal;
  // Where they may stand beside what is stated (Capabilities.h), and are smaller than keys and values.
  const bool actsMay = !request.model->isStage() && !goal.expansion && !policy.kvPlaces &&
                       goal.elasticKv != model::AutoOnOff::On && goal.instances == model::Instances::Together &&
                       model::Encoding(activationOf(request)).bytes(1, request.model->hidden) <
                           kvEncodingOf(request).bytes(2 * request.model->kvHeads, request.model->headDim);
  free_.act = policy.actRatio ? policy.actRatio->isAuto() : actsMay;
  free_.actAway = policy.actHome == model::ActHome::Auto;
  free_.weightEncodings = static_cast<int64_t>(weightEncodings_.size());
  free_.kvEncodings = static_cast<int64_t>(kvEncodings_.size());
  free_.attention = policy.attention == model::Attention::Auto;
  free_.chunk = hasPrompts(goal) && request.buckets.newTokens.empty();
  if (inOrder == nullptr)
    return;
  free_.layers = free_.embedding = free_.head = free_.slots = false;
  free_.kv &= inOrder->splitsCaches && !policy.statesPlacement() && !inOrder->swapsLayers;
  free_.kvSlots &= !inOrder->swapsLayers; // layers have places, and go home whole
  free_.writeBack &= !inOrder->swapsLayers;
  free_.act = policy.actRatio && policy.actRatio->isAuto();
  free_.chunk &= inOrder->seeksChunk;
  free_.actStep = 1;
}

Coordinates Choices::origin() const {
  const model::Policy &policy = request_.policy;
  Coordinates at;
  at.miniBatches = request_.goal.autoMiniBatches ? 1 : request_.goal.miniBatches;
  at.embedding = policy.offloadEmbedding == model::AutoOnOff::On ||
                 (request_.model->tiedEmbeddings && policy.offloadHead == model::AutoOnOff::On);
  at.head = policy.offloadHead == model::AutoOnOff::On && !request_.model->tiedEmbeddings;
  at.slots = policy.slots.value_or(2);
  at.attendsOnCpu = policy.attention == model::Attention::Cpu;
  at.decodeDirty = at.mixedDirty = policy.kvWriteBack == model::KvWriteBack::Dirty;
  at.allBack = policy.kvWriteBack == model::KvWriteBack::All;
  if (policy.actHome == model::ActHome::Host)
    at.actAway = request_.model->layers;
  return at;
}

std::vector<Coordinates> Choices::origins() const {
  std::vector<Coordinates> origins;
  for (int64_t weights = 0; weights < free_.weightEncodings; ++weights)
    for (int64_t kv = 0; kv < free_.kvEncodings; ++kv) {
      origins.push_back(origin());
      origins.back().weightEncoding = weights;
      origins.back().kvEncoding = kv;
      if (!free_.attention)
        continue;
      origins.push_back(origins.back());
      origins.back().attendsOnCpu = true;
    }
  return origins;
}

int64_t Choices::nextMiniBatches(int64_t count, int64_t way) const {
  const std::vector<int64_t> &sequences = request_.buckets.sequences;
  const int64_t batch = request_.goal.batch.value_or(sequences.empty() ? 1 : sequences.back());
  for (int64_t next = count + way; next >= 1 && next <= batch; next += way)
    if (batch % next == 0)
      return next;
  return count;
}

bool Choices::actsMayLeave(const Coordinates &at) const {
  return free_.actAway && (free_.act || inOrder_ != nullptr) && common(at).actRatio.any();
}

Choice Choices::common(const Coordinates &at) const {
  Choice choice = askedChoice(request_);
  choice.miniBatches = at.miniBatches;
  choice.largestChunk = at.chunk;
  choice.attendsOnCpu = at.attendsOnCpu;
  choice.encodings.weights = weightEncodings_[static_cast<size_t>(at.weightEncoding)];
  choice.encodings.kv = kvEncodings_[static_cast<size_t>(at.kvEncoding)];
  if (free_.act)
    choice.actRatio = model::actRatioOf(at.actParts, kActParts - at.actParts);
  if (choice.actRatio.any())
    choice.residency.setActAway(algorithms::evenLayers(request_.model->layers, at.actAway));
  return choice;
}

int64_t Choices::list(Candidate weights) {
  const auto same =
      std::find_if(listed_.begin(), listed_.end(), [&](const Candidate &of) { return of.samePlacement(weights); });
  if (same != listed_.end())
    return same - listed_.begin() + 1;
  listed_.push_back(std::move(weights));
  return static_cast<int64_t>(listed_.size());
}

Candidate Choices::weights(const Coordinates &at, const Choice &common) const {
  if (at.listed > 0) {
    Candidate listed = alike(listed_[static_cast<size_t>(at.listed - 1)], common);
    if (algorithms::Wrap &wrap = listed.residency.wrap; oneCut_ && wrap.around) {
      wrap.oneCut = true;
      if (wrap.decode && !wrap.mixed) // cut for decode alone
        wrap.mixed = wrap.decode;
    }
    return listed;
  }
  const int64_t layers = request_.model->layers;
  Candidate candidate;
  if (at.layers == 0) {
    candidate.name = at.embedding || at.head ? "layers 0" : "none";
  } else if (layers % at.layers == 0) {
    candidate.interval = static_cast<int32_t>(layers / at.layers);
    candidate.name = absl::StrCat("interval ", candidate.interval);
  } else {
    candidate.name = absl::StrCat("layers ", at.layers);
  }
  std::vector<int32_t> units =
      unitsOfLayers(layout_, candidate.interval > 0 ? algorithms::intervalLayers(layers, candidate.interval)
                                                    : algorithms::spreadLayers(layers, at.layers));
  const bool tied = request_.model->tiedEmbeddings;
  if (at.embedding)
    units.insert(units.begin(), layout_.embeddingUnit());
  if (at.head && !tied)
    units.push_back(layout_.headUnit());
  algorithms::Residency &residency = candidate.residency;
  residency.setWeightsAway(units);
  if (at.layers > 0 || at.head || (at.embedding && tied)) { // something moves
    residency.wrap.around = at.wraps;
    residency.wrap.oneCut = at.wraps && oneCut_;
    residency.weights().setSlots(at.slots);
  }
  return alike(std::move(candidate), common);
}

void Choices::setTails(const Coordinates &at, int64_t resident, Candidate &candidate) const {
  algorithms::Residency &residency = candidate.residency;
  // Where a sequence takes a new block, what the iteration before has brought of a tail is not all of it: it is brought
  // again, which a gap that is held to an objective has no time for.
  if (inOrder_ == nullptr)
    residency.wrap.around = at.wraps && !oneCut_;
  else if (candidate.offloadsNothing()) // nothing yet to carry over an edge
    residency.wrap.around = true;
  residency.wrap.oneCut = false;
  residency.wrap.decode.reset(); // of caches that stay
  residency.wrap.mixed.reset();
  residency.setKvAway(request_.model->layers, resident);
  if (request_.policy.kvPlaces)
    residency.kv().setPlaces(*request_.policy.kvPlaces);
  else
    residency.kv().setSlots(at.kvSlots > algorithms::kKvSlots ? at.kvSlots : 0);
  const auto back = [&](bool dirty) -> std::optional<WriteBack> {
    if (at.allBack)
      return WriteBack::All;
    return dirty ? std::optional(WriteBack::Dirty) : std::nullopt;
  };
  residency.kv().decodeBack = back(at.decodeDirty);
  residency.kv().mixedBack = back(at.mixedDirty);
}

} // namespace headrace::compiler
