// SPDX-License-Identifier: Apache-2.0
//
// What this machine's processor gives the host device, by the number of threads that compute: how fast they read, and
// how near the kernels come to that.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace headrace::tools {

// Bytes and flops a second. Numbers of threads are measured in turns, over and over; these are the medians.
struct CpuFigures {
  int threads = 1;
  double read = 0;            // of memory: by loads and adds, or what a kernel below has read if that is more
  double decode = 0;          // Linear: one row by 16-bit weights that are in no cache, bytes of these
  double prefill = 0;         // Linear: 192 rows by a matrix of 2048 x 2048, flops
  double unpack = 0;          // Linear: one row by q4 weights that are in no cache, weights
  double attention = 0;       // of one sequence that decodes at a context of 4096 tokens, bytes of its 16-bit cache
  double packedAttention = 0; // the same of a q4 cache, and a query a key head: keys and values
};

// For 1, 2, 4, ... and `threads` threads. `seconds`: about what a figure of one thread takes; in less, less memory is
// read, at least 64 MiB, at most 1 GiB. ResourceExhausted where there is too little memory, or are too few threads.
absl::StatusOr<std::vector<CpuFigures>> measureCpu(int threads, double seconds);

// A table; and the keys of a hardware profile that follow from it, per thread, as TOML.
std::string cpuText(const std::vector<CpuFigures> &figures);
std::string cpuJson(const std::vector<CpuFigures> &figures);

} // namespace headrace::tools
