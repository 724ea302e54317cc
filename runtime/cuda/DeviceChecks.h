// SPDX-License-Identifier: Apache-2.0
//
// What a device must be to be used, on plain values: Driver.cpp asks CUDA for them. Every refusal says what to do.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace headrace::cuda {

inline constexpr int kNeededDriver = 13000; // CUDA 13.0, as cudaDriverGetVersion counts

// Unavailable where there is no driver (version 0) or one before kNeededDriver.
absl::Status checkDriver(int version);
// Unavailable where the driver knows no GPU, or none of this number.
absl::Status checkIndex(int index, int count);
// Unavailable where the kernels were not built for it; `built` as in Architectures.h.
absl::Status checkArchitecture(const std::string &name, const std::string &built, int major, int minor);
// ResourceExhausted naming the numbers where fewer than arena + overhead bytes are free.
absl::Status checkFreeMemory(uint64_t arena, uint64_t overhead, uint64_t free, uint64_t total);

// Unavailable with `message` and what else could run.
absl::Status unavailable(const std::string &message);

} // namespace headrace::cuda
