// SPDX-License-Identifier: Apache-2.0
#include "tools/report/FleetReport.h"

#include <algorithm>
#include <numeric>

#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "runtime/base/Text.h"
#include "tools/report/Format.h"

namespace headrace::tools {
namespace {

using Json = nlohmann::ordered_json;

double ms(double ns) { return ns / 1e6; }
double ms(int64_t ns) { return static_cast<double>(ns) / 1e6; }

// Nearest rank of what is sorted; 0 of nothing.
double quantile(const std::vector<double> &sorted, size_t percent) {
  return sorted.empty() ? 0 : sorted[(sorted.size() * percent + 99) / 100 - 1];
}

struct Quantiles {
  double p50 = 0, p99 = 0, most = 0;
  bool any = false;
  explicit Quantiles(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    any = !values.empty();
    p50 = quantile(values, 50);
    p99 = quantile(values, 99);
    most = quantile(values, 100);
  }
  Json json() const { return {{"p50", p50}, {"p99", p99}, {"max", most}}; }
  std::string text() const {
    return any ? absl::StrFormat("p50 %.3f, p99 %.3f, most %.3f", p50, p99, most) : "none was served";
  }
};

// Of the requests that ran: what they took over what was asked for.
template <class Value> Quantiles ratios(const FleetReport &report, Value value) {
  std::vector<double> out;
  for (size_t r = 0; r < report.requests.size(); ++r)
    if (report.result.requests[r].status.ok())
      out.push_back(value(report.requests[r], report.result.requests[r]));
  return Quantiles(std::move(out));
}
Quantiles ttftRatios(const FleetReport &report) {
  return ratios(report, [](const serve::FleetRequest &asked, const serve::RequestOutcome &got) {
    return static_cast<double>(got.ttftNs()) / asked.ttftNs();
  });
}
Quantiles tpotRatios(const FleetReport &report) { // of the longest gap
  return ratios(report, [](const serve::FleetRequest &asked, const serve::RequestOutcome &got) {
    return static_cast<double>(got.longestGapNs) / asked.tpotNs();
  });
}

Json missesJson(const serve::MissCounts &m) {
  return {{"bus_lost", m.busLost}, {"kv_blocks", m.kvBlocks}, {"other", m.other}};
}
std::string missesText(const serve::MissCounts &m) {
  return model::cat(m.total(), " (bus lost ", m.busLost, ", KV blocks ", m.kvBlocks, ", other ", m.other, ")");
}

// A reason without its numbers, which differ from request to request.
std::string kindOf(const std::string &why) {
  std::string kind;
  for (const char c : why)
    if (!absl::ascii_isdigit(static_cast<unsigned char>(c)) && c != '.')
      kind.push_back(c);
  return kind;
}

// Why, the most frequent kind first: "12 x no instance of model 'opt'", with the numbers of the first; at most three.
std::vector<std::string> refusals(const FleetReport &report) {
  constexpr size_t kMost = 3;
  std::vector<std::pair<std::string, size_t>> reasons;
  std::vector<std::string> kinds;
  for (size_t r = 0; r < report.requests.size(); ++r) {
    const serve::RequestOutcome &got = report.result.requests[r];
    if (got.status.ok() || got.admitted)
      continue;
    std::string why(got.status.message());
    const std::string own = model::cat("request ", r, ": ");
    if (why.starts_with(own))
      why.erase(0, own.size());
    const std::string kind = kindOf(why);
    const auto known = std::find(kinds.begin(), kinds.end(), kind);
    if (known == kinds.end()) {
      kinds.push_back(kind);
      reasons.emplace_back(why, 1);
    } else {
      ++reasons[static_cast<size_t>(known - kinds.begin())].second;
    }
  }
  std::stable_sort(reasons.begin(), reasons.end(), [](const auto &a, const auto &b) { return a.second > b.second; });
  std::vector<std::string> out;
  size_t others = 0;
  for (size_t i = 0; i < reasons.size(); ++i)
    if (i < kMost)
      out.push_back(model::cat(reasons[i].second, reasons[i].second > 1 ? " x, as " : " x ", reasons[i].first));
    else
      others += reasons[i].second;
  if (others > 0)
    out.push_back(model::cat(others, " for other reasons (--each)"));
  return out;
}

std::string requestLine(const FleetReport &report, size_t r) {
  const serve::FleetRequest &asked = report.requests[r];
  const serve::RequestOutcome &got = report.result.requests[r];
  const std::string head = absl::StrFormat("request %-4d %s, %d prompts: ", r, asked.model, asked.prompts.size());
  if (!got.status.ok()) {
    const std::string own = model::cat("request ", r, ": ");
    const std::string why(got.status.message());
    return head + (got.admitted ? "ended: " : "refused: ") + (why.starts_with(own) ? why.substr(own.size()) : why) +
           "\n";
  }
  return head +
         absl::StrFormat("TTFT %.2f of %.2f ms, TPOT %.2f ms, longest gap %.2f of %.2f ms, %d iterations, %d late\n",
                         ms(got.ttftNs()), ms(asked.ttftNs()), ms(got.tpotNs()), ms(got.longestGapNs),
                         ms(asked.tpotNs()), got.iterations, report.late[r]);
}

} // namespace

std::string FleetReport::text(bool each, bool all) const {
  std::vector<std::string> requestLines;
  for (size_t r = 0; r < requests.size() && each; ++r)
    requestLines.push_back(requestLine(*this, r));
  std::string out = foldLines(requestLines, all, "requests", kShowAll);
  const auto line = [&](const char *name, const std::string &value) {
    absl::StrAppendFormat(&out, "%-16s %s\n", name, value);
  };
  line("device",
       device == "sim" ? "sim; an iteration takes its full bucket's time, which bounds on the bus count on" : device);
  line("coordinated", coordinated ? "yes" : "no: everything is admitted, every device has one placement");
  for (const DeviceTally &d : devices) {
    std::string placements;
    for (size_t p = 0; p < d.inPlacement.size(); ++p)
      if (d.inPlacement[p] > 0)
        placements += model::cat(placements.empty() ? "" : ", ", d.inPlacement[p], " in ", d.placements[p]);
    line(d.name.c_str(),
         model::cat(d.model, ": ", d.iterations, " iterations (", placements.empty() ? "none" : placements, "), ",
                    d.changes, " changes of placement"));
  }
  line("requests", model::cat(requests.size(), ": ", result.admitted, " admitted, ", result.refused, " refused, ",
                              result.lost, " ended early; ", held, " held both objectives"));
  line("together",
       model::cat(result.joined, " joined others that ran, at most ", result.mostTogether, " at once on a device"));
  for (const std::string &why : refusals(*this))
    line("refused", why);
  line("TTFT / SLO", ttftRatios(*this).text());
  line("gap / SLO", tpotRatios(*this).text() + " (longest of each request)");
  uint64_t lateInAll = 0;
  for (const uint64_t n : late)
    lateInAll += n;
  line("late", model::cat(lateInAll, " of ", result.gaps, " gaps between tokens"));
  if (coordinated) {
    line("by cause", missesText(result.misses) + " of gaps, " + missesText(result.ttftMisses) + " of TTFT");
    line("bandwidth", model::cat(result.bandwidthLosses, " times less than planned was measured"));
  }
  line("freed", seconds > 0 ? formatBytes(static_cast<uint64_t>(result.freedByteSeconds / seconds)) +
                                  " of device memory on average, all devices"
                            : "-");
  line("tokens", absl::StrFormat("%d in %.3f s: %s/s", tokens, seconds,
                                 formatRate(seconds > 0 ? static_cast<double>(tokens) / seconds : 0)));
  return out;
}

std::string FleetReport::json() const {
  Json json = {{"device", device},
               {"coordinated", coordinated},
               {"requests", Json::array()},
               {"devices", Json::array()},
               {"admitted", result.admitted},
               {"refused", result.refused},
               {"ended_early", result.lost},
               {"held", held},
               {"ttft_over_slo", ttftRatios(*this).json()},
               {"longest_gap_over_slo", tpotRatios(*this).json()},
               {"iterations", result.iterations},
               {"changes", result.changes},
               {"joined", result.joined},
               {"most_together", result.mostTogether},
               {"gaps", result.gaps},
               {"late", std::accumulate(late.begin(), late.end(), uint64_t{0})},
               {"late_by_cause", coordinated ? missesJson(result.misses) : Json(nullptr)},
               {"late_ttft_by_cause", coordinated ? missesJson(result.ttftMisses) : Json(nullptr)},
               {"bandwidth_losses", result.bandwidthLosses},
               {"freed_bytes", seconds > 0 ? result.freedByteSeconds / seconds : 0},
               {"tokens", tokens},
               {"seconds", seconds}};
  for (size_t r = 0; r < requests.size(); ++r) {
    const serve::RequestOutcome &got = result.requests[r];
    Json one = {{"model", requests[r].model},
                {"prompts", requests[r].prompts.size()},
                {"admitted", got.admitted},
                {"refused", got.status.ok() ? Json(nullptr) : Json(std::string(got.status.message()))}};
    if (got.status.ok()) {
      one["ttft_ms"] = ms(got.ttftNs());
      one["ttft_slo_ms"] = ms(requests[r].ttftNs());
      one["tpot_ms"] = got.gaps > 0 ? Json(ms(got.tpotNs())) : Json(nullptr);
      one["longest_gap_ms"] = got.gaps > 0 ? Json(ms(got.longestGapNs)) : Json(nullptr);
      one["tpot_slo_ms"] = ms(requests[r].tpotNs());
      one["late"] = late[r];
      one["hand_over_ms"] = ms(got.handoverNs);
      one["prefill_device"] = got.prefillInstance;
      one["decode_device"] = got.decodeInstance == serve::kNoInstance ? Json(nullptr) : Json(got.decodeInstance);
    }
    json["requests"].push_back(std::move(one));
  }
  for (const DeviceTally &d : devices) {
    Json placements = Json::object(); // several may have one name
    for (size_t p = 0; p < d.inPlacement.size(); ++p)
      placements[d.placements[p]] = placements.value(d.placements[p], uint64_t{0}) + d.inPlacement[p];
    json["devices"].push_back({{"name", d.name},
                               {"model", d.model},
                               {"iterations", d.iterations},
                               {"changes", d.changes},
                               {"iterations_in", std::move(placements)}});
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

} // namespace headrace::tools
