// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/RecordingBuilder.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/StatusMacros.h"

namespace headrace::cuda {

using plan::Lane;

RecordingBuilder::RecordingBuilder(const GraphPlan &plan) : plan_(plan), recorded_(plan.nodes.size(), kNoPlanNode) {
  graph_.name = plan.name;
  graph_.memory = plan.memory;
  graph_.planNodes = static_cast<uint32_t>(plan.nodes.size());
}

absl::Status RecordingBuilder::fork(Lane lane) {
  if (graph_.lanes[laneIndex(lane)].forked)
    return absl::InternalError(absl::StrCat("lane ", plan::laneName(lane), " is forked twice"));
  graph_.lanes[laneIndex(lane)].forked = true;
  tails_[laneIndex(lane)] = tails_[laneIndex(Lane::Compute)];
  return absl::OkStatus();
}

absl::Status RecordingBuilder::wait(Lane lane, uint32_t node) {
  if (node >= recorded_.size() || recorded_[node] == kNoPlanNode)
    return absl::InternalError(
        absl::StrCat("lane ", plan::laneName(lane), " waits for node ", node, ", which was not added before"));
  tails_[laneIndex(lane)].push_back(recorded_[node]);
  return absl::OkStatus();
}

void RecordingBuilder::append(RecordedNode node) {
  std::vector<uint32_t> &tail = tails_[laneIndex(node.lane)];
  std::sort(tail.begin(), tail.end());
  tail.erase(std::unique(tail.begin(), tail.end()), tail.end());
  node.after = std::exchange(tail, {static_cast<uint32_t>(graph_.nodes.size())});
  graph_.nodes.push_back(std::move(node));
}

absl::Status RecordingBuilder::add(uint32_t node) {
  const GraphNode &planned = plan_.nodes[node];
  RecordedNode out{.planNode = node, .step = planned.step, .lane = planned.lane, .accesses = planned.accesses};
  switch (planned.kind) {
  case NodeKind::Kernel:
    out.kind = RecordedKind::Kernel;
    out.kernel = planned.kernel;
    break;
  case NodeKind::Copy:
    out.kind = RecordedKind::Copy;
    out.copy = planned.copy;
    break;
  case NodeKind::Library:
    out.kind = RecordedKind::Library;
    out.matmul = planned.matmul;
    break;
  case NodeKind::Host:
    out.kind = RecordedKind::Host;
    out.host = planned.host;
    break;
  }
  recorded_[node] = static_cast<uint32_t>(graph_.nodes.size());
  append(std::move(out));
  return absl::OkStatus();
}

absl::Status RecordingBuilder::stamp(Lane lane, uint32_t event) {
  append({.lane = lane, .kind = RecordedKind::Stamp, .event = event});
  return absl::OkStatus();
}

absl::Status RecordingBuilder::stampAfter(uint32_t node, uint32_t event) {
  recorded_[node] = static_cast<uint32_t>(graph_.nodes.size());
  return stamp(plan_.nodes[node].lane, event);
}

absl::Status RecordingBuilder::join(Lane lane) {
  graph_.lanes[laneIndex(lane)].joinedAt = static_cast<uint32_t>(graph_.nodes.size());
  std::vector<uint32_t> &origin = tails_[laneIndex(Lane::Compute)];
  const std::vector<uint32_t> &tail = tails_[laneIndex(lane)];
  origin.insert(origin.end(), tail.begin(), tail.end());
  return absl::OkStatus();
}

absl::StatusOr<RecordedGraph> record(const GraphPlan &plan, bool stamps) {
  RecordingBuilder builder(plan);
  RETURN_IF_ERROR(walk(plan, stamps, builder));
  return builder.graph();
}

} // namespace headrace::cuda
