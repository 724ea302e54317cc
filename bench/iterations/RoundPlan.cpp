// SPDX-License-Identifier: Apache-2.0
#include "bench/iterations/RoundPlan.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/Compile.h"
#include "compiler/choice/KvOnDevice.h"
#include "compiler/search/generators/WholeLayers.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/model/WeightLayout.h"

namespace headrace::bench {
namespace {

// The smallest bucket that holds a cell is the one whose variant it will run.
bool holds(const plan::Variant &variant, const Cell &cell) {
  const int64_t tokens = cell.sequences * cell.tokens;
  const bool decode = variant.newTokens == variant.sequences;
  return decode == (cell.tokens == 1) && variant.newTokens >= tokens && variant.sequences >= cell.sequences &&
         variant.context >= cell.context;
}
auto size(const plan::Variant &v) { return std::make_tuple(v.newTokens, v.sequences, v.context); }

void keepVariantsOf(const std::vector<Cell> &cells, plan::Plan &plan) {
  std::set<const plan::Variant *> kept;
  for (uint32_t placement = 0; placement < plan.placements.size(); ++placement)
    for (const Cell &cell : cells) {
      const plan::Variant *best = nullptr;
      for (const plan::Variant &variant : plan.variants)
        if (variant.placement == placement && holds(variant, cell) && (best == nullptr || size(variant) < size(*best)))
          best = &variant;
      for (const plan::Variant &variant : plan.variants) // all phases of a cycle
        if (best != nullptr && variant.placement == placement && size(variant) == size(*best))
          kept.insert(&variant);
    }
  std::vector<plan::Variant> variants;
  for (plan::Variant &variant : plan.variants)
    if (kept.contains(&variant))
      variants.push_back(std::move(variant));
  plan.variants = std::move(variants);
  plan.choices.clear(); // they name variants by number
}

} // namespace

absl::StatusOr<plan::Plan> planRound(const RoundRequest &request) {
  compiler::CompileRequest compile;
  compile.model = request.spec;
  compile.modelHash = "synthetic";
  compile.hardware = request.hardware;
  compile.goal.deviceMemory = request.deviceMemory;
  compile.goal.elasticKv = model::AutoOnOff::Off;
  std::set<int64_t> newTokens, sequences, contexts;
  int64_t kvTokens = 0;
  for (const Cell &cell : request.cells) {
    if (cell.sequences < 1)
      return absl::InvalidArgumentError(absl::StrCat(cell.name, ": no sequence of it fits"));
    if (cell.tokens > 1)
      newTokens.insert(cell.sequences * cell.tokens);
    sequences.insert(cell.sequences);
    contexts.insert(cell.context);
    const int64_t block = compile.goal.blockTokens;
    const int64_t tokens = cell.sequences * ((cell.context + block - 1) / block * block);
    kvTokens = request.cellsAtOnce ? kvTokens + tokens : std::max(kvTokens, tokens);
  }
  if (contexts.empty())
    return absl::InvalidArgumentError("no cell to plan for");
  compile.goal.kvTokens = std::max(kvTokens, *contexts.rbegin());
  compile.buckets = {.newTokens = {newTokens.begin(), newTokens.end()},
                     .sequences = {sequences.begin(), sequences.end()},
                     .contexts = {contexts.begin(), contexts.end()}};
  const model::WeightLayout layout = model::layoutWeights(request.spec);
  const auto policyOf = [](int64_t interval) {
    model::Policy policy;
    policy.none = interval == 0;
    if (interval != 0)
      policy.interval = interval;
    policy.offloadEmbedding = policy.offloadHead = model::AutoOnOff::Off;
    return policy;
  };
  if (request.kvOnDevice < 1) {
    if (request.intervals.size() != 1)
      return absl::InvalidArgumentError("caches that are split are planned for one interval at a time");
    const Cell block{"", 1, 1, compile.goal.blockTokens, 1, false};
    const uint64_t ofAll = kvBytes(request.spec, block, compile.goal.blockTokens);
    const int64_t blocks = (*compile.goal.kvTokens + compile.goal.blockTokens - 1) / compile.goal.blockTokens;
    const compiler::KvOnDevice kv = {request.spec.layers, 1 + blocks,
                                     ofAll / static_cast<uint64_t>(request.spec.layers)};
    const auto resident = static_cast<int64_t>(request.kvOnDevice * static_cast<double>(blocks));
    compile.goal.kvDeviceMemory = // none, or these and the slots that the others go through
        resident == 0 ? 0 : kv.splitBytes(resident, compiler::rangesOfSlots(kv.caches, algorithms::kKvSlots));
    if (request.policy.empty())
      compile.policy = policyOf(request.intervals[0]);
    else
      compile.policy.name = request.policy;
    compile.policy.kvWriteBack = request.kvWriteBack;
  } else {
    for (const int64_t interval : request.intervals)
      compile.placements.push_back(compiler::wholeLayers(policyOf(interval), request.spec, layout).front());
  }
  ASSIGN_OR_RETURN(plan, compiler::compile(compile));
  keepVariantsOf(request.cells, plan);
  return plan;
}

std::string profileOf(const std::string &device) { return device.find("H100") != std::string::npos ? "h100" : "h200"; }

} // namespace headrace::bench
