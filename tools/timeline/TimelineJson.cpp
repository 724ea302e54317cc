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

void addTrack(const Chart &chart, const Track &track, int pid, Json &events) {
  events.push_back(
      metadata("process_name", pid, 0, {{"name", track.about.empty() ? track.name : track.name + ", " + track.about}}));
  events.push_back(metadata("process_sort_index", pid, 0, {{"sort_index", pid}}));
  for (const plan::Lane lane : chart.lanes) {
    const int tid = static_cast<int>(lane) + 1;
    events.push_back(metadata("thread_name", pid, tid, {{"name", plan::laneName(lane)}}));
    events.push_back(metadata("thread_sort_index", pid, tid, {{"sort_index", tid}}));
  }
  for (size_t step = 0; step < track.bars.size(); ++step) {
    const Bar &bar = track.bars[step];
    Json args = {{"step", step}, {"part", partName(bar.part)}};
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
  if (!chart.device.empty())
    json["otherData"]["measured"] = {
        {"device", chart.device}, {"iteration", chart.iteration}, {"about", chart.tracks.back().about}};
  const auto add = [&](const char *key, const auto &each) { // the figure, or a list of one a mini-batch
    if (!each.empty())
      json["otherData"]["measured"][key] = chart.miniBatches == 1 ? Json(each.front()) : Json(each);
  };
  add(kInUseKey, chart.kvBlocksInUse);
  add(kWrittenKey, chart.kvBlocksWritten);
  if (!chart.rows.empty())
    json["otherData"]["measured"][kRowsKey] = rowsJson(chart.rows);
  int pid = kPlannedPid; // then kMeasuredPid
  for (const Track &track : chart.tracks)
    addTrack(chart, track, pid++, json["traceEvents"]);
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

} // namespace headrace::tools
