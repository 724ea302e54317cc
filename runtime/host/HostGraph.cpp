// SPDX-License-Identifier: Apache-2.0
#include "runtime/host/HostGraph.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::host {
namespace {

using plan::Lane;
using plan::StepKind;

class Builder {
public:
  Builder(const GraphRequest &request, const plan::Schedule &schedule, const plan::Variant *variant)
      : request_(request), plan_(request.plan), schedule_(schedule), variant_(variant),
        graph_(std::make_unique<HostGraph>()) {}

  absl::StatusOr<std::unique_ptr<HostGraph>> build() {
    graph_->bound.reserve(schedule_.steps.size()); // so that args stay where they are
    for (uint32_t i = 0; i < schedule_.steps.size(); ++i)
      RETURN_IF_ERROR(add(i));
    // An iteration without its tokens would be waited for without end, a transition has none.
    if (publishes_ != (variant_ == nullptr ? 0 : 1))
      return absl::InvalidArgumentError(absl::StrCat("schedule '", schedule_.name, "': ", publishes_,
                                                     " publish steps, expected ", variant_ == nullptr ? 0 : 1));
    if (variant_ != nullptr) {
      graph_->bucket = {variant_->newTokens, variant_->sequences};
    }
    if (request_.serial)
      poisonDeadRanges();
    else
      RETURN_IF_ERROR(addWaits());
    if (request_.trace)
      graph_->times.resize(schedule_.steps.size());
    return std::move(graph_);
  }

private:
  absl::Status refuse(uint32_t index, const std::string &message) const {
    return absl::InvalidArgumentError(absl::StrCat("schedule '", schedule_.name, "', step ", index, ": ", message));
  }

  absl::Status add(uint32_t index) {
    const plan::Step &step = schedule_.steps[index];
    if (step.lane != Lane::Compute && step.lane != Lane::H2D && step.lane != Lane::D2H)
      return refuse(index,
                    absl::StrCat("lane '", plan::laneName(step.lane), "': the host device has compute, h2d and d2h"));
    LaneStep out{.step = index, .kind = step.kind, .lane = step.lane};
    switch (step.kind) {
    case StepKind::Compute:
      RETURN_IF_ERROR(addCompute(index, out));
      break;
    case StepKind::Copy:
      RETURN_IF_ERROR(addCopy(index, out));
      break;
    case StepKind::Publish:
      if (!plan::computes(step.lane))
        return refuse(index, "publish outside the compute lane");
      ++publishes_;
      break;
    }
    std::vector<LaneStep> &lane = graph_->lanes[request_.serial ? 0 : static_cast<size_t>(step.lane)];
    laneIndex_.push_back(static_cast<uint32_t>(lane.size()));
    lane.push_back(out);
    return absl::OkStatus();
  }

  absl::Status addCompute(uint32_t index, LaneStep &out) {
    const plan::Step &step = schedule_.steps[index];
    if (!plan::computes(step.lane))
      return refuse(index, absl::StrCat("compute in lane '", plan::laneName(step.lane), "'"));
    if (request_.options.replaceKernels != nullptr) {
      out.kernel = request_.options.replaceKernels;
      return absl::OkStatus();
    }
    if (variant_ == nullptr)
      return refuse(index, "a transition has copies only");
    absl::StatusOr<core::BoundStep> bound = request_.binding.bind(schedule_, index, *variant_, request_.bases);
    if (!bound.ok())
      return bound.status();
    graph_->bound.push_back(*std::move(bound));
    out.kernel = kernels::hostKernel(step.op);
    out.args = graph_->bound.back().argsPointer();
    if (out.kernel == nullptr)
      return refuse(index, absl::StrCat("no host kernel for ", kernels::opName(step.op)));
    if (const auto *embed = std::get_if<kernels::EmbedArgs>(&graph_->bound.back().args);
        embed != nullptr && step.direct)
      out.directRowBytes = static_cast<uint64_t>(embed->hidden) * (embed->positions != nullptr ? 2 : 1) *
                           model::dtypeBytes(static_cast<model::DType>(embed->elem));
    return absl::OkStatus();
  }

  absl::Status addCopy(uint32_t index, LaneStep &out) {
    const plan::Step &step = schedule_.steps[index];
    if (step.operandCount != 2 || step.firstOperand + 2 > schedule_.operands.size())
      return refuse(index, absl::StrCat("a copy has 2 operands, this one ", step.operandCount));
    const plan::Operand &source = schedule_.operands[step.firstOperand];
    const plan::Operand &destination = schedule_.operands[step.firstOperand + 1];
    const bool toDevice = plan::toDevice(step.lane);
    if (plan::computes(step.lane) || source.space != (toDevice ? plan::Space::Host : plan::Space::Device) ||
        destination.space != (toDevice ? plan::Space::Device : plan::Space::Host))
      return refuse(index, absl::StrCat("a copy in lane '", plan::laneName(step.lane),
                                        "' whose sides are not those of its direction"));
    if (source.bytes != destination.bytes)
      return refuse(index, absl::StrCat("a copy of ", source.bytes, " bytes to ", destination.bytes));
    absl::StatusOr<std::byte *> from = side(index, source), to = side(index, destination);
    if (!from.ok())
      return from.status();
    if (!to.ok())
      return to.status();
    out.source = *from;
    out.destination = *to;
    out.bytes = source.bytes;
    return absl::OkStatus();
  }

  absl::StatusOr<std::byte *> side(uint32_t index, const plan::Operand &operand) const {
    const bool host = operand.space == plan::Space::Host;
    const uint64_t limit = host ? plan_.hostBytes : plan_.addressBytes();
    if (operand.bytes > limit || operand.address > limit - operand.bytes)
      return refuse(index, absl::StrCat("bytes [", operand.address, ", +", operand.bytes, ") are outside the ",
                                        host ? "host slab" : "arena", " of ", limit));
    return (host ? request_.bases.host : request_.bases.device) + operand.address;
  }

  absl::Status addWaits() {
    // Of each step, the highest number of steps of each lane that must have ended before it: edges are sorted by
    // nothing that matters here.
    std::vector<std::array<uint64_t, kHostLanes>> needed(schedule_.steps.size());
    for (const plan::Edge &edge : schedule_.edges) {
      if (edge.from >= edge.to || edge.to >= schedule_.steps.size())
        return absl::InvalidArgumentError(
            absl::StrCat("schedule '", schedule_.name, "': edge from step ", edge.from, " to ", edge.to));
      const size_t lane = static_cast<size_t>(schedule_.steps[edge.from].lane);
      if (lane != static_cast<size_t>(schedule_.steps[edge.to].lane))
        needed[edge.to][lane] = std::max<uint64_t>(needed[edge.to][lane], laneIndex_[edge.from] + 1);
    }
    for (std::vector<LaneStep> &steps : graph_->lanes) {
      std::array<uint64_t, kHostLanes> waited{};
      for (LaneStep &step : steps)
        for (size_t lane = 0; lane < kHostLanes; ++lane) {
          const uint64_t threshold = needed[step.step][lane];
          if (threshold <= waited[lane])
            continue;
          waited[lane] = threshold;
          step.waits[step.waitCount++] = {static_cast<Counter>(lane), threshold};
          graph_->lanes[lane][threshold - 1].signals = true;
        }
    }
    return absl::OkStatus();
  }

  void poisonDeadRanges() {
    DeadRanges dead = deadRanges(plan_, schedule_);
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
  const plan::Plan &plan_;
  const plan::Schedule &schedule_;
  const plan::Variant *variant_;
  std::unique_ptr<HostGraph> graph_;
  std::vector<uint32_t> laneIndex_; // of each step in its lane
  int publishes_ = 0;
};

} // namespace

absl::StatusOr<std::unique_ptr<HostGraph>> buildGraph(const GraphRequest &request, const core::GraphKey &key) {
  const plan::Plan &plan = request.plan;
  const size_t count = key.transition ? plan.transitions.size() : plan.variants.size();
  const char *what = key.transition ? "transition" : "variant";
  if (key.index >= count)
    return absl::InvalidArgumentError(absl::StrCat(what, " ", key.index, " to build, the plan has ", count));
  const uint32_t schedule = key.transition ? plan.transitions[key.index].schedule : plan.variants[key.index].schedule;
  if (schedule >= plan.schedules.size())
    return absl::InvalidArgumentError(
        absl::StrCat(what, " ", key.index, ": schedule ", schedule, ", the plan has ", plan.schedules.size()));
  absl::StatusOr<std::unique_ptr<HostGraph>> graph =
      Builder(request, plan.schedules[schedule], key.transition ? nullptr : &plan.variants[key.index]).build();
  if (graph.ok())
    (*graph)->transition = key.transition;
  return graph;
}

} // namespace headrace::host
