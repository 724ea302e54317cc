// SPDX-License-Identifier: Apache-2.0
#include "tools/report/RunFindings.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "runtime/base/Text.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/sim/LaunchPrices.h"
#include "runtime/sim/Simulator.h"
#include "runtime/sim/TimedSchedule.h"
#include "tools/report/Format.h"
#include "tools/report/RanLaunch.h"

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

double share(uint64_t part, uint64_t whole) {
  return static_cast<double>(part) / static_cast<double>(std::max<uint64_t>(whole, 1));
}

template <class DurationOf>
LaneTimes lanesOf(const plan::Plan &plan, const plan::Schedule &schedule, DurationOf &&durationOf) {
  LaneTimes lanes;
  for (size_t i = 0; i < schedule.steps.size(); ++i) {
    const plan::Lane lane = sim::playedIn(schedule.steps[i].lane, plan.hardware.kind == model::DeviceKind::Host);
    if (lane == plan::Lane::Cpu)
      lanes.cpuNs += durationOf(i);
    else if (plan::computes(lane))
      lanes.computeNs += durationOf(i);
    else if (plan::toDevice(lane))
      lanes.h2dNs += durationOf(i);
    else if (plan::toHost(lane))
      lanes.d2hNs += durationOf(i);
  }
  return lanes;
}

// What is predicted of a launch.
struct Predicted {
  LaneTimes lanes;
  uint64_t h2dBytes = 0;    // of copies
  uint64_t iterationNs = 0; // alone
};
Predicted predict(const plan::Plan &plan, uint32_t variant, double linkBandwidth, const RanLaunch &ran = {}) {
  const plan::Schedule &schedule = plan.schedules[plan.variants[variant].schedule];
  const sim::LaunchedSteps launched = sim::LaunchPrices(plan, linkBandwidth).of(variant, ran.launchInUse(), ran.rows);
  Predicted predicted;
  predicted.lanes = lanesOf(plan, schedule, [&](size_t step) { return launched.ns[step]; });
  for (size_t i = 0; i < schedule.steps.size(); ++i)
    predicted.h2dBytes += plan::toDevice(schedule.steps[i].lane) ? launched.linkBytes[i] : 0;
  const model::Hardware &h = plan.hardware;
  predicted.iterationNs =
      sim::Simulator(plan, schedule).run(launched.ns, cost::sharingOf(h, linkBandwidth)).iterationNs;
  return predicted;
}

RanLaunch ranOf(const Trace &looked) { return {looked.rows, looked.inUse}; }

// Of any mini-batch.
int64_t mostInUse(const std::vector<core::InUse> &each) {
  int64_t most = 0;
  for (const core::InUse &one : each)
    most = std::max(most, one.kvBlocks);
  return most;
}

std::string gbs(uint64_t bytes, uint64_t ns) { return absl::StrFormat("%.2f", share(bytes, ns)); }

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

// "compute 1.00 x (200 ns for 200 ns), copies 2.00 x (0.50 GB/s for 1.00) in iteration 5 of 8": of what was launched.
std::string lanesText(const plan::Plan &plan, const PhaseInput &phase, const Predicted &launched, const Predicted &all,
                      const LaneTimes &measured) {
  std::string text = absl::StrFormat("compute %.2f x (%s for %s)", ratio(measured.computeNs, launched.lanes.computeNs),
                                     formatNs(measured.computeNs), formatNs(launched.lanes.computeNs));
  if (launched.h2dBytes > 0)
    text += absl::StrFormat(", copies %.2f x (%s GB/s for %s)", ratio(measured.h2dNs, launched.lanes.h2dNs),
                            gbs(launched.h2dBytes, measured.h2dNs), gbs(launched.h2dBytes, launched.lanes.h2dNs));
  text += " in " + phase.looked.about;
  if (launched.h2dBytes < all.h2dBytes)
    text += absl::StrFormat(", which copied %s of at most %s: KV blocks below %d of %d were in use",
                            formatBytes(launched.h2dBytes), formatBytes(all.h2dBytes), mostInUse(phase.looked.inUse),
                            plan.placements[plan.variants[phase.looked.variant].placement].kvBlocks);
  return text;
}

std::string why(const plan::Plan &plan, const PhaseInput &phase, double linkBandwidth, bool virtualTime) {
  const double over = phase.predictedMs > 0 ? phase.measuredMs / phase.predictedMs : 1;
  if (apart(over) <= kNear)
    return "";
  const std::string head = absl::StrFormat("%s took %.2f x the predicted time", phase.name, over);
  if (phase.looked.steps.empty())
    return head + ": --timeline FILE.svg measures which steps did";
  const plan::Schedule &schedule = plan.schedules[plan.variants[phase.looked.variant].schedule];
  const Predicted launched = predict(plan, phase.looked.variant, linkBandwidth, ranOf(phase.looked));
  const Predicted all = predict(plan, phase.looked.variant, linkBandwidth);
  const LaneTimes measured = lanesOf(plan, schedule, [&](size_t step) {
    return static_cast<uint64_t>(phase.looked.steps[step].second - phase.looked.steps[step].first);
  });
  const std::string lanes = lanesText(plan, phase, launched, all, measured);
  // A lane explains it that is off in the same direction.
  const auto explains = [&](double times) { return apart(times) > kSame && (times > 1) == (over > 1); };
  const bool byLink = launched.h2dBytes > 0 && explains(ratio(measured.h2dNs, launched.lanes.h2dNs)) && !virtualTime;
  const bool byCompute = explains(ratio(measured.computeNs, launched.lanes.computeNs)) && !virtualTime;
  std::vector<std::string> reasons;
  if (byLink || byCompute)
    reasons.push_back(byLink && byCompute ? "as both compute and copies did"
                      : byLink            ? "as copies did"
                                          : "as compute did");
  if (!reasons.empty())
    return head + ", " + absl::StrJoin(reasons, " and ") + ": " + lanes +
           (byLink || byCompute ? "; " + advice(plan, byLink, share(launched.h2dBytes, measured.h2dNs) * 1e9) : "");
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
  if (cpuNs > std::max(computeNs, linkNs()))
    return "cpu";
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
    // Of the iteration that was looked at it is known what it ran, and how much of KV it used.
    const bool known = !phase.looked.steps.empty() && phase.looked.variant == phase.variant;
    const RanLaunch ran = known ? ranOf(phase.looked) : RanLaunch();
    findings.phases.push_back({phase.name, predict(plan, phase.variant, linkBandwidth, ran).lanes,
                               why(plan, phase, linkBandwidth, virtualTime)});
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
    limits.push_back(
        absl::StrFormat("%s in %s (predicted: compute %s, %slink %s)", phase.predicted.limit(), phase.name,
                        formatNs(phase.predicted.computeNs),
                        phase.predicted.cpuNs > 0 ? cat("CPU ", formatNs(phase.predicted.cpuNs), ", ") : "",
                        formatNs(phase.predicted.linkNs())));
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
