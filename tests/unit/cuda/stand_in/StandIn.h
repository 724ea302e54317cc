// SPDX-License-Identifier: Apache-2.0
//
// A stand-in for CUDA's runtime: the functions of it that runtime/cuda calls, on the CPU, so that the CUDA device
// itself runs where there is no GPU. It is linked in the place of cudart; cublasLt and cuBLAS are shared libraries of
// their names beside it (StandInBlas.cpp).
//
//   streams      one queue for all of them, in the order of the calls, worked off by a thread of its own: one of the
//                orders that CUDA may take. Copies and graphs run later than they are launched, so what a caller
//                changes too early shows.
//   graphs       captured or made node by node; an executable runs its nodes in an order drawn anew each launch that
//                its edges allow. Kernels are the kernels' own source on the emulator.
//   device       memory of the host's, filled with 0xff when it is taken.
//
// With HEADRACE_STAND_IN_DROPS_A_WAIT in the environment one copy to the device in each graph has nobody wait for it.
//
// Refused as CUDA refuses it: a capture that is not joined, the same dependency twice, memory that was not registered.
#pragma once

#include <cstdint>
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
// bus in bits. To work on one, it has to be the first.
struct ShownGpu {
  std::string name = "stand-in";
  int major = 9, minor = 0;
  uint64_t memory = uint64_t{64} << 30;
  int multiprocessors = 0, clock = 0, memoryClock = 0, memoryBus = 0;
};
void show(std::vector<ShownGpu> gpus);

// Bytes of the last copy to the device that was no part of a graph: of iteration data. All rows of a copy in rows.
uint64_t lastCopyBytes();

} // namespace headrace::stand_in
