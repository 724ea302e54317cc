// SPDX-License-Identifier: Apache-2.0
//
// Of Compilation, caches that the device does not hold: how many blocks stay, in how many slots the others take turns,
// how what is appended to them gets home, and what would do where nothing does.
#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/choose/Compilation.h"
#include "compiler/choose/Explain.h"
#include "compiler/choose/WriteBackChoice.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::compiler {
namespace {

constexpr int64_t kMostKvSlots = 8;   // that are tried
constexpr int64_t kMostCompared = 32; // placements, of those that an objective may choose from

// The largest decode bucket of the first placement, whatever is in use of KV.
const plan::Variant &largestDecode(const plan::Plan &plan) {
  const plan::Variant *largest = &plan.variants.front();
  for (const plan::Variant &variant : plan.variants) {
    const plan::Schedule &schedule = plan.schedules[variant.schedule];
    if (variant.placement == 0 && schedule.kvBlocks == 0 && schedule.iterationClass == plan::IterationClass::Decode)
      largest = &variant;
  }
  return *largest;
}
uint64_t decodeNs(const plan::Plan &plan) { return largestDecode(plan).predictedNs; }

// Where an iteration takes a hundredth more than its compute and its copies, both directions sharing the link.
bool waitsForSlots(const plan::Plan &plan, double duplexShare) {
  const plan::Variant &decode = largestDecode(plan);
  const plan::Schedule &schedule = plan.schedules[decode.schedule];
  uint64_t copies = 0;
  bool back = false;
  for (size_t step = 0; step < schedule.steps.size(); ++step)
    if (schedule.steps[step].kind == plan::StepKind::Copy) {
      copies += decode.durationsNs[step];
      back |= plan::toHost(schedule.steps[step].lane);
    }
  uint64_t bound = std::max(decode.computeAloneNs, decode.linkAloneNs);
  if (back)
    bound = std::max(bound, static_cast<uint64_t>(static_cast<double>(copies) / duplexShare));
  return decode.predictedNs > bound + bound / 100;
}

algorithms::WriteBack writeBackOf(model::KvWriteBack asked) {
  switch (asked) {
  case model::KvWriteBack::All:
    return algorithms::WriteBack::All;
  case model::KvWriteBack::Dirty:
    return algorithms::WriteBack::Dirty;
  case model::KvWriteBack::Auto:
  case model::KvWriteBack::Mirror:
    break;
  }
  return algorithms::WriteBack::Mirror;
}

// A plan whose tails are mirrored or written back, by class.
struct WrittenBack {
  algorithms::WriteBack decode, mixed;
  Draft plan;
};

std::vector<uint64_t> allTimesOf(const plan::Plan &plan) {
  std::vector<uint64_t> times = iterationTimes(plan, plan::IterationClass::Decode);
  for (const uint64_t ns : iterationTimes(plan, plan::IterationClass::Mixed))
    times.push_back(ns);
  return times;
}

WriteBackReason reasonOf(plan::IterationClass iterationClass, algorithms::WriteBack chosen, const plan::Plan *mirrored,
                         const plan::Plan *back) {
  const auto largest = [&](const plan::Plan *plan) {
    const std::vector<uint64_t> times =
        plan != nullptr ? iterationTimes(*plan, iterationClass) : std::vector<uint64_t>();
    return times.empty() ? 0 : times.back();
  };
  return {iterationClass, chosen, largest(mirrored), largest(back)};
}

void addReason(absl::Span<const WriteBackReason> reasons, bool mixed, plan::Plan &plan) {
  absl::StrAppend(&plan.reason, ". ", explainWriteBack(reasons.first(mixed ? 2 : 1)));
}

} // namespace

absl::StatusOr<Draft> Compilation::run() {
  if (policy_.swapsLayers && request_.placements.empty())
    return swapCaches();
  if (target_.kvResident)
    return withWriteBack([this] {
      split_ = caches_.stated(candidatesOf(policy_, inputs_));
      const std::vector<Candidate> stated = *split_;
      absl::StatusOr<Draft> plan = choose();
      if (plan.ok() && request_.goal.expansion)
        absl::StrAppend(&plan->reason, ". ", explainExpansion(request_.goal, target_, request_.model->layers));
      return lacksDeviceMemory(plan.status()) ? leastOf(stated, plan.status()) : std::move(plan);
    });
  absl::StatusOr<Draft> plan = choose();
  if (plan.ok() && request_.policy.kvPlaces)
    return absl::InvalidArgumentError(
        absl::StrCat("policy.kv_places = ", *request_.policy.kvPlaces,
                     ": expected fewer KV blocks on the device than there are (", target_.kvBlocks,
                     " a layer): all of them fit, and nothing rotates; goal.kv_device_memory states how many stay"));
  if (!lacksDeviceMemory(plan.status()) || !policy_.splitsCaches || request_.goal.kvDeviceMemory)
    return plan;
  if (maySplit())
    return withWriteBack([this, whole = plan.status()] { return splitCaches(whole); });
  return refusalWith(plan.status(), ", KV blocks at home on the host (kv_device_memory)");
}

// The simulator says which way takes less time: rows that are mirrored cross the link while the step that appends them
// runs, a tail that is written back does so beside other steps, but whole. Of what is written back a launch copies what
// it has written: never more than with `all`, which nothing else is better for, so that has to be asked for.
template <class Make> absl::StatusOr<Draft> Compilation::withWriteBack(Make &&make) {
  using algorithms::WriteBack;
  const auto made = [&](WriteBack decode, WriteBack mixed) {
    caches_.setWriteBack(decode, mixed);
    return withSlots(make);
  };
  const bool mixed = !target_.mixed.empty();
  const model::KvWriteBack asked = request_.policy.kvWriteBack;
  if (asked != model::KvWriteBack::Auto || !request_.placements.empty()) {
    const WriteBack stated = writeBackOf(asked);
    absl::StatusOr<Draft> plan = made(stated, stated);
    if (plan.ok() && asked != model::KvWriteBack::Auto) {
      const bool mirrors = stated == WriteBack::Mirror;
      const plan::Plan *const mirrored = mirrors ? &*plan : nullptr, *const back = mirrors ? nullptr : &*plan;
      addReason({reasonOf(plan::IterationClass::Decode, stated, mirrored, back),
                 reasonOf(plan::IterationClass::Mixed, stated, mirrored, back)},
                mixed, *plan);
    }
    return plan;
  }
  std::vector<WrittenBack> plans;
  absl::Status refused;
  const auto attempt = [&](WriteBack decode, WriteBack ofMixed) {
    absl::StatusOr<Draft> plan = made(decode, ofMixed);
    if (plan.ok())
      plans.push_back({decode, ofMixed, *std::move(plan)});
    else if (refused.ok())
      refused = plan.status();
  };
  attempt(WriteBack::Mirror, WriteBack::Mirror);
  if (!refused.ok() && !(absl::IsResourceExhausted(refused) && latency_ && !lacksDeviceMemory(refused)))
    return refused; // one more slot takes more memory; an objective may be met
  attempt(WriteBack::Dirty, WriteBack::Dirty);
  if (plans.empty() || (!refused.ok() && !absl::IsResourceExhausted(refused)))
    return refused;
  if (plans.size() == 2) {
    const auto dirtyIsFaster = [&](plan::IterationClass iterationClass) {
      return fastestOf(
                 {iterationTimes(plans[0].plan, iterationClass), iterationTimes(plans[1].plan, iterationClass)}) == 1;
    };
    const bool decode = dirtyIsFaster(plan::IterationClass::Decode),
               prefill = dirtyIsFaster(plan::IterationClass::Mixed);
    if (mixed && decode != prefill)
      attempt(decode ? WriteBack::Dirty : WriteBack::Mirror, prefill ? WriteBack::Dirty : WriteBack::Mirror);
  }
  if (request_.policy.kvPlaces) // what stays over iterations goes home less often
    attempt(WriteBack::All, WriteBack::All);
  std::vector<std::vector<uint64_t>> times;
  times.reserve(plans.size());
  for (const WrittenBack &each : plans)
    times.push_back(allTimesOf(each.plan));
  const size_t chosen = fastestOf(times);
  const auto one = [&](WriteBack way) -> const plan::Plan * {
    const auto at = std::find_if(plans.begin(), plans.end(),
                                 [&](const WrittenBack &each) { return each.decode == way && each.mixed == way; });
    return at == plans.end() ? nullptr : &at->plan;
  };
  const auto reason = [&](plan::IterationClass iterationClass, WriteBack way) {
    WriteBackReason of = reasonOf(iterationClass, way, one(WriteBack::Mirror), one(WriteBack::Dirty));
    (way == WriteBack::Mirror ? of.mirroredNs : of.writtenBackNs) =
        iterationTimes(plans[chosen].plan, iterationClass).empty()
            ? 0
            : iterationTimes(plans[chosen].plan, iterationClass).back();
    return of;
  };
  const std::vector<WriteBackReason> reasons = {reason(plan::IterationClass::Decode, plans[chosen].decode),
                                                reason(plan::IterationClass::Mixed, plans[chosen].mixed)};
  addReason(reasons, mixed, plans[chosen].plan);
  return std::move(plans[chosen].plan);
}

// Where the head takes longer than the copies that two slots can take ahead, the link is idle at an iteration's edge:
// some percent on a shallow model with a large vocabulary. One more slot costs the memory of a layer's tail.
template <class Make> absl::StatusOr<Draft> Compilation::withSlots(Make &&make) {
  caches_.setSlots(0);
  absl::StatusOr<Draft> plan = make();
  const bool shared = request_.goal.expansion && target_.kvDeviceBytes; // among two slots and blocks
  const bool maySlots = !request_.policy.kvPlaces && !shared;           // else they are what is stated
  for (int64_t slots = caches_.leastSlots() + 1; slots <= kMostKvSlots && maySlots; ++slots) {
    // An objective that was missed may be met with more.
    const bool missed = absl::IsResourceExhausted(plan.status()) && latency_ && !lacksDeviceMemory(plan.status());
    if (plan.ok() ? !waitsForSlots(*plan, prices_.duplexShare()) : !missed)
      break;
    caches_.setSlots(slots);
    if (target_.kvResident && !caches_.statedResident()) // what KV may take holds no block beside so many
      break;
    absl::StatusOr<Draft> more = make();
    if (missed && !more.ok())
      continue;
    if (!more.ok() || (plan.ok() && decodeNs(*more) >= decodeNs(*plan)))
      break;
    plan = std::move(more);
  }
  return plan;
}

// What is stated stays as it is.
bool Compilation::maySplit() const {
  return policy_.splitsCaches && !target_.kvDeviceBytes && request_.placements.empty() &&
         !request_.policy.statesPlacement() && target_.kvBlocks > 1;
}

absl::StatusOr<Draft> Compilation::splitCaches(const absl::Status &whole) {
  const std::vector<Candidate> all = candidatesOf(policy_, inputs_);
  // Where objectives decide it may be another than the first that meets them.
  const auto most =
      static_cast<size_t>(request_.policy.placements.value_or(policy_.order == Order::MostFreed ? kMostCompared : 1));
  // Memory would do, and the objective does not.
  const auto missed = [&](const absl::Status &objective) {
    return absl::ResourceExhaustedError(
        absl::StrCat(objective.message(), ". With all KV blocks on the device: ", whole.message()));
  };
  // Several that leave room for each other; else one that fills the device.
  for (const size_t count : most > 1 ? std::vector{most, size_t{1}} : std::vector{most}) {
    split_ = caches_.filled(all, count);
    if (split_->empty())
      continue;
    latency_.reset();
    nested_ = false;
    absl::StatusOr<Draft> plan = choose();
    if (plan.ok())
      absl::StrAppend(&plan->reason, ". ", explainSplit(*plan));
    if (!lacksDeviceMemory(plan.status()))
      return absl::IsResourceExhausted(plan.status()) ? missed(plan.status()) : plan;
  }
  const absl::Status least = leastOf(caches_.least(all), whole);
  return refusalWith(least, whatHostWouldDo(all));
}

// At this device memory, where it is the host that has no room for what would be away.
std::string Compilation::whatHostWouldDo(const std::vector<Candidate> &candidates) {
  caches_.setHostCounts(false);
  const std::vector<Candidate> any = caches_.filled(candidates, SIZE_MAX);
  caches_.setHostCounts(true);
  std::optional<HostLayout> least;
  for (const Candidate &candidate : any)
    if (const HostLayout host = layOutHost({&candidate}, layout_, target_, request_.model);
        !least || host.bytes < least->bytes)
      least = host;
  std::string text;
  if (least && least->bytes > request_.hardware.hostLimit())
    absl::StrAppend(&text, ", ", hostMemoryThatWouldDo(request_.hardware, least->bytes));
  if (least && least->kvBytes > request_.goal.kvHostMemory.value_or(least->kvBytes))
    absl::StrAppend(&text, text.empty() ? ", " : " with ", "a kv_host_memory of ", least->kvBytes, " bytes");
  return text;
}

// Says of the candidate that needs the least memory how much that is, where it is less than `refused` says.
absl::Status Compilation::leastOf(const std::vector<Candidate> &candidates, const absl::Status &refused) {
  absl::Status least = refused;
  for (const Candidate &candidate : candidates) {
    if (family_.held(candidate).bytes >= *lacksDeviceMemory(least))
      continue;
    plan::Plan alone = emptyPlan();
    ASSIGN_OR_RETURN(evaluation, evaluate(candidate, alone, /*gaps=*/false));
    if (evaluation.arenaBytes < *lacksDeviceMemory(least))
      least = exhausted({{candidate}, 0}, evaluation.arenaBytes);
  }
  return least;
}

} // namespace headrace::compiler
