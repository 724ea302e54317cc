// SPDX-License-Identifier: Apache-2.0
//
// planned: iteration 1.20 ms, tokens at 1.10 ms, stalls 120 us
//          0 ns        300 us      600 us      900 us
//          |-----------|-----------|-----------|-----------
// compute  [L0=======][L1=======].....[L2=======][L3====]||
// h2d      [L2=====================]    [L0====]
//
// Of stages a row of launches stands above the lanes.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"
#include "runtime/base/Text.h"
#include "tools/report/Format.h"
#include "tools/timeline/LaneAccount.h"
#include "tools/timeline/Timeline.h"

namespace headrace::tools {
namespace {

// Bars of one layer (or one part outside the layers) that follow each other on a lane.
struct Run {
  std::string label; // "L3", "embed", "head"; of mini-batch 1 of several "L3.1", "embed.1", "head.1"
  uint64_t startNs = 0, endNs = 0;
};

std::string labelOf(const Bar &bar) {
  std::string pass = passName(bar.layer, bar.miniBatch);
  if (bar.layer >= 0)
    return pass;
  if (!plan::computes(bar.lane))
    return bar.name;
  return (bar.part == plan::Part::Embedding ? "embed" : "head") + (pass.empty() ? "" : "." + pass);
}

std::vector<Run> runsOf(const Track &track, plan::Lane lane) {
  std::vector<const Bar *> bars;
  for (const Bar &bar : track.bars)
    if (bar.lane == lane && bar.endNs > bar.startNs)
      bars.push_back(&bar);
  std::vector<Run> runs;
  // A measured lane has small gaps between steps: up to 2% of the iteration they do not part a run.
  const uint64_t slack = track.iterationNs / 50;
  for (const Bar *bar : bars) {
    const std::string label = labelOf(*bar);
    const bool stalled = std::any_of(track.stalls.begin(), track.stalls.end(), [&](const Gap &gap) {
      return lane == plan::Lane::Compute && gap.endNs > gap.startNs && gap.endNs == bar->startNs;
    });
    if (!runs.empty() && runs.back().label == label && bar->startNs <= runs.back().endNs + slack && !stalled)
      runs.back().endNs = std::max(runs.back().endNs, bar->endNs);
    else
      runs.push_back({label, bar->startNs, bar->endNs});
  }
  return runs;
}

// A lane of a stage, whose layers are narrower than columns: '=' where it is busy for most of one, '-' for some of one.
std::string density(const Track &track, plan::Lane lane, int width) {
  const auto columns = static_cast<size_t>(width);
  const double column = static_cast<double>(std::max<uint64_t>(track.iterationNs, 1)) / static_cast<double>(width);
  std::vector<double> busy(columns), stalled(columns);
  const auto add = [&](std::vector<double> &to, uint64_t startNs, uint64_t endNs) {
    const double start = static_cast<double>(startNs) / column, end = static_cast<double>(endNs) / column;
    for (auto c = static_cast<size_t>(start); c < columns && static_cast<double>(c) < end; ++c)
      to[c] += std::min(end, static_cast<double>(c + 1)) - std::max(start, static_cast<double>(c));
  };
  for (const Bar &bar : track.bars)
    if (bar.lane == lane)
      add(busy, bar.startNs, bar.endNs);
  if (lane == plan::Lane::Compute)
    for (const Gap &gap : track.stalls)
      add(stalled, gap.startNs, gap.endNs);
  std::string text(columns, ' ');
  for (size_t c = 0; c < columns; ++c)
    text[c] = busy[c] >= 0.5 ? '=' : stalled[c] >= 0.5 ? '.' : busy[c] > 0 ? '-' : stalled[c] > 0 ? '.' : ' ';
  for (const Bar &bar : track.bars)
    if (bar.lane == lane && bar.passes)
      text[std::min(columns - 1, static_cast<size_t>(static_cast<double>(bar.startNs) / column))] = '>';
  return text.substr(0, text.find_last_not_of(' ') + 1);
}

class Row {
public:
  Row(int width, uint64_t spanNs) : cells_(static_cast<size_t>(width), ' '), spanNs_(std::max<uint64_t>(spanNs, 1)) {}

  void run(const Run &run) {
    const size_t from = std::min(column(run.startNs), cells_.size() - 1);
    const size_t to = std::max(from + 1, column(run.endNs)); // exclusive
    const size_t width = to - from;
    std::string text(width, '=');
    if (width >= run.label.size() + 2)
      text.replace(1, run.label.size(), run.label);
    else if (width >= 2 && width >= run.label.size())
      text.replace(0, run.label.size(), run.label);
    if (width >= 2 && text.front() == '=')
      text.front() = '[';
    if (width >= 2 && text.back() == '=')
      text.back() = ']';
    if (width == 1)
      text = "|";
    cells_.replace(from, width, text);
  }
  void stall(const Gap &gap) {
    for (size_t c = column(gap.startNs), end = column(gap.endNs); c < end; ++c)
      cells_[c] = '.';
  }
  std::string text() const { return cells_.substr(0, cells_.find_last_not_of(' ') + 1); }

private:
  size_t column(uint64_t ns) const {
    const double share = static_cast<double>(ns) / static_cast<double>(spanNs_);
    return std::min(static_cast<size_t>(std::llround(share * static_cast<double>(cells_.size()))), cells_.size());
  }
  std::string cells_;
  uint64_t spanNs_;
};

std::string axis(int width, uint64_t spanNs, const std::string &indent) {
  std::string ticks(static_cast<size_t>(width), '-'), labels(static_cast<size_t>(width) + 16, ' ');
  const int step = std::max(12, width / 8);
  for (int c = 0; c < width; c += step) {
    const std::string label = formatNs(
        static_cast<uint64_t>(static_cast<double>(spanNs) * static_cast<double>(c) / static_cast<double>(width)));
    ticks[static_cast<size_t>(c)] = '|';
    labels.replace(static_cast<size_t>(c), label.size(), label);
  }
  return indent + labels.substr(0, labels.find_last_not_of(' ') + 1) + "\n" + indent + ticks + "\n";
}

std::string percent(uint64_t part, uint64_t whole) {
  return absl::StrFormat("%.0f%%", whole == 0 ? 0.0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

} // namespace

std::string timelineText(const Chart &chart, int width) {
  constexpr int kIndent = 9;
  const std::string indent(kIndent, ' ');
  const int columns = std::max(20, width - kIndent);
  uint64_t span = 0;
  for (const Track &track : chart.tracks)
    span = std::max(span, track.iterationNs);
  std::string out = chart.title + "\n" + chart.subtitle + "\n";
  for (const Track &track : chart.tracks) {
    out += "\n" + trackHeading(track) + "\n" + axis(columns, span, indent);
    if (!track.launches.empty()) {
      Row row(columns, span);
      for (const StageLaunch &launch : track.launches)
        row.run({launch.name, launch.startNs, launch.endNs});
      out += absl::StrFormat("%-*s", kIndent, "launch") + row.text() + "\n";
    }
    for (const plan::Lane lane : chart.lanes) {
      if (chart.microBatches > 0) {
        if (track.busyNs[static_cast<int>(lane)] > 0) // not all stages send, or receive
          out += absl::StrFormat("%-*s", kIndent, plan::laneName(lane)) + density(track, lane, columns) + "\n";
        continue;
      }
      Row row(columns, span);
      if (lane == plan::Lane::Compute)
        for (const Gap &gap : track.stalls)
          row.stall(gap);
      for (const Run &run : runsOf(track, lane))
        row.run(run);
      out += absl::StrFormat("%-*s", kIndent, plan::laneName(lane)) + row.text() + "\n";
    }
    std::vector<std::vector<std::string>> table = {{"lane", "steps", "busy", "share", "to device", "to host"}};
    for (const plan::Lane lane : chart.lanes) {
      uint64_t steps = 0, toDevice = 0, toHost = 0; // bytes over the link
      for (const Bar &bar : track.bars)
        if (bar.lane == lane) {
          ++steps;
          (bar.toHost ? toHost : toDevice) += bar.linkBytes;
        }
      const uint64_t busy = track.busyNs[static_cast<int>(lane)];
      table.push_back({plan::laneName(lane), model::cat(steps), formatNs(busy), percent(busy, track.iterationNs),
                       formatBytes(toDevice), formatBytes(toHost)});
    }
    out += "\n" + formatTable(table);
  }
  if (chart.tracks.size() > 1 && chart.microBatches == 0)
    out += "\n" + accountsText(chart.tracks.front(), chart.tracks.back(), chart.lanes) +
           "waits: until a step of another lane has ended; idle: else\n";
  if (chart.microBatches > 0)
    return out + "\n[1==] a launch of " + chart.launchIs +
           " 1, = busy, - for less than half of a column, "
           "... compute waits for a copy,\n> rows between stages\n";
  out += "\n[L3==] layer 3's steps, ";
  if (chart.miniBatches > 1)
    out += "[L3.1==] those of mini-batch 1, ";
  out += "... compute waits for a copy, | a step narrower than a column\n";
  return out;
}

} // namespace headrace::tools
