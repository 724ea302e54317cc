// SPDX-License-Identifier: Apache-2.0
#include "compiler/choice/Resolve.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "compiler/choice/ResolveKv.h"
#include "passes/algorithms/PickLayers.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/job/Expansion.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/model/WeightLayout.h"

namespace headrace::compiler {
namespace {

constexpr int64_t kDefaultContext = 2048;
constexpr int64_t kSmallestContextBucket = 256;
constexpr int64_t kSmallestMixedBucket = 16;
// Beyond these the meta buffer and the KV cache no longer have sizes that a plan can state.
constexpr int64_t kMostSequences = int64_t{1} << 20;
constexpr int64_t kMostTokens = int64_t{1} << 24;

// The form of every error about a key; who called says which file, or which flag.
absl::Status refuse(absl::string_view key, const absl::AlphaNum &value, const std::string &expected) {
  return absl::InvalidArgumentError(absl::StrCat(key, " = ", value, ": expected ", expected));
}

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

absl::Status checkObjectives(const model::Goal &goal) {
  if (goal.sloFactor && (goal.ttft || goal.tpot))
    return refuse("goal.slo_factor", *goal.sloFactor, "no ttft or tpot beside it");
  if (goal.sloFactor && !(*goal.sloFactor >= 1 && std::isfinite(*goal.sloFactor)))
    return refuse("goal.slo_factor", *goal.sloFactor, "a finite factor of at least 1");
  for (const auto &[key, time] : {std::pair("goal.ttft", goal.ttft), std::pair("goal.tpot", goal.tpot)})
    if (time && time->count() <= 0)
      return refuse(key, time->count(), "a time above zero");
  if (goal.expansion && !model::isExpansion(*goal.expansion))
    return refuse("goal.expansion", *goal.expansion, "\"auto\" or 1 to 1e6");
  if (goal.busDevices < 1 || goal.busDevices > model::kMaxBusDevices)
    return refuse("goal.bus_devices", goal.busDevices, absl::StrCat("1 to ", model::kMaxBusDevices));
  return absl::OkStatus();
}

absl::Status checkMiniBatches(const CompileRequest &request, const Choice &choice) {
  const int64_t count = choice.miniBatches;
  if (count < 1 || count > kernels::kMostMiniBatches)
    return refuse("goal.mini_batches", count, absl::StrCat("1 to ", kernels::kMostMiniBatches));
  if (count == 1)
    return absl::OkStatus();
  // Buckets are of one mini-batch.
  const int64_t batch =
      request.goal.batch.value_or(choice.buckets.sequences.empty() ? 1 : count * choice.buckets.sequences.back());
  if (batch % count != 0)
    return refuse("goal.mini_batches", count, absl::StrCat("a divisor of the batch of ", batch));
  return absl::OkStatus();
}

// What caches may grow to: never beyond device memory.
void resolveGrowth(const CompileRequest &request, Target &target) {
  const bool expanded = request.goal.expansion && target.kvDeviceBytes;
  if (request.goal.elasticKv != model::AutoOnOff::Off && !expanded && target.actBlocks == 0)
    target.usefulBlocks = 1 + target.batch * target.meta.maxBlocksPerSequence;
  target.mostKvBlocks = target.mostBlocksIn(target.deviceMemory, request.model->layers);
  target.historyBytes = target.historyOf(target.mostKvBlocks);
}

// The buckets that the plan has variants for.
absl::Status resolveBuckets(Target &target) {
  model::Buckets &buckets = target.choice.buckets;
  // A bucket of prompts has more rows than sequences.
  const int64_t mostTokens = std::min({target.kvTokens, target.batch * target.context,
                                       std::max(target.choice.largestChunk, target.batch + 1), kMostTokens});
  std::vector<int64_t> &sequences = buckets.sequences, &contexts = buckets.contexts, &tokens = buckets.newTokens;
  if (sequences.empty())
    sequences = powersOfTwo(1, target.batch);
  if (contexts.empty())
    contexts = powersOfTwo(std::min(kSmallestContextBucket, target.context), target.context);
  if (tokens.empty())
    tokens = powersOfTwo(std::min(kSmallestMixedBucket, mostTokens), mostTokens);
  if (tokens.back() > target.kvTokens)
    return refuse("buckets.new_tokens", tokens.back(),
                  absl::StrCat("at most the ", target.kvTokens, " tokens that the KV cache holds"));

  const auto actRows = [&](int64_t s, int64_t c) {
    return std::min(target.actBlocks * target.blockTokens,
                    s * model::actRows(target.choice.actRatio, target.blockTokens, c));
  };
  for (int64_t s : sequences)
    for (int64_t c : contexts)
      target.decode.push_back({s, s, c, actRows(s, c)});
  std::vector<int64_t> mixedSequences{sequences.front()};
  if (sequences.size() > 1)
    mixedSequences.push_back(sequences.back());
  for (int64_t t : tokens)
    for (int64_t s : mixedSequences)
      for (int64_t c : contexts)
        if (t > s && t <= __int128{s} * c)
          target.mixed.push_back({t, s, c, actRows(s, c)});

  target.meta.maxTokens = std::max(Target::limits(target.decode).tokens, tokens.back());
  target.meta.maxSequences = target.batch;
  const int64_t blocks = target.meta.maxBlocksPerSequence;
  if (__int128{target.batch} * blocks > (int64_t{1} << 28))
    return refuse("goal.batch", target.batch,
                  absl::StrCat("a block table of at most 2^28 entries; context ", target.context, " takes ",
                               target.batch, " x ", blocks));
  return absl::OkStatus();
}

} // namespace

cost::Bucket Target::limits(const std::vector<cost::Bucket> &buckets) {
  cost::Bucket most = buckets.front();
  for (const cost::Bucket &bucket : buckets) {
    most.tokens = std::max(most.tokens, bucket.tokens);
    most.sequences = std::max(most.sequences, bucket.sequences);
    most.context = std::max(most.context, bucket.context);
    most.actRows = std::max(most.actRows, bucket.actRows);
  }
  return most;
}

int64_t Target::mostPromptRows() const {
  int64_t rows = 0;
  for (const cost::Bucket &bucket : mixed)
    if (bucket.sequences >= batch)
      rows = std::max(rows, bucket.tokens);
  return rows;
}

int64_t Target::mostBlocksIn(uint64_t memory, int64_t layers) const {
  if (kvDeviceBytes)
    memory = std::min(memory, *kvDeviceBytes / model::kAlign * model::kAlign);
  const uint64_t held = memory / (kvBlockBytes * static_cast<uint64_t>(caches(layers)));
  const auto useful = static_cast<uint64_t>(usefulBlocks);
  return std::max(kvBlocks, static_cast<int64_t>(std::min(held, useful)));
}

int64_t Target::kvRanges(int64_t slots, int64_t layers) const {
  return kvPlaces > 0 ? kvPlaces : rangesOfSlots(caches(layers), slots);
}

std::optional<int64_t> Target::residentBeside(int64_t slots, int64_t layers) const {
  if (*kvDeviceBytes == 0)
    return 0;
  const std::optional<int64_t> most =
      kvOnDevice(layers).mostResident(*kvDeviceBytes, kvRanges(slots, layers), leastResident);
  return most || leastResident > 0 ? most : 0; // an expansion's bytes are rounded down
}

uint64_t Target::historyOf(int64_t blocks) const {
  return model::alignUp(static_cast<uint64_t>(blocks + actBlocks) * static_cast<uint64_t>(blockTokens) *
                        sizeof(int32_t));
}

uint64_t Target::leastMemoryFor(uint64_t bytes, int64_t layers) const {
  const uint64_t rest = bytes - static_cast<uint64_t>(choice.miniBatches) * historyBytes;
  for (uint64_t memory = 0;;) {
    const uint64_t needed = rest + static_cast<uint64_t>(choice.miniBatches) * historyOf(mostBlocksIn(memory, layers));
    if (needed <= memory)
      return memory;
    memory = needed;
  }
}

uint64_t Target::residualBytes(int64_t hidden) const {
  return model::alignUp(static_cast<uint64_t>(meta.maxTokens) * static_cast<uint64_t>(hidden) * sizeof(float));
}

Choice askedChoice(const CompileRequest &request) {
  Choice choice;
  choice.miniBatches = request.goal.miniBatches;
  choice.buckets = request.buckets;
  choice.attendsOnCpu = request.policy.attention == model::Attention::Cpu;
  if (request.policy.residuals == model::Residuals::Host)
    choice.residency.residuals().setSlots(algorithms::kResidualSlots);
  else if (request.model->isStage())
    choice.residency.residuals().setSlots(algorithms::kOwnResidualSlots);
  const std::optional<model::ActRatio> &share = request.policy.actRatio;
  if (!share || share->isAuto())
    return choice;
  choice.actRatio = *share;
  if (share->any() && request.policy.actHome == model::ActHome::Host)
    choice.residency.setActAway(algorithms::evenLayers(request.model->layers, request.model->layers));
  return choice;
}

absl::StatusOr<Target> resolve(const CompileRequest &request) { return resolve(request, askedChoice(request)); }

absl::StatusOr<Target> resolve(const CompileRequest &request, const Choice &choice, bool swapsLayers) {
  const model::ModelSpec &spec = request.model;
  const model::Goal &goal = request.goal;
  const model::Buckets &buckets = choice.buckets;
  RETURN_IF_ERROR(checkBuckets("buckets.new_tokens", buckets.newTokens, kMostTokens));
  RETURN_IF_ERROR(checkBuckets("buckets.sequences", buckets.sequences, kMostSequences));
  RETURN_IF_ERROR(checkBuckets("buckets.contexts", buckets.contexts, spec.longestContext()));
  RETURN_IF_ERROR(checkObjectives(goal));

  Target target;
  target.choice = choice;
  RETURN_IF_ERROR(checkMiniBatches(request, choice));
  std::optional<int64_t> ofOne = goal.batch;
  if (ofOne)
    ofOne = *ofOne / choice.miniBatches;
  ASSIGN_OR_RETURN(batch, settle("goal.batch", ofOne, "buckets.sequences", buckets.sequences, 1, kMostSequences));
  target.batch = batch;
  if (goal.context && *goal.context > spec.longestContext())
    return refuse("goal.context", *goal.context, absl::StrCat("at most ", model::longestContextText(spec)));
  const int64_t output = goal.outputLen.value_or(1), stated = goal.inputLen.value_or(1) + output;
  ASSIGN_OR_RETURN(context,
                   settle("goal.context", goal.context, "buckets.contexts", buckets.contexts,
                          std::min(std::max(kDefaultContext, stated), spec.longestContext()), spec.longestContext()));
  target.context = context;
  if ((goal.inputLen || goal.outputLen) && stated > context)
    return goal.inputLen ? refuse("goal.input_len", *goal.inputLen,
                                  absl::StrCat("with ", output, " of output at most the context of ", context))
                         : refuse("goal.output_len", output, absl::StrCat("less than the context of ", context));
  RETURN_IF_ERROR(resolveKv(request, swapsLayers, target));
  target.deviceMemory = goal.deviceMemory.value_or(request.hardware.defaultBudget());
  if (target.deviceMemory == 0)
    return refuse("goal.device_memory", 0, "a positive number of bytes");
  resolveGrowth(request, target);
  RETURN_IF_ERROR(resolveBuckets(target));
  return target;
}

absl::Status checkBlocks(const std::vector<Candidate> &stated, const Target &target) {
  int64_t most = 0;
  for (const Candidate &candidate : stated) {
    const auto refuseBlocks = [&](auto &&...text) {
      return absl::InvalidArgumentError(absl::StrCat("placement '", candidate.name, "': ", text...));
    };
    const int64_t here = candidate.kvBlocks > 0 ? candidate.kvBlocks : target.kvBlocks;
    if (here > target.kvBlocks)
      return refuseBlocks("has ", here, " blocks of each cache, expected at most the ", target.kvBlocks,
                          " that there are");
    if (const std::optional<int64_t> away = candidate.residency.firstKvBlockAway(); away >= here)
      return refuseBlocks("caches are split at block ", *away, ", expected one of the ", here, " that there are");
    most = std::max(most, here);
  }
  if (!stated.empty() && most < target.kvBlocks)
    return absl::InvalidArgumentError(absl::StrCat(
        "placements have at most ", most, " blocks of each cache, expected one that has all ", target.kvBlocks));
  return absl::OkStatus();
}

} // namespace headrace::compiler
