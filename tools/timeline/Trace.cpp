// SPDX-License-Identifier: Apache-2.0
#include "tools/timeline/Trace.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include <nlohmann/json.hpp>

#include "runtime/base/Text.h"
#include "tools/timeline/TraceRows.h"

namespace headrace::tools {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kLongestUs = 1e12; // 11 days: whole nanoseconds are exact up to there

// A step's [start, end] in ns of an event's ts and dur in us; nothing where they are no such times.
std::optional<std::pair<int64_t, int64_t>> timesOf(const Json &event) {
  if (!event.contains("ts") || !event.contains("dur") || !event["ts"].is_number() || !event["dur"].is_number())
    return std::nullopt;
  const double ts = event["ts"].get<double>(), dur = event["dur"].get<double>();
  if (!(ts >= 0 && ts <= kLongestUs && dur >= 0 && dur <= kLongestUs))
    return std::nullopt;
  const int64_t start = std::llround(ts * 1000);
  return std::pair(start, start + std::llround(dur * 1000));
}

const Json *member(const Json &object, const char *key) {
  return object.is_object() && object.contains(key) ? &object[key] : nullptr;
}

// The step that an event is of; nothing for what is none of the measured lanes' bars.
std::optional<uint64_t> stepOf(const Json &event) {
  const Json *pid = member(event, "pid"), *args = member(event, "args");
  const Json *step = args == nullptr ? nullptr : member(*args, "step");
  if (pid == nullptr || *pid != kMeasuredPid || step == nullptr || !step->is_number_unsigned())
    return std::nullopt;
  return step->get<uint64_t>();
}

} // namespace

Trace makeTrace(const plan::Plan &plan, const std::string &device, uint32_t variant,
                absl::Span<const core::StepTime> times) {
  Trace trace;
  trace.modelHash = plan.modelHash;
  trace.device = device;
  trace.variant = variant;
  int64_t first = std::numeric_limits<int64_t>::max();
  for (const core::StepTime &t : times)
    first = std::min(first, t.startNs);
  for (const core::StepTime &t : times)
    trace.steps.emplace_back(t.startNs - first, t.endNs - first);
  return trace;
}

namespace {

bool isBlock(const plan::Plan &plan, const Json &json) {
  return json.is_number_unsigned() && json.get<uint64_t>() <= static_cast<uint64_t>(plan.kvBlocks);
}
bool areBlocks(const plan::Plan &plan, const Json &json) {
  return json.is_array() && json.size() == 2 && isBlock(plan, json[0]) && isBlock(plan, json[1]) && json[0] <= json[1];
}

const Json &ofMiniBatch(const plan::Plan &plan, const Json &json, uint32_t miniBatch) {
  return plan.miniBatches == 1 ? json : json[miniBatch];
}
template <typename Valid> bool areOfEach(const plan::Plan &plan, const Json &json, Valid valid) {
  if (plan.miniBatches == 1)
    return valid(json);
  return json.is_array() && json.size() == plan.miniBatches && std::all_of(json.begin(), json.end(), valid);
}

} // namespace

absl::StatusOr<Trace> parseTrace(std::string_view text, const std::string &where, const plan::Plan &plan) {
  const auto refuse = [&](const std::string &what) {
    return absl::InvalidArgumentError(model::cat(where, ": ", what));
  };
  const Json json = Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  const Json *other = member(json, "otherData"), *events = member(json, "traceEvents");
  const Json *format = other == nullptr ? nullptr : member(*other, "format");
  if (format == nullptr || *format != kTimelineFormat || events == nullptr || !events->is_array())
    return refuse("expected a timeline written by headrace run, with --trace or as --timeline FILE.json");
  if (other->contains(kStagesKey))
    return refuse("a timeline of stages: expected one plan's");
  for (const char *key : {"version", "model_hash", "variant", "measured"})
    if (!other->contains(key))
      return refuse(model::cat("otherData.", key, " is missing",
                               key == std::string_view("measured") ? ": it has planned lanes only" : ""));
  if ((*other)["version"] != kTimelineVersion)
    return refuse(
        model::cat("otherData.version = ", (*other)["version"].dump().substr(0, 40), ": expected ", kTimelineVersion));
  const Json &measured = (*other)["measured"];
  const Json *device = member(measured, "device"), *iteration = member(measured, "iteration"),
             *about = member(measured, "about");
  if (!(*other)["model_hash"].is_string() || !(*other)["variant"].is_number_unsigned() || device == nullptr ||
      !device->is_string() || iteration == nullptr || !iteration->is_number_unsigned() || about == nullptr ||
      !about->is_string())
    return refuse("otherData.model_hash, variant, measured.device, iteration and about: expected a text, a number, a "
                  "text, a number and a text");
  const Json *inUse = member(measured, kInUseKey), *written = member(measured, kWrittenKey); // where a launch was told
  const std::string each =
      plan.miniBatches == 1 ? "" : model::cat(", in a list of one for each of ", plan.miniBatches, " mini-batches");
  if (inUse != nullptr && !areOfEach(plan, *inUse, [&](const Json &one) { return isBlock(plan, one) && one != 0; }))
    return refuse(model::cat("otherData.measured.", kInUseKey, " = ", inUse->dump().substr(0, 40), ": expected 1 to ",
                             plan.kvBlocks, ", the plan's KV blocks", each));
  if (written != nullptr && !areOfEach(plan, *written, [&](const Json &one) { return areBlocks(plan, one); }))
    return refuse(model::cat("otherData.measured.", kWrittenKey, " = ", written->dump().substr(0, 40),
                             ": expected [first, end] with first <= end <= ", plan.kvBlocks, ", the plan's KV blocks",
                             each));
  Trace trace;
  trace.inUse.resize(plan.miniBatches);
  for (uint32_t i = 0; i < plan.miniBatches; ++i) {
    if (inUse != nullptr)
      trace.inUse[i].kvBlocks = ofMiniBatch(plan, *inUse, i).get<int64_t>();
    if (written != nullptr) {
      trace.inUse[i].writtenBegin = ofMiniBatch(plan, *written, i)[0].get<int64_t>();
      trace.inUse[i].writtenEnd = ofMiniBatch(plan, *written, i)[1].get<int64_t>();
    }
  }
  trace.modelHash = (*other)["model_hash"].get<std::string>();
  trace.device = device->get<std::string>();
  trace.iteration = iteration->get<uint64_t>();
  trace.about = about->get<std::string>();
  const auto variant = (*other)["variant"].get<uint64_t>();
  if (trace.modelHash != plan.modelHash)
    return refuse(
        model::cat("model_hash = ", model::escaped(trace.modelHash, 40), ": expected the plan's, ", plan.modelHash));
  if (variant >= plan.variants.size())
    return refuse(model::cat("variant = ", variant, ": expected one of the plan's ", plan.variants.size()));
  trace.variant = static_cast<uint32_t>(variant);
  if (const Json *rows = member(measured, kRowsKey); rows != nullptr) {
    auto read = readRows(*rows, plan, plan.variants[trace.variant]);
    if (!read)
      return refuse(model::cat("otherData.measured.", kRowsKey, ": expected a list with an object for each of ",
                               plan.miniBatches, " mini-batches, of counts within variant ", variant));
    trace.rows = *std::move(read);
  }
  const size_t steps = plan.schedules[plan.variants[trace.variant].schedule].steps.size();
  trace.steps.assign(steps, {0, -1});
  size_t found = 0;
  for (const Json &event : *events) {
    const std::optional<uint64_t> step = stepOf(event);
    if (!step)
      continue;
    const auto times = timesOf(event);
    if (!times)
      return refuse(model::cat("the event of step ", *step, ": expected ts and dur, times in us from 0 on"));
    if (*step >= steps || trace.steps[*step].second >= 0)
      return refuse(model::cat("step ", *step, ": expected each of the ", steps, " of variant ", variant, " once"));
    trace.steps[*step] = *times;
    ++found;
  }
  if (found != steps)
    return refuse(model::cat(found, " steps: expected the ", steps, " of variant ", variant));
  return trace;
}

} // namespace headrace::tools
