// SPDX-License-Identifier: Apache-2.0
#include "compiler/choose/MiniBatchCount.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/choice/Resolve.h"
#include "compiler/choose/Explain.h"
#include "compiler/choose/HybridShare.h"
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

namespace {

class CountSearch {
public:
  CountSearch(int64_t batch, const std::function<absl::StatusOr<uint64_t>(int64_t)> &timeOf) : timeOf_(timeOf) {
    for (int64_t count = 1; count <= kMostAutoMiniBatches; ++count)
      if (batch % count == 0)
        counts_.push_back(count);
  }

  absl::StatusOr<MiniBatchChoice> run(int64_t packed) {
    const auto at = std::lower_bound(counts_.begin(), counts_.end() - 1, packed);
    const int64_t first = at - counts_.begin();
    RETURN_IF_ERROR(goOn(first, 1, absl::OkStatus()));
    // Fewer where more were not shorter, or none was held.
    if (!least_ || choice_.count == counts_[static_cast<size_t>(first)])
      RETURN_IF_ERROR(goOn(first - 1, -1, choice_.tried.at(*at).status()));
    if (!least_)
      return refused_.ok() ? choice_.tried.at(1).status() : refused_;
    return std::move(choice_);
  }

private:
  // From one count on, as long as they become shorter or may come to fit; `before`: of the one before.
  absl::Status goOn(int64_t nth, int64_t way, absl::Status before) {
    for (; nth >= 0 && nth < static_cast<int64_t>(counts_.size()); nth += way) {
      const int64_t count = counts_[static_cast<size_t>(nth)];
      const absl::StatusOr<uint64_t> &ns = choice_.tried.emplace(count, timeOf_(count)).first->second;
      if (absl::IsInvalidArgument(ns.status()))
        continue;
      if (!ns.ok() && !absl::IsResourceExhausted(ns.status()))
        return ns.status();
      if (!ns.ok() && (refused_.ok() || asksForLess(ns.status(), refused_)))
        refused_ = ns.status();
      if (ns.ok() ? least_ && *ns >= *least_ : least_ || asksForLess(before, ns.status()))
        return absl::OkStatus();
      before = ns.status();
      if (!ns.ok())
        continue;
      least_ = *ns;
      choice_.count = count;
    }
    return absl::OkStatus();
  }

  const std::function<absl::StatusOr<uint64_t>(int64_t)> &timeOf_;
  std::vector<int64_t> counts_; // ascending, 1 among them
  MiniBatchChoice choice_;
  std::optional<uint64_t> least_;
  absl::Status refused_;
};

} // namespace

absl::StatusOr<MiniBatchChoice> bestMiniBatches(int64_t batch, int64_t packed,
                                                const std::function<absl::StatusOr<uint64_t>(int64_t)> &timeOf) {
  return CountSearch(std::max<int64_t>(1, batch), timeOf).run(packed);
}

std::string explainMiniBatches(const MiniBatchChoice &choice) {
  std::string tried, out, why;
  for (const auto &[count, ns] : choice.tried) {
    const bool ruledOut = absl::IsInvalidArgument(ns.status());
    std::string &list = ruledOut ? out : tried;
    absl::StrAppend(&list, list.empty() ? "" : ", ", count,
                    ruledOut  ? ""
                    : ns.ok() ? absl::StrCat(" ", msText(*ns))
                              : " does not fit");
    if (ruledOut && why.empty())
      why = std::string(ns.status().message());
  }
  std::string text = absl::StrCat("of those tried (", tried, ") ", choice.count, " takes the least");
  if (!out.empty())
    absl::StrAppend(&text, "; what is stated rules out ", out, " (", why, ")");
  return text;
}

} // namespace headrace::compiler
