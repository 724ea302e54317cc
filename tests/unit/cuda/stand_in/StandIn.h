// SPDX-License-Identifier: Apache-2.0
//
// A stand-in for CUDA's runtime: the functions of it that runtime/cuda calls, on the CPU, so that the CUDA device
// itself runs where there is no GPU. It is linked in the place of cudart; cublasLt and cuBLAS are shared libraries of
// their names beside it (StandInBlas.cpp).
//
//   streams      a queue each, worked off by one thread that draws anew which of them is next: a copy, or one node of a
//                graph. Nothing but events orders them. Copies and graphs run later than they are launched, so what a
//                caller changes too early shows. All are non-blocking: cudaMemcpy and cudaMemset wait for none.
//   graphs       captured or made node by node; an executable runs its nodes in an order drawn anew each launch that
//                its edges allow. Kernels are the kernels' own source on the emulator.
//   devices      memory of the host's, filled with 0xff when it is taken. Each has what was made while it was the
//   calling
//                thread's (cudaSetDevice). A call with a stream, event, executable, node or memory of another device is
//                refused, and what it would give back stays: CUDA takes some of it, on the other device or by making a
//                context on the thread's. So is pinned memory that is not for all devices (portable).
//   failure      any call, when a test wants it (fail()).
//
// With HEADRACE_STAND_IN_DROPS_A_WAIT in the environment one copy to the device in each graph has nobody wait for it,
// and one kernel behind a programmatic edge does not wait. HEADRACE_STAND_IN_NO_MEM_OPS: no nodes of memory operations.
// HEADRACE_STAND_IN_GPU: the GPU's name, until another is shown.
//
// Refused as CUDA refuses it: a capture that is not joined, the same dependency twice, memory that was not registered,
// more device memory than is shown.
#pragma once

#include <cstdint>
#include <map>
#include <ostream>
#include <string>
#include <vector>

namespace headrace::stand_in {

// Nothing that is launched from now on runs before release(); what runs already ends first.
void hold();
void holdGraphs(); // no graph, and what its stream has behind it
void release();

// Nothing that is launched runs, but for the iteration's number, which is published at once: what is left is the time
// of the callers. For measuring; nothing is under way when it begins.
void setInstant(bool instant);

// What the driver shows: one GPU of compute capability 9.0 unless said otherwise. Memory in bytes, clocks in kHz, the
// bus in bits.
struct ShownGpu {
  std::string name = "stand-in";
  int major = 9, minor = 0;
  uint64_t memory = uint64_t{64} << 30;
  int multiprocessors = 0, clock = 0, memoryClock = 0, memoryBus = 0;
  int numaNode = -1; // of host memory near it; -1: it does not say
  int pciBus = 0;
};
// In CUDA's own order, the fastest first; CUDA_DEVICE_ORDER=PCI_BUS_ID has them by their buses.
void show(std::vector<ShownGpu> gpus);

// Edges of graphs that are made from now on are programmatic ones, by which a node may start before the one in front of
// it has ended.
void setProgrammatic(bool programmatic);

// The `nth` call of that name from now on ("cudaMalloc", "cublasLtMatmul") fails. A sticky one fails as an error does
// that ends the context: every later call fails as well, and nothing that was launched is run; of one device that is
// its own calls and launches. What gives something
// back does so whether it fails or not. Calls that only describe errors never fail.
struct Fault {
  std::string call;
  uint64_t nth = 1;
  bool sticky = false;
  int device = -1; // calls count, and fail, while this one is the thread's; -1: whichever is
  int error = 0;   // a cudaError_t; 0: cudaErrorUnknown, and cudaErrorIllegalAddress for a sticky one
};
void fail(const Fault &fault);
// No call fails from now on, and calls are counted anew, as by fail(). Whether the fault came.
bool heal();
std::map<std::string, uint64_t> calls(); // by name, those that failed included
bool errorLeft();                        // on this thread: one that cudaGetLastError would still give

// What was asked for kernels is forgotten, as if the process began: it is asked for anew.
void forgetKernels();

// What was given out and not given back, on all devices. Handles: those of libraries of products, and their
// descriptions of shapes.
struct Held {
  int64_t deviceMemory = 0, hostMemory = 0, streams = 0, events = 0, graphs = 0, executables = 0, handles = 0;
  bool operator==(const Held &) const = default;
};
std::ostream &operator<<(std::ostream &out, const Held &held);
Held held();

// Bytes of the last copy to the device that was no part of a graph: of iteration data.
uint64_t lastCopyBytes();

} // namespace headrace::stand_in
