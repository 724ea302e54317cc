// SPDX-License-Identifier: Apache-2.0
#include "tools/timeline/Timeline.h"

#include <algorithm>
#include <functional>

#include "absl/strings/str_format.h"
#include "kernels/Kernels.h"
#include "runtime/base/Text.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/model/WeightLayout.h"
#include "runtime/sim/LaunchPrices.h"
#include "runtime/sim/Simulator.h"
#include "runtime/sim/TimedSchedule.h"
#include "tools/report/Format.h"
#include "tools/report/InspectReport.h"
#include "tools/report/MovedBytes.h"

namespace headrace::tools {
namespace {

// Whether launches of a schedule copy what is in use of KV.
bool copiesWhatIsInUse(const plan::Plan &plan, const plan::Schedule &schedule) {
  return std::any_of(schedule.steps.begin(), schedule.steps.end(),
                     [&](const plan::Step &step) { return step.resizable && !movesResidual(plan, schedule, step); });
}

// Whether some of them copy to the host what they have written.
bool copiesWhatIsWritten(const plan::Schedule &schedule) {
  return std::any_of(schedule.steps.begin(), schedule.steps.end(),
                     [](const plan::Step &step) { return step.dirtyOnly; });
}

// "qkv" of "layers.3.qkv", "embedding" of "embedding", "kv" of "kv.3" and "kv.3.1".
std::string unitName(const plan::Buffer &buffer) {
  const bool weight = buffer.kind == plan::BufferKind::Weight;
  const size_t dot = weight ? buffer.name.rfind('.') : buffer.name.find('.');
  if (dot == std::string::npos)
    return buffer.name;
  return weight ? buffer.name.substr(dot + 1) : buffer.name.substr(0, dot);
}

// Of several whose step it is; -1: of no one, as copies of weights and the tokens of all.
int32_t miniBatchOf(const plan::Plan &plan, const plan::Schedule &schedule, const plan::Step &step) {
  if (plan.miniBatches == 1 || step.kind == plan::StepKind::Publish ||
      (step.kind == plan::StepKind::Copy &&
       plan.buffer(schedule, schedule.operands[step.firstOperand].buffer).kind == plan::BufferKind::Weight))
    return -1;
  return step.miniBatch;
}

std::string listOf(const std::vector<core::InUse> &each, const std::function<std::string(const core::InUse &)> &text) {
  std::string list;
  for (const core::InUse &one : each)
    list += (list.empty() ? "" : ", ") + text(one);
  return list;
}

// What the copies of KV of a measured iteration were of; empty: of all that the plan says.
std::string copiedText(const plan::Plan &plan, const plan::Schedule &schedule, int64_t kvBlocks,
                       const std::vector<core::InUse> &each) {
  const std::string byMiniBatch = each.size() == 1 ? "" : ", by mini-batch";
  std::string text;
  if (copiesWhatIsInUse(plan, schedule) &&
      std::any_of(each.begin(), each.end(), [&](const core::InUse &one) { return one.kvBlocks < kvBlocks; }))
    text +=
        model::cat("; the copies of KV are those of blocks below ",
                   listOf(each, [&](const core::InUse &one) { return model::cat(std::min(one.kvBlocks, kvBlocks)); }),
                   " of ", kvBlocks, byMiniBatch);
  if (!copiesWhatIsWritten(schedule) ||
      std::any_of(each.begin(), each.end(), [&](const core::InUse &one) { return one.writtenEnd > kvBlocks; }))
    return text;
  if (std::none_of(each.begin(), each.end(), [](const core::InUse &one) { return one.writtenBegin < one.writtenEnd; }))
    return text + "; those to the host are the least there is, as none of their blocks was written";
  return text + model::cat("; those to the host are of blocks ",
                           listOf(each,
                                  [](const core::InUse &one) {
                                    return one.writtenBegin < one.writtenEnd
                                               ? model::cat(one.writtenBegin, " to ", one.writtenEnd - 1)
                                               : std::string("none");
                                  }),
                           byMiniBatch, ", which were written");
}

// What ran of the bucket; empty: all of it, as far as is known.
std::string ranText(const plan::Variant &variant, const std::vector<cost::Rows> &byMiniBatch) {
  uint64_t tokens = 0, contexts = 0;
  for (const cost::Rows &rows : byMiniBatch) {
    tokens += rows.tokens;
    contexts += rows.contexts;
  }
  const auto passes = static_cast<int64_t>(byMiniBatch.size());
  if (byMiniBatch.empty() || (tokens == static_cast<uint64_t>(passes * variant.newTokens) &&
                              contexts == static_cast<uint64_t>(passes * variant.sequences * variant.context)))
    return "";
  return model::cat("; of these ", tokens, tokens == 1 ? " token" : " tokens", " ran, of caches of ", contexts,
                    " in sum");
}

// What a stage receives (of each mini-batch the first copy of its residual from home), and what it sends (the last
// one back), by step.
std::vector<bool> passedSteps(const plan::Plan &plan, const plan::Schedule &schedule) {
  std::vector<bool> passes(schedule.steps.size());
  std::vector<bool> received(plan.miniBatches, plan.model->embeds()), sent(plan.miniBatches, plan.model->hasHead());
  const auto mark = [&](size_t i, bool toHost, std::vector<bool> &done) {
    const plan::Step &step = schedule.steps[i];
    if (step.kind == plan::StepKind::Copy && plan::toHost(step.lane) == toHost && movesResidual(plan, schedule, step) &&
        !done[step.miniBatch])
      passes[i] = done[step.miniBatch] = true;
  };
  for (size_t i = 0; i < schedule.steps.size(); ++i)
    mark(i, /*toHost=*/false, received);
  for (size_t i = schedule.steps.size(); i-- > 0;)
    mark(i, /*toHost=*/true, sent);
  return passes;
}

const plan::Operand *operandOf(const plan::Schedule &schedule, const plan::Step &step, plan::Arg arg) {
  for (uint32_t o = 0; o < step.operandCount; ++o) {
    const plan::Operand &operand = schedule.operands[step.firstOperand + o];
    if (operand.arg == arg)
      return &operand;
  }
  return nullptr;
}

// Bars and what follows from them; `times` has one pair a step, `linkBytes` what each moves over the link.
Track makeTrack(const plan::Plan &plan, const plan::Schedule &schedule, std::string name,
                const std::vector<std::pair<uint64_t, uint64_t>> &times, const std::vector<uint64_t> &linkBytes) {
  Track track;
  track.name = std::move(name);
  track.bars.reserve(schedule.steps.size());
  const std::vector<bool> passes = passedSteps(plan, schedule);
  for (size_t i = 0; i < schedule.steps.size(); ++i) {
    const plan::Step &step = schedule.steps[i];
    Bar bar{step.lane,
            step.part,
            step.layer < 0 ? step.layer : step.layer + static_cast<int32_t>(plan.model->stage.first),
            miniBatchOf(plan, schedule, step),
            stepName(plan, schedule, step),
            times[i].first,
            times[i].second,
            step.flops,
            step.deviceBytes,
            linkBytes[i],
            step.direct,
            plan::toHost(step.lane) || plan::directToHost(schedule, step),
            passes[i]};
    if (bar.passes) { // of no layer
      bar.layer = -1;
      const std::string pass = passName(-1, bar.miniBatch);
      bar.name = model::cat(bar.toHost ? "send" : "receive", pass.empty() ? "" : ".", pass);
    }
    track.iterationNs = std::max(track.iterationNs, bar.endNs);
    track.busyNs[static_cast<int>(bar.lane)] += bar.endNs - bar.startNs;
    if (step.kind == plan::StepKind::Publish)
      track.tokensNs = bar.endNs;
    track.bars.push_back(std::move(bar));
  }
  const auto playedIn = [&](plan::Lane lane) {
    return sim::playedIn(lane, plan.hardware.kind == model::DeviceKind::Host);
  };
  uint64_t laneFree[plan::kLanes] = {};
  // The compute lane idles before a step of its own for the source of one of the step's edges that is a copy.
  uint64_t computeFree = 0;
  size_t e = 0;
  for (size_t i = 0; i < schedule.steps.size(); ++i) {
    const Bar &bar = track.bars[i];
    const int lane = static_cast<int>(bar.lane);
    uint64_t others = computeFree, cpu = 0, copies = 0, otherLanes = 0;
    const plan::Step *waitsFor = nullptr;
    for (; e < schedule.edges.size() && schedule.edges[e].to == i; ++e) {
      const plan::Step &from = schedule.steps[schedule.edges[e].from];
      const uint64_t end = track.bars[schedule.edges[e].from].endNs;
      if (from.lane != bar.lane)
        otherLanes = std::max(otherLanes, end);
      if (plan::computes(from.lane)) {
        (playedIn(from.lane) == plan::Lane::Cpu ? cpu : others) =
            std::max(playedIn(from.lane) == plan::Lane::Cpu ? cpu : others, end);
      } else if (end >= copies) {
        copies = end;
        waitsFor = &from;
      }
    }
    if (const uint64_t until = std::min(otherLanes, bar.startNs); until > laneFree[lane])
      track.waitNs[lane] += until - laneFree[lane];
    laneFree[lane] = std::max(laneFree[lane], bar.endNs);
    if (playedIn(bar.lane) != plan::Lane::Compute)
      continue;
    if (const uint64_t until = std::min(cpu, bar.startNs); until > others) {
      track.cpuWaitNs += until - others;
      others = until;
    }
    if (waitsFor != nullptr && copies > others && bar.startNs > others) {
      track.stalls.push_back({others, std::min(copies, bar.startNs), stepName(plan, schedule, *waitsFor)});
      track.stallNs += track.stalls.back().endNs - others;
    }
    computeFree = std::max(computeFree, bar.endNs);
  }
  return track;
}

} // namespace

std::string stepName(const plan::Plan &plan, const plan::Schedule &schedule, const plan::Step &step) {
  std::string what;
  switch (step.kind) {
  case plan::StepKind::Publish:
    return "publish";
  case plan::StepKind::Copy:
    if (const plan::Operand *source = operandOf(schedule, step, plan::Arg::Source))
      what = unitName(plan.buffer(schedule, source->buffer));
    break;
  case plan::StepKind::Compute:
    if (const plan::Operand *weight = operandOf(schedule, step, plan::Arg::Weight);
        weight != nullptr && step.op == kernels::Op::Linear)
      what = step.part == plan::Part::Head ? "head" : unitName(plan.buffer(schedule, weight->buffer));
    else
      what = kernels::opName(step.op);
    break;
  }
  const int32_t layer = step.layer < 0 ? step.layer : step.layer + static_cast<int32_t>(plan.model->stage.first);
  const std::string pass = passName(layer, miniBatchOf(plan, schedule, step));
  if (step.layer >= 0)
    return model::cat(pass, " ", what);
  return pass.empty() ? what : model::cat(what, ".", pass);
}

std::string passName(int32_t layer, int32_t miniBatch) {
  const std::string which = miniBatch < 0 ? "" : model::cat(miniBatch);
  return layer < 0 ? which : model::cat("L", layer, which.empty() ? "" : ".", which);
}

Chart makeChart(const plan::Plan &plan, uint32_t index, const Trace *measured, double linkBandwidth) {
  const plan::Variant &variant = plan.variants[index];
  const plan::Schedule &schedule = plan.schedules[variant.schedule];
  const plan::Placement &placement = plan.placements[variant.placement];
  Chart chart;
  chart.modelHash = plan.modelHash;
  chart.variant = index;
  chart.title = model::cat(plan.model->name, " on ", plan.hardware.name);
  chart.subtitle =
      model::cat("variant ", index, ": ", variant.newTokens, " new tokens, ", variant.sequences, " sequences, context ",
                 variant.context,
                 plan.miniBatches == 1 ? std::string() : model::cat(", in each of ", plan.miniBatches, " mini-batches"),
                 schedule.kvBlocks > 0 ? ", no tails" : "",
                 schedule.period > 1 ? model::cat(", phase ", schedule.phase, " of ", schedule.period) : std::string(),
                 "; offloaded: ", describePlacement(plan, placement), ", start rule ", plan::startText(placement));
  chart.miniBatches = plan.miniBatches;
  const std::vector<core::InUse> inUse = measured == nullptr ? std::vector<core::InUse>(1) : measured->inUse;
  if (measured != nullptr)
    chart.subtitle += ranText(variant, measured->rows) + copiedText(plan, schedule, placement.kvBlocks, inUse);

  const model::Hardware &hardware = plan.hardware;
  std::vector<core::InUse> told = inUse; // of residual streams no more than a full bucket's rows
  for (core::InUse &one : told)
    one.rows = std::min(one.rows, variant.newTokens);
  if (measured != nullptr)
    chart.rows = measured->rows;
  const sim::LaunchedSteps launched =
      sim::LaunchPrices(plan, linkBandwidth).of(index, core::LaunchInUse(told), absl::MakeConstSpan(chart.rows));
  const sim::Timeline timeline =
      sim::Simulator(plan, schedule).run(launched.ns, cost::sharingOf(hardware, linkBandwidth));
  std::vector<std::pair<uint64_t, uint64_t>> times;
  for (const sim::StepTime &t : timeline.steps)
    times.emplace_back(t.startNs, t.endNs);
  chart.tracks.push_back(makeTrack(plan, schedule, "planned", times, launched.linkBytes));
  if (measured != nullptr) {
    times.clear();
    for (const auto &[start, end] : measured->steps)
      times.emplace_back(static_cast<uint64_t>(start), static_cast<uint64_t>(end));
    chart.tracks.push_back(
        makeTrack(plan, schedule, model::cat("measured (", measured->device, ")"), times, launched.linkBytes));
    chart.tracks.back().about = measured->about;
    chart.device = measured->device;
    chart.iteration = measured->iteration;
    const auto all = [&](int64_t core::InUse::*figure) { // were told
      return std::all_of(inUse.begin(), inUse.end(),
                         [&](const core::InUse &one) { return one.*figure <= placement.kvBlocks; });
    };
    for (const core::InUse &one : inUse) {
      if (copiesWhatIsInUse(plan, schedule) && all(&core::InUse::kvBlocks))
        chart.kvBlocksInUse.push_back(one.kvBlocks);
      if (copiesWhatIsWritten(schedule) && all(&core::InUse::writtenEnd))
        chart.kvBlocksWritten.emplace_back(one.writtenBegin, one.writtenEnd);
    }
  }
  for (int lane = 0; lane < plan::kLanes; ++lane) {
    const bool used = std::any_of(schedule.steps.begin(), schedule.steps.end(),
                                  [&](const plan::Step &step) { return static_cast<int>(step.lane) == lane; });
    if (used)
      chart.lanes.push_back(static_cast<plan::Lane>(lane));
  }
  return chart;
}

std::string trackHeading(const Track &track) {
  std::string text = track.name;
  if (!track.about.empty())
    text += ", " + track.about;
  if (!track.launches.empty()) {
    uint64_t longest = 0;
    for (const StageLaunch &launch : track.launches)
      longest = std::max(longest, launch.ns);
    const uint64_t busy = track.busyNs[static_cast<int>(plan::Lane::Compute)];
    return text + absl::StrFormat(": a launch %s, computes %.0f%% of the time, stalls %s", formatNs(longest),
                                  100.0 * static_cast<double>(busy) /
                                      static_cast<double>(std::max<uint64_t>(track.iterationNs, 1)),
                                  formatNs(track.stallNs));
  }
  text += (track.about.empty() ? ": iteration " : ": ") + formatNs(track.iterationNs);
  if (track.tokensNs != 0)
    text += ", tokens at " + formatNs(track.tokensNs);
  text += ", stalls " + formatNs(track.stallNs);
  return track.cpuWaitNs == 0 ? text : text + ", waits for the CPU " + formatNs(track.cpuWaitNs);
}

namespace {
constexpr std::string_view kSuffixes[] = {".txt", ".json", ".svg"}; // of TimelineFormat
} // namespace

std::string_view timelineSuffix(TimelineFormat format) { return kSuffixes[static_cast<size_t>(format)]; }

std::optional<TimelineFormat> timelineFormatOf(std::string_view path) {
  for (const TimelineFormat format : {TimelineFormat::Text, TimelineFormat::Json, TimelineFormat::Svg})
    if (path.ends_with(timelineSuffix(format)))
      return format;
  return std::nullopt;
}

std::string timelineFile(const Chart &chart, TimelineFormat format, int width) {
  return format == TimelineFormat::Svg    ? timelineSvg(chart)
         : format == TimelineFormat::Json ? timelineJson(chart)
                                          : model::cat(kTimelineTextMark, timelineText(chart, width));
}

} // namespace headrace::tools
