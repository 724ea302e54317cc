// SPDX-License-Identifier: Apache-2.0
#include "compiler/choose/MiniBatchCount.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "compiler/choose/HybridShare.h"
#include "compiler/lower/ResolveGoal.h"
#include "passes/algorithms/Residency.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/cost/PackMiniBatches.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::compiler {
namespace {

constexpr int64_t kWeightSlots = 2; // of layers that are brought

} // namespace

absl::StatusOr<int64_t> packedMiniBatches(const CompileRequest &request, const Policy &policy) {
  ASSIGN_OR_RETURN(target, resolveGoal(request));
  const model::WeightLayout layout = model::layoutWeights(request.model);
  const int64_t layers = request.model->layers;
  const uint64_t slots = kWeightSlots * layout.layerBytes(0);
  const uint64_t room = target.deviceMemory - std::min(target.deviceMemory, slots);
  const bool stays = !request.goal.kvDeviceMemory && target.kvBytes * static_cast<uint64_t>(layers) <= room;
  if (stays || policy.traits.swapsLayers || target.sequences() == 1)
    return 1;

  std::optional<cost::Roofline> roofline;
  const cost::CostModel &costs =
      request.costs ? *request.costs : roofline.emplace(request.model, request.hardware, target.activation, target.kv);
  HybridRoom alone; // every layer is brought
  alone.loadWeightsNs = static_cast<double>(layers) * static_cast<double>(costs.copyNs(layout.layerBytes(0), true));
  alone.weightBytes = static_cast<int64_t>(layout.totalBytes());
  ASSIGN_OR_RETURN(share, hybridShare(request, alone));

  // What is asked for is kept; where that is left open, what balances the batch.
  const std::optional<model::ActShare> &asked = request.policy.actShare;
  const int64_t perSequence = share.blocksPerSequence;
  const int64_t act = !asked ? 0 : asked->isAuto() ? share.partOf(perSequence) : asked->of(perSequence);
  const cost::HybridBlocks sequence{.kvHost = perSequence - act, .actHost = act};
  // Blocks are brought through two slots, keys and values are made of activations in one place.
  const int64_t bytes = sequence.kvHost * algorithms::kKvSlots * share.block.kv +
                        sequence.actHost * (algorithms::kActSlots * share.block.act + share.block.kv);
  const int64_t held = static_cast<int64_t>(room) / bytes;
  const cost::MiniBatchSlots device{held * sequence.kvHost, held * sequence.actHost, held * sequence.actHost,
                                    share.block};
  const std::vector<cost::HybridBlocks> batch(static_cast<size_t>(target.sequences()), sequence);
  ASSIGN_OR_RETURN(packing, cost::packMiniBatches(share.times, batch, device));
  return static_cast<int64_t>(packing.miniBatches.size());
}

absl::StatusOr<MiniBatchChoice> bestMiniBatches(int64_t batch, int64_t packed,
                                                const std::function<absl::StatusOr<uint64_t>(int64_t)> &timeOf) {
  std::vector<int64_t> counts;
  for (int64_t count = 1; count <= std::min(batch, model::kMaxMiniBatches); ++count)
    if (batch % count == 0)
      counts.push_back(count);
  MiniBatchChoice choice;
  std::optional<uint64_t> least;
  absl::Status refused;
  const auto attempt = [&](size_t nth) -> absl::StatusOr<bool> { // whether it is the shortest
    const absl::StatusOr<uint64_t> ns = timeOf(counts[nth]);
    choice.tried[counts[nth]] = ns.ok() ? std::optional(*ns) : std::nullopt;
    if (!ns.ok()) {
      refused = ns.status();
      return absl::IsResourceExhausted(refused) ? absl::StatusOr<bool>(false) : refused;
    }
    if (least && *ns >= *least)
      return false;
    least = *ns;
    choice.count = counts[nth];
    return true;
  };
  const auto at = std::lower_bound(counts.begin(), counts.end(), packed);
  const auto first = static_cast<size_t>(at == counts.end() ? at - counts.begin() - 1 : at - counts.begin());
  for (size_t nth = first; nth < counts.size(); ++nth) {
    ASSIGN_OR_RETURN(shorter, attempt(nth));
    if (least && !shorter)
      break;
  }
  // Fewer only where more were not shorter; what does not fit does not in fewer.
  const bool down = least && choice.count == counts[first];
  for (size_t nth = first; nth > 0 && down; --nth) {
    ASSIGN_OR_RETURN(shorter, attempt(nth - 1));
    if (!shorter)
      break;
  }
  if (!least)
    return refused;
  return choice;
}

} // namespace headrace::compiler
