// SPDX-License-Identifier: Apache-2.0
#include "compiler/search/generators/PackedBatch.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/choice/Resolve.h"
#include "compiler/search/generators/HybridShare.h"
#include "passes/algorithms/Residency.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/cost/PackMiniBatches.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::compiler {
namespace {

constexpr int64_t kWeightSlots = 2; // of layers that are brought

} // namespace

absl::StatusOr<int64_t> packedMiniBatches(const CompileRequest &request, const Generator &policy) {
  Choice one = askedChoice(request);
  one.buckets.sequences.clear();
  ASSIGN_OR_RETURN(target, resolve(request, one, policy.swapsLayers));
  const model::WeightLayout layout = model::layoutWeights(request.model);
  const int64_t layers = request.model->layers;
  const uint64_t slots = kWeightSlots * layout.layerBytes(0);
  const uint64_t room = target.deviceMemory - std::min(target.deviceMemory, slots);
  const bool stays = !target.kvResident && target.kvBytes * static_cast<uint64_t>(layers) <= room;
  if (stays || policy.swapsLayers || target.sequences() == 1)
    return 1;

  std::optional<cost::Roofline> roofline;
  const cost::CostModel &costs =
      request.costs ? *request.costs : roofline.emplace(request.model, request.hardware, target.activation, target.kv);
  HybridRoom alone; // every layer is brought
  alone.loadWeightsNs = static_cast<double>(layers) * static_cast<double>(costs.copyNs(layout.layerBytes(0), true));
  alone.weightBytes = static_cast<int64_t>(layout.totalBytes());
  ASSIGN_OR_RETURN(share, hybridShare(request, one, alone));

  // What is asked for is kept; where that is left open, what balances the batch.
  const std::optional<model::ActRatio> &ratio = request.policy.actRatio;
  const int64_t perSequence = share.blocksPerSequence;
  const int64_t act = !ratio ? 0 : ratio->isAuto() ? share.partOf(perSequence) : ratio->of(perSequence);
  const cost::HybridBlocks sequence{.kvHost = perSequence - act, .actHost = act};
  // Blocks are brought through two slots, keys and values are made of activations in one place.
  const int64_t bytes = sequence.kvHost * algorithms::kKvSlots * share.block.kv +
                        sequence.actHost * (algorithms::kActSlots * share.block.act + share.block.kv);
  const int64_t held = static_cast<int64_t>(room) / bytes;
  if (held == 0)
    return absl::ResourceExhaustedError(absl::StrCat("one sequence's blocks of a layer take ", bytes,
                                                     " bytes, beside two layers' weights the device has ", room));
  const cost::MiniBatchSlots device{held * sequence.kvHost, held * sequence.actHost, held * sequence.actHost,
                                    share.block};
  const std::vector<cost::HybridBlocks> batch(static_cast<size_t>(target.sequences()), sequence);
  ASSIGN_OR_RETURN(packing, cost::packMiniBatches(share.times, batch, device));
  return static_cast<int64_t>(packing.miniBatches.size());
}

} // namespace headrace::compiler
