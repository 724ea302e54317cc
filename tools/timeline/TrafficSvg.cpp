// SPDX-License-Identifier: Apache-2.0
#include "tools/timeline/TrafficSvg.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "runtime/base/Text.h"
#include "tools/report/Format.h"
#include "tools/timeline/Svg.h"

namespace headrace::tools {
namespace {

constexpr double kLeft = 76, kRight = 28, kPlot = 1096;     // 1200 wide
constexpr double kRows = 520, kLeastRow = 2, kMostRow = 14; // height of all rows, and of one
constexpr double kPanel = 96, kPanelGap = 44, kTop = 106;
constexpr size_t kColumns = 548; // of samples: two pixels each

struct Style {
  const char *name, *fill;
};
constexpr Style kQueueing{"queueing", "#b4bcc6"}, kPrefill{"prefill", "#e08a2c"}, kDecode{"decode", "#3b76c4"};
constexpr const char *kRefused = "#d64545", *kDark = "fill=\"#1f2328\"";
constexpr const char *kKv = "#8b5cc4", *kRunning = "#3b76c4", *kWaiting = "#9aa4b0";

std::string fill(const char *colour) { return absl::StrFormat("fill=\"%s\"", colour); }

class Drawing {
public:
  explicit Drawing(const serve::TrafficResult &result) : result_(result) {
    spanNs_ = std::max<int64_t>(result.durationNs, 1);
    for (const serve::RequestTimes &request : result.requests) // refused ones may come later than the last token
      spanNs_ = std::max({spanNs_, request.arrivalNs, request.lastTokenNs});
    step_ = (result.requests.size() + kMostRows - 1) / kMostRows;
  }

  std::string draw(const std::string &title, const std::string &subtitle) {
    body_.text(16, 26, title, R"(font-size="17" font-weight="600" fill="#1f2328")");
    body_.text(16, 45, subtitle, R"(font-size="12" fill="#57606a")");
    legend();
    y_ = kTop;
    rows();
    if (!result_.samples.empty()) {
      kvPanel();
      requestsPanel();
    }
    return svgDocument("bench", kLeft + kPlot + kRight, y_ + 12, body_.text());
  }

private:
  static constexpr auto kMostRows = static_cast<size_t>(kRows / kLeastRow);

  double x(int64_t ns) const { return kLeft + kPlot * static_cast<double>(ns) / static_cast<double>(spanNs_); }

  void legend() {
    double at = 16;
    for (const Style &style : {kQueueing, kPrefill, kDecode}) {
      body_.rect(at, 58, 14, 12, "rx=\"2\" " + fill(style.fill));
      body_.text(at + 19, 68, style.name, kDark);
      at += 100;
    }
    const auto any = [&](auto holds) { return std::any_of(result_.requests.begin(), result_.requests.end(), holds); };
    if (any([](const serve::RequestTimes &one) { return one.preemptions > 0; })) {
      preempted(at + 7, 64, 12);
      body_.text(at + 19, 68, "was preempted", kDark);
      at += 120;
    }
    if (any([](const serve::RequestTimes &one) { return !one.why.ok(); })) {
      cross(at + 7, 64);
      body_.text(at + 19, 68, "refused or failed", kDark);
    }
  }

  void cross(double x, double y) {
    body_.path(absl::StrFormat("M%.1f %.1fl6 6m0 -6l-6 6", x - 3, y - 3),
               absl::StrFormat("stroke=\"%s\" stroke-width=\"1.5\" fill=\"none\"", kRefused));
  }
  void preempted(double x, double y, double height) { // a mark behind the row's end
    const double half = std::clamp(height / 2, 1.5, 4.0);
    body_.path(absl::StrFormat("M%.1f %.1fl%.1f %.1fv%.1fz", x, y, 1.5 * half, -half, 2 * half), fill(kRefused));
  }

  // Ticks of the time axis between two heights, with their labels below where there are to be any.
  void grid(double top, double bottom, bool labels) {
    const auto span = static_cast<uint64_t>(spanNs_);
    const uint64_t tick = timeTick(span);
    for (uint64_t t = 0; t <= span; t += tick) {
      const double at = x(static_cast<int64_t>(t));
      body_.line(at, top, at, bottom, "stroke=\"#e6e8eb\"");
      if (labels)
        body_.text(at, bottom + 14, timeLabel(t, span), R"(text-anchor="middle" fill="#57606a")");
    }
  }

  void rows() {
    const size_t shown = step_ == 0 ? 0 : (result_.requests.size() + step_ - 1) / step_;
    const double height = std::clamp(kRows / static_cast<double>(std::max<size_t>(shown, 1)), kLeastRow, kMostRow);
    const double bottom = y_ + height * static_cast<double>(shown);
    grid(y_ - 4, bottom + 4, /*labels=*/true);
    body_.text(16, y_ - 8,
               step_ > 1 ? absl::StrFormat("requests, one of every %d in order of arrival", step_)
                         : std::string("requests in order of arrival"),
               R"(font-size="12" font-weight="600" fill="#1f2328")");
    // About twenty numbers beside the rows.
    const auto every = static_cast<size_t>(std::max(1.0, axisTop(static_cast<double>(shown) / 20)));
    for (size_t i = 0; i < shown; ++i) {
      const double top = y_ + height * static_cast<double>(i);
      if (i % every == 0)
        body_.text(kLeft - 8, top + height / 2 + 4, absl::StrFormat("%d", i * step_ + 1),
                   R"(text-anchor="end" fill="#57606a")");
      row(i * step_, top, height);
    }
    y_ = bottom + 24;
  }

  void row(size_t index, double top, double height) {
    const serve::RequestTimes &r = result_.requests[index];
    const double bar = height > 4 ? height - 1 : height, middle = top + bar / 2;
    body_.beginGroup(tipOf(index));
    const auto span = [&](int64_t from, int64_t to, const Style &style) {
      body_.rect(x(from), top, std::max(x(to) - x(from), 0.4), bar, fill(style.fill));
    };
    const int64_t end = r.lastTokenNs >= 0    ? r.lastTokenNs
                        : r.firstTokenNs >= 0 ? r.firstTokenNs
                        : r.startNs >= 0      ? r.startNs
                                              : r.arrivalNs;
    if (r.startNs >= 0)
      span(r.arrivalNs, r.startNs, kQueueing);
    if (r.firstTokenNs >= 0)
      span(r.startNs, r.firstTokenNs, kPrefill);
    if (r.lastTokenNs > r.firstTokenNs && r.firstTokenNs >= 0)
      span(r.firstTokenNs, r.lastTokenNs, kDecode);
    if (r.preemptions > 0)
      preempted(x(end) + 1, middle, bar);
    if (!r.why.ok())
      cross(x(end) + (end > r.arrivalNs ? 6 : 0), middle);
    body_.endGroup();
  }

  std::string tipOf(size_t index) const {
    const serve::RequestTimes &r = result_.requests[index];
    const auto ns = [](int64_t value) { return formatNs(static_cast<uint64_t>(std::max<int64_t>(value, 0))); };
    std::string tip = absl::StrFormat("request %d: %d token%s in, %d out; arrived at %s", index + 1, r.promptTokens,
                                      r.promptTokens == 1 ? "" : "s", r.outputTokens, ns(r.arrivalNs));
    if (r.startNs >= 0)
      tip += "\nqueueing " + ns(r.queueingNs());
    if (r.firstTokenNs >= 0)
      tip += ", TTFT " + ns(r.ttftNs());
    if (r.outputTokens > 1)
      tip += ", TPOT " + ns(static_cast<int64_t>(r.tpotNs()));
    if (r.lastTokenNs >= 0)
      tip += ", end to end " + ns(r.latencyNs());
    if (r.preemptions > 0)
      tip += absl::StrFormat("\npreempted %d x", r.preemptions);
    if (!r.why.ok())
      tip += "\n" + std::string(r.why.message());
    return tip;
  }

  // A panel's frame: its title, a y axis from 0 to `most`, the time axis. Gives the height of a value.
  auto frame(const std::string &title, double most, const char *unit) {
    y_ += kPanelGap - 12;
    const double top = y_, bottom = top + kPanel, scale = axisTop(most);
    grid(top, bottom + 4, /*labels=*/true);
    body_.text(16, top - 12, title, R"(font-size="12" font-weight="600" fill="#1f2328")");
    for (int quarter = 0; quarter <= 4; quarter += 2) {
      const double y = bottom - kPanel * quarter / 4;
      body_.line(kLeft, y, kLeft + kPlot, y, quarter == 0 ? "stroke=\"#57606a\"" : "stroke=\"#d5dae0\"");
      body_.text(kLeft - 6, y + 4, axisLabel(scale * quarter / 4) + unit, R"(text-anchor="end" fill="#57606a")");
    }
    y_ = bottom + 24;
    return [bottom, scale](double value) { return bottom - kPanel * std::clamp(value / scale, 0.0, 1.0); };
  }

  // Steps from sample to sample; each holds until the next.
  template <class Value, class Y> std::string steps(const Value &value, const Y &y) const {
    std::string d;
    for (size_t i = 0; i < samples_.size(); ++i) {
      const double at = y(value(samples_[i]));
      if (i == 0)
        absl::StrAppendFormat(&d, "M%.1f %.1f", x(samples_[i].ns), at);
      else
        absl::StrAppendFormat(&d, "H%.1fV%.1f", x(samples_[i].ns), at);
    }
    return d + absl::StrFormat("H%.1f", x(spanNs_));
  }

  void kvPanel() {
    samples_ = thinned(result_.samples, kColumns);
    const auto blocks = static_cast<double>(std::max<int64_t>(result_.kvBlocks, 1));
    const auto y = frame(model::cat("KV cache in use, of ", result_.kvBlocks, " blocks"), 100, "%");
    const std::string d =
        steps([&](const serve::EngineSample &s) { return 100 * static_cast<double>(s.kvBlocks) / blocks; }, y);
    body_.path(d + absl::StrFormat("V%.1fH%.1fz", y(0), x(samples_[0].ns)), fill(kKv) + " fill-opacity=\"0.25\"");
    body_.path(d, absl::StrFormat("fill=\"none\" stroke=\"%s\"", kKv));
  }

  void requestsPanel() {
    uint32_t most = 1;
    for (const serve::EngineSample &sample : samples_)
      most = std::max({most, sample.running, sample.waiting});
    const double top = y_ + kPanelGap - 12;
    const auto y = frame("requests in the engine, number", most, "");
    struct Part {
      const char *name, *colour;
      uint32_t serve::EngineSample::*of;
    };
    double at = 240;
    for (const Part &part : {Part{"waiting", kWaiting, &serve::EngineSample::waiting},
                             Part{"running", kRunning, &serve::EngineSample::running}}) {
      const std::string d = steps([&](const serve::EngineSample &s) { return static_cast<double>(s.*part.of); }, y);
      body_.path(d, absl::StrFormat("fill=\"none\" stroke-width=\"1.4\" stroke=\"%s\"", part.colour));
      body_.rect(at, top - 18, 14, 4, fill(part.colour));
      body_.text(at + 19, top - 12, part.name, kDark);
      at += 90;
    }
  }

  const serve::TrafficResult &result_;
  std::vector<serve::EngineSample> samples_;
  SvgBody body_;
  int64_t spanNs_ = 1;
  size_t step_ = 1; // of the requests that are drawn
  double y_ = 0;
};

} // namespace

std::vector<serve::EngineSample> thinned(const std::vector<serve::EngineSample> &samples, size_t count) {
  if (samples.size() <= count || count == 0)
    return samples;
  const size_t each = (samples.size() + count - 1) / count;
  std::vector<serve::EngineSample> out;
  for (size_t i = 0; i < samples.size(); ++i) {
    if (i % each == 0) {
      out.push_back(samples[i]);
      continue;
    }
    serve::EngineSample &most = out.back();
    most.kvBlocks = std::max(most.kvBlocks, samples[i].kvBlocks);
    most.running = std::max(most.running, samples[i].running);
    most.waiting = std::max(most.waiting, samples[i].waiting);
  }
  return out;
}

std::string trafficSvg(const std::string &title, const std::string &subtitle, const serve::TrafficResult &result) {
  return Drawing(result).draw(title, subtitle);
}

} // namespace headrace::tools
