// SPDX-License-Identifier: Apache-2.0
//
// What a CUDA Graph made from a plan consists of: nodes with all their parameters, their lanes, and what each waits
// for. Plain values, made without CUDA, so that a machine without a GPU can make, print and check every graph. Three
// builders (GraphBuilder.h) turn it into a recording, explicit nodes, or a capture.
//
//   plan step   Compute -> one kernel node; Linear -> one library call, and where the library cannot fuse the bias or
//                          the activation (MatMul.h) one kernel node behind it; where weights are packed one
//                          kernel node for a few rows, else a
//                          kernel node and a call for each part of them; RebuildKv -> gather, library call, append
//                          for each chunk of its rows
//   of the CPU's lane     -> one host node (CpuLane.h)
//               Copy    -> one 1-D copy node; the plan has cut it into chunks already. Interleaved blocks: one 2-D node
//               Publish -> one kernel node that writes mapped host memory
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/CudaKernels.h"
#include "kernels/CudaWorkspace.h"
#include "runtime/core/BindStep.h"
#include "runtime/core/Device.h"
#include "runtime/core/GraphSteps.h"
#include "runtime/cuda/ArgPointers.h"
#include "runtime/cuda/MatMul.h"
#include "runtime/plan/value/Plan.h"

namespace headrace::cuda {

using core::kGraphLanes;
using core::laneIndex;
// Lanes that are forked from the compute lane and joined to it.
inline constexpr plan::Lane kSideLanes[] = {plan::Lane::H2D, plan::Lane::D2H, plan::Lane::Cpu};

// Memory that nodes may name: the arena and the pinned slab, and small ranges beside them.
struct GraphMemory {
  core::Bases bases;
  uint64_t arenaBytes = 0, slabBytes = 0;
  const float *frequencies = nullptr; // inverse frequencies on the device
  uint64_t frequencyBytes = 0;
  uint32_t *arrivals = nullptr;       // on the device: CudaWorkspace::kArrivals words
  int32_t *publishedTokens = nullptr; // mapped host memory: [kPublishSlots, maxSequences]
  uint64_t publishedTokensBytes = 0;
  uint64_t *publishedIterations = nullptr; // mapped host memory: [kPublishSlots]
};

inline constexpr uint64_t kArrivalBytes = kernels::CudaWorkspace::kArrivals * sizeof(uint32_t);

// Bytes that a node reads or writes.
struct NodeAccess {
  plan::Space space = plan::Space::Device;
  uint64_t begin = 0, end = 0; // in the space, end exclusive
  plan::Access access = plan::Access::Read;
  // Of interleaved blocks: of [begin, end) only runs of rowBytes, `pitch` apart from begin to begin. 0: all of it.
  uint64_t rowBytes = 0, pitch = 0;
};
// f(begin, end) for each run of bytes.
template <typename F> void eachRun(const NodeAccess &access, F f) {
  if (access.rowBytes == 0)
    return f(access.begin, access.end);
  for (uint64_t begin = access.begin; begin < access.end; begin += access.pitch)
    f(begin, begin + access.rowBytes);
}

// One kernel launch: the op's struct of arguments is the kernel's only parameter.
struct KernelCall {
  kernels::CudaLaunch launch;
  std::vector<std::byte> args;
  std::vector<NamedPointer> pointers; // of args
};

// A step of the CPU's: its op, and the struct of arguments that the op's host kernel takes.
struct HostCall {
  core::BoundStep bound;
  std::vector<NamedPointer> pointers; // of its arguments
};
HostCall hostCall(const core::BoundStep &bound);

enum class NodeKind : uint8_t { Kernel = 0, Copy = 1, Library = 2, Host = 3 };
struct GraphNode {
  uint32_t step = 0; // in the schedule
  plan::Lane lane = plan::Lane::Compute;
  NodeKind kind = NodeKind::Kernel;
  KernelCall kernel; // the one that `kind` says
  core::CopySides copy;
  MatMul matmul;
  HostCall host;
  std::vector<NodeAccess> accesses; // by the plan's operands
  std::vector<uint32_t> waits;      // nodes of other lanes that must have ended before it, ascending
  bool signals = false;             // a node of another lane waits for it
};

struct GraphPlan {
  std::string name; // "variant 12 (interval 4, 8 tokens x 8 sequences x 512)": what errors begin with
  bool transition = false;
  core::Bucket bucket; // a variant's
  uint32_t steps = 0;
  std::vector<GraphNode> nodes; // in the order of steps; a lane's follow each other in this order
  GraphMemory memory;
};

struct GraphPlanRequest {
  const plan::Plan &plan;
  const core::BindContext &binding;
  GraphMemory memory;
  FusePolicy fuse = FusePolicy::Library;
};

// Refuses, by name, what a CUDA graph cannot do: ops that the CPU has not beside CUDA, copies whose sides are not those
// of their direction, types and shapes without a kernel, and what BindContext refuses.
absl::StatusOr<GraphPlan> planGraph(const GraphPlanRequest &request, const core::GraphKey &key);

// "variant 12 (interval 4, 8 tokens x 8 sequences x 512)", "transition 3 (state 0 to 2)"; for keys that the plan has.
std::string graphName(const plan::Plan &plan, const core::GraphKey &key);

} // namespace headrace::cuda
