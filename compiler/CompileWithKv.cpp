// SPDX-License-Identifier: Apache-2.0
#include "compiler/CompileWithKv.h"

#include <algorithm>
#include <cstdint>
#include <tuple>
#include <utility>

#include "compiler/choice/Packing.h"
#include "compiler/choice/Resolve.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/model/WeightLayout.h"

namespace headrace::compiler {
namespace {

constexpr int64_t kFewer = 4; // sequences are tried by

using CompileOne = std::function<absl::StatusOr<plan::Plan>(const CompileRequest &)>;

uint64_t hostBytes(const plan::Plan &plan) {
  uint64_t bytes = 0;
  for (uint32_t placement = 0; placement < plan.placements.size(); ++placement)
    bytes += plan::weightBytesByHome(plan, placement).host + plan::kvBytesByHome(plan, placement).host;
  return bytes;
}

// Of all mini-batches, in whole blocks, that its device memory would hold beside all else.
int64_t tokensThatFit(const plan::Plan &plan) {
  const plan::HomeBytes kv = plan::kvBytesByHome(plan, 0);
  const uint64_t block = std::max<uint64_t>((kv.device + kv.host) / static_cast<uint64_t>(plan.kvBlocks), 1);
  const uint64_t left = plan.deviceMemory - std::min(plan.deviceMemory, plan.arenaBytes);
  return (plan.kvBlocks - 1 + static_cast<int64_t>(left / block)) * plan.blockTokens *
         static_cast<int64_t>(plan.miniBatches);
}

// Tokens a second of decode at the longest contexts, by as many sequences as its KV cache holds whole.
double decodeRate(const plan::Plan &plan, int64_t sequences) {
  const plan::Variant *of = nullptr; // the smallest that holds them; of a cycle the slowest
  for (const plan::Variant &variant : plan.variants) {
    const plan::Schedule &schedule = plan.schedules[variant.schedule];
    if (schedule.iterationClass != plan::IterationClass::Decode || schedule.kvBlocks != 0 ||
        static_cast<int64_t>(variant.sequences) * plan.miniBatches < sequences)
      continue;
    const auto key = [](const plan::Variant &v) {
      return std::tuple(-static_cast<int64_t>(v.sequences), v.context, v.predictedNs);
    };
    if (of == nullptr || key(variant) > key(*of))
      of = &variant;
  }
  return of == nullptr ? 0 : static_cast<double>(sequences) * 1e9 / static_cast<double>(of->predictedNs);
}

bool machineHolds(const CompileRequest &request, const plan::Plan &plan) {
  return !request.sharedMemory || plan.arenaBytes + plan.hostBytes <= *request.sharedMemory;
}

// Whether all of KV may fit beside the weights, by their bytes.
bool allMayFit(const CompileRequest &request, const Target &target) {
  const uint64_t kv = static_cast<uint64_t>(target.choice.miniBatches) * target.kvBytes *
                      static_cast<uint64_t>(target.caches(request.model->layers));
  return model::layoutWeights(request.model).totalBytes() + kv <= target.deviceMemory;
}

// What KV has of the device without an expansion it has with it.
absl::StatusOr<plan::Plan> compileExpanded(CompileRequest request, const CompileOne &compile) {
  CompileRequest whole = request;
  whole.goal.expansion.reset();
  ASSIGN_OR_RETURN(resident, compileWithKvThatFits(whole, compile));
  request.goal.autoKvTokens = false;
  const uint64_t kv = plan::kvDeviceBytes(resident, 0);
  absl::StatusOr<plan::Plan> plan;
  for (const uint64_t lessIn256ths : {0, 1, 4, 16}) { // slots and alignment may cost a little
    request.goal.kvDeviceMemory = kv / 256 * (256 - lessIn256ths);
    plan = compile(request);
    if (plan.ok() || !absl::IsResourceExhausted(plan.status()))
      break;
  }
  return plan;
}

} // namespace

absl::StatusOr<plan::Plan> compileWithKvThatFits(const CompileRequest &asked, const CompileOne &compile) {
  if (asked.goal.expansion)
    return compileExpanded(asked, compile);
  CompileRequest request = asked;
  request.goal.autoKvTokens = false;
  if (request.goal.autoMiniBatches) { // as many as all of KV is fastest with; one where that does not fit
    const absl::StatusOr<plan::Plan> plan = compile(request);
    if (!plan.ok() && !absl::IsResourceExhausted(plan.status()))
      return plan;
    request.goal.autoMiniBatches = false;
    request.goal.miniBatches = plan.ok() ? plan->miniBatches : 1;
  }
  if (request.goal.allowQuantized != model::AllowQuantized::Nothing ||
      request.policy.attention == model::Attention::Auto) // the same
    if (const absl::StatusOr<plan::Plan> plan = compile(request); plan.ok()) {
      Choice found;
      found.encodings = {plan->model->encodings, plan->kvEncoding};
      found.attendsOnCpu = plan->policy.attention == model::Attention::Cpu;
      request = asChosen(request, found);
    }
  ASSIGN_OR_RETURN(target, resolve(request));
  const int64_t all = target.kvTokens * target.choice.miniBatches;
  if (allMayFit(request, target)) {
    absl::StatusOr<plan::Plan> plan = compile(request);
    if (plan.ok() ? hostBytes(*plan) == 0 && machineHolds(request, *plan) : !absl::IsResourceExhausted(plan.status()))
      return plan;
  }
  // A sequence, or an iteration of prompts, of each mini-batch.
  const int64_t rows = target.choice.buckets.newTokens.back();
  const int64_t sequence = target.meta.maxBlocksPerSequence * target.blockTokens;
  const int64_t least = std::min(all, target.choice.miniBatches * std::max(sequence, rows));
  const auto with = [&](int64_t tokens) {
    request.goal.kvTokens = tokens < all ? std::optional(tokens) : std::nullopt;
    return compile(request);
  };
  ASSIGN_OR_RETURN(smallest, with(least));
  const uint64_t offloaded = hostBytes(smallest);
  if (offloaded > 0 && all > least) { // what is brought anyhow may be brought for more
    plan::Plan best = std::move(smallest);
    double bestRate = decodeRate(best, std::max<int64_t>(1, least / sequence));
    for (int64_t sequences = all / sequence; sequences > least / sequence; sequences /= kFewer) {
      absl::StatusOr<plan::Plan> plan = with(sequences * sequence);
      if (!plan.ok() && !absl::IsResourceExhausted(plan.status()))
        return plan;
      if (!plan.ok() || !machineHolds(request, *plan) || decodeRate(*plan, sequences) <= bestRate)
        continue;
      bestRate = decodeRate(*plan, sequences);
      best = *std::move(plan);
    }
    return best;
  }
  int64_t tokens = std::min(all, tokensThatFit(smallest));
  // Alignment may cost a few blocks.
  for (int64_t less = target.blockTokens * target.choice.miniBatches; tokens > least; tokens -= less, less *= 2) {
    absl::StatusOr<plan::Plan> plan = with(tokens);
    if (plan.ok() ? hostBytes(*plan) <= offloaded && machineHolds(request, *plan)
                  : !absl::IsResourceExhausted(plan.status()))
      return plan;
  }
  return smallest;
}

} // namespace headrace::compiler
