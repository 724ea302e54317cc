// SPDX-License-Identifier: Apache-2.0
//
//   title, variant
//   legend
//            0        2 ms      4 ms      6 ms       <- one axis for all tracks
//   planned
//   compute  | L0 | L1 |/////| L2 |                  <- ribbon of layers
//            |qkv|..|up|down|  ...                   <- one bar a step, its colour the part of the model
//   h2d      | L2          |
//   measured
//   ...
#include <algorithm>

#include "absl/strings/str_format.h"
#include "tools/report/Format.h"
#include "tools/timeline/Svg.h"
#include "tools/timeline/Timeline.h"

namespace headrace::tools {
namespace {

constexpr double kLeft = 96, kRight = 28, kPlot = 1276; // kLeft + kPlot + kRight: 1400 wide
constexpr double kRibbon = 15, kBars = 26, kLaneGap = 10, kTrackGap = 18;
constexpr double kTick = 4;        // a grid line's end below the bars
constexpr double kCharacter = 6.1; // width of one at font size 11
constexpr const char *kIdle = "#dde1e6", *kTokens = "stroke=\"#1f2328\" stroke-width=\"1.5\" stroke-dasharray=\"4 2\"";

struct Style {
  const char *name, *colour;
};
constexpr Style kParts[] = {{"embedding", "#7d8590"},
                            {"attention", "#3b76c4"},
                            {"MLP", "#2e9b6b"},
                            {"head, sampling", "#8b5cc4"},
                            {"copy", "#e08a2c"}};

const Style &styleOf(plan::Part part) {
  const auto i = static_cast<size_t>(part);
  return kParts[std::min(i, std::size(kParts) - 1)];
}

class Drawing {
public:
  explicit Drawing(const Chart &chart) : chart_(chart) {
    for (const Track &track : chart.tracks)
      spanNs_ = std::max(spanNs_, track.iterationNs);
  }

  std::string draw() {
    heading();
    const double top = y_;
    axis(top);
    y_ += 22; // its labels
    for (const Track &track : chart_.tracks)
      drawTrack(track);
    y_ += 10;
    return svgDocument("timeline", kLeft + kPlot + kRight, y_, body_,
                       "<defs><pattern id=\"stall\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" "
                       "patternTransform=\"rotate(45)\"><rect width=\"6\" height=\"6\" fill=\"#fde3e1\"/>"
                       "<rect width=\"2.4\" height=\"6\" fill=\"#d64545\"/></pattern></defs>\n");
  }

private:
  double x(uint64_t ns) const {
    return kLeft + kPlot * static_cast<double>(ns) / static_cast<double>(std::max<uint64_t>(spanNs_, 1));
  }
  void text(double x, double y, const std::string &what, const char *more) {
    absl::StrAppendFormat(&body_, "<text x=\"%.2f\" y=\"%.2f\" %s>%s</text>\n", x, y, more, svgEscaped(what));
  }

  void heading() {
    text(16, 26, chart_.title, "font-size=\"17\" font-weight=\"600\" fill=\"#1f2328\"");
    text(16, 45, chart_.subtitle, "font-size=\"12\" fill=\"#57606a\"");
    double at = 16;
    const auto entry = [&](const std::string &fill, const std::string &name) {
      absl::StrAppendFormat(&body_, "<rect x=\"%.2f\" y=\"58\" width=\"14\" height=\"12\" rx=\"2\" fill=\"%s\"/>\n", at,
                            fill);
      text(at + 19, 68, name, "fill=\"#1f2328\"");
      at += 19 + kCharacter * static_cast<double>(name.size()) + 20;
    };
    for (const Style &style : kParts)
      entry(style.colour, style.name);
    entry("url(#stall)", "compute waits for a copy");
    entry(kIdle, "idle");
    line(at + 7, 57, 71, kTokens, "");
    text(at + 19, 68, "tokens visible", "fill=\"#1f2328\"");
    y_ = 84;
  }

  // Upright.
  void line(double x, double from, double to, const char *style, const std::string &tip) {
    absl::StrAppendFormat(&body_, "<line x1=\"%.2f\" y1=\"%.2f\" x2=\"%.2f\" y2=\"%.2f\" %s>%s</line>\n", x, from, x,
                          to, style, tip.empty() ? "" : "<title>" + tip + "</title>");
  }

  void axis(double top) {
    const uint64_t step = timeTick(spanNs_);
    for (uint64_t t = 0; t <= spanNs_; t += step)
      text(x(t), top + 12, timeLabel(t, spanNs_), "text-anchor=\"middle\" fill=\"#57606a\"");
  }
  // Only where nothing is written: around the bars of a lane, which are drawn over it.
  void grid(double top, double bottom) {
    const uint64_t step = timeTick(spanNs_);
    for (uint64_t t = 0; t <= spanNs_; t += step)
      line(x(t), top, bottom, "stroke=\"#d5dae0\"", "");
  }

  void drawTrack(const Track &track) {
    y_ += kTrackGap;
    text(16, y_, trackHeading(track), "font-size=\"13\" font-weight=\"600\" fill=\"#1f2328\"");
    y_ += 8;
    for (const plan::Lane lane : chart_.lanes)
      drawLane(track, lane);
  }

  void drawLane(const Track &track, plan::Lane lane) {
    const double barTop = y_ + kRibbon;
    const uint64_t busy = track.busyNs[static_cast<int>(lane)];
    text(16, barTop + 10, plan::laneName(lane), "font-size=\"12\" font-weight=\"600\" fill=\"#1f2328\"");
    text(16, barTop + 24,
         absl::StrFormat("%.0f%% busy", 100.0 * static_cast<double>(busy) /
                                            static_cast<double>(std::max<uint64_t>(track.iterationNs, 1))),
         "fill=\"#57606a\"");
    grid(barTop - kRibbon, barTop + kBars + kTick);
    absl::StrAppendFormat(&body_, "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"%s\"/>\n", kLeft,
                          barTop, x(track.iterationNs) - kLeft, kBars, kIdle);
    drawRibbon(track, lane);
    if (lane == plan::Lane::Compute)
      for (const Gap &gap : track.stalls)
        bar(gap.startNs, gap.endNs, barTop, "url(#stall)", 1, "",
            "stall of " + formatNs(gap.endNs - gap.startNs) + ": waits for the copy of " + gap.waitsFor);
    bool odd = true;
    std::pair<int32_t, int32_t> pass(-1, -1); // layer, mini-batch
    for (const Bar &b : track.bars) {
      if (b.lane != lane || b.endNs <= b.startNs)
        continue;
      const std::pair own(b.layer, b.miniBatch);
      odd = b.layer >= 0 && (own == pass ? odd : !odd);
      pass = own;
      std::string tip =
          b.name + ": " + formatNs(b.endNs - b.startNs) + ", from " + formatNs(b.startNs) + " to " + formatNs(b.endNs);
      if (b.flops != 0)
        tip += "\n" + formatCount(static_cast<double>(b.flops)) + "FLOP";
      if (b.deviceBytes != 0)
        tip += "\n" + formatBytes(b.deviceBytes) + " of device memory";
      if (b.linkBytes != 0)
        tip += "\n" + formatBytes(b.linkBytes) + " over the link" +
               (!b.direct  ? ""
                : b.toHost ? ", written in place"
                           : ", read in place");
      const size_t space = b.name.find(' ');
      bar(b.startNs, b.endNs, barTop, styleOf(b.part).colour, odd ? 0.78 : 1,
          space == std::string::npos ? b.name : b.name.substr(space + 1), tip);
    }
    if (lane == plan::Lane::Compute && track.tokensNs != 0) // where no bar's label is: behind the last
      line(x(track.tokensNs), barTop - 3, barTop + kBars + 3, kTokens, "tokens visible at " + formatNs(track.tokensNs));
    y_ = barTop + kBars + kLaneGap;
  }

  struct Run {
    int32_t layer, miniBatch;
    uint64_t startNs, endNs;
  };
  // Bars of one layer and mini-batch that follow each other on a lane, joined.
  static std::vector<Run> runsOf(const Track &track, plan::Lane lane) {
    std::vector<Run> runs;
    for (const Bar &b : track.bars) {
      if (b.lane != lane || b.layer < 0 || b.endNs <= b.startNs)
        continue;
      if (!runs.empty() && runs.back().layer == b.layer && runs.back().miniBatch == b.miniBatch)
        runs.back().endNs = std::max(runs.back().endNs, b.endNs);
      else
        runs.push_back({b.layer, b.miniBatch, b.startNs, b.endNs});
    }
    return runs;
  }

  // Which layer is at work; every second one darker, so that neighbours part.
  void drawRibbon(const Track &track, plan::Lane lane) {
    bool odd = false;
    for (const Run &run : runsOf(track, lane)) {
      const double from = x(run.startNs), to = x(run.endNs);
      const std::string label = passName(run.layer, run.miniBatch);
      absl::StrAppendFormat(&body_, "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"%s\"/>\n", from,
                            y_ + 1, std::max(to - from - 0.5, 0.3), kRibbon - 2, odd ? "#dfe5ee" : "#c9d3e2");
      odd = !odd;
      if (kCharacter * static_cast<double>(label.size()) <= to - from)
        text((from + to) / 2, y_ + kRibbon - 4, label, "text-anchor=\"middle\" font-size=\"10\" fill=\"#39424e\"");
    }
  }

  void bar(uint64_t startNs, uint64_t endNs, double top, const std::string &fill, double opacity,
           const std::string &label, const std::string &tip) {
    const double from = x(startNs), width = std::max(x(endNs) - from, 0.4);
    absl::StrAppendFormat(&body_,
                          "<g><rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"%s\" "
                          "fill-opacity=\"%.2f\"%s/>",
                          from, top, width, kBars, fill, opacity,
                          width > 3 ? " stroke=\"#ffffff\" stroke-width=\"0.6\"" : "");
    if (!label.empty() && kCharacter * static_cast<double>(label.size()) + 4 <= width)
      absl::StrAppendFormat(&body_,
                            "<text x=\"%.2f\" y=\"%.2f\" text-anchor=\"middle\" fill=\"#ffffff\" "
                            "pointer-events=\"none\">%s</text>",
                            from + width / 2, top + kBars / 2 + 4, svgEscaped(label));
    std::string title = svgEscaped(tip);
    body_ += "<title>" + title + "</title></g>\n";
  }

  const Chart &chart_;
  std::string body_;
  uint64_t spanNs_ = 0;
  double y_ = 0;
};

} // namespace

std::string timelineSvg(const Chart &chart) { return Drawing(chart).draw(); }

} // namespace headrace::tools
