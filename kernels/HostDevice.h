// SPDX-License-Identifier: Apache-2.0
//
// Marks of code that the host and the CUDA kernels share: plain C++ for a host compiler, both sides for nvcc.
#pragma once

#ifdef __CUDACC__
#define HEADRACE_HD __host__ __device__
#else
#define HEADRACE_HD
#endif
