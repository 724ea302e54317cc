// SPDX-License-Identifier: Apache-2.0
#include "tools/timeline/Timeline.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "kernels/Kernels.h"
#include "runtime/base/Text.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/model/WeightLayout.h"
#include "runtime/sim/Simulator.h"
#include "tools/report/Format.h"
#include "tools/report/InspectReport.h"
#include "tools/timeline/LaunchedSteps.h"

namespace headrace::tools {
namespace {

// "qkv" of "layers.3.qkv", "embedding" of "embedding", "kv" of "kv.3".
std::string unitName(const plan::Buffer &buffer) {
  const size_t dot = buffer.name.rfind('.');
  if (dot == std::string::npos)
    return buffer.name;
  return buffer.kind == plan::BufferKind::Weight ? buffer.name.substr(dot + 1) : buffer.name.substr(0, dot);
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
  for (size_t i = 0; i < schedule.steps.size(); ++i) {
    const plan::Step &step = schedule.steps[i];
    Bar bar{step.lane,
            step.part,
            step.layer,
            stepName(plan, schedule, step),
            times[i].first,
            times[i].second,
            step.flops,
            step.deviceBytes,
            linkBytes[i],
            step.direct,
            plan::toHost(step.lane) || plan::directToHost(schedule, step)};
    track.iterationNs = std::max(track.iterationNs, bar.endNs);
    track.busyNs[static_cast<int>(bar.lane)] += bar.endNs - bar.startNs;
    if (step.kind == plan::StepKind::Publish)
      track.tokensNs = bar.endNs;
    track.bars.push_back(std::move(bar));
  }
  // The compute lane idles before a step of its own for the source of one of the step's edges that is a copy.
  uint64_t computeFree = 0;
  size_t e = 0;
  for (size_t i = 0; i < schedule.steps.size(); ++i) {
    uint64_t others = computeFree, copies = 0;
    const plan::Step *waitsFor = nullptr;
    for (; e < schedule.edges.size() && schedule.edges[e].to == i; ++e) {
      const plan::Step &from = schedule.steps[schedule.edges[e].from];
      const uint64_t end = track.bars[schedule.edges[e].from].endNs;
      if (plan::computes(from.lane)) {
        others = std::max(others, end);
      } else if (end >= copies) {
        copies = end;
        waitsFor = &from;
      }
    }
    const Bar &bar = track.bars[i];
    if (!plan::computes(bar.lane))
      continue;
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
  return step.layer >= 0 ? model::cat("L", step.layer, " ", what) : what;
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
                 variant.context, schedule.kvBlocks > 0 ? ", no tails" : "",
                 schedule.period > 1 ? model::cat(", phase ", schedule.phase, " of ", schedule.period) : std::string(),
                 "; offloaded: ", describePlacement(plan, placement), ", start rule ", plan::startText(placement));
  const core::InUse inUse = measured == nullptr ? core::InUse{} : measured->inUse;
  if (measured != nullptr && copiesWhatIsInUse(schedule) && inUse.kvBlocks < placement.kvBlocks)
    chart.subtitle +=
        model::cat("; the copies of KV are those of blocks below ", inUse.kvBlocks, " of ", placement.kvBlocks);
  if (measured != nullptr && copiesWhatIsWritten(schedule) && inUse.writtenEnd <= placement.kvBlocks)
    chart.subtitle += inUse.writtenBegin < inUse.writtenEnd
                          ? model::cat("; those to the host are of blocks ", inUse.writtenBegin, " to ",
                                       inUse.writtenEnd - 1, ", which were written")
                          : "; those to the host are the least there is, as none of their blocks was written";

  const model::Hardware &hardware = plan.hardware;
  const double duplexShare = hardware.duplexBandwidth / std::max(hardware.h2dBandwidth, hardware.d2hBandwidth);
  const LaunchedSteps launched = launchedSteps(plan, index, linkBandwidth, inUse);
  const sim::Timeline timeline = sim::Simulator(schedule).run(launched.ns, duplexShare);
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
    if (copiesWhatIsInUse(schedule) && inUse.kvBlocks <= placement.kvBlocks)
      chart.kvBlocksInUse = inUse.kvBlocks;
    if (copiesWhatIsWritten(schedule) && inUse.writtenEnd <= placement.kvBlocks)
      chart.kvBlocksWritten = {inUse.writtenBegin, inUse.writtenEnd};
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
  text += (track.about.empty() ? ": iteration " : ": ") + formatNs(track.iterationNs);
  if (track.tokensNs != 0)
    text += ", tokens at " + formatNs(track.tokensNs);
  return text + ", stalls " + formatNs(track.stallNs);
}

} // namespace headrace::tools
