// SPDX-License-Identifier: Apache-2.0
//
// What CUDA's opaque types are here. Their names are CUDA's.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "tests/unit/cuda/EmulatedCalls.h"

// A copy in rows of `width` bytes; one row where it is none.
struct StandInCopy {
  std::byte *to = nullptr;
  const std::byte *from = nullptr;
  uint64_t width = 0, rows = 1, toPitch = 0, fromPitch = 0;
  cudaMemcpyKind kind = cudaMemcpyDefault;

  void run() const;
};

struct StandInWork {
  cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
  // A kernel: its one argument, by value.
  const void *function = nullptr;
  dim3 grid, block;
  uint32_t sharedBytes = 0;
  alignas(16) std::array<std::byte, headrace::cuda::kMostArgumentBytes> argument{};
  bool publishes = false;
  StandInCopy copy;
  cudaHostFn_t host = nullptr;
  void *hostData = nullptr;
  cudaEvent_t event = nullptr; // is recorded

  void run(uint64_t order) const;
};

struct CUgraphNode_st {
  StandInWork work;
  int device = 0;                  // the thread's when it was made
  void *argumentPointer = nullptr; // what cudaGraphKernelNodeGetParams points to
};

struct CUgraph_st {
  std::vector<std::unique_ptr<CUgraphNode_st>> nodes;
  std::vector<std::pair<cudaGraphNode_t, cudaGraphNode_t>> edges;
  std::vector<cudaGraphEdgeData> edgeData; // of each edge

  // Null where a dependency is there twice.
  cudaGraphNode_t add(const StandInWork &work, const std::vector<cudaGraphNode_t> &after);
};

// Nodes and what follows each. Launches keep the one that they were launched with.
struct StandInRun {
  struct Node {
    cudaGraphNode_t made = nullptr;
    StandInWork work;
    uint32_t before = 0;
    std::vector<uint32_t> next;
  };
  std::vector<Node> nodes;

  explicit StandInRun(const CUgraph_st &graph);
};

// A launch that is under way.
class StandInLaunch {
public:
  StandInLaunch(std::shared_ptr<const StandInRun> run, uint64_t order);
  bool step(); // one node; whether it was the last

private:
  const std::shared_ptr<const StandInRun> run_;
  std::mt19937_64 random_;
  std::vector<uint32_t> missing_, ready_;
};

struct CUgraphExec_st {
  std::shared_ptr<const StandInRun> run;
  int device = 0;
};

// Of a stream or an event that belongs to a capture: the graph, and what comes next follows.
struct StandInCapture {
  uint64_t number = 0; // of the capture; 0: none
  cudaGraph_t graph = nullptr;
  std::vector<cudaGraphNode_t> after;
};

struct CUstream_st {
  int device = 0;
  StandInCapture capture;
  bool began = false; // the capture, of which it is the origin
  uint64_t last = 0;  // the newest entry of the queue that is this stream's
};

struct CUevent_st {
  int device = 0;
  StandInCapture capture;
  uint64_t entry = 0; // of the queue, which records it; 0: never recorded
  std::atomic<int64_t> ns{0};
};
