// SPDX-License-Identifier: Apache-2.0
//
// Steps of the cpu lane beside CUDA's: one host node each, whose callback runs on a thread of CUDA's, which may call
// nothing of CUDA and is nobody's to pin. So it posts its step to the lane's own thread and waits for its end; that
// thread shares the step's units with the helpers of its pool (threads/ThreadPool.h). No CUDA is needed for it.
//
//   graph         | copy of q, k, v | host node ............ | host node .......... | fetch_rows
//   callback                        | post           ended | | post         ended |
//   lane's thread                     '-- append -------'      '-- attention ---'
//   helpers                               units                    units
//
// One step at a time: a graph's host nodes follow each other (GraphRule::CpuNode), and so do launches. A step allocates
// nothing.
//
// A step that cannot be run (what crossed the link says of more rows than the variant has) makes the lane fail: no
// later step of it is run, so a launch goes on to its end, and whoever asks for its tokens is given the error.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "kernels/HostKernel.h"
#include "kernels/Kernels.h"
#include "runtime/core/Device.h"
#include "runtime/core/LaunchChecks.h"
#include "runtime/cuda/GraphPlan.h"
#include "runtime/threads/ThreadPool.h"

namespace headrace::cuda {

struct CpuLaneOptions {
  int threads = 1;              // the lane's and its helpers; start() fails below 1, and where the system grants fewer
  int core = -1;                // of the lane's thread; -1: the scheduler's choice
  std::vector<int> helperCores; // one each; beyond these: the scheduler's choice
  // For tests: whose kernel an op has, and kernels::HostTeam::unitNs.
  kernels::HostKernel (*kernelOf)(kernels::Op) = kernels::hostKernel;
  int64_t unitNs = kernels::HostTeam().unitNs;
};

class CpuLane;

// What a host node's callback is given. It outlives the launches of its graph.
struct CpuStep {
  CpuLane *lane = nullptr;
  uint32_t node = 0, step = 0; // of the graph's plan
  std::string name;            // "variant 3 (...), step 12 (append)"
  core::BoundStep bound;
  kernels::HostKernel kernel;
  const kernels::IterationMeta *meta = nullptr; // in host memory
  core::Bucket bucket;
  core::StepTime time; // of the launch that ran last; read it once that has ended
};
// By the plan's nodes, null for those that are not the CPU's.
using CpuSteps = std::vector<std::unique_ptr<CpuStep>>;

class CpuLane {
public:
  explicit CpuLane(CpuLaneOptions options) : options_(std::move(options)) {}
  ~CpuLane() { stop(); } // no step is under way
  CpuLane(const CpuLane &) = delete;
  CpuLane &operator=(const CpuLane &) = delete;

  // Starts the threads where the plan has steps for them. InvalidArgument for fewer than one thread and for a core that
  // there is not, ResourceExhausted naming the thread or the memory that there is not.
  absl::Status start(const plan::Plan &plan);
  bool started() const { return thread_.joinable(); }
  int threads() const { return options_.threads; }

  CpuSteps stepsOf(const GraphPlan &plan);
  static void callback(void *step); // of a host node: runs the CpuStep, and returns once it has ended
  // Of the first step that could not be run.
  absl::Status failed() const;

private:
  // A number that one thread raises and another waits for.
  class Count {
  public:
    void raise();
    void await(uint32_t value, int64_t spinNs);
    uint32_t value() const { return value_.load(std::memory_order_acquire); }

  private:
    std::atomic<uint32_t> value_{0}, sleeps_{0};
  };

  void stop();
  void work();
  void run(CpuStep &step);
  void execute(CpuStep &step);

  const CpuLaneOptions options_;
  std::unique_ptr<threads::ThreadPool> pool_;
  std::thread thread_;
  Count posted_, ended_;
  CpuStep *step_ = nullptr; // posted; null: the thread ends
  std::atomic<bool> hasFailed_{false};
  absl::Status failure_; // written once, before hasFailed_ is
};

} // namespace headrace::cuda
