// SPDX-License-Identifier: Apache-2.0
#include "compiler/search/Allowance.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "compiler/choice/AmountText.h"
#include "compiler/choice/Packing.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::compiler {
namespace {

using model::AllowQuantized;

constexpr double kHelps = 0.95;

// Where in the aim the iteration of decode with the longest context is; none: the aim has none.
std::optional<size_t> longestDecode(const Aim &aim) {
  std::optional<size_t> found;
  for (size_t i = 0; i < aim.points.size(); ++i)
    if (aim.points[i].at.iterationClass == plan::IterationClass::Decode &&
        (!found || aim.points[i].at.context > aim.points[*found].at.context))
      found = i;
  return found;
}

// Bytes away of what an iteration brings: of weights, and of keys and values.
std::pair<uint64_t, uint64_t> awayBytes(Space &space, const Scored &best) {
  const model::WeightLayout &layout = space.layout(best.at);
  uint64_t weights = 0;
  for (const int32_t unit : best.candidate.residency.weightsAway())
    if (unit != layout.embeddingUnit())
      weights += layout.units[static_cast<size_t>(unit)].bytes;
  const Target &target = space.target(best.at);
  const std::optional<int64_t> resident = best.candidate.residency.firstKvBlockAway();
  const uint64_t kv =
      !resident ? 0
                : static_cast<uint64_t>(target.caches(space.request().model->layers) * (target.kvBlocks - *resident)) *
                      target.kvBlockBytes;
  return {weights, kv};
}

// As few layers as leave room for all of KV; all where none do.
int64_t fewestLayers(Space &space, Coordinates at) {
  const int64_t layers = space.request().model->layers;
  const auto holds = [&](int64_t count) {
    at.layers = count;
    const Candidate whole = space.candidate(at, at.attendsOnCpu ? 0 : space.target(at).kvBlocks);
    return space.need(at, whole).bytes <= space.target(at).deviceMemory && space.beyondHost(at, whole) == 0;
  };
  int64_t fit = layers, doesNot = -1;
  while (fit - doesNot > 1) {
    const int64_t middle = doesNot + (fit - doesNot) / 2;
    (holds(middle) ? fit : doesNot) = middle;
  }
  return fit;
}

// "1.009 s an iteration instead of 7.679 s"; empty where that is no help.
std::string insteadOf(const Scored *scored, const Scored &best, size_t point) {
  if (scored == nullptr || scored->overBytes > 0 || scored->played.size() <= point)
    return "";
  const uint64_t before = best.played[point].ns, after = scored->played[point].ns;
  if (static_cast<double>(after) > kHelps * static_cast<double>(before) ||
      scored->comparedNs > kHelps * best.comparedNs) // a search would not take it
    return "";
  return absl::StrCat(msText(after), " an iteration instead of ", msText(before));
}

} // namespace

std::string attentionWouldBring(Space &space, const Scored &best, const CompileRequest &open,
                                const cost::CostModel &costs) {
  const std::optional<size_t> point = longestDecode(space.aim(best.at));
  if (!point || best.played.size() <= *point || space.prefersMemory() || best.candidate.offloadsNothing())
    return ""; // KV on the host leaves room for weights, too
  CompileRequest with = open;
  with.advise = nullptr;
  Space other(with, costs);
  Coordinates at = best.at;
  at.attendsOnCpu = true;
  at.listed = at.actParts = at.actAway = 0;
  if (!other.exists(at))
    return "";
  if (other.free().layers)
    at.layers = fewestLayers(other, at);
  const std::string instead = insteadOf(other.score(at), best, *point);
  return instead.empty() ? "" : absl::StrCat("attention on the CPU would take ", instead, ": --attention auto");
}

std::string allowanceWouldBring(Space &space, const Scored &best, const cost::CostModel &costs,
                                const Generator *inOrder) {
  const CompileRequest &request = space.request();
  const std::optional<size_t> point = longestDecode(space.aim(best.at));
  if (request.goal.allowQuantized == AllowQuantized::Both || request.costs != nullptr || !point ||
      best.played.size() <= *point || space.prefersMemory() || (inOrder != nullptr && inOrder->requests != nullptr))
    return ""; // one that decides what is asked decides what is packed, or is told
  const auto [weights, kv] = awayBytes(space, best);
  if (weights + kv == 0)
    return "";
  const bool packWeights = weights >= kv;
  const AllowQuantized had = request.goal.allowQuantized;
  if (had == (packWeights ? AllowQuantized::Weights : AllowQuantized::Kv))
    return "";
  CompileRequest with = request;
  with.goal.allowQuantized = had != AllowQuantized::Nothing ? AllowQuantized::Both
                             : packWeights                  ? AllowQuantized::Weights
                                                            : AllowQuantized::Kv;
  with.advise = nullptr;
  if (!checkAllowed(with).ok())
    return "";
  Space other(with, costs, inOrder);
  Coordinates at = best.at;
  (packWeights ? at.weightEncoding : at.kvEncoding) =
      (packWeights ? other.free().weightEncodings : other.free().kvEncodings) - 1;
  if (!other.exists(at))
    return "";
  if (inOrder == nullptr && (packWeights || at.listed > 0) && other.free().layers) {
    at.listed = 0;
    at.layers = fewestLayers(other, at);
  } else if (at.listed > 0) {
    return ""; // single units that are stated by none
  }
  const std::string instead = insteadOf(other.score(at), best, *point);
  return instead.empty()
             ? ""
             : absl::StrCat("packed ", packWeights ? "weights" : "KV", " would take ", instead, ": --allow-quantized ",
                            std::string(model::allowQuantizedName(with.goal.allowQuantized)));
}

} // namespace headrace::compiler
