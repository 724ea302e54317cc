// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/NodeTimes.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace headrace::cuda {

void StepNodes::add(uint64_t id, uint32_t step) {
  nodeOf_[id] = nodes();
  stepOf_.push_back(step);
}

void StepNodes::addClone(uint64_t original, uint64_t clone) {
  if (const auto found = nodeOf_.find(original); found != nodeOf_.end()) {
    const uint32_t node = found->second; // the map may grow
    nodeOf_[clone] = node;
  }
}

uint32_t StepNodes::find(uint64_t id) const {
  const auto found = nodeOf_.find(id);
  return found == nodeOf_.end() ? nodes() : found->second;
}

void LaunchRecords::watch(const StepNodes &nodes) {
  for (const auto &[id, node] : nodes.ids())
    watched_.insert(id);
  room_ = std::max(room_, size_t{2} * nodes.nodes());
  records_.reserve(room_);
}

void LaunchRecords::add(const NodeRecord &record) {
  if (record.node == 0)
    return;
  if (!watched_.contains(record.node)) {
    ++unknown_;
    return;
  }
  if (!records_.empty()) {
    // The ids are 32-bit and come round.
    const int32_t newer = static_cast<int32_t>(record.launch - records_.front().launch);
    if (newer < 0)
      return;
    if (newer > 0)
      records_.clear();
  }
  if (records_.size() < room_)
    records_.push_back(record);
  else
    ++dropped_;
}

uint32_t joinSteps(const StepNodes &nodes, absl::Span<const NodeRecord> records, uint64_t launchedAt,
                   const ClockPair &clocks, std::vector<core::StepTime> &times) {
  struct Range {
    uint64_t start = UINT64_MAX, end = 0; // end 0: no record
    void add(uint64_t from, uint64_t to) {
      start = std::min(start, from);
      end = std::max(end, to);
    }
  };
  std::vector<Range> ofNode(nodes.nodes()), ofStep(nodes.steps());
  uint64_t last = 0;
  for (const NodeRecord &record : records) {
    const uint32_t node = nodes.find(record.node);
    if (node == nodes.nodes() || record.end == 0)
      continue;
    ofNode[node].add(record.start, record.end);
    last = std::max(last, record.end);
  }
  std::vector<bool> whole(nodes.steps(), last >= launchedAt);
  for (uint32_t node = 0; node < nodes.nodes(); ++node) {
    const uint32_t step = nodes.step(node);
    if (ofNode[node].end == 0)
      whole[step] = false;
    else
      ofStep[step].add(ofNode[node].start, ofNode[node].end);
  }
  uint32_t missing = 0;
  times.assign(nodes.steps(), {});
  for (uint32_t step = 0; step < nodes.steps(); ++step)
    if (whole[step] && ofStep[step].end != 0)
      times[step] = {clocks.toHost(ofStep[step].start), clocks.toHost(ofStep[step].end)};
    else if (!nodes.unrecorded(step))
      ++missing;
  return missing;
}

absl::Status recordsMissing(const std::string &graph, uint32_t missing, const StepNodes &nodes,
                            const LaunchRecords &records) {
  return absl::DataLossError(absl::StrCat(graph, ": CUPTI has no complete record of ", missing, " of ", nodes.steps(),
                                          " steps (", records.dropped(), " records were dropped, ", records.unknown(),
                                          " are of unknown graph nodes): measure with --trace-by stamps"));
}

std::vector<CopyChannel> channelsOf(const StepNodes &nodes, absl::Span<const NodeRecord> records) {
  std::vector<CopyChannel> channels;
  for (const NodeRecord &record : records)
    if (const uint32_t node = nodes.find(record.node); record.copyBytes != 0 && node != nodes.nodes())
      channels.push_back({.step = nodes.step(node),
                          .bytes = record.copyBytes,
                          .type = static_cast<ChannelType>(record.channelType),
                          .channel = record.channel});
  std::stable_sort(channels.begin(), channels.end(),
                   [](const CopyChannel &a, const CopyChannel &b) { return a.step < b.step; });
  return channels;
}

} // namespace headrace::cuda
