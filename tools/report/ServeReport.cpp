// SPDX-License-Identifier: Apache-2.0
#include "tools/report/ServeReport.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"
#include "runtime/base/Text.h"
#include "tools/report/Format.h"
#include "tools/timeline/LineChart.h"
#include "tools/timeline/TrafficSvg.h"

namespace headrace::tools {
namespace {

using model::cat;
using serve::TrafficMetrics;

constexpr ServeMetric kMetrics[] = {
    {"ttft", "TTFT", &TrafficMetrics::ttft, &serve::GoodputObjectives::ttft},
    {"tpot", "TPOT", &TrafficMetrics::tpot, &serve::GoodputObjectives::tpot},
    {"itl", "ITL", &TrafficMetrics::itl, nullptr},
    {"e2el", "E2EL", &TrafficMetrics::e2el, &serve::GoodputObjectives::e2el},
    {"queueing", "queueing", &TrafficMetrics::queueing, nullptr},
};

double millisecondsIn(std::chrono::nanoseconds time) { return static_cast<double>(time.count()) / 1e6; }

// A reason without its numbers.
std::string kindOfReason(std::string_view why) {
  std::string kind;
  for (const char c : why)
    if (c < '0' || c > '9')
      kind += c;
  return kind;
}

std::string plural(uint64_t count, const char *what) { return cat(count, " ", what, count == 1 ? "" : "s"); }
std::string ms(double value) { return absl::StrFormat("%.3f", value); }
std::string rateNumber(double rate) { return std::isinf(rate) ? "inf" : absl::StrFormat("%g", rate); }
std::string percentileName(double percentile) { return absl::StrFormat("p%g", percentile); }

double kvPeakPercent(const TrafficMetrics &m) {
  return 100 * static_cast<double>(m.peakKvBlocks) / static_cast<double>(std::max<int64_t>(m.kvBlocks, 1));
}
std::string kvPeak(const TrafficMetrics &m) { return absl::StrFormat("%.0f%%", kvPeakPercent(m)); }

std::string limitsText(const ServeReport &report) {
  return cat("at most ", plural(static_cast<uint64_t>(report.maxNumSeqs), "sequence"),
             report.maxNumBatchedTokens == 0
                 ? std::string(" an iteration, a row of a prompt at a time")
                 : cat(" and ", plural(static_cast<uint64_t>(report.maxNumBatchedTokens), "token"), " an iteration",
                       report.miniBatches == 1 ? "" : cat(" and each of ", report.miniBatches, " mini-batches"))) +
         (report.microBatches == 1 ? "" : cat(", in ", report.microBatches, " micro-batches that take turns"));
}

std::string engineText(const ServeReport &report) {
  return cat(report.scheduler, ", ", limitsText(report), report.maxNumBatchedTokens == 0 ? "" : ", " + report.prefill);
}

std::string objectivesText(const serve::GoodputObjectives &goodput) {
  std::string text;
  for (const ServeMetric &metric : kMetrics)
    if (metric.objective != nullptr && goodput.*metric.objective)
      text += absl::StrFormat("%s%s %g ms", text.empty() ? "" : ", ", std::string(metric.title),
                              millisecondsIn(*(goodput.*metric.objective)));
  return text;
}

// Everything about one rate, a line a figure, and a table of its latencies.
class OneRun {
public:
  OneRun(const ServeReport &report, const ServeRun &run) : report_(report), run_(run), m_(run.metrics) {}

  std::string text() {
    requests();
    line("duration", absl::StrFormat("%.3f s", m_.durationS));
    line("tokens", cat(m_.inputTokens, " in, ", m_.outputTokens, " out"));
    line("throughput", formatRate(m_.requestThroughput) + " requests/s, " + formatRate(m_.outputThroughput) +
                           " output tokens/s, " + formatRate(m_.totalThroughput) + " tokens/s in all");
    if (m_.overloaded())
      line("overload", cat("requests come faster than they are served, ", formatRate(m_.offeredRate), "/s against ",
                           formatRate(m_.requestThroughput), "/s: ", m_.waitingAtLastArrival, " of ", m_.requests,
                           " waited to begin as the last one came, and the longer it lasts the longer they wait"));
    if (report_.goodput.any())
      line("goodput", absl::StrFormat("%s requests/s: %.0f of %d within %s", formatRate(m_.requestGoodput),
                                      m_.requestGoodput * m_.durationS, m_.requests, objectivesText(report_.goodput)));
    if (const std::string held = report_.heldOf(run_).text(); !held.empty())
      line("TTFT", held);
    line("concurrency", cat("at most ", plural(m_.peakConcurrency, "request"), " at a time"));
    line("KV cache", cat("at most ", m_.peakKvBlocks, " of ", m_.kvBlocks, " blocks in use (", kvPeak(m_), ")"));
    const serve::EngineCounters &engine = run_.result.engine;
    if (engine.blocksOffered > 0)
      line("expansion",
           cat("found while it ran: ", engine.blocksOffered, " of ", m_.kvBlocks / report_.miniBatches, " blocks",
               report_.miniBatches == 1 ? "" : " of a mini-batch", " offered at the end; grew ",
               plural(engine.expansionsGrown, "time"), ", shrank ", plural(engine.expansionsShrunk, "time")));
    if (engine.leastBroughtBytes > 0)
      line("KV brought", cat(formatBytes(engine.leastBroughtBytes), " at the least, of the blocks in use; ",
                             plural(engine.compactedBlocks, "block"), " moved into lower ones (",
                             formatBytes(engine.compactionBytes), " over the link)"));
    line("preemptions", m_.preemptions == 0 ? std::string("none")
                                            : cat(m_.preemptions, engine.swapsOut == 0 ? " by recompute, in " : ", in ",
                                                  plural(m_.preemptedRequests, "request")));
    if (report_.swapBytes > 0)
      line("swapped", cat(plural(engine.swapsOut, "sequence"), " (", formatBytes(engine.swapOutBytes), ") out, ",
                          plural(engine.swapsIn, "sequence"), " (", formatBytes(engine.swapInBytes), ") in; ",
                          engine.swapFallbacks, " recomputed instead; swap space of ", formatBytes(report_.swapBytes)));
    line("iterations",
         cat(engine.iterations, ", ", engine.prefillIterations, " of them with prompts; ",
             plural(engine.thrownAwayRows, "row"), " thrown away",
             engine.thrownAwayRows > 0 ? " (of requests that had ended)" : "",
             engine.paddedRows > 0 ? cat(", ", engine.paddedRows, " of padding (for shorter prompts)") : ""));
    const core::DeviceCounters &device = run_.result.device;
    line("moved", formatBytes(device.h2dBytes) + " to the device, " + formatBytes(device.d2hBytes) + " back");
    return out_ + "\n" + latencies();
  }

private:
  void line(const char *name, const std::string &value) { absl::StrAppendFormat(&out_, "%-16s %s\n", name, value); }

  void requests() {
    std::string text = cat(m_.completed, " successful");
    if (m_.refused > 0)
      text += cat(", ", m_.refused, " refused");
    if (m_.failed > 0)
      text += cat(", ", m_.failed, " failed");
    line("requests", text);
    constexpr size_t kMost = 3;
    const std::vector<ServeRefusal> refusals = refusalsOf(run_.result.requests);
    for (size_t i = 0; i < std::min(refusals.size(), kMost); ++i)
      line(refusals[i].started ? "failed" : "refused",
           cat(refusals[i].count, refusals[i].count == 1 ? ": " : ", the first: ", refusals[i].first));
    if (refusals.size() > kMost)
      line("refused", cat(refusals.size() - kMost, " more reasons: --json has them"));
  }

  std::string latencies() const {
    std::vector<std::string> header = {"ms", "mean", "median"};
    for (const double percentile : report_.percentiles)
      if (percentile != 50)
        header.push_back(percentileName(percentile));
    std::vector<std::vector<std::string>> table{header};
    for (const ServeMetric &metric : report_.metrics) {
      const serve::LatencySummary &of = m_.*metric.of;
      std::vector<std::string> row = {std::string(metric.title)};
      const auto cell = [&](double value) { row.push_back(of.count == 0 ? "-" : ms(value)); };
      cell(of.meanMs);
      cell(of.medianMs);
      for (size_t p = 0; p < report_.percentiles.size(); ++p)
        if (report_.percentiles[p] != 50)
          cell(of.percentilesMs[p]);
      table.push_back(std::move(row));
    }
    return table.size() > 1 ? formatTable(table) : "";
  }

  const ServeReport &report_;
  const ServeRun &run_;
  const TrafficMetrics &m_;
  std::string out_;
};

// A row a rate.
std::string ratesTable(const ServeReport &report, bool all) {
  std::vector<std::string> header = {"requests/s", "successful", "refused", "done/s"};
  if (report.goodput.any())
    header.emplace_back("goodput/s");
  if (report.ttft)
    header.emplace_back("TTFT held");
  header.insert(header.end(), {"output tokens/s", "KV peak", "preempted"});
  for (const ServeMetric &metric : report.metrics)
    for (size_t p = 0; p < report.percentiles.size(); ++p)
      header.push_back((p == 0 ? std::string(metric.title) + " " : "") + percentileName(report.percentiles[p]));
  std::vector<std::vector<std::string>> table{header};
  for (const ServeRun &run : report.runs) {
    const TrafficMetrics &m = run.metrics;
    std::vector<std::string> row = {rateNumber(run.requestRate), cat(m.completed), cat(m.refused + m.failed),
                                    formatRate(m.requestThroughput)};
    if (report.goodput.any())
      row.push_back(formatRate(m.requestGoodput));
    if (report.ttft)
      row.push_back(report.heldOf(run).shareText());
    row.insert(row.end(), {formatRate(m.outputThroughput), kvPeak(m), cat(m.preemptions)});
    for (const ServeMetric &metric : report.metrics)
      for (size_t p = 0; p < report.percentiles.size(); ++p)
        row.push_back((m.*metric.of).count == 0 ? "-" : ms((m.*metric.of).percentilesMs[p]));
    table.push_back(std::move(row));
  }
  return foldTable(table, all, "rates", kShowAll);
}

LineChart ratesChart(const ServeReport &report) {
  LineChart chart;
  chart.title = report.model + " on " + report.hardware;
  chart.xName = "requests/s asked for";
  for (const ServeRun &run : report.runs)
    chart.x.push_back(run.requestRate);
  const auto line = [&](std::string name, size_t colour, auto value) {
    Line out{std::move(name), {}, colour};
    for (const ServeRun &run : report.runs)
      out.values.push_back(value(run.metrics));
    return out;
  };
  for (const ServeMetric &metric : report.metrics) {
    LinePanel panel;
    panel.title = std::string(metric.title) + ", ms";
    panel.spreads = true;
    const auto known = [&](const TrafficMetrics &m, double value) {
      return (m.*metric.of).count == 0 ? std::nullopt : std::optional(value);
    };
    for (size_t p = 0; p < report.percentiles.size(); ++p)
      panel.lines.push_back(line(percentileName(report.percentiles[p]), p, [&](const TrafficMetrics &m) {
        return known(m, (m.*metric.of).count == 0 ? 0 : (m.*metric.of).percentilesMs[p]);
      }));
    if (metric.objective != nullptr && report.goodput.*metric.objective) {
      panel.limit = millisecondsIn(*(report.goodput.*metric.objective));
      panel.limitName = "objective";
    }
    chart.panels.push_back(std::move(panel));
  }
  LinePanel requests;
  requests.title = "done, requests/s";
  requests.lines.push_back(line("all", 5, [](const TrafficMetrics &m) { return m.requestThroughput; }));
  if (report.goodput.any())
    requests.lines.push_back(line("within objectives", 4, [](const TrafficMetrics &m) { return m.requestGoodput; }));
  chart.panels.push_back(std::move(requests));
  LinePanel tokens;
  tokens.title = "output, tokens/s";
  tokens.lines.push_back(line("all", 5, [](const TrafficMetrics &m) { return m.outputThroughput; }));
  chart.panels.push_back(std::move(tokens));
  LinePanel kv;
  kv.title = "KV cache in use at most, % of blocks";
  kv.lines.push_back(line("peak", 3, kvPeakPercent));
  chart.panels.push_back(std::move(kv));
  return chart;
}

} // namespace

absl::Span<const ServeMetric> serveMetrics() { return kMetrics; }

std::string rateText(double requestRate) {
  return rateNumber(requestRate) + (requestRate == 1 ? " request/s" : " requests/s");
}

TtftHeld ServeReport::heldOf(const ServeRun &run) const {
  TtftHeld held(ttft);
  for (const serve::RequestTimes &request : run.result.requests)
    if (request.completed())
      held.add(request.ttftNs());
  return held;
}

double ServeReport::kvRequests() const {
  const int64_t block = std::max<int64_t>(blockTokens, 1), blocks = (context + block - 1) / block; // of one
  return static_cast<double>(kvBlocks) / static_cast<double>(std::max<int64_t>(blocks, 1));
}

std::vector<ServeRefusal> refusalsOf(const std::vector<serve::RequestTimes> &requests) {
  std::vector<std::string> kinds;
  std::vector<ServeRefusal> out;
  for (const serve::RequestTimes &request : requests) {
    if (request.why.ok())
      continue;
    const bool started = request.startNs >= 0;
    std::string kind = kindOfReason({request.why.message().data(), request.why.message().size()});
    size_t i = 0;
    while (i < out.size() && (kinds[i] != kind || out[i].started != started))
      ++i;
    if (i == out.size()) {
      kinds.push_back(std::move(kind));
      out.push_back({0, started, std::string(request.why.message())});
    }
    ++out[i].count;
  }
  std::stable_sort(out.begin(), out.end(), [](const auto &a, const auto &b) { return a.count > b.count; });
  return out;
}

std::string ServeReport::trafficText(double requestRate) const {
  std::string text = cat(plural(static_cast<uint64_t>(numPrompts), "request"), ", ", lengths);
  if (traceDropped > 0)
    text += cat(", ", plural(static_cast<uint64_t>(traceDropped), "row"), " of zero tokens dropped");
  if (requestRate == 0)
    text += cat(", at its times (", traceClock, ")",
                traceBeginS > 0 ? absl::StrFormat(", begins %.10g s into the trace", traceBeginS) : "");
  else if (std::isinf(requestRate))
    text += ", all at once";
  else
    text += absl::StrFormat(", %s%s", rateText(requestRate),
                            burstiness == 1 ? "" : absl::StrFormat(" (burstiness %g)", burstiness));
  if (maxConcurrency > 0)
    text += cat(", at most ", maxConcurrency, " at a time");
  return text;
}

std::string ServeReport::text(bool all) const {
  std::string out;
  const auto line = [&](const char *name, const std::string &value) {
    absl::StrAppendFormat(&out, "%-16s %s\n", name, value);
  };
  line("model", model + " on " + hardware);
  line("device", device);
  line("offloaded", offloaded);
  line("engine", cat(engineText(*this), "; context ", context, ", ",
                     plural(static_cast<uint64_t>(kvBlocks), "KV block"), " of ", blockTokens, " tokens"));
  if (kvBesideOffloaded && kvRequests() < static_cast<double>(maxNumSeqs))
    line("why", absl::StrFormat(
                    "the KV cache holds %.1f requests of %d tokens, what memory holds, or as many as are worth it, "
                    "beside weights that do not fit: --kv-tokens states another number",
                    kvRequests(), context));
  if (runs.size() == 1) {
    line("traffic", trafficText(runs[0].requestRate) + cat(", seed ", seed));
    return out + OneRun(*this, runs[0]).text();
  }
  line("traffic", cat(plural(static_cast<uint64_t>(numPrompts), "request"), " a rate, ", lengths, ", seed ", seed,
                      "; latencies in ms"));
  if (goodput.any())
    line("goodput", "requests within " + objectivesText(goodput));
  out += "\n" + ratesTable(*this, all);
  for (const ServeRun &run : runs)
    for (const ServeRefusal &refusal : refusalsOf(run.result.requests))
      absl::StrAppendFormat(&out, "%s: %d %s, the first: %s\n", rateText(run.requestRate), refusal.count,
                            refusal.started ? "failed" : "refused", refusal.first);
  return out;
}

std::string ServeReport::svg() const {
  if (runs.size() == 1)
    return trafficSvg(
        model + " on " + hardware,
        cat("device ", device, "; ", trafficText(runs[0].requestRate), ", seed ", seed, "; ", engineText(*this)),
        runs[0].result);
  LineChart chart = ratesChart(*this);
  chart.subtitle = cat("device ", device, "; ", plural(static_cast<uint64_t>(numPrompts), "request"), " a rate, ",
                       lengths, ", seed ", seed, "; ", engineText(*this));
  return lineChartSvg(chart);
}

} // namespace headrace::tools
