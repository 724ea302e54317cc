// SPDX-License-Identifier: Apache-2.0
#include "runtime/cost/HybridServe.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "runtime/base/Text.h"

namespace headrace::cost {
namespace {

constexpr double kUnbounded = std::numeric_limits<double>::infinity();
constexpr int64_t kMostBlockTokens = int64_t{1} << 16;

absl::Status unfit(std::string_view what, const std::string &message) {
  return absl::InvalidArgumentError(model::cat(what, ": ", message));
}

double forwardNs(const Line &forward, int64_t tokens) {
  return std::max(0.0, forward.interceptNs) + forward.slopeNsPerToken * static_cast<double>(tokens);
}

Line startedTimes(const Line &line, int64_t times) {
  return {line.interceptNs * static_cast<double>(times), line.slopeNsPerToken, line.r2};
}

} // namespace

absl::StatusOr<Line> fitLine(absl::Span<const TokenSample> samples, std::string_view what) {
  if (samples.size() < 3)
    return unfit(what, model::cat(samples.size(), " samples: expected at least 3"));
  double meanX = 0, meanY = 0;
  for (const TokenSample &s : samples) {
    if (s.tokens < 0)
      return unfit(what, model::cat("a sample of ", s.tokens, " tokens: expected at least 0"));
    if (!(s.ns >= 0 && std::isfinite(s.ns)))
      return unfit(what, model::cat("a sample of ", s.ns, " ns: expected a finite time of at least 0"));
    meanX += static_cast<double>(s.tokens) / static_cast<double>(samples.size());
    meanY += s.ns / static_cast<double>(samples.size());
  }
  if (std::all_of(samples.begin(), samples.end(),
                  [&](const TokenSample &s) { return s.tokens == samples.front().tokens; }))
    return unfit(what, model::cat("all ", samples.size(), " samples have ", samples.front().tokens,
                                  " tokens: expected at least two numbers of tokens"));
  double xx = 0, xy = 0, yy = 0; // sums of squares about the means
  for (const TokenSample &s : samples) {
    const double x = static_cast<double>(s.tokens) - meanX, y = s.ns - meanY;
    xx += x * x;
    xy += x * y;
    yy += y * y;
  }
  Line line;
  const bool flat =
      std::all_of(samples.begin(), samples.end(), [&](const TokenSample &s) { return s.ns == samples.front().ns; });
  line.slopeNsPerToken = flat ? 0 : xy / xx;
  line.interceptNs = flat ? samples.front().ns : meanY - line.slopeNsPerToken * meanX;
  if (line.slopeNsPerToken < 0)
    return unfit(what, model::cat("a slope of ", line.slopeNsPerToken, " ns a token: expected at least 0"));
  double residual = 0;
  for (const TokenSample &s : samples) {
    const double off = s.ns - line.predictNs(static_cast<double>(s.tokens));
    residual += off * off;
  }
  line.r2 = flat ? 1 : 1 - residual / yy;
  if (line.r2 < kLeastR2)
    return unfit(what, model::cat("R^2 = ", line.r2, " of ", samples.size(), " samples: expected at least ", kLeastR2,
                                  ", times that are linear in tokens"));
  return line;
}

double lineNs(const Line &line, int64_t tokens) {
  if (tokens <= 0)
    return 0;
  return std::max(0.0, line.interceptNs) + line.slopeNsPerToken * static_cast<double>(tokens);
}

absl::Status checkTimes(const HybridTimes &times) {
  if (!(times.loadWeightsNs >= 0 && std::isfinite(times.loadWeightsNs)))
    return unfit("loadWeightsNs", model::cat(times.loadWeightsNs, ": expected a finite time of at least 0"));
  for (const auto &[name, line] : {std::pair<const char *, const Line &>{"loadKv", times.loadKv},
                                   {"loadAct", times.loadAct},
                                   {"kvGen", times.kvGen},
                                   {"forward", times.forward}}) {
    if (!std::isfinite(line.interceptNs))
      return unfit(name, model::cat("an intercept of ", line.interceptNs, " ns: expected a finite one"));
    if (!(line.slopeNsPerToken >= 0 && std::isfinite(line.slopeNsPerToken)))
      return unfit(name,
                   model::cat("a slope of ", line.slopeNsPerToken, " ns a token: expected a finite one of at least 0"));
  }
  if (times.blockTokens < 1 || times.blockTokens > kMostBlockTokens)
    return unfit("blockTokens", model::cat(times.blockTokens, ": expected 1 to ", kMostBlockTokens));
  return absl::OkStatus();
}

HybridTimes overMiniBatches(const HybridTimes &times, int64_t miniBatches) {
  HybridTimes all = times;
  for (Line *line : {&all.loadKv, &all.loadAct, &all.kvGen, &all.forward})
    *line = startedTimes(*line, miniBatches);
  return all;
}

HybridTimes oneMiniBatch(const HybridTimes &times, int64_t miniBatches) {
  HybridTimes one = times;
  one.loadWeightsNs /= static_cast<double>(miniBatches);
  return one;
}

HybridBlocks &HybridBlocks::operator+=(const HybridBlocks &other) {
  kvHost += other.kvHost;
  actHost += other.actHost;
  actDevice += other.actDevice;
  kvDevice += other.kvDevice;
  return *this;
}

LaneTimes printedLanes(const HybridTimes &times, const HybridBlocks &blocks) {
  return {times.loadWeightsNs + lineNs(times.loadKv, blocks.kvHost * times.blockTokens),
          lineNs(times.kvGen, blocks.act() * times.blockTokens)};
}

LaneTimes correctedLanes(const HybridTimes &times, const HybridBlocks &blocks) {
  LaneTimes lanes = printedLanes(times, blocks);
  lanes.pcieNs += lineNs(times.loadAct, blocks.actHost * times.blockTokens);
  lanes.computeNs += forwardNs(times.forward, blocks.total() * times.blockTokens);
  return lanes;
}

double printedKvPerAct(const HybridTimes &times) {
  const double load = times.loadKv.slopeNsPerToken;
  return load > 0 ? times.kvGen.slopeNsPerToken / load : kUnbounded;
}

double correctedKvPerAct(const HybridTimes &times) {
  const double forward = times.forward.slopeNsPerToken, left = times.loadKv.slopeNsPerToken - forward;
  const double right = times.kvGen.slopeNsPerToken + forward - times.loadAct.slopeNsPerToken;
  if (right <= 0)
    return 0;
  return left > 0 ? right / left : kUnbounded;
}

double printedBalance(const HybridTimes &times, const HybridBlocks &blocks) {
  // IEEE division: x / 0 is infinite, 0 / 0 is NaN.
  return lineNs(times.kvGen, blocks.act() * times.blockTokens) /
         lineNs(times.loadKv, blocks.kvHost * times.blockTokens);
}

double correctedBalance(const HybridTimes &times, const HybridBlocks &blocks) {
  const LaneTimes lanes = correctedLanes(times, blocks);
  return lanes.pcieNs == lanes.computeNs ? 1 : lanes.computeNs / lanes.pcieNs;
}

double imbalance(double balance) {
  return std::isnan(balance) ? balance : std::max(balance, balance == 0 ? kUnbounded : 1 / balance);
}

std::string_view bindingName(Binding binding) {
  switch (binding) {
  case Binding::kBalanced:
    return "balanced";
  case Binding::kAllKv:
    return "all KV";
  case Binding::kAllAct:
    return "all ACT";
  case Binding::kHostMemory:
    return "host memory";
  case Binding::kDeviceMemory:
    return "device memory";
  case Binding::kActLoadsMore:
    return "ACT loads more than KV";
  case Binding::kOnlyWeights:
    return "only weights are loaded";
  case Binding::kBlocksTooCoarse:
    return "blocks too coarse";
  case Binding::kWaits:
    return "steps wait";
  case Binding::kNothing:
    return "nothing to place";
  }
  return "unknown";
}

bool balanced(const LaneTimes &lanes) { return std::abs(lanes.gapNs()) <= kBalancedWithin * lanes.layerNs(); }

} // namespace headrace::cost
