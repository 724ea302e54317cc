// SPDX-License-Identifier: Apache-2.0
#include "compiler/lower/ResolveGoal.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "absl/strings/str_cat.h"
#include "runtime/model/ModelSpec.h"
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

// The form of every error about a key; who called says which file, or which flag.
absl::Status refuse(absl::string_view key, const absl::AlphaNum &value, const std::string &expected) {
  return absl::InvalidArgumentError(absl::StrCat(key, " = ", value, ": expected ", expected));
}
std::string quoted(std::string_view text) { return absl::StrCat("\"", std::string(text), "\""); }

// first, 2 first, 4 first, ... below last, then last.
std::vector<int64_t> powersOfTwo(int64_t first, int64_t last) {
  std::vector<int64_t> list;
  for (int64_t n = first; n < last; n *= 2)
    list.push_back(n);
  list.push_back(last);
  return list;
}

absl::Status checkBuckets(const char *key, const std::vector<int64_t> &list, int64_t most) {
  for (size_t i = 0; i < list.size(); ++i) {
    if (list[i] < 1 || list[i] > most)
      return refuse(key, list[i], absl::StrCat("sizes from 1 to ", most));
    if (i && list[i] <= list[i - 1])
      return refuse(key, list[i], absl::StrCat("ascending sizes, it follows ", list[i - 1]));
  }
  return absl::OkStatus();
}

// The goal's figure, or the last bucket's, or the default; what both state must agree.
absl::StatusOr<int64_t> settle(const char *key, const std::optional<int64_t> &goal, const char *bucketKey,
                               const std::vector<int64_t> &buckets, int64_t byDefault, int64_t most) {
  if (goal && (*goal < 1 || *goal > most))
    return refuse(key, *goal, absl::StrCat("1 to ", most));
  if (goal && !buckets.empty() && buckets.back() != *goal)
    return refuse(bucketKey, buckets.back(), absl::StrCat("a last size of ", *goal, ", which is ", key));
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
  for (absl::Status status : {checkBuckets("buckets.new_tokens", buckets.newTokens, kMostTokens),
                              checkBuckets("buckets.sequences", buckets.sequences, kMostSequences),
                              checkBuckets("buckets.contexts", buckets.contexts, spec.maxPositions)})
    if (!status.ok())
      return status;

  if (goal.sloFactor && (goal.ttftNs || goal.tpotNs))
    return refuse("goal.slo_factor", *goal.sloFactor, "no ttft or tpot beside it");
  if (goal.sloFactor && !(*goal.sloFactor >= 1 && std::isfinite(*goal.sloFactor)))
    return refuse("goal.slo_factor", *goal.sloFactor, "a finite factor of at least 1");
  for (const auto &[key, ns] : {std::pair("goal.ttft", goal.ttftNs), std::pair("goal.tpot", goal.tpotNs)})
    if (ns && *ns == 0)
      return refuse(key, 0, "a time above zero");
  if (goal.busDevices < 1 || goal.busDevices > model::kMaxBusDevices)
    return refuse("goal.bus_devices", goal.busDevices, absl::StrCat("1 to ", model::kMaxBusDevices));
  if (model::choosesByLatency(request.policy.name) && !goal.hasSlo())
    return refuse("policy.name", quoted(request.policy.name),
                  "goal.ttft, goal.tpot or goal.slo_factor beside it: it chooses by latency");
  if (const std::string_view policy = model::effectivePolicy(request.policy, goal);
      request.policy.startRuleStated && policy != "interval")
    return refuse("policy.start_rule", quoted(model::startRuleName(request.policy.startRule)),
                  absl::StrCat("policy.name \"interval\" beside it, or no start_rule: policy ", std::string(policy),
                               " chooses it by the objective"));

  Target target;
  absl::StatusOr<int64_t> batch =
      settle("goal.batch", goal.batch, "buckets.sequences", buckets.sequences, 1, kMostSequences);
  if (!batch.ok())
    return batch.status();
  target.batch = *batch;
  if (goal.context && *goal.context > spec.maxPositions)
    return refuse("goal.context", *goal.context,
                  absl::StrCat("at most the ", spec.maxPositions, " positions of ", spec.name));
  absl::StatusOr<int64_t> context = settle("goal.context", goal.context, "buckets.contexts", buckets.contexts,
                                           std::min(kDefaultContext, spec.maxPositions), spec.maxPositions);
  if (!context.ok())
    return context.status();
  target.context = *context;

  // The cache: blocks of every sequence at its longest, or the tokens asked for, and the scratch block 0.
  target.blockTokens = goal.blockTokens;
  if (goal.blockTokens < 1 || goal.blockTokens > 4096)
    return refuse("goal.block_tokens", goal.blockTokens, "1 to 4096");
  const auto wantedTokens = [&] { // as a double where it is more than an integer holds
    return goal.kvTokens ? static_cast<double>(*goal.kvTokens)
                         : static_cast<double>(target.batch) * static_cast<double>(target.context);
  };
  const int64_t blocksPerSequence = (target.context + goal.blockTokens - 1) / goal.blockTokens;
  if (goal.kvTokens && *goal.kvTokens < target.context)
    return refuse("goal.kv_tokens", *goal.kvTokens, absl::StrCat("at least one sequence of context ", target.context));
  const __int128 wanted = goal.kvTokens ? (__int128{*goal.kvTokens} + goal.blockTokens - 1) / goal.blockTokens
                                        : __int128{target.batch} * blocksPerSequence;
  if (wanted >= std::numeric_limits<int32_t>::max())
    return refuse("goal.kv_tokens", wantedTokens(),
                  absl::StrCat("at most ", std::numeric_limits<int32_t>::max() - 1, " blocks of ", goal.blockTokens,
                               " tokens: lower batch (", target.batch, "), context (", target.context,
                               ") or kv_tokens"));
  target.kvBlocks = static_cast<int64_t>(wanted) + 1;
  target.kvTokens = static_cast<int64_t>(wanted) * goal.blockTokens;

  const bool host = request.hardware.kind == model::DeviceKind::Host;
  target.activation = host ? model::DType::F32 : spec.dtype;
  target.kv = goal.kvDtype.value_or(host ? model::DType::F32 : spec.dtype);
  const __int128 kvBytes = __int128{target.kvBlocks} * 2 * spec.kvRows() * goal.blockTokens *
                           static_cast<int64_t>(model::dtypeBytes(target.kv));
  if (kvBytes > static_cast<__int128>(kMostBytes / static_cast<uint64_t>(spec.layers)))
    return refuse("goal.kv_tokens", wantedTokens(),
                  absl::StrCat("a KV cache of at most ", kMostBytes, " bytes: lower batch (", target.batch,
                               "), context (", target.context, ") or kv_tokens"));
  target.kvBytes = model::alignUp(static_cast<uint64_t>(kvBytes));

  target.budget = goal.deviceMemory.value_or(request.hardware.memoryBytes);
  if (target.budget == 0)
    return refuse("goal.device_memory", 0, "a positive number of bytes");

  const int64_t mostTokens = std::min({target.kvTokens, target.batch * target.context, kLargestMixedBucket});
  std::vector<int64_t> sequences = buckets.sequences.empty() ? powersOfTwo(1, target.batch) : buckets.sequences;
  std::vector<int64_t> contexts = buckets.contexts.empty()
                                      ? powersOfTwo(std::min(kSmallestContextBucket, target.context), target.context)
                                      : buckets.contexts;
  std::vector<int64_t> tokens = buckets.newTokens.empty()
                                    ? powersOfTwo(std::min(kSmallestMixedBucket, mostTokens), mostTokens)
                                    : buckets.newTokens;
  if (tokens.back() > target.kvTokens)
    return refuse("buckets.new_tokens", tokens.back(),
                  absl::StrCat("at most the ", target.kvTokens, " tokens that the KV cache holds"));

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
    return refuse("goal.batch", target.batch,
                  absl::StrCat("a block table of at most 2^28 entries; context ", target.context, " takes ",
                               target.batch, " x ", blocksPerSequence));
  return target;
}

absl::Status checkPolicy(const model::Policy &policy, const model::ModelSpec &model) {
  if (std::find(std::begin(model::kPolicyNames), std::end(model::kPolicyNames), policy.name) ==
      std::end(model::kPolicyNames))
    return refuse("policy.name", quoted(policy.name), model::policyNames());
  if (policy.name != "auto" && policy.name != "interval" && policy.statesPlacement())
    return refuse("policy.name", quoted(policy.name),
                  "\"interval\" where policy.interval or policy.offload_layers state the placement");
  if (policy.placements && (*policy.placements < 1 || *policy.placements > model::kMaxPlacements))
    return refuse("policy.placements", *policy.placements, absl::StrCat("1 to ", model::kMaxPlacements));
  const int given = policy.none + policy.interval.has_value() + policy.offloadLayers.has_value();
  if (given > 1)
    return refuse("policy.interval", policy.interval ? absl::StrCat(*policy.interval) : quoted("none"),
                  "one of interval = \"none\", an interval and offload_layers");
  if (policy.interval && (*policy.interval < 1 || *policy.interval > model.layers))
    return refuse("policy.interval", *policy.interval,
                  absl::StrCat("\"none\" or 1 to ", model.layers, ", the number of layers of ", model.name));
  if (policy.offloadLayers && (*policy.offloadLayers < 0 || *policy.offloadLayers > model.layers))
    return refuse("policy.offload_layers", *policy.offloadLayers,
                  absl::StrCat("0 to ", model.layers, ", the number of layers of ", model.name));
  if (policy.slots && (*policy.slots < 1 || *policy.slots > model.layers + 1))
    return refuse("policy.slots", *policy.slots, absl::StrCat("1 to ", model.layers + 1));
  if (policy.none && (policy.offloadEmbedding == model::Choice::On || policy.offloadHead == model::Choice::On))
    return refuse("policy.interval", quoted("none"), "no offload_embedding or offload_head of \"on\" beside it");
  // The token table and the head's matrix are one operand there.
  const auto opposite = [](model::Choice a, model::Choice b) {
    return (a == model::Choice::On && b == model::Choice::Off) || (a == model::Choice::Off && b == model::Choice::On);
  };
  if (model.tiedEmbeddings && opposite(policy.offloadEmbedding, policy.offloadHead))
    return refuse("policy.offload_head", quoted(model::choiceName(policy.offloadHead)),
                  absl::StrCat("the same as offload_embedding, or one of them alone: ", model.name,
                               " has tied embeddings, both are one matrix"));
  return absl::OkStatus();
}

} // namespace headrace::compiler
