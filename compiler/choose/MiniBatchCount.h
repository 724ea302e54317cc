// SPDX-License-Identifier: Apache-2.0
//
// How many mini-batches a layer is passed for, where that is left open: HybridServe's packing (section 4.3.3,
// corrected: runtime/cost/PackMiniBatches.h) of the batch's sequences, each at its longest, into what the device has
// room for. All of them are alike and mini-batches are equally large, so it is the next divisor of the batch. From
// there on the compiled plans decide: fewer or more of them, as long as an iteration of the whole batch becomes
// shorter.
//
//   batch 64    packed: 3    divisors 1 2 4 8 16 32 64    4: 4.2 s    8: 4.3 s    2: does not fit    4 it is
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>

#include "absl/status/statusor.h"
#include "compiler/choose/Policy.h"
#include "compiler/lower/CompileRequest.h"

namespace headrace::compiler {

// Mini-batches that the packing of the request's batch makes; 1 where its KV is not to leave the device. `request` asks
// for one mini-batch. An error says that the goal is none, or that one sequence alone has no room.
absl::StatusOr<int64_t> packedMiniBatches(const CompileRequest &request, const Policy &policy);

struct MiniBatchChoice {
  int64_t count = 1;
  std::map<int64_t, std::optional<uint64_t>> tried; // an iteration's time; none where memory does not hold it
};
// `timeOf` compiles with so many; kResourceExhausted says that memory does not hold them, any other error ends the
// search. A divisor of `batch`, at most kMaxMiniBatches, from `packed` on. kResourceExhausted, the last one's, where
// none is held.
absl::StatusOr<MiniBatchChoice> bestMiniBatches(int64_t batch, int64_t packed,
                                                const std::function<absl::StatusOr<uint64_t>(int64_t count)> &timeOf);

} // namespace headrace::compiler
