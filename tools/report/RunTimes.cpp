// SPDX-License-Identifier: Apache-2.0
#include "tools/report/RunTimes.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"

namespace headrace::tools {
namespace {

double ms(double ns) { return ns * 1e-6; }

} // namespace

RunTimes::RunTimes(const plan::Plan &plan, double linkBandwidth, uint32_t placement)
    : plan_(plan), predicted_(plan, linkBandwidth), prices_(std::make_unique<sim::LaunchPrices>(plan, linkBandwidth)),
      sharing_(cost::sharingOf(plan.hardware, linkBandwidth)), placement_(placement) {}

void RunTimes::Sum::add(uint64_t predicted, int64_t measured) {
  ++iterations;
  predictedNs += static_cast<double>(predicted);
  measuredNs += static_cast<double>(measured);
}

Compared RunTimes::meanOf(const Sum &sum) {
  if (sum.iterations == 0)
    return {};
  const auto n = static_cast<double>(sum.iterations);
  return {sum.iterations, ms(sum.predictedNs / n), ms(sum.measuredNs / n)};
}

uint64_t RunTimes::objectiveNs(uint32_t variant) const {
  const plan::Variant &v = plan_.variants[variant];
  for (const plan::BucketChoice &choice : plan_.choices) {
    const plan::Variant &c = plan_.variants[choice.variant];
    if (plan_.schedules[c.schedule].iterationClass == plan::IterationClass::Decode && c.newTokens >= v.newTokens &&
        c.sequences >= v.sequences && c.context >= v.context)
      return choice.sloNs; // the smallest that holds it: choices ascend
  }
  return 0;
}

sim::TokenGaps::Times RunTimes::play(uint32_t schedule, const sim::LaunchedSteps &launched) {
  sim::Simulator &simulator = simulators_.try_emplace(schedule, plan_, plan_.schedules[schedule]).first->second;
  const sim::Timeline timeline = simulator.run(launched.ns, sharing_);
  return {timeline.iterationNs, timeline.publishNs};
}

sim::TokenGaps::Times RunTimes::timesOf(uint32_t variant, const RanLaunch &ran) {
  if (ran.rows.empty() && ran.inUse.empty())
    return predicted_.of(variant);
  return play(plan_.variants[variant].schedule, prices_->of(variant, ran.launchInUse(), ran.rows));
}

uint64_t RunTimes::wayNs(uint32_t variant, const RanLaunch &ran) {
  const bool first = last_ == plan::kNone;
  if (!(first ? predicted_.firstNs(placement_, variant) : predicted_.wayNs(last_, variant)))
    return 0;
  uint64_t ns = 0;
  for (const uint32_t transition : first ? predicted_.firstWay(placement_, variant) : predicted_.way(last_, variant))
    ns +=
        play(plan_.transitions[transition].schedule, prices_->ofTransition(transition, ran.launchInUse())).iterationNs;
  return ns;
}

void RunTimes::add(const serve::IterationSeen &seen, const RanLaunch &ran, bool counts) {
  const sim::TokenGaps::Times times = timesOf(seen.variant, ran);
  const uint64_t way = wayNs(seen.variant, ran);
  if (counts)
    count(seen, (last_ == plan::kNone ? 0 : lastTailNs_) + way + times.headNs, way);
  last_ = seen.variant;
  lastTailNs_ = times.tailNs();
}

void RunTimes::count(const serve::IterationSeen &seen, uint64_t ns, uint64_t way) {
  const bool change = last_ != plan::kNone && plan_.variants[last_].schedule != plan_.variants[seen.variant].schedule;
  longestInPromptsNs_ = std::max({longestInPromptsNs_, seen.waitedNs, seen.prefill ? seen.gapNs : -1});
  if (seen.prefill) {
    prefill_.add(ns, seen.ns);
  } else {
    (change ? changes_ : decode_).add(ns, seen.ns);
    if (change)
      transitionsNs_ += static_cast<double>(way);
    else if (ns > 0)
      steady_.push_back(static_cast<double>(seen.ns) / static_cast<double>(ns));
    if (seen.gapNs >= 0) {
      ++gaps_;
      const uint64_t objective = objectiveNs(seen.variant);
      late_ += objective > 0 && static_cast<uint64_t>(seen.gapNs) > objective;
      const auto share = [](int64_t gap, uint64_t of) {
        return static_cast<double>(gap) / static_cast<double>(std::max<uint64_t>(of, 1));
      };
      if (longestNs_ == 0 || share(seen.gapNs, objective) > share(longestNs_, longestObjectiveNs_)) {
        longestNs_ = seen.gapNs;
        longestObjectiveNs_ = objective;
        longestIsChange_ = change;
      }
    }
  }
}

double RunTimes::noise() const {
  if (steady_.size() < 2)
    return 1;
  std::vector<double> sorted(steady_);
  std::sort(sorted.begin(), sorted.end());
  return sorted[(sorted.size() * 99 + 99) / 100 - 1] / sorted[(sorted.size() - 1) / 2];
}

std::string RunTimes::gapsText() const {
  std::string out;
  if (gaps_ > 0) {
    out = absl::StrFormat("%-16s longest %.3f ms%s", "gaps", ms(static_cast<double>(longestNs_)),
                          longestIsChange_ ? " (behind a change)" : "");
    if (longestObjectiveNs_ > 0) {
      absl::StrAppendFormat(&out, ", %.3f x its objective of %.3f ms; ",
                            static_cast<double>(longestNs_) / static_cast<double>(longestObjectiveNs_),
                            ms(static_cast<double>(longestObjectiveNs_)));
      out +=
          late_ == 0 ? absl::StrFormat("all %d held it", gaps_) : absl::StrFormat("%d of %d were longer", late_, gaps_);
      if (plan_.goal.instances == model::Instances::Apart)
        out += " (the plan is for instances apart: changes are not held to it)";
    }
    if (const double spread = noise(); spread > 1.0005)
      absl::StrAppendFormat(&out, "; steady ones spread by %.2f x (p99 / median)", spread);
    out += "\n";
  }
  if (longestInPromptsNs_ > 0)
    absl::StrAppendFormat(&out, "%-16s longest %.3f ms: beside prompts that were not done yet\n", "gaps in prefill",
                          ms(static_cast<double>(longestInPromptsNs_)));
  return out;
}

nlohmann::ordered_json RunTimes::gapsJson() const {
  using Json = nlohmann::ordered_json;
  const auto orNull = [](bool there, double value) { return there ? Json(value) : Json(nullptr); };
  return {{"gaps", gaps_},
          {"late", longestObjectiveNs_ > 0 ? Json(late_) : Json(nullptr)},
          {"longest_ms", orNull(gaps_ > 0, ms(static_cast<double>(longestNs_)))},
          {"objective_ms", orNull(longestObjectiveNs_ > 0, ms(static_cast<double>(longestObjectiveNs_)))},
          {"longest_is_change", longestIsChange_},
          {"longest_in_prefill_ms", orNull(longestInPromptsNs_ > 0, ms(static_cast<double>(longestInPromptsNs_)))},
          {"steady_p99_over_median", orNull(steady_.size() >= 2, noise())}};
}

} // namespace headrace::tools
