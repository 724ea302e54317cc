// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/BenchInstance.h"

#include <algorithm>

#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/plan/PlanFile.h"
#include "runtime/plan/value/PlacementTable.h"
#include "runtime/serve/engine/BatchEngine.h"
#include "tools/commands/Devices.h"
#include "tools/commands/RunSetup.h"
#include "tools/report/IterationLooks.h"
#include "tools/report/RunFindings.h"
#include "tools/timeline/Trace.h"

namespace headrace::tools {

using namespace std::chrono_literals;

namespace {

// Shares of one iteration in which a lane had a step running.
struct Busy {
  double compute = 0, link = 0;
};
Busy busyOf(const plan::Schedule &schedule, absl::Span<const core::StepTime> times) {
  if (times.size() != schedule.steps.size() || times.empty())
    return {};
  int64_t begin = times[0].startNs, end = times[0].endNs, compute = 0, link = 0;
  for (size_t i = 0; i < times.size(); ++i) {
    begin = std::min(begin, times[i].startNs);
    end = std::max(end, times[i].endNs);
    const int64_t ns = times[i].endNs - times[i].startNs;
    if (plan::computes(schedule.steps[i].lane))
      compute += ns;
    else if (plan::toDevice(schedule.steps[i].lane))
      link += ns;
  }
  const auto whole = static_cast<double>(std::max<int64_t>(end - begin, 1));
  return {static_cast<double>(compute) / whole, static_cast<double>(link) / whole};
}

} // namespace

absl::StatusOr<std::unique_ptr<BenchInstance>>
BenchInstance::load(plan::Plan plan, BenchRole role, const BenchLoad &load, const BenchObjective &objective,
                    const DeviceFlags &flags, const model::WeightSource *weights) {
  auto instance = std::unique_ptr<BenchInstance>(new BenchInstance(std::move(plan), role, load, objective));
  const plan::Plan &kept = instance->plan_;
  instance->prefillPlacement_ = placementFor(kept, /*decode=*/false, load);
  instance->decodePlacement_ = placementFor(kept, /*decode=*/true, load);
  if (role == BenchRole::Decode) // its prompts are the other instance's work
    instance->prefillPlacement_ = instance->decodePlacement_;
  ASSIGN_OR_RETURN(device, makeDevice(flags.deviceOr(deviceFor(kept.hardware.kind)), flags));
  instance->device_ = std::move(device);
  RETURN_IF_ERROR(cuda::useAlgorithmsBeside(*instance->device_, kept.goal.record));
  core::LoadOptions loadOptions;
  loadOptions.placement = instance->prefillPlacement_;
  absl::StatusOr<std::unique_ptr<core::Runtime>> runtime = core::Runtime::load(
      kept, *instance->device_, {.trace = true, .pricing = core::Pricing::Rows}, weights, loadOptions);
  if (!runtime.ok())
    return runtime.status();
  instance->runtime_ = *std::move(runtime);
  instance->times_.emplace(kept, /*linkBandwidth=*/0, loadOptions.placement);
  return instance;
}

absl::Status BenchInstance::round(const Prompts &prompts, bool counts) {
  return generate(prompts, role_ == BenchRole::Prefill ? 1 : load_.output, counts);
}

absl::Status BenchInstance::generate(const Prompts &prompts, int64_t newTokens, bool counts) {
  serve::GenerateRequest request;
  request.prompts = prompts;
  request.maxNewTokens = newTokens;
  request.separatePrefill = true;
  request.drain = false; // rounds follow each other as iterations do
  std::vector<serve::IterationSeen> iterations;
  request.onIteration = [&](const serve::IterationSeen &seen) { iterations.push_back(seen); };
  IterationLooks looks(*runtime_, /*opened=*/false, /*many=*/false, /*rows=*/true); // only at what was launched
  request.onLaunch = [&](uint32_t variant, const kernels::IterationMeta &first) { looks.launched(variant, first); };
  request.placementOf = [this](const serve::ComposedIteration &next) {
    return next.prefill ? prefillPlacement_ : decodePlacement_;
  };
  ASSIGN_OR_RETURN(result, serve::generate(*runtime_, request));
  for (size_t i = 0; i < iterations.size(); ++i)
    times_->add(iterations[i], looks.ran()[i], counts);
  if (!counts)
    return absl::OkStatus();

  const size_t prefills = result.prefillIterations;
  if (role_ != BenchRole::Decode) {
    prefill_.iterations = static_cast<int64_t>(prefills);
    prefill_.variant = iterations[prefills - 1].variant;
    prefill_.ran = looks.ran()[prefills - 1];
    prefill_.ns.insert(prefill_.ns.end(), result.firstTokenNs.begin(), result.firstTokenNs.end());
    for (size_t i = 0; i < prefills; ++i)
      prefill_.totalNs += iterations[i].ns;
    for (const std::vector<int32_t> &prompt : prompts)
      prefill_.tokens += prompt.size();
  }
  for (size_t i = prefills + (role_ == BenchRole::Decode ? 1 : 0); i < iterations.size(); ++i) {
    decode_.variant = iterations[i].variant;
    decode_.ran = looks.ran()[i];
    decode_.ns.push_back(iterations[i].ns);
    decode_.totalNs += iterations[i].ns;
    decode_.tokens += prompts.size();
  }
  return absl::OkStatus();
}

absl::StatusOr<BenchPhase> BenchInstance::prefill(const Prompts &prompts, uint64_t deviceMemory) {
  if (role_ == BenchRole::Both) // the last iteration was one of decode
    RETURN_IF_ERROR(generate(prompts, 1, /*counts=*/false));
  return phaseOf(prefill_, prefillPlacement_, /*decode=*/false, deviceMemory);
}

absl::StatusOr<BenchPhase> BenchInstance::decode(uint64_t deviceMemory) const {
  return phaseOf(decode_, decodePlacement_, /*decode=*/true, deviceMemory);
}

absl::StatusOr<BenchPhase> BenchInstance::phaseOf(const Samples &samples, uint32_t placement, bool decode,
                                                  uint64_t deviceMemory) const {
  RETURN_IF_ERROR(device_->drain()); // the last iteration's times are whole
  BenchPhase phase;
  phase.batch = load_.batch;
  phase.placement = plan_.placements[placement].name;
  phase.layers = plan::offloadedWeights(plan_, plan_.placements[placement]).layers;
  phase.time = spreadOf(samples.ns);
  phase.samples = samples.ns.size();
  const std::chrono::nanoseconds objective = (decode ? objective_.tpot : objective_.ttft).value_or(0ns);
  phase.sloNs = static_cast<double>(objective.count()) *
                static_cast<double>(decode || !objective_.ofIterations ? 1 : samples.iterations);
  if (phase.sloNs > 0)
    phase.held =
        static_cast<double>(std::count_if(samples.ns.begin(), samples.ns.end(),
                                          [&](int64_t ns) { return static_cast<double>(ns) <= phase.sloNs; })) /
        static_cast<double>(samples.ns.size());
  if (const plan::BucketChoice *choice = choiceFor(plan_, decode, load_))
    phase.residentNs = static_cast<double>(choice->residentNs);
  const plan::Variant &variant = plan_.variants[samples.variant];
  compare(samples, decode, phase);
  if (samples.totalNs > 0)
    phase.tokensPerSecond = static_cast<double>(samples.tokens) / (static_cast<double>(samples.totalNs) * 1e-9);
  phase.planHash = plan::planHash(plan_);
  phase.deviceBytes = plan_.arenaBytes;
  phase.hostBytes = offloadedBytes(plan_, placement);
  phase.freedBytes = plan::freedBytes(plan_, placement);
  phase.maxTokens = maxTokens(plan_, deviceMemory);
  const plan::Schedule &schedule = plan_.schedules[variant.schedule];
  phase.movedBytes = plan::linkBytes(schedule).h2d;
  const Busy busy = busyOf(schedule, device_->lastTimes());
  phase.stallShare = 1 - busy.compute;
  phase.linkBusy = busy.link;
  return phase;
}

// What was predicted of what ran, and why it took another time.
void BenchInstance::compare(const Samples &samples, bool decode, BenchPhase &phase) const {
  Compared compared = decode ? times_->decode() : times_->prefill();
  if (decode && compared.iterations == 0) // the only one is behind a change
    compared = times_->changes();
  phase.predictedNs = compared.predictedMs * 1e6 * static_cast<double>(decode ? 1 : samples.iterations);
  phase.overPredicted = compared.ratio();
  if (!device_->holdsData() ||
      device_->lastTimes().size() != plan_.schedules[plan_.variants[samples.variant].schedule].steps.size())
    return;
  Trace looked = makeTrace(plan_, std::string(device_->kind()), samples.variant, device_->lastTimes());
  looked.about = "the last iteration";
  looked.rows = samples.ran.rows;
  looked.inUse = samples.ran.inUse;
  const PhaseInput input{decode ? "decode" : "prefill", compared.predictedMs, compared.measuredMs, samples.variant,
                         std::move(looked)};
  phase.why = findOut(plan_, {input}, /*linkBandwidth=*/0, /*virtualTime=*/false).phases.front().why;
}

} // namespace headrace::tools
