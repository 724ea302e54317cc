// SPDX-License-Identifier: Apache-2.0
//
// One iteration as bars on lanes: as the plan has it, and beside it as it was measured. Three ways to draw it.
//
//   Chart
//    |- track "planned"     bars, stalls, when the tokens are visible
//    '- track "measured"    the same steps with their measured times
//
// Or some iterations of a model's stages (StagesChart.h): a track a stage, with several launches, and what passes
// between them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/plan/value/Plan.h"
#include "tools/timeline/Trace.h"

namespace headrace::tools {

struct Bar {
  plan::Lane lane = plan::Lane::Compute;
  plan::Part part = plan::Part::Embedding;
  int32_t layer = -1;     // of the model
  int32_t miniBatch = -1; // of several; -1: there is one, or it is no one's, as a copy of weights
  std::string name;       // "L3 qkv", "L3 attention", "embed", "head"; of mini-batch 1 of several "L3.1 attention"
  uint64_t startNs = 0, endNs = 0;
  uint64_t flops = 0, deviceBytes = 0, linkBytes = 0;
  bool direct = false; // in place, beside compute
  bool toHost = false; // where linkBytes go
  bool passes = false; // rows that a stage receives, or sends
  int32_t launch = 0;  // of a stage: into Track::launches
};

struct Gap { // the compute lane waits for a copy
  uint64_t startNs = 0, endNs = 0;
  std::string waitsFor; // the name of the step that ends it
};

struct StageLaunch {
  std::string name; // "3", of Chart::launchIs
  int32_t turn = 0; // which of the micro-batches that take turns
  uint64_t ns = 0;  // all of it, drawn or not
  uint64_t startNs = 0, endNs = 0;
  uint64_t visibleNs = 0; // its tokens, or of a stage that sends its rows; 0: not within the picture
};

struct Track {
  std::string name;      // "planned", "measured (host)", "stage 0"
  std::string about;     // which iteration, or which layers; empty: the plan's
  std::vector<Bar> bars; // one a step, in the schedule's order
  std::vector<Gap> stalls;
  uint64_t iterationNs = 0;
  uint64_t tokensNs = 0; // visible; 0 without a Publish step
  uint64_t busyNs[plan::kLanes] = {};
  // Idle before a step whose lane is free, for a step of another lane that it comes behind.
  uint64_t waitNs[plan::kLanes] = {};
  uint64_t stallNs = 0;
  uint64_t cpuWaitNs = 0;            // the compute lane idle for the cpu lane
  std::vector<StageLaunch> launches; // of a stage
};

struct RowsPassed {                    // from a stage to the next
  size_t from = 0;                     // into Chart::tracks
  uint64_t sentNs = 0, receivedNs = 0; // the copy home has ended, the one from there starts
  std::string of;                      // "iteration 3"
};

struct Chart {
  std::string title;    // the model on the hardware
  std::string subtitle; // the variant's key and placement
  std::string modelHash;
  uint32_t variant = 0;
  std::string device;     // that measured; empty: planned lanes only
  uint64_t iteration = 0; // that was measured
  uint32_t miniBatches = 1;
  // By mini-batch: blocks that its copies of KV were sized for; empty: it had none of a size of its own.
  std::vector<int64_t> kvBlocksInUse;
  // Blocks [first, second) that its rows were written to, where its copies to the host are of those; else empty.
  std::vector<std::pair<int64_t, int64_t>> kvBlocksWritten;
  std::vector<cost::Rows> rows;   // by mini-batch, what ran of the bucket; none: all of it, as far as is known
  std::vector<Track> tracks;      // planned, measured; or one a stage
  std::vector<RowsPassed> passed; // between stages
  size_t microBatches = 0;        // that take turns in stages; 0: one plan
  std::string launchIs;           // what StageLaunch::name counts: "iteration", "micro-batch"
  std::vector<plan::Lane> lanes;  // those that any track uses, in the order of plan::Lane
};

// "L3"; "L3.1" of mini-batch 1 of several, "1" outside the layers; empty: of no layer and no mini-batch.
std::string passName(int32_t layer, int32_t miniBatch);
// What a step is called: its layer and mini-batch, and its op or (linear ops and copies) its unit.
std::string stepName(const plan::Plan &plan, const plan::Schedule &schedule, const plan::Step &step);

// `variant` must be one of the plan's; `measured`, if there is one, must have passed parseTrace for this plan. The
// planned lanes are those over a link of `linkBandwidth` bytes/s (0: the plan's own), of an iteration that uses as much
// of KV, and runs as many rows, as the measured one did.
Chart makeChart(const plan::Plan &plan, uint32_t variant, const Trace *measured, double linkBandwidth = 0);
// "measured (host), iteration 5 of 8, the median of 7 of its variant: 379 ms, tokens at 366 ms, stalls 255 ms"; of a
// stage "stage 0, layers 0 to 40: a launch 25.9 ms, computes 98% of the time, stalls 0 ns".
std::string trackHeading(const Track &track);

enum class TimelineFormat : uint8_t { Text, Json, Svg };
// What a file of this name holds: .txt, .json, .svg; any other says nothing.
std::optional<TimelineFormat> timelineFormatOf(std::string_view path);
std::string_view timelineSuffix(TimelineFormat format); // ".svg"
// The chart as it stands in a file of this format; `width` is of text.
std::string timelineFile(const Chart &chart, TimelineFormat format, int width = 120);
// A first line of text, by which Outputs.h knows a file of it again.
inline constexpr std::string_view kTimelineTextMark = "# headrace timeline\n";

// Lanes as rows of characters, `width` columns wide, and tables: what each lane did; where it was measured, what
// planned and measured lanes differ by (LaneAccount.h).
std::string timelineText(const Chart &chart, int width);
// Chrome's trace event format: one process a track, one thread a lane. Opens in Perfetto; parseTrace() reads it.
std::string timelineJson(const Chart &chart);
// One picture, planned above measured on the same scale of time. Bytes and times are in the bars' tooltips.
std::string timelineSvg(const Chart &chart);

} // namespace headrace::tools
