// SPDX-License-Identifier: Apache-2.0
#include "tools/report/RunFindings.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "runtime/base/Text.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/sim/SimDevice.h"
#include "tools/report/Format.h"

namespace headrace::tools {
namespace {

using Json = nlohmann::ordered_json;
using model::cat;

constexpr double kSame = 1.15; // steps that differ by less took what was predicted
constexpr size_t kNamed = 3;   // copies by name; the others by unit

double ratio(uint64_t measured, uint64_t predicted) {
  return predicted == 0 ? 1 : static_cast<double>(measured) / static_cast<double>(predicted);
}
double apart(double ratio) { return ratio > 0 ? std::max(ratio, 1 / ratio) : 1; }
double ms(uint64_t ns) { return static_cast<double>(ns) / 1e6; }

template <class DurationOf> LaneTimes lanesOf(const plan::Schedule &schedule, DurationOf &&durationOf) {
  LaneTimes lanes;
  for (size_t i = 0; i < schedule.steps.size(); ++i) {
    const plan::Lane lane = schedule.steps[i].lane;
    if (plan::computes(lane))
      lanes.computeNs += durationOf(i);
    else if (plan::toDevice(lane))
      lanes.h2dNs += durationOf(i);
    else if (plan::toHost(lane))
      lanes.d2hNs += durationOf(i);
  }
  return lanes;
}

LaneTimes predictedLanes(const plan::Plan &plan, uint32_t variant, double linkBandwidth) {
  const plan::Variant &v = plan.variants[variant];
  const plan::Schedule &schedule = plan.schedules[v.schedule];
  const std::vector<uint64_t> durations = sim::pacedDurations(schedule, v.durationsNs, plan.hardware, linkBandwidth);
  return lanesOf(schedule, [&](size_t step) { return durations[step]; });
}

std::string gbs(uint64_t bytes, uint64_t ns) {
  return absl::StrFormat("%.2f", static_cast<double>(bytes) / static_cast<double>(std::max<uint64_t>(ns, 1)));
}

// What to do about steps that take another time than they were priced at.
std::string advice(const plan::Plan &plan, bool link, double bytesPerSecond) {
  const std::string model = plan.modelPath.empty() ? plan.model->name : plan.modelPath;
  std::string text;
  if (plan.goal.record.empty())
    text = cat("the profile \"", plan.hardware.name,
               "\" is not of this machine, or something else runs on it: headrace profile ", model,
               " -o record.toml measures it, compile --record record.toml plans with that");
  else
    text = cat("the record ", plan.goal.record,
               " is not of this machine, or something else runs on it: headrace profile --force measures it anew");
  if (link)
    text += absl::StrFormat("; compile --h2d-bandwidth %.2fGB/s plans for such a link", bytesPerSecond / 1e9);
  return text;
}

std::string why(const plan::Plan &plan, const PhaseInput &phase, double linkBandwidth, bool virtualTime) {
  const double over = phase.predictedMs > 0 ? phase.measuredMs / phase.predictedMs : 1;
  if (apart(over) <= kNear)
    return "";
  const std::string head = absl::StrFormat("%s took %.2f x the predicted time", phase.name, over);
  if (phase.looked.steps.empty())
    return head + ": --timeline FILE.svg measures which steps did";
  const plan::Variant &variant = plan.variants[phase.looked.variant];
  const plan::Schedule &schedule = plan.schedules[variant.schedule];
  const LaneTimes predicted = predictedLanes(plan, phase.looked.variant, linkBandwidth);
  const LaneTimes measured = lanesOf(schedule, [&](size_t step) {
    return static_cast<uint64_t>(phase.looked.steps[step].second - phase.looked.steps[step].first);
  });
  const uint64_t bytes = plan::linkBytes(schedule).h2d;
  const double compute = ratio(measured.computeNs, predicted.computeNs), link = ratio(measured.h2dNs, predicted.h2dNs);
  std::string lanes = absl::StrFormat("compute %.2f x (%s for %s)", compute, formatNs(measured.computeNs),
                                      formatNs(predicted.computeNs));
  if (bytes > 0)
    lanes += absl::StrFormat(", copies %.2f x (%s GB/s for %s)", link, gbs(bytes, measured.h2dNs),
                             gbs(bytes, predicted.h2dNs));
  lanes += " in " + phase.looked.about;
  // A lane explains it that is off in the same direction.
  const auto explains = [&](double lane) { return apart(lane) > kSame && (lane > 1) == (over > 1); };
  const bool byLink = bytes > 0 && explains(link), byCompute = explains(compute);
  if ((byLink || byCompute) && !virtualTime)
    return head + ", as " +
           (byLink && byCompute ? "both compute and copies"
            : byLink            ? "copies"
                                : "compute") +
           " did: " + lanes + "; " +
           advice(plan, byLink,
                  static_cast<double>(bytes) / static_cast<double>(std::max<uint64_t>(measured.h2dNs, 1)) * 1e9);
  int64_t lastEnd = 0;
  for (const auto &[start, end] : phase.looked.steps)
    lastEnd = std::max(lastEnd, end);
  const double span = static_cast<double>(lastEnd) / 1e6;
  const std::string rest =
      phase.measuredMs > span
          ? absl::StrFormat("%.3f ms went by outside of them (changes of placement, the time between iterations)",
                            phase.measuredMs - span)
          : absl::StrFormat("that iteration took %.3f ms with the copies behind its tokens, which do not count here",
                            span);
  return head + ", its steps did not: " + lanes + "; " + rest;
}

std::string unitOf(const std::string &copy) {
  const size_t space = copy.find(' ');
  return space == std::string::npos ? copy : copy.substr(space + 1);
}

} // namespace

const char *LaneTimes::limit() const {
  return linkNs() <= computeNs ? "compute" : d2hNs > h2dNs ? "link d2h" : "link h2d";
}

CopyWaits copyWaits(const Track &track) {
  CopyWaits found;
  std::map<std::string, size_t> indexOf;
  for (const Gap &gap : track.stalls) {
    const auto [at, fresh] = indexOf.try_emplace(gap.waitsFor, found.waits.size());
    if (fresh)
      found.waits.push_back({gap.waitsFor, 0});
    found.waits[at->second].ns += gap.endNs - gap.startNs;
  }
  std::stable_sort(found.waits.begin(), found.waits.end(), [](const auto &a, const auto &b) { return a.ns > b.ns; });
  found.about = track.about;
  found.totalNs = track.stallNs;
  return found;
}

RunFindings findOut(const plan::Plan &plan, const std::vector<PhaseInput> &phases, double linkBandwidth,
                    bool virtualTime) {
  RunFindings findings;
  bool waits = false;
  for (const PhaseInput &phase : phases) {
    if (phase.variant == plan::kNone)
      continue;
    findings.phases.push_back(
        {phase.name, predictedLanes(plan, phase.variant, linkBandwidth), why(plan, phase, linkBandwidth, virtualTime)});
    if (!waits && !phase.looked.steps.empty()) {
      findings.waits = copyWaits(makeChart(plan, phase.looked.variant, &phase.looked, linkBandwidth).tracks.back());
      waits = true;
    }
  }
  return findings;
}

std::string findingsText(const RunFindings &findings) {
  std::string out;
  const auto line = [&](const char *name, const std::string &value) {
    absl::StrAppendFormat(&out, "%-16s %s\n", name, value);
  };
  std::vector<std::string> limits;
  for (const PhaseFinding &phase : findings.phases)
    limits.push_back(absl::StrFormat("%s in %s (predicted: compute %s, link %s)", phase.predicted.limit(), phase.name,
                                     formatNs(phase.predicted.computeNs), formatNs(phase.predicted.linkNs())));
  if (!limits.empty())
    line("limited by", absl::StrJoin(limits, "; "));
  for (const PhaseFinding &phase : findings.phases)
    if (!phase.why.empty())
      line("why", phase.why);
  const CopyWaits &w = findings.waits;
  if (w.waits.empty())
    return out;
  std::vector<std::string> named;
  for (size_t i = 0; i < std::min(kNamed, w.waits.size()); ++i)
    named.push_back(w.waits[i].copy + " " + formatNs(w.waits[i].ns));
  std::map<std::string, CopyWaits::One> byUnit; // the others; `copy`: how many
  std::map<std::string, size_t> count;
  for (size_t i = kNamed; i < w.waits.size(); ++i) {
    byUnit[unitOf(w.waits[i].copy)].ns += w.waits[i].ns;
    ++count[unitOf(w.waits[i].copy)];
  }
  std::vector<CopyWaits::One> rest;
  rest.reserve(byUnit.size());
  for (const auto &[unit, one] : byUnit)
    rest.push_back({cat(count[unit], " more of ", unit), one.ns});
  std::stable_sort(rest.begin(), rest.end(), [](const auto &a, const auto &b) { return a.ns > b.ns; });
  for (const CopyWaits::One &one : rest)
    named.push_back(one.copy + " " + formatNs(one.ns));
  line("waited for", absl::StrFormat("%s: %s in %s", absl::StrJoin(named, ", "), formatNs(w.totalNs), w.about));
  return out;
}

void addFindings(const RunFindings &findings, Json &json) {
  json["limited_by"] = Json::object();
  json["why"] = Json::object();
  for (const PhaseFinding &phase : findings.phases) {
    json["limited_by"][phase.name] = {{"resource", phase.predicted.limit()},
                                      {"predicted_compute_ms", ms(phase.predicted.computeNs)},
                                      {"predicted_link_ms", ms(phase.predicted.linkNs())}};
    if (!phase.why.empty())
      json["why"][phase.name] = phase.why;
  }
  json["waited_for"] = {{"iteration", findings.waits.about}, {"copies", Json::array()}};
  for (const CopyWaits::One &one : findings.waits.waits)
    json["waited_for"]["copies"].push_back({{"copy", one.copy}, {"ms", ms(one.ns)}});
}

} // namespace headrace::tools
