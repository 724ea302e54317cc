// SPDX-License-Identifier: Apache-2.0
#include "tools/Trace.h"

#include <algorithm>
#include <limits>

#include <nlohmann/json.hpp>

#include "runtime/model/Text.h"

namespace headrace::tools {
namespace {

using Json = nlohmann::ordered_json;
constexpr const char *kFormat = "headrace-trace";
constexpr int kVersion = 1;

} // namespace

Trace makeTrace(const plan::Plan &plan, const std::string &device, uint32_t variant,
                absl::Span<const core::StepTime> times) {
  Trace trace{plan.modelHash, device, variant, {}};
  int64_t first = std::numeric_limits<int64_t>::max();
  for (const core::StepTime &t : times)
    first = std::min(first, t.startNs);
  for (const core::StepTime &t : times)
    trace.steps.emplace_back(t.startNs - first, t.endNs - first);
  return trace;
}

std::string traceJson(const Trace &trace) {
  Json json = {{"format", kFormat},      {"version", kVersion},      {"model_hash", trace.modelHash},
               {"device", trace.device}, {"variant", trace.variant}, {"steps", Json::array()}};
  for (const auto &[start, end] : trace.steps)
    json["steps"].push_back({start, end});
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

absl::StatusOr<Trace> parseTrace(std::string_view text, const std::string &where, const plan::Plan &plan) {
  const auto refuse = [&](const std::string &what) {
    return absl::InvalidArgumentError(model::cat(where, ": ", what));
  };
  const Json json = Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("format") || json["format"] != kFormat)
    return refuse("expected a trace written by headrace run --trace");
  for (const char *key : {"version", "model_hash", "device", "variant", "steps"})
    if (!json.contains(key))
      return refuse(model::cat(key, " is missing"));
  if (json["version"] != kVersion)
    return refuse(model::cat("version = ", json["version"].dump().substr(0, 40), ": expected ", kVersion));
  if (!json["model_hash"].is_string() || !json["device"].is_string() || !json["variant"].is_number_unsigned() ||
      !json["steps"].is_array())
    return refuse("model_hash, device, variant and steps: expected two texts, a number and a list");
  Trace trace;
  trace.modelHash = json["model_hash"].get<std::string>();
  trace.device = json["device"].get<std::string>();
  const auto variant = json["variant"].get<uint64_t>();
  if (trace.modelHash != plan.modelHash)
    return refuse(
        model::cat("model_hash = ", model::escaped(trace.modelHash, 40), ": expected the plan's, ", plan.modelHash));
  if (variant >= plan.variants.size())
    return refuse(model::cat("variant = ", variant, ": expected one of the plan's ", plan.variants.size()));
  trace.variant = static_cast<uint32_t>(variant);
  const size_t steps = plan.schedules[plan.variants[trace.variant].schedule].steps.size();
  if (json["steps"].size() != steps)
    return refuse(model::cat(json["steps"].size(), " steps: expected the ", steps, " of variant ", variant));
  for (const Json &step : json["steps"]) {
    if (!step.is_array() || step.size() != 2 || !step[0].is_number_integer() || !step[1].is_number_integer())
      return refuse(model::cat("steps: ", model::escaped(step.dump(-1, ' ', true, Json::error_handler_t::replace), 40),
                               ": expected [start_ns, end_ns]"));
    const auto start = step[0].get<int64_t>(), end = step[1].get<int64_t>();
    if (start < 0 || end < start)
      return refuse(model::cat("steps: [", start, ", ", end, "]: expected 0 <= start_ns <= end_ns"));
    trace.steps.emplace_back(start, end);
  }
  return trace;
}

} // namespace headrace::tools
