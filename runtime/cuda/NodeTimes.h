// SPDX-License-Identifier: Apache-2.0
//
// From what was recorded of a launch's graph nodes to times of a plan's steps. Plain values, no CUDA and no CUPTI:
//
//   nodes as they are made ---- StepNodes: id -> node of a step <---- clones, when the graph is instantiated
//                                    |
//   records, in any order ---> LaunchRecords: those of the newest launch ---> joinSteps() ---> StepTime a step
//
// The records of one launch carry one correlation id, that of the launch call, and later calls have higher ones: the
// last launch's records are those with the highest id.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "runtime/core/Device.h"
#include "runtime/cuda/CudaDevice.h"

namespace headrace::cuda {

// One node of one launch: a kernel, a copy or a memset.
struct NodeRecord {
  uint64_t node = 0;           // graph node id; 0: not of a graph
  uint32_t launch = 0;         // correlation id
  uint64_t start = 0, end = 0; // ns on the recording clock; both 0: not measured
  uint64_t copyBytes = 0;      // 0: not a copy
  uint32_t channelType = 0, channel = 0;
};

// Which step each node of one executable belongs to. A step may have several nodes (library calls), a node several ids:
// its own, and those of the clones that instantiation makes of it.
class StepNodes {
public:
  StepNodes() = default;
  explicit StepNodes(uint32_t steps) : steps_(steps) {}
  void add(uint64_t id, uint32_t step);
  // Clones of nodes that are not known are left out; clones may be cloned.
  void addClone(uint64_t original, uint64_t clone);

  // A step that is the CPU's, of which nothing is recorded: the CPU has its times.
  void addUnrecorded(uint32_t step) { unrecorded_.insert(step); }
  bool unrecorded(uint32_t step) const { return unrecorded_.contains(step); }

  uint32_t steps() const { return steps_; }
  uint32_t nodes() const { return static_cast<uint32_t>(stepOf_.size()); }
  uint32_t step(uint32_t node) const { return stepOf_[node]; }
  // The node with this id, or nodes().
  uint32_t find(uint64_t id) const;
  const std::unordered_map<uint64_t, uint32_t> &ids() const { return nodeOf_; }

private:
  uint32_t steps_ = 0;
  std::vector<uint32_t> stepOf_;                  // by node
  std::unordered_map<uint64_t, uint32_t> nodeOf_; // by id
  std::unordered_set<uint32_t> unrecorded_;
};

// The records of the newest launch of any watched graph, in a buffer of fixed size: adding allocates nothing.
class LaunchRecords {
public:
  // Also makes room for the largest graph, and as much again for nodes that are recorded in parts.
  void watch(const StepNodes &nodes);
  // Launches that are older than the newest seen are ignored, whenever their records arrive.
  void add(const NodeRecord &record);
  void addDropped(uint64_t records) { dropped_ += records; } // that were never delivered

  absl::Span<const NodeRecord> records() const { return records_; }
  uint64_t dropped() const { return dropped_; } // since the beginning, those without room included
  uint64_t unknown() const { return unknown_; } // of graph nodes that are not watched

private:
  std::unordered_set<uint64_t> watched_;
  std::vector<NodeRecord> records_;
  size_t room_ = 0;
  uint64_t dropped_ = 0, unknown_ = 0;
};

// One moment on both clocks.
struct ClockPair {
  uint64_t recorded = 0; // the records' clock, ns
  int64_t host = 0;      // the device's clock (host monotonic), ns
  int64_t toHost(uint64_t time) const { return host + static_cast<int64_t>(time - recorded); }
};

// Fills `times`, one a step: from the start of its first node to the end of its last. Returns the number of steps of
// which a node has no record; their times are 0, as those of the CPU's are, which do not count. Records that all end
// before `launchedAt` (the records' clock) are an earlier launch's, and none is taken.
uint32_t joinSteps(const StepNodes &nodes, absl::Span<const NodeRecord> records, uint64_t launchedAt,
                   const ClockPair &clocks, std::vector<core::StepTime> &times);

// "variant 12 (...): 3 of 120 steps have no record ...".
absl::Status recordsMissing(const std::string &graph, uint32_t missing, const StepNodes &nodes,
                            const LaunchRecords &records);

// Of the copies among the records, ascending by step.
std::vector<CopyChannel> channelsOf(const StepNodes &nodes, absl::Span<const NodeRecord> records);

} // namespace headrace::cuda
