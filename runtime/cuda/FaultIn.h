// SPDX-License-Identifier: Apache-2.0
//
// Host memory page by page: having all of it, and where it lies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace headrace::cuda {

// Gives every page of a range memory of its own; errno where there is none left.
int populate(std::byte *data, uint64_t bytes);

// Does `populate` of each chunk of the range, by so many threads, the caller's among them. `progress`, if there is one,
// is told on the caller's thread how many bytes are done, and at its end, whatever came of it, that all are.
// ResourceExhausted naming how far it went where a chunk fails; chunks that were not begun are left then.
absl::Status faultIn(std::byte *data, uint64_t bytes, uint64_t chunkBytes, int threads,
                     const std::function<void(uint64_t done, uint64_t total)> &progress,
                     absl::FunctionRef<int(std::byte *data, uint64_t bytes)> populate = cuda::populate);

// Of a range whose pages have memory: about how many bytes are not on the NUMA node, by at most 4096 pages evenly
// spread. Unset where the system does not say.
std::optional<uint64_t> bytesElsewhere(std::byte *data, uint64_t bytes, int numaNode);
// What is said of them; empty of none.
std::string elsewhereNotice(uint64_t elsewhere, uint64_t bytes, int numaNode);

} // namespace headrace::cuda
