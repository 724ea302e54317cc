// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/BenchJob.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <vector>

#include "absl/strings/numbers.h"
#include "compiler/search/generators/Generators.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/model/KvEncoding.h"
#include "runtime/model/ModelSpec.h"
#include "tools/commands/Compiling.h"

namespace headrace::tools {
namespace {

using model::cat;

// New tokens of an iteration while prompts are read on a decode instance, where its time does not count. Enough that
// such an iteration takes longer than one of decode: else the runtime, which counts the transition to the other's
// slots, would stay with it.
constexpr int64_t kHandoverTokens = 1024;
constexpr uint64_t kLargeDevice = uint64_t{1} << 50;
constexpr int64_t kMostPrompts = int64_t{1} << 20, kMostTokens = int64_t{1} << 24; // of a plan

} // namespace

int64_t iterationTokens(BenchRole role, const BenchLoad &load) {
  const int64_t all = load.batch * load.input;
  const int64_t step = role == BenchRole::Decode      ? kHandoverTokens
                       : load.maxNumBatchedTokens > 0 ? load.maxNumBatchedTokens
                                                      : all;
  // An iteration of prefill has more rows than sequences.
  return std::min(all, std::max(2 * load.batch, step));
}

constexpr const char *kInterval = "interval"; // states a placement, as `layers` does

absl::Status applyPolicy(const std::string &spelled, model::Policy &policy) {
  const size_t equals = spelled.find('=');
  const std::string what = spelled.substr(0, equals);
  if (equals == std::string::npos) {
    policy.name = what;
    if (!compiler::policyNamed(policy.name).statesPlacement)
      policy.startRuleStated = false; // --start-rule is that of the placements which are stated
    return absl::OkStatus();
  }
  int64_t number = 0;
  const bool interval = what == kInterval, layers = what == "layers";
  if (!(interval || layers) || !absl::SimpleAtoi(spelled.substr(equals + 1), &number) || number < (interval ? 1 : 0))
    return absl::InvalidArgumentError(cat("command line: --policies \"", model::escaped(spelled, 80),
                                          "\": expected a policy's name, interval=N or layers=N"));
  policy.name = kInterval;
  (interval ? policy.interval : policy.offloadLayers) = number;
  return absl::OkStatus();
}

model::Job benchJob(const model::Job &job, BenchRole role, const BenchLoad &load) {
  model::Job out = job;
  const bool together = role == BenchRole::Both;
  out.goal.instances = together ? model::Instances::Together : model::Instances::Apart;
  out.goal.batch = load.batch;
  // A prefill instance keeps its prompts' keys and values until they are handed over.
  if (!job.goal.context && !(together && !job.buckets.contexts.empty()))
    out.goal.context = load.input + (role == BenchRole::Prefill ? 1 : load.output);
  BenchLoad ofOne = load; // mini-batch, which buckets are of
  ofOne.batch = std::max<int64_t>(1, load.batch / job.goal.miniBatches);
  if (!together)
    out.buckets = job.goal.autoMiniBatches
                      ? model::Buckets()
                      : model::Buckets{{iterationTokens(role, ofOne)}, {ofOne.batch}, {*out.goal.context}};
  else if (load.maxNumBatchedTokens > 0)
    out.buckets.newTokens = {iterationTokens(role, ofOne)};
  out.goal.inputLen = job.goal.inputLen.value_or(load.input);
  out.goal.outputLen = role == BenchRole::Prefill ? 1 : load.output;
  if (role == BenchRole::Prefill)
    out.goal.tpot.reset();
  if (role == BenchRole::Decode)
    out.goal.ttft.reset();
  return out;
}

absl::StatusOr<BenchObjective> objectiveOf(const model::Job &job, BenchRole role, const BenchLoad &load) {
  BenchObjective objective;
  if (role != BenchRole::Decode)
    objective.ttft = job.goal.ttft;
  if (role != BenchRole::Prefill)
    objective.tpot = job.goal.tpot;
  if (!job.goal.sloFactor || role == BenchRole::Both)
    return objective;
  model::Job resident = job;
  resident.policy = {};
  resident.policy.name = "none";
  resident.goal.autoMiniBatches = false; // one: nothing is offloaded that several would share
  resident.goal.deviceMemory = kLargeDevice;
  resident.goal.kvDeviceMemory.reset();
  resident.hardware->memoryBytes = kLargeDevice;
  resident.sharedMemory.reset();
  absl::StatusOr<plan::Plan> plan = compileJob(benchJob(resident, role, load));
  if (!plan.ok())
    return plan.status();
  return objectiveIn(*plan, role, load);
}

absl::StatusOr<BenchObjective> objectiveIn(const plan::Plan &plan, BenchRole role, const BenchLoad &load) {
  BenchObjective objective;
  for (const bool decode : {false, true}) {
    if (role == (decode ? BenchRole::Prefill : BenchRole::Decode))
      continue;
    const plan::BucketChoice *choice = choiceFor(plan, decode, load);
    if (choice == nullptr)
      return absl::InternalError("a plan with an objective has no choice for its bucket");
    (decode ? objective.tpot : objective.ttft) = std::chrono::nanoseconds(choice->sloNs);
  }
  objective.ofIterations = true;
  return objective;
}

const plan::BucketChoice *choiceFor(const plan::Plan &plan, bool decode, const BenchLoad &load) {
  const int64_t batch = (load.batch - 1) / plan.miniBatches + 1; // of one
  const int64_t context = std::min(load.input + (decode ? load.output : 0), plan.maxContext);
  const auto size = [&](const plan::BucketChoice &choice) {
    const plan::Variant &variant = plan.variants[choice.variant];
    return std::tuple(variant.newTokens, variant.sequences, variant.context);
  };
  std::vector<const plan::BucketChoice *> holds; // all of its sequences
  int64_t most = 0;
  for (const plan::BucketChoice &choice : plan.choices) {
    const plan::Variant &variant = plan.variants[choice.variant];
    const bool decodes = plan.schedules[variant.schedule].iterationClass == plan::IterationClass::Decode;
    if (decodes != decode || variant.sequences < batch || variant.context < context)
      continue;
    holds.push_back(&choice);
    most = std::max(most, variant.newTokens);
  }
  const int64_t rows = decode ? batch : std::min(batch * load.input, most);
  const plan::BucketChoice *best = nullptr;
  for (const plan::BucketChoice *choice : holds)
    if (plan.variants[choice->variant].newTokens >= rows && (best == nullptr || size(*choice) < size(*best)))
      best = choice;
  return best;
}

uint32_t placementFor(const plan::Plan &plan, bool decode, const BenchLoad &load) {
  const plan::BucketChoice *choice = choiceFor(plan, decode, load);
  return choice == nullptr ? 0 : plan.variants[choice->variant].placement;
}

int64_t mostPrompts(const model::Job &job, const BenchLoad &load, uint64_t deviceMemory) {
  const model::ModelSpec &spec = job.model->spec;
  const bool host = job.hardware->kind == model::DeviceKind::Host;
  const model::Encoding asked = job.goal.kvEncoding.value_or(host ? model::DType::F32 : spec.dtype);
  const model::Encoding kv = model::kvEncodingFor(asked, spec.headDim).value_or(asked);
  const int64_t context = job.goal.context.value_or(load.input + 1);
  const uint64_t prompt = static_cast<uint64_t>(spec.layers * context) * kv.bytes(2 * spec.kvHeads, spec.headDim);
  const auto fits = static_cast<int64_t>(
      std::min<uint64_t>(deviceMemory / std::max<uint64_t>(prompt, 1), static_cast<uint64_t>(kMostPrompts)));
  return std::clamp<int64_t>(fits, 1, std::max<int64_t>(1, kMostTokens / std::max(load.input, context)));
}

} // namespace headrace::tools
