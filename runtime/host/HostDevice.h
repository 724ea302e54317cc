// SPDX-License-Identifier: Apache-2.0
//
// The host device: a plan's steps executed for real on the CPU, under the same rules as on a GPU. Where there is no GPU
// it is what runs a model; everywhere it is the reference for numerics.
//
//   caller ---- launch ring ----+-----------------> compute thread    kernels in order, shared with helpers that take
//     ^                         |                      ^   |          units of them (ThreadPool.h)
//     |                         |            thresholds|   |thresholds        (Signals.h)
//     |                         |                      |   v
//     |                         +-----------------> transfer thread   h2d and d2h of all links, paced (Bus.h)
//     +---- tokens, iteration number, ends of launches <--+
//
// However many threads compute, an iteration's bits are those of one. The workspace that a plan has for a step is the
// lane's; helpers have memory of their own, taken as the device opens, the largest workspace each.
//
// "Device memory" is one mapping of exactly the plan's arena between guard pages, "host memory" another; a copy is a
// memcpy in chunks that takes as long as the link would (latency + bytes / bandwidth, by absolute deadlines).
// Edges between lanes become at most one number to wait for per lane (HostGraph.h). Waiting spins for at most
// kSpinNs, then sleeps on a futex; who advances a counter makes a system call only if somebody sleeps on it.
#pragma once

#include <memory>
#include <vector>

#include "kernels/HostKernel.h"
#include "runtime/core/Device.h"

namespace headrace::host {

struct HostOptions {
  // That compute: the lane's and its helpers; open() fails below 1, and where the system grants fewer. Of devices in a
  // group all together: the most that one of them states, or one each if that is more.
  int threads = 1;
  std::vector<int> helperCores; // pin them, one each; beyond these: the scheduler's choice
  bool unpaced = false;         // copies run as fast as memcpy does
  // Debug: runs steps one by one in plan order, unpaced; every byte outside a live buffer is NaN after each release and
  // before each launch.
  bool poison = false;
  int computeCore = -1, transferCore = -1; // pin the lanes' threads; -1: the scheduler's choice
  // Urgent lanes and an urgent caller, and idle cores that do not halt (LowLatency.h); open() fails where the system
  // does not grant it.
  bool lowLatency = false;
  // For tests: whose kernel an op has.
  kernels::HostKernel (*kernelOf)(kernels::Op) = kernels::hostKernel;
  // For tests and benchmarks of the machinery itself: what every compute step runs instead of its kernel, with null;
  // its operands are then not looked at. And kernels::HostTeam::unitNs.
  kernels::HostKernel replaceKernels;
  int64_t unitNs = kernels::HostTeam().unitNs;
};

std::unique_ptr<core::Device> makeHostDevice(const HostOptions &options = {});

} // namespace headrace::host
