// SPDX-License-Identifier: Apache-2.0
#include "runtime/host/HostGraph.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/StatusMacros.h"

namespace headrace::host {
namespace {

using plan::StepKind;

class Builder {
public:
  Builder(const GraphRequest &request, const core::GraphSource &source)
      : request_(request), source_(source), schedule_(*source.schedule), graph_(std::make_unique<HostGraph>()) {}

  absl::StatusOr<std::unique_ptr<HostGraph>> build() {
    RETURN_IF_ERROR(core::checkSteps(source_));
    graph_->bound.reserve(schedule_.steps.size()); // so that args stay where they are
    for (uint32_t i = 0; i < schedule_.steps.size(); ++i)
      RETURN_IF_ERROR(add(i));
    graph_->transition = source_.variant == nullptr;
    graph_->bucket = source_.bucket;
    if (request_.serial)
      poisonDeadRanges();
    else
      RETURN_IF_ERROR(addWaits());
    if (request_.trace)
      graph_->times.resize(schedule_.steps.size());
    return std::move(graph_);
  }

private:
  absl::Status add(uint32_t index) {
    const plan::Step &step = schedule_.steps[index];
    LaneStep out{.step = index, .kind = step.kind, .lane = step.lane};
    if (step.kind == StepKind::Compute)
      RETURN_IF_ERROR(addCompute(index, out));
    if (step.kind == StepKind::Copy)
      RETURN_IF_ERROR(addCopy(index, out));
    std::vector<LaneStep> &lane = graph_->lanes[request_.serial ? 0 : hostLane(step.lane)];
    laneIndex_.push_back(static_cast<uint32_t>(lane.size()));
    lane.push_back(out);
    return absl::OkStatus();
  }

  absl::Status addCompute(uint32_t index, LaneStep &out) {
    const plan::Step &step = schedule_.steps[index];
    if (request_.options.replaceKernels.run != nullptr) {
      out.kernel = request_.options.replaceKernels;
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(bound, request_.binding.bind(schedule_, index, *source_.variant, request_.bases));
    graph_->bound.push_back(bound);
    out.kernel = request_.options.kernelOf(step.op);
    out.args = graph_->bound.back().argsPointer();
    if (out.kernel.run == nullptr)
      return core::refuseStep(schedule_, index, absl::StrCat("no host kernel for ", kernels::opName(step.op)));
    out.direct = core::directBytes(request_.plan, schedule_, step);
    return absl::OkStatus();
  }

  absl::Status addCopy(uint32_t index, LaneStep &out) {
    const plan::Plan &plan = request_.plan;
    ASSIGN_OR_RETURN(sides, core::copySides(plan, schedule_, index, {request_.bases, plan.arenaBytes, plan.hostBytes}));
    out.copy = sides;
    return absl::OkStatus();
  }

  // Steps to wait for become numbers of steps of their lanes that have ended.
  absl::Status addWaits() {
    ASSIGN_OR_RETURN(waits, core::stepWaits(schedule_, /*isCpu=*/true));
    for (std::vector<LaneStep> &steps : graph_->lanes)
      for (LaneStep &step : steps)
        for (size_t lane = 0; lane < kHostLanes; ++lane) {
          uint32_t last = waits[step.step][lane];
          if (lane == 0 && last == plan::kNone && copiesMeta(step))
            last = graph_->lanes[0].front().step;
          if (last == plan::kNone)
            continue;
          step.waits[step.waitCount++] = {static_cast<Counter>(lane), uint64_t{laneIndex_[last]} + 1};
          graph_->lanes[lane][laneIndex_[last]].signals = true;
        }
    return absl::OkStatus();
  }

  // The compute lane brings the launch's iteration buffer as it begins: whoever copies that comes behind its first
  // step.
  bool copiesMeta(const LaneStep &step) const {
    if (step.kind != StepKind::Copy)
      return false;
    const uint32_t source = schedule_.operands[schedule_.steps[step.step].firstOperand].buffer;
    return source < request_.plan.buffers.size() && request_.plan.buffers[source].kind == plan::BufferKind::Io;
  }

  void poisonDeadRanges() {
    DeadRanges dead = deadRanges(request_.plan, schedule_);
    graph_->poison = std::move(dead.before);
    graph_->poisonBefore = static_cast<uint32_t>(graph_->poison.size());
    for (LaneStep &step : graph_->lanes[0]) {
      const std::vector<ByteRange> &after = dead.after[step.step];
      step.firstPoison = static_cast<uint32_t>(graph_->poison.size());
      step.poisonCount = static_cast<uint32_t>(after.size());
      graph_->poison.insert(graph_->poison.end(), after.begin(), after.end());
    }
  }

  const GraphRequest &request_;
  const core::GraphSource source_;
  const plan::Schedule &schedule_;
  std::unique_ptr<HostGraph> graph_;
  std::vector<uint32_t> laneIndex_; // of each step in its lane
};

} // namespace

absl::StatusOr<std::unique_ptr<HostGraph>> buildGraph(const GraphRequest &request, const core::GraphKey &key) {
  ASSIGN_OR_RETURN(source, core::graphSource(request.plan, key));
  return Builder(request, source).build();
}

} // namespace headrace::host
