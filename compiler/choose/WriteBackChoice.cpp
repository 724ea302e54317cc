// SPDX-License-Identifier: Apache-2.0
#include "compiler/choose/WriteBackChoice.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace headrace::compiler {

std::vector<uint64_t> iterationTimes(const plan::Plan &plan, plan::IterationClass iterationClass) {
  std::map<std::tuple<int64_t, int64_t, int64_t>, uint64_t> slowest;
  for (const plan::Variant &variant : plan.variants) {
    const plan::Schedule &schedule = plan.schedules[variant.schedule];
    if (variant.placement != 0 || schedule.kvBlocks != 0 || schedule.iterationClass != iterationClass)
      continue;
    uint64_t &ns = slowest[{variant.newTokens, variant.sequences, variant.context}];
    ns = std::max(ns, variant.predictedNs);
  }
  std::vector<uint64_t> times;
  times.reserve(slowest.size());
  for (const auto &[bucket, ns] : slowest)
    times.push_back(ns);
  return times;
}

size_t fastestOf(absl::Span<const std::vector<uint64_t>> ways) {
  using Score = std::pair<double, uint64_t>; // worst ratio, sum
  size_t fastest = 0;
  std::optional<Score> least;
  for (size_t way = 0; way < ways.size(); ++way) {
    Score score{0, std::accumulate(ways[way].begin(), ways[way].end(), uint64_t{0})};
    for (size_t bucket = 0; bucket < ways[way].size(); ++bucket) {
      uint64_t best = ways[way][bucket];
      for (const std::vector<uint64_t> &other : ways)
        best = std::min(best, other[bucket]);
      score.first = std::max(score.first,
                             static_cast<double>(ways[way][bucket]) / static_cast<double>(std::max<uint64_t>(1, best)));
    }
    if (!least || score < *least) {
      least = score;
      fastest = way;
    }
  }
  return fastest;
}

std::string explainWriteBack(absl::Span<const WriteBackReason> reasons) {
  const auto ms = [](uint64_t ns) { return absl::StrFormat("%.3f ms", static_cast<double>(ns) / 1e6); };
  std::string text;
  for (const WriteBackReason &reason : reasons) {
    const bool mirrors = reason.chosen == algorithms::WriteBack::Mirror;
    const uint64_t chosen = mirrors ? reason.mirroredNs : reason.writtenBackNs;
    const uint64_t other = mirrors ? reason.writtenBackNs : reason.mirroredNs;
    absl::StrAppend(&text, text.empty() ? "Rows of KV on the host: " : "; ",
                    reason.iterationClass == plan::IterationClass::Decode ? "decode" : "prefill",
                    mirrors                                       ? " mirrors"
                    : reason.chosen == algorithms::WriteBack::All ? " writes back all that is in use"
                                                                  : " writes back what was written");
    if (chosen > 0)
      absl::StrAppend(&text, ": ", ms(chosen));
    if (chosen > 0 && other > 0)
      absl::StrAppend(&text, " against ", ms(other), mirrors ? " written back" : " mirrored");
  }
  return text;
}

} // namespace headrace::compiler
