// SPDX-License-Identifier: Apache-2.0
//
// What contradicts itself in a job: validate() of JobFile.h.
#include <algorithm>
#include <iterator>

#include "runtime/base/Text.h"
#include "runtime/job/Expansion.h"
#include "runtime/job/JobFile.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::model {
namespace {

constexpr size_t kLongestPolicyName = 80;

// Records the first contradiction.
class Contradictions {
public:
  explicit Contradictions(std::string_view where) : where_(where) {}
  void require(bool holds, std::string_view key, const absl::AlphaNum &value, std::string_view expected) {
    if (!holds && status_.ok())
      status_ = absl::InvalidArgumentError(
          cat(where_, where_.empty() ? "" : ": ", key, " = ", value, ": expected ", expected));
  }
  absl::Status status() const { return status_; }

private:
  std::string_view where_;
  absl::Status status_;
};

void checkBucket(Contradictions &check, std::string_view key, const std::vector<int64_t> &sizes) {
  for (size_t i = 0; i < sizes.size(); ++i) {
    check.require(sizes[i] >= 1, key, sizes[i], "sizes of at least 1");
    if (i > 0)
      check.require(sizes[i] > sizes[i - 1], key, sizes[i], cat("ascending sizes, it follows ", sizes[i - 1]));
  }
}

void checkGoal(Contradictions &check, const Goal &goal) {
  if (goal.deviceMemory)
    check.require(*goal.deviceMemory > 0, "goal.device_memory", *goal.deviceMemory, "a positive number of bytes");
  if (goal.batch)
    check.require(*goal.batch >= 1, "goal.batch", *goal.batch, "at least 1");
  if (goal.context)
    check.require(*goal.context >= 1, "goal.context", *goal.context, "at least 1");
  if (goal.kvTokens)
    check.require(*goal.kvTokens >= goal.context.value_or(1), "goal.kv_tokens", *goal.kvTokens,
                  goal.context ? cat("at least goal.context = ", *goal.context) : "at least 1");
  if (goal.autoKvTokens)
    check.require(!goal.kvDeviceMemory, "goal.kv_tokens", "\"auto\"",
                  "no goal.kv_device_memory beside it: it is what memory is left");
  if (goal.kvDeviceMemory && goal.deviceMemory)
    check.require(*goal.kvDeviceMemory <= *goal.deviceMemory, "goal.kv_device_memory", *goal.kvDeviceMemory,
                  cat("at most goal.device_memory = ", *goal.deviceMemory));
  if (goal.expansion) {
    const std::string text = expansionText(*goal.expansion);
    check.require(isExpansion(*goal.expansion), "goal.expansion", text, kExpansions);
    check.require(!goal.kvDeviceMemory || !goal.kvTokens, "goal.expansion", text,
                  "goal.kv_tokens or goal.kv_device_memory beside it, not both: each follows from the other");
  }
  check.require(goal.blockTokens >= 1, "goal.block_tokens", goal.blockTokens, "at least 1");
  for (const auto &[key, tokens] : {std::pair("goal.input_len", goal.inputLen), {"goal.output_len", goal.outputLen}})
    if (tokens)
      check.require(*tokens >= 1, key, *tokens, "at least 1");
  if (goal.context && goal.inputLen)
    check.require(*goal.inputLen <= *goal.context - goal.outputLen.value_or(1), "goal.input_len", *goal.inputLen,
                  cat("with ", goal.outputLen.value_or(1), " of output at most goal.context = ", *goal.context));
  if (goal.context && goal.outputLen)
    check.require(*goal.outputLen < *goal.context, "goal.output_len", *goal.outputLen,
                  cat("less than goal.context = ", *goal.context));

  for (const auto &[key, time] : {std::pair("goal.ttft", goal.ttft), std::pair("goal.tpot", goal.tpot)})
    if (time) {
      check.require(time->count() > 0, key, time->count(), "a time above zero");
      check.require(!goal.sloFactor, key, cat(static_cast<double>(time->count()) / 1e6, " ms"),
                    "either a time or goal.slo_factor, not both");
    }
  if (goal.sloFactor)
    check.require(*goal.sloFactor >= 1 && *goal.sloFactor <= kMaxSloFactor, "goal.slo_factor", *goal.sloFactor,
                  "a factor of the time without offloading, from 1 to 1e6");
  check.require(goal.busDevices >= 1 && goal.busDevices <= kMaxBusDevices, "goal.bus_devices", goal.busDevices,
                cat("1 to ", kMaxBusDevices));
}

void checkPolicy(Contradictions &check, const Policy &policy) {
  check.require(!policy.name.empty() && policy.name.size() <= kLongestPolicyName, "policy.name",
                cat("\"", policy.name.substr(0, kLongestPolicyName), "\""), "a policy's name");
  if (policy.placements)
    check.require(*policy.placements >= 1 && *policy.placements <= kMaxPlacements, "policy.placements",
                  *policy.placements, cat("1 to ", kMaxPlacements));
  if (policy.interval) {
    check.require(*policy.interval >= 1, "policy.interval", *policy.interval, "at least 1, or \"none\"");
    check.require(!policy.none, "policy.interval", *policy.interval, "no other interval beside \"none\"");
    check.require(!policy.offloadLayers, "policy.offload_layers", policy.offloadLayers.value_or(0),
                  cat("not to stand beside policy.interval = ", *policy.interval));
  }
  if (policy.offloadLayers) {
    check.require(*policy.offloadLayers >= 0, "policy.offload_layers", *policy.offloadLayers, "0 or more");
    check.require(!policy.none || *policy.offloadLayers == 0, "policy.offload_layers", *policy.offloadLayers,
                  "0 beside policy.interval = \"none\"");
  }
  if (policy.none) {
    constexpr std::string_view kNothing = "\"auto\" or false beside policy.interval = \"none\": nothing is offloaded";
    check.require(policy.offloadEmbedding != AutoOnOff::On, "policy.offload_embedding", "true", kNothing);
    check.require(policy.offloadHead != AutoOnOff::On, "policy.offload_head", "true", kNothing);
  }
  if (policy.slots)
    check.require(*policy.slots >= 1, "policy.slots", *policy.slots, "at least 1");
  if (policy.kvPlaces)
    check.require(*policy.kvPlaces >= kLeastKvPlaces, "policy.kv_places", *policy.kvPlaces,
                  "at least 2: one is filled while the other is in use");
}

// What of the one does not stand beside the other.
void checkBeside(Contradictions &check, const Goal &goal, const Policy &policy) {
  check.require(!goal.autoKvTokens || !policy.kvPlaces, "goal.kv_tokens", "\"auto\"",
                "no policy.kv_places beside it: caches that cycle have places on the host");
  check.require(!goal.autoKvTokens || policy.prefer != Prefer::Throughput, "goal.kv_tokens", "\"auto\"",
                "no policy.prefer = \"throughput\" beside it: the batch that is found has KV for all of it");
}

// What is beyond the model.
void checkModel(Contradictions &check, const Job &job, const ModelSpec &spec) {
  const Policy &policy = job.policy;
  if (policy.interval)
    check.require(*policy.interval <= spec.layers, "policy.interval", *policy.interval,
                  cat("at most the ", spec.layers, " layers of ", spec.name, ", or \"none\""));
  if (policy.offloadLayers)
    check.require(*policy.offloadLayers <= spec.layers, "policy.offload_layers", *policy.offloadLayers,
                  cat("at most the ", spec.layers, " layers of ", spec.name));
  const int64_t miniBatches = std::max<int64_t>(1, job.goal.miniBatches); // each has its own cache of each layer
  if (policy.kvPlaces)
    check.require(*policy.kvPlaces < spec.layers * miniBatches, "policy.kv_places", *policy.kvPlaces,
                  cat("less than the ", spec.layers, " layers of ", spec.name,
                      miniBatches == 1 ? std::string() : cat(" by ", miniBatches, " mini-batches"),
                      ": else nothing would move"));
  const std::string longest = cat("at most ", longestContextText(spec));
  if (job.goal.context)
    check.require(*job.goal.context <= spec.longestContext(), "goal.context", *job.goal.context, longest);
  for (int64_t context : job.buckets.contexts)
    check.require(context <= spec.longestContext(), "buckets.contexts", context, longest);
}

} // namespace

absl::Status validate(const Job &job, std::string_view where) {
  Contradictions check(where);
  checkGoal(check, job.goal);
  checkPolicy(check, job.policy);
  checkBeside(check, job.goal, job.policy);
  checkBucket(check, "buckets.new_tokens", job.buckets.newTokens);
  checkBucket(check, "buckets.sequences", job.buckets.sequences);
  checkBucket(check, "buckets.contexts", job.buckets.contexts);
  if (job.model)
    checkModel(check, job, job.model->spec);
  return check.status();
}

} // namespace headrace::model
