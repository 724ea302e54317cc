// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "tools/timeline/Timeline.h"
#include "tools/timeline/TraceRows.h"

namespace headrace::tools {
namespace {

using Json = nlohmann::ordered_json;

double us(uint64_t ns) { return static_cast<double>(ns) / 1000; }

const char *partName(plan::Part part) {
  switch (part) {
  case plan::Part::Embedding:
    return "embedding";
  case plan::Part::Attention:
    return "attention";
  case plan::Part::Mlp:
    return "mlp";
  case plan::Part::Head:
    return "head";
  case plan::Part::Movement:
    return "movement";
  }
  return "other";
}

Json metadata(const char *what, int pid, int tid, Json args) {
  return {{"name", what}, {"ph", "M"}, {"pid", pid}, {"tid", tid}, {"args", std::move(args)}};
}

constexpr int kLaunchesTid = 0; // above the lanes

// Rows that pass from one stage's d2h lane to the next one's h2d lane, as a flow between them.
void addPassed(const Chart &chart, Json &events) {
  size_t id = 0;
  for (const RowsPassed &rows : chart.passed) {
    const auto end = [&](const char *phase, size_t track, plan::Lane lane, uint64_t ns) {
      events.push_back({{"name", "rows"},
                        {"cat", "rows"},
                        {"ph", phase},
                        {"bp", "e"},
                        {"id", id},
                        {"pid", kPlannedPid + static_cast<int>(track)},
                        {"tid", static_cast<int>(lane) + 1},
                        {"ts", us(ns)},
                        {"args", {{"of", rows.of}}}});
    };
    end("s", rows.from, plan::Lane::D2H, rows.sentNs);
    end("f", rows.from + 1, plan::Lane::H2D, rows.receivedNs);
    ++id;
  }
}

void addTrack(const Chart &chart, const Track &track, int pid, Json &events) {
  events.push_back(
      metadata("process_name", pid, 0, {{"name", track.about.empty() ? track.name : track.name + ", " + track.about}}));
  events.push_back(metadata("process_sort_index", pid, 0, {{"sort_index", pid}}));
  for (const StageLaunch &launch : track.launches)
    events.push_back({{"name", chart.launchIs + " " + launch.name},
                      {"cat", "launch"},
                      {"ph", "X"},
                      {"pid", pid},
                      {"tid", kLaunchesTid},
                      {"ts", us(launch.startNs)},
                      {"dur", us(launch.endNs - launch.startNs)},
                      {"args", {{"turn", launch.turn}}}});
  if (!track.launches.empty()) {
    events.push_back(metadata("thread_name", pid, kLaunchesTid, {{"name", "launches"}}));
    events.push_back(metadata("thread_sort_index", pid, kLaunchesTid, {{"sort_index", kLaunchesTid}}));
  }
  for (const plan::Lane lane : chart.lanes) {
    const int tid = static_cast<int>(lane) + 1;
    events.push_back(metadata("thread_name", pid, tid, {{"name", plan::laneName(lane)}}));
    events.push_back(metadata("thread_sort_index", pid, tid, {{"sort_index", tid}}));
  }
  for (size_t step = 0; step < track.bars.size(); ++step) {
    const Bar &bar = track.bars[step];
    Json args = {{"step", step}, {"part", partName(bar.part)}};
    if (!track.launches.empty()) // the step's number is of its launch, which is not in the file
      args = {{"part", partName(bar.part)},
              {"of", chart.launchIs + " " + track.launches[static_cast<size_t>(bar.launch)].name}};
    if (bar.layer >= 0)
      args["layer"] = bar.layer;
    if (bar.miniBatch >= 0)
      args["mini_batch"] = bar.miniBatch;
    if (bar.flops != 0)
      args["flops"] = bar.flops;
    if (bar.deviceBytes != 0)
      args["device_bytes"] = bar.deviceBytes;
    if (bar.linkBytes != 0)
      args["link_bytes"] = bar.linkBytes;
    if (bar.direct)
      args["direct"] = true;
    if (bar.linkBytes != 0 && bar.toHost)
      args["to_host"] = true;
    events.push_back({{"name", bar.name},
                      {"cat", partName(bar.part)},
                      {"ph", "X"},
                      {"pid", pid},
                      {"tid", static_cast<int>(bar.lane) + 1},
                      {"ts", us(bar.startNs)},
                      {"dur", us(bar.endNs - bar.startNs)},
                      {"args", std::move(args)}});
  }
  for (const Gap &gap : track.stalls)
    events.push_back({{"name", "stall"},
                      {"cat", "stall"},
                      {"ph", "X"},
                      {"pid", pid},
                      {"tid", static_cast<int>(plan::Lane::Compute) + 1},
                      {"ts", us(gap.startNs)},
                      {"dur", us(gap.endNs - gap.startNs)},
                      {"args", {{"waits_for", gap.waitsFor}}}});
  if (track.tokensNs != 0)
    events.push_back({{"name", "tokens visible"},
                      {"ph", "i"},
                      {"s", "p"},
                      {"pid", pid},
                      {"tid", static_cast<int>(plan::Lane::Compute) + 1},
                      {"ts", us(track.tokensNs)}});
}

} // namespace

std::string timelineJson(const Chart &chart) {
  Json json = {{"displayTimeUnit", "ns"},
               {"otherData",
                {{"format", kTimelineFormat},
                 {"version", kTimelineVersion},
                 {"title", chart.title},
                 {"bucket", chart.subtitle},
                 {"model_hash", chart.modelHash},
                 {"variant", chart.variant}}},
               {"traceEvents", Json::array()}};
  if (chart.microBatches > 0) {
    json["otherData"].erase("variant"); // each launch has its own
    json["otherData"]["device"] = chart.device;
    json["otherData"][kStagesKey] = chart.tracks.size();
    json["otherData"]["micro_batches"] = chart.microBatches;
  } else if (!chart.device.empty()) {
    json["otherData"]["measured"] = {
        {"device", chart.device}, {"iteration", chart.iteration}, {"about", chart.tracks.back().about}};
  }
  const auto add = [&](const char *key, const auto &each) { // the figure, or a list of one a mini-batch
    if (!each.empty())
      json["otherData"]["measured"][key] = chart.miniBatches == 1 ? Json(each.front()) : Json(each);
  };
  add(kInUseKey, chart.kvBlocksInUse);
  add(kWrittenKey, chart.kvBlocksWritten);
  if (!chart.rows.empty())
    json["otherData"]["measured"][kRowsKey] = rowsJson(chart.rows);
  int pid = kPlannedPid; // then kMeasuredPid, or a stage after the other
  for (const Track &track : chart.tracks)
    addTrack(chart, track, pid++, json["traceEvents"]);
  addPassed(chart, json["traceEvents"]);
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

} // namespace headrace::tools
