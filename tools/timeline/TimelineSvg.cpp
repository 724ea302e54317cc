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
//
// Of stages each track has a row of launches above its lanes, a colour a micro-batch, and lines show rows that pass.
#include <algorithm>
#include <map>
#include <tuple>

#include "absl/strings/str_format.h"
#include "tools/report/Format.h"
#include "tools/timeline/Svg.h"
#include "tools/timeline/Timeline.h"

namespace headrace::tools {
namespace {

constexpr double kLeft = 96, kRight = 28, kPlot = 1276; // kLeft + kPlot + kRight: 1400 wide
constexpr double kRibbon = 15, kBars = 26, kLaneGap = 10, kTrackGap = 18;
constexpr double kTick = 4;                        // a grid line's end below the bars
constexpr double kCharacter = 6.1;                 // width of one at font size 11
constexpr double kLaunches = 18, kRowsWidth = 2.5; // the least of a copy of rows between stages
constexpr const char *kRows = "#d6336c";
// Of micro-batches, in turn.
constexpr const char *kTurns[] = {"#4c6fb1", "#c9822b", "#4f9d69", "#9467b5",
                                  "#b5514f", "#5f9ea0", "#8c6d46", "#7a7f87"};
constexpr const char *kHeading = "font-size=\"13\" font-weight=\"600\" fill=\"#1f2328\" stroke=\"#ffffff\" "
                                 "stroke-width=\"4\" paint-order=\"stroke\"";
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
    drawPassed();
    for (const auto &[y, heading] : headings_) // over the lines
      text(16, y, heading, kHeading);
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
    if (chart_.microBatches > 0)
      entry(kRows, "rows between stages");
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
    headings_.emplace_back(y_, trackHeading(track));
    y_ += 8;
    if (!track.launches.empty())
      drawLaunches(track);
    const double top = y_;
    for (const plan::Lane lane : chart_.lanes)
      if (chart_.microBatches == 0 || track.busyNs[static_cast<int>(lane)] > 0) // not all stages send, or receive
        drawLane(track, lane, top);
  }

  // Which micro-batch is at work.
  void drawLaunches(const Track &track) {
    text(16, y_ + 12, chart_.launchIs, "font-size=\"11\" font-weight=\"600\" fill=\"#1f2328\"");
    for (const StageLaunch &launch : track.launches) {
      const double from = x(launch.startNs), width = std::max(x(launch.endNs) - from - 1, 0.4);
      absl::StrAppendFormat(
          &body_, "<g><rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" rx=\"2\" fill=\"%s\"/>", from, y_,
          width, kLaunches - 4, kTurns[static_cast<size_t>(launch.turn) % std::size(kTurns)]);
      if (kCharacter * static_cast<double>(launch.name.size()) + 4 <= width)
        absl::StrAppendFormat(&body_,
                              "<text x=\"%.2f\" y=\"%.2f\" text-anchor=\"middle\" fill=\"#ffffff\" "
                              "font-weight=\"600\" pointer-events=\"none\">%s</text>",
                              from + width / 2, y_ + 11, svgEscaped(launch.name));
      absl::StrAppendFormat(&body_, "<title>%s %s: %s</title></g>\n", chart_.launchIs, svgEscaped(launch.name),
                            formatNs(launch.ns));
    }
    y_ += kLaunches;
  }

  // From where rows are at home behind one stage's copy to where the next stage's starts.
  void drawPassed() {
    for (const RowsPassed &rows : chart_.passed) {
      const auto from = laneTops_.find({rows.from, plan::Lane::D2H}),
                 to = laneTops_.find({rows.from + 1, plan::Lane::H2D});
      if (from == laneTops_.end() || to == laneTops_.end())
        continue;
      absl::StrAppendFormat(&body_,
                            "<path d=\"M%.2f %.2f L%.2f %.2f\" stroke=\"%s\" stroke-width=\"1.3\" fill=\"none\">"
                            "<title>rows of %s: %s</title></path>\n",
                            x(rows.sentNs), from->second + kBars, x(rows.receivedNs), to->second, kRows, rows.of,
                            formatNs(rows.receivedNs - rows.sentNs));
    }
  }

  void drawLane(const Track &track, plan::Lane lane, double top) {
    const double barTop = y_ + kRibbon;
    laneTops_[{static_cast<size_t>(&track - chart_.tracks.data()), lane}] = barTop;
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
    std::tuple<int32_t, int32_t, int32_t> pass(-1, -1, -1); // layer, mini-batch, launch
    for (const Bar &b : track.bars) {
      if (b.lane != lane || b.endNs <= b.startNs)
        continue;
      const std::tuple own(b.layer, b.miniBatch, b.launch);
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
      bar(b.startNs, b.endNs, barTop, b.passes ? kRows : styleOf(b.part).colour, odd ? 0.78 : 1,
          space == std::string::npos ? b.name : b.name.substr(space + 1), tip, b.passes ? kRowsWidth : 0.4);
    }
    if (lane == plan::Lane::Compute && &track == &chart_.tracks.back())
      for (const StageLaunch &launch : track.launches)
        if (launch.visibleNs > 0)
          line(x(launch.visibleNs), top - kLaunches, barTop + kBars + 3, kTokens,
               "tokens of " + chart_.launchIs + " " + launch.name + " visible at " + formatNs(launch.visibleNs));
    if (lane == plan::Lane::Compute && track.tokensNs != 0) // where no bar's label is: behind the last
      line(x(track.tokensNs), barTop - 3, barTop + kBars + 3, kTokens, "tokens visible at " + formatNs(track.tokensNs));
    y_ = barTop + kBars + kLaneGap;
  }

  struct Run {
    int32_t layer, miniBatch, launch;
    uint64_t startNs, endNs;
  };
  // Bars of one layer and mini-batch that follow each other on a lane, joined.
  static std::vector<Run> runsOf(const Track &track, plan::Lane lane) {
    std::vector<Run> runs;
    for (const Bar &b : track.bars) {
      if (b.lane != lane || b.layer < 0 || b.endNs <= b.startNs)
        continue;
      if (!runs.empty() && runs.back().layer == b.layer && runs.back().miniBatch == b.miniBatch &&
          runs.back().launch == b.launch)
        runs.back().endNs = std::max(runs.back().endNs, b.endNs);
      else
        runs.push_back({b.layer, b.miniBatch, b.launch, b.startNs, b.endNs});
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
           const std::string &label, const std::string &tip, double least = 0.4) {
    const double from = x(startNs), width = std::max(x(endNs) - from, least);
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
  std::vector<std::pair<double, std::string>> headings_;
  std::map<std::pair<size_t, plan::Lane>, double> laneTops_; // top of the bars of a track's lane
};

} // namespace

std::string timelineSvg(const Chart &chart) { return Drawing(chart).draw(); }

} // namespace headrace::tools
