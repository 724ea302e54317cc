// SPDX-License-Identifier: Apache-2.0
#include "runtime/serve/traffic/Metrics.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/numbers.h"
#include "runtime/base/Text.h"
#include "runtime/base/Units.h"

namespace headrace::serve {
namespace {

constexpr double kNsPerMs = 1e6;
constexpr double kMostNs = 9e18; // of an objective: some 285 years

absl::Status refuse(const std::string &message) { return absl::InvalidArgumentError(message); }

// A decimal number; not a number where the text is none.
double numberIn(std::string_view text) {
  double value = 0;
  return absl::SimpleAtod(absl::string_view(text.data(), text.size()), &value) ? value : std::nan("");
}

// Between the two neighbours of rank p / 100 x (count - 1), in proportion.
double percentile(std::vector<int64_t> &values, double p) {
  const double rank = p / 100 * static_cast<double>(values.size() - 1);
  const auto below = std::min(values.size() - 1, static_cast<size_t>(rank));
  const auto at = values.begin() + static_cast<ptrdiff_t>(below);
  std::nth_element(values.begin(), at, values.end());
  const auto low = static_cast<double>(*at);
  if (at + 1 == values.end())
    return low;
  return low +
         (rank - static_cast<double>(below)) * (static_cast<double>(*std::min_element(at + 1, values.end())) - low);
}

bool within(const std::optional<std::chrono::nanoseconds> &objective, double ns) {
  return !objective || ns <= static_cast<double>(objective->count());
}

// Of half-open intervals from arrival to the last token.
uint64_t mostAtATime(absl::Span<const RequestTimes> requests) {
  std::vector<std::pair<int64_t, int>> changes; // those that leave come before those that come
  for (const RequestTimes &one : requests)
    if (one.completed()) {
      changes.emplace_back(one.arrivalNs, 1);
      changes.emplace_back(one.lastTokenNs, -1);
    }
  std::sort(changes.begin(), changes.end());
  int64_t now = 0, most = 0;
  for (const auto &[ns, change] : changes)
    most = std::max(most, now += change);
  return static_cast<uint64_t>(most);
}

} // namespace

absl::StatusOr<GoodputObjectives> parseGoodput(absl::Span<const std::string> words) {
  GoodputObjectives objectives;
  for (const std::string &word : words) {
    const size_t colon = word.find(':');
    const std::string_view name = std::string_view(word).substr(0, colon);
    auto *const objective = name == "ttft"   ? &objectives.ttft
                            : name == "tpot" ? &objectives.tpot
                            : name == "e2el" ? &objectives.e2el
                                             : nullptr;
    if (objective == nullptr || colon == std::string::npos)
      return refuse(model::cat("goodput \"", model::escaped(word), "\": expected ttft:MS, tpot:MS or e2el:MS"));
    if (objective->has_value())
      return refuse(model::cat("goodput \"", model::escaped(word), "\": ", name, " stands twice"));
    const std::string_view value = std::string_view(word).substr(colon + 1);
    const absl::StatusOr<double> seconds = model::parseSeconds(value, "");
    const double ns = std::round(seconds.ok() ? *seconds * 1e9 : numberIn(value) * kNsPerMs);
    if (!(ns >= 1 && ns <= kMostNs))
      return refuse(model::cat("goodput \"", model::escaped(word),
                               "\": expected milliseconds above zero, or such a time with its unit, such as 0.5s"));
    *objective = std::chrono::nanoseconds(static_cast<int64_t>(ns));
  }
  return objectives;
}

absl::StatusOr<std::vector<double>> parsePercentiles(std::string_view text) {
  std::vector<double> percentiles;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view word = text.substr(begin, end - begin);
    const double p = numberIn(word);
    if (!(p >= 0 && p <= 100))
      return refuse(model::cat("percentile \"", model::escaped(word), "\": expected a number from 0 to 100"));
    percentiles.push_back(p);
    begin = end + 1;
  }
  return percentiles;
}

LatencySummary summarizeNs(std::vector<int64_t> values, absl::Span<const double> percentiles) {
  LatencySummary out{.count = values.size(), .percentilesMs = std::vector<double>(percentiles.size(), 0)};
  if (values.empty())
    return out;
  const auto count = static_cast<double>(values.size());
  double sum = 0, squares = 0;
  for (const int64_t ns : values)
    sum += static_cast<double>(ns);
  const double mean = sum / count;
  for (const int64_t ns : values)
    squares += (static_cast<double>(ns) - mean) * (static_cast<double>(ns) - mean);
  out.meanMs = mean / kNsPerMs;
  out.stdMs = std::sqrt(squares / count) / kNsPerMs;
  out.maxMs = static_cast<double>(*std::max_element(values.begin(), values.end())) / kNsPerMs;
  out.medianMs = percentile(values, 50) / kNsPerMs;
  std::transform(percentiles.begin(), percentiles.end(), out.percentilesMs.begin(),
                 [&](double p) { return percentile(values, p) / kNsPerMs; });
  return out;
}

TrafficMetrics summarize(const TrafficResult &result, const MetricsOptions &options) {
  TrafficMetrics out{.requests = result.requests.size(),
                     .durationS = static_cast<double>(result.durationNs) / 1e9,
                     .peakKvBlocks = result.peakKvBlocks,
                     .kvBlocks = result.kvBlocks};
  std::vector<int64_t> ttft, tpot, e2el, queueing;
  uint64_t good = 0;
  int64_t lastArrival = 0;
  for (const RequestTimes &one : result.requests)
    lastArrival = std::max(lastArrival, one.arrivalNs);
  if (lastArrival > 0)
    out.offeredRate = static_cast<double>(result.requests.size() - 1) * 1e9 / static_cast<double>(lastArrival);
  for (const RequestTimes &one : result.requests) {
    out.preemptions += one.preemptions;
    out.preemptedRequests += one.preemptions > 0;
    if (!one.completed()) {
      ++(one.reason == EndReason::Failed ? out.failed : out.refused);
      continue;
    }
    ++out.completed;
    out.inputTokens += one.promptTokens;
    out.outputTokens += one.outputTokens;
    ttft.push_back(one.ttftNs());
    if (one.outputTokens > 1)
      tpot.push_back(std::llround(one.tpotNs()));
    e2el.push_back(one.latencyNs());
    queueing.push_back(one.queueingNs());
    out.waitingAtLastArrival += one.startNs > lastArrival;
    good += within(options.goodput.ttft, static_cast<double>(one.ttftNs())) &&
            within(options.goodput.tpot, one.tpotNs()) &&
            within(options.goodput.e2el, static_cast<double>(one.latencyNs()));
  }
  const auto rate = [&](auto count) {
    return result.durationNs > 0 ? static_cast<double>(count) / out.durationS : 0.0;
  };
  out.requestThroughput = rate(out.completed);
  out.requestGoodput = options.goodput.any() ? rate(good) : 0;
  out.outputThroughput = rate(out.outputTokens);
  out.totalThroughput = rate(out.inputTokens + out.outputTokens);
  out.ttft = summarizeNs(std::move(ttft), options.percentiles);
  out.tpot = summarizeNs(std::move(tpot), options.percentiles);
  out.itl = summarizeNs(result.itlNs, options.percentiles);
  out.e2el = summarizeNs(std::move(e2el), options.percentiles);
  out.queueing = summarizeNs(std::move(queueing), options.percentiles);
  out.peakConcurrency = mostAtATime(result.requests);
  return out;
}

} // namespace headrace::serve
