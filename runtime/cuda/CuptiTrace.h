// SPDX-License-Identifier: Apache-2.0
//
// Graphs measured by CUPTI: its activity records of kernels, copies and memsets, joined to a plan's steps by graph node
// id (NodeTimes.h). The graphs are the plain ones. Started before the first graph is built:
//
//   start() -> per graph: nodeId() of each node, FollowClones around cudaGraphInstantiate, watch()
//           -> per launch: now()          after the stream has ended: collect()
//
// CUPTI's callbacks are a process's, so is this: one at a time.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/cuda/Cupti.h"
#include "runtime/cuda/NodeTimes.h"

namespace headrace::cuda {

class CuptiTrace {
public:
  // Unavailable where CUPTI is not found, or something else in or around this process uses it.
  static absl::StatusOr<std::unique_ptr<CuptiTrace>> start(const std::vector<std::string> &folders);
  CuptiTrace(const CuptiTrace &) = delete;
  CuptiTrace &operator=(const CuptiTrace &) = delete;
  ~CuptiTrace();

  // Of a node that exists.
  absl::StatusOr<uint64_t> nodeId(const std::string &during, CUgraphNode node) const;
  // From now on records of these nodes are kept.
  void watch(const StepNodes &nodes);
  uint64_t now() const; // on the records' clock; 0 where CUPTI does not say

  // Times of the last launch, which was of `nodes`' graph, was called at `launchedAt` and has ended. DataLoss, naming
  // how many steps, where records are missing. `launchedAt` 0: not known.
  absl::Status collect(const std::string &graph, const StepNodes &nodes, uint64_t launchedAt,
                       std::vector<core::StepTime> &times);
  std::vector<CopyChannel> channels(const StepNodes &nodes) const;

private:
  friend class FollowClones;
  friend struct CuptiCallbacks;
  explicit CuptiTrace(Cupti cupti) : cupti_(std::move(cupti)) {}
  absl::Status enable();
  absl::StatusOr<ClockPair> clocks() const;

  const Cupti cupti_;
  CUpti_SubscriberHandle subscriber_ = nullptr;
  mutable std::mutex mutex_; // CUPTI delivers records on a thread of its own
  LaunchRecords records_;
  StepNodes *following_ = nullptr;
};

// While it lives, clones that CUDA makes of these nodes are added to them.
class FollowClones {
public:
  FollowClones(CuptiTrace *trace, StepNodes &nodes); // no trace: does nothing
  FollowClones(const FollowClones &) = delete;
  FollowClones &operator=(const FollowClones &) = delete;
  ~FollowClones();

private:
  CuptiTrace *const trace_;
};

} // namespace headrace::cuda
