// SPDX-License-Identifier: Apache-2.0
#include "compiler/ResolveGoal.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "absl/strings/str_cat.h"
#include "runtime/model/WeightLayout.h"

namespace headrace::compiler {
namespace {

constexpr int64_t kDefaultContext = 2048;
constexpr int64_t kSmallestContextBucket = 256;
constexpr int64_t kSmallestMixedBucket = 16;
// New tokens of one iteration: more are prefilled in several, so that activations stay small beside weights.
constexpr int64_t kLargestMixedBucket = 2048;
// Beyond these the meta buffer and the KV cache no longer have sizes that a plan can state.
constexpr int64_t kMostSequences = int64_t{1} << 20;
constexpr int64_t kMostTokens = int64_t{1} << 24;
constexpr uint64_t kMostBytes = uint64_t{1} << 53;

template <typename... Parts> absl::Status refuse(const Parts &...parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

// first, 2 first, 4 first, ... below last, then last.
std::vector<int64_t> powersOfTwo(int64_t first, int64_t last) {
  std::vector<int64_t> list;
  for (int64_t n = first; n < last; n *= 2)
    list.push_back(n);
  list.push_back(last);
  return list;
}

absl::Status checkBuckets(const char *name, const std::vector<int64_t> &list, int64_t most) {
  for (size_t i = 0; i < list.size(); ++i) {
    if (list[i] < 1 || list[i] > most)
      return refuse("[buckets] ", name, " has ", list[i], ", expected 1 to ", most);
    if (i && list[i] <= list[i - 1])
      return refuse("[buckets] ", name, " has ", list[i], " after ", list[i - 1], ", expected ascending numbers");
  }
  return absl::OkStatus();
}

// The goal's figure, or the last bucket's, or the default; what both state must agree.
absl::StatusOr<int64_t> settle(const char *name, const std::optional<int64_t> &goal, const char *bucketName,
                               const std::vector<int64_t> &buckets, int64_t byDefault, int64_t most) {
  if (goal && (*goal < 1 || *goal > most))
    return refuse("[goal] ", name, " is ", *goal, ", expected 1 to ", most);
  if (goal && !buckets.empty() && buckets.back() != *goal)
    return refuse("[buckets] ", bucketName, " ends at ", buckets.back(), ", but [goal] ", name, " is ", *goal);
  return goal ? *goal : buckets.empty() ? byDefault : buckets.back();
}

} // namespace

cost::Shape Target::limits(const std::vector<cost::Shape> &shapes) {
  cost::Shape most = shapes.front();
  for (const cost::Shape &shape : shapes) {
    most.tokens = std::max(most.tokens, shape.tokens);
    most.sequences = std::max(most.sequences, shape.sequences);
    most.context = std::max(most.context, shape.context);
  }
  return most;
}

absl::StatusOr<Target> resolveGoal(const CompileRequest &request) {
  const model::ModelSpec &spec = request.model;
  const model::Goal &goal = request.goal;
  const model::Buckets &buckets = request.buckets;
  for (absl::Status status : {checkBuckets("new_tokens", buckets.newTokens, kMostTokens),
                              checkBuckets("sequences", buckets.sequences, kMostSequences),
                              checkBuckets("contexts", buckets.contexts, spec.maxPositions)})
    if (!status.ok())
      return status;

  if (goal.sloFactor && (goal.ttftNs || goal.tpotNs))
    return refuse("[goal] slo_factor is ", *goal.sloFactor, " beside ttft or tpot: expected one or the other");
  if (goal.sloFactor && !(*goal.sloFactor >= 1 && std::isfinite(*goal.sloFactor)))
    return refuse("[goal] slo_factor is ", *goal.sloFactor, ", expected a finite factor of at least 1");
  for (const auto &[name, ns] : {std::pair("ttft", goal.ttftNs), std::pair("tpot", goal.tpotNs)})
    if (ns && *ns == 0)
      return refuse("[goal] ", name, " is 0, expected a time above zero");
  if (goal.busDevices < 1 || goal.busDevices > model::kMaxBusDevices)
    return refuse("[goal] bus_devices is ", goal.busDevices, ", expected 1 to ", model::kMaxBusDevices);
  if (model::choosesByLatency(request.policy.name) && !goal.hasSlo())
    return refuse("[policy] name is \"", request.policy.name,
                  "\", which chooses by latency: expected ttft, tpot or slo_factor in [goal]");
  if (const std::string_view policy = model::effectivePolicy(request.policy, goal);
      request.policy.startRuleStated && policy != "interval")
    return refuse("[policy] start_rule is \"", std::string(model::startRuleName(request.policy.startRule)),
                  "\" beside an objective, by which policy ", std::string(policy),
                  " chooses it: expected name = \"interval\", or no start_rule");

  Target target;
  absl::StatusOr<int64_t> batch = settle("batch", goal.batch, "sequences", buckets.sequences, 1, kMostSequences);
  if (!batch.ok())
    return batch.status();
  target.batch = *batch;
  if (goal.context && *goal.context > spec.maxPositions)
    return refuse("[goal] context is ", *goal.context, ", but the model ", spec.name, " has ", spec.maxPositions,
                  " positions");
  absl::StatusOr<int64_t> context = settle("context", goal.context, "contexts", buckets.contexts,
                                           std::min(kDefaultContext, spec.maxPositions), spec.maxPositions);
  if (!context.ok())
    return context.status();
  target.context = *context;

  // The cache: blocks of every sequence at its longest, or the tokens asked for, and the scratch block 0.
  target.blockTokens = goal.blockTokens;
  if (goal.blockTokens < 1 || goal.blockTokens > 4096)
    return refuse("[goal] block_tokens is ", goal.blockTokens, ", expected 1 to 4096");
  const int64_t blocksPerSequence = (target.context + goal.blockTokens - 1) / goal.blockTokens;
  if (goal.kvTokens && *goal.kvTokens < target.context)
    return refuse("[goal] kv_tokens is ", *goal.kvTokens, ", too few for one sequence of context ", target.context);
  const __int128 wanted = goal.kvTokens ? (__int128{*goal.kvTokens} + goal.blockTokens - 1) / goal.blockTokens
                                        : __int128{target.batch} * blocksPerSequence;
  if (wanted >= std::numeric_limits<int32_t>::max())
    return refuse("[goal] asks for a KV cache of more than ", std::numeric_limits<int32_t>::max(),
                  " blocks: lower batch (", target.batch, "), context (", target.context, ") or kv_tokens");
  target.kvBlocks = static_cast<int64_t>(wanted) + 1;
  target.kvTokens = static_cast<int64_t>(wanted) * goal.blockTokens;

  const bool host = request.hardware.kind == model::DeviceKind::Host;
  target.activation = host ? model::DType::F32 : spec.dtype;
  target.kv = goal.kvDtype.value_or(host ? model::DType::F32 : spec.dtype);
  const __int128 kvBytes = __int128{target.kvBlocks} * 2 * spec.kvRows() * goal.blockTokens *
                           static_cast<int64_t>(model::dtypeBytes(target.kv));
  if (kvBytes > static_cast<__int128>(kMostBytes / static_cast<uint64_t>(spec.layers)))
    return refuse("[goal] asks for a KV cache of more than ", kMostBytes, " bytes: lower batch (", target.batch,
                  "), context (", target.context, ") or kv_tokens");
  target.kvBytes = model::alignUp(static_cast<uint64_t>(kvBytes));

  target.budget = goal.deviceMemory.value_or(request.hardware.memoryBytes);
  if (target.budget == 0)
    return refuse("[goal] device_memory is 0, expected a positive number of bytes");

  const int64_t mostTokens = std::min({target.kvTokens, target.batch * target.context, kLargestMixedBucket});
  std::vector<int64_t> sequences = buckets.sequences.empty() ? powersOfTwo(1, target.batch) : buckets.sequences;
  std::vector<int64_t> contexts = buckets.contexts.empty()
                                      ? powersOfTwo(std::min(kSmallestContextBucket, target.context), target.context)
                                      : buckets.contexts;
  std::vector<int64_t> tokens = buckets.newTokens.empty()
                                    ? powersOfTwo(std::min(kSmallestMixedBucket, mostTokens), mostTokens)
                                    : buckets.newTokens;
  if (tokens.back() > target.kvTokens)
    return refuse("[buckets] new_tokens ends at ", tokens.back(), ", more than the KV cache holds: ", target.kvTokens,
                  " tokens");

  for (int64_t s : sequences)
    for (int64_t c : contexts)
      target.decode.push_back({s, s, c});
  std::vector<int64_t> mixedSequences{sequences.front()};
  if (sequences.size() > 1)
    mixedSequences.push_back(sequences.back());
  for (int64_t t : tokens)
    for (int64_t s : mixedSequences)
      for (int64_t c : contexts)
        if (t > s && t <= __int128{s} * c)
          target.mixed.push_back({t, s, c});

  target.meta.maxTokens = std::max(target.batch, tokens.back());
  target.meta.maxSequences = target.batch;
  target.meta.maxBlocksPerSequence = blocksPerSequence;
  if (__int128{target.batch} * blocksPerSequence > (int64_t{1} << 28))
    return refuse("[goal] batch ", target.batch, " at context ", target.context, " needs a block table of ",
                  target.batch, " x ", blocksPerSequence, " entries, expected at most 2^28");
  return target;
}

absl::Status checkPolicy(const model::Policy &policy, const model::ModelSpec &model) {
  if (std::find(std::begin(model::kPolicyNames), std::end(model::kPolicyNames), policy.name) ==
      std::end(model::kPolicyNames))
    return refuse("[policy] name is \"", policy.name, "\", expected ", model::policyNames());
  if (policy.name != "auto" && policy.name != "interval" && policy.statesPlacement())
    return refuse("[policy] name is \"", policy.name,
                  "\", expected \"interval\" where interval or offload_layers state the placement");
  if (policy.placements && (*policy.placements < 1 || *policy.placements > model::kMaxPlacements))
    return refuse("[policy] placements is ", *policy.placements, ", expected 1 to ", model::kMaxPlacements);
  const int given = policy.none + policy.interval.has_value() + policy.offloadLayers.has_value();
  if (given > 1)
    return refuse("[policy] gives more than one of interval = \"none\", interval and offload_layers: one says it all");
  if (policy.interval && (*policy.interval < 1 || *policy.interval > model.layers))
    return refuse("[policy] interval is ", *policy.interval, ", expected \"none\" or 1 to ", model.layers,
                  ", the number of layers of ", model.name);
  if (policy.offloadLayers && (*policy.offloadLayers < 0 || *policy.offloadLayers > model.layers))
    return refuse("[policy] offload_layers is ", *policy.offloadLayers, ", expected 0 to ", model.layers,
                  ", the number of layers of ", model.name);
  if (policy.slots && (*policy.slots < 1 || *policy.slots > model.layers + 1))
    return refuse("[policy] slots is ", *policy.slots, ", expected 1 to ", model.layers + 1);
  if (policy.none && (policy.offloadEmbedding == model::Choice::On || policy.offloadHead == model::Choice::On))
    return refuse("[policy] interval is \"none\", but offload_embedding or offload_head is \"on\"");
  // The token table and the head's matrix are one operand there.
  const auto opposite = [](model::Choice a, model::Choice b) {
    return (a == model::Choice::On && b == model::Choice::Off) || (a == model::Choice::Off && b == model::Choice::On);
  };
  if (model.tiedEmbeddings && opposite(policy.offloadEmbedding, policy.offloadHead))
    return refuse("[policy] offload_embedding and offload_head differ, but ", model.name,
                  " has tied embeddings: both are one matrix, expected the same of both, or one of them alone");
  return absl::OkStatus();
}

} // namespace headrace::compiler
