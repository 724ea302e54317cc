// SPDX-License-Identifier: Apache-2.0
//
// How many mini-batches a layer is passed for, where that is left open: HybridServe's packing (section 4.3.3,
// corrected: runtime/cost/PackMiniBatches.h) of the batch's sequences, each at its longest, into what the device has
// room for. All of them are alike and mini-batches are equally large, so it is the next divisor of the batch. From
// there on the evaluated plans decide: fewer or more of them, as long as an iteration of the whole batch becomes
// shorter. At most kMostAutoMiniBatches: more take half a minute and longer to compile.
//
//   batch 64    packed: 3    divisors 1 2 4 8 16    4: 4.2 s    8: 4.3 s    2: does not fit    4 it is
//
// A count that stated values rule out (a bucket of more tokens than the KV of one mini-batch holds) is passed over.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "compiler/choice/CompileRequest.h"
#include "compiler/search/Generator.h"

namespace headrace::compiler {

inline constexpr int64_t kMostAutoMiniBatches = 16;

// Mini-batches that the packing of the request's batch makes; 1 where its KV is not to leave the device. `request` asks
// for one mini-batch; its buckets of sequences, which are of one of several, do not count. An error says that the goal
// is none, or that one sequence alone has no room.
absl::StatusOr<int64_t> packedMiniBatches(const CompileRequest &request, const Generator &policy);

struct MiniBatchChoice {
  int64_t count = 1;
  std::map<int64_t, absl::StatusOr<uint64_t>> tried; // an iteration's time, or why there is none
};
// `timeOf` compiles with so many; kResourceExhausted says that memory does not hold them, kInvalidArgument that what is
// stated rules them out, any other error ends the search. A divisor of `batch`, at most kMostAutoMiniBatches, from
// `packed` on. Where there is none, the refusal that asks for the least memory, else that of one mini-batch.
//
// Residuals take more with each mini-batch and slots less, so what memory is wanted falls to a least and rises from
// there on: a refusal that asks for more than the one before it ends that direction.
absl::StatusOr<MiniBatchChoice> bestMiniBatches(int64_t batch, int64_t packed,
                                                const std::function<absl::StatusOr<uint64_t>(int64_t count)> &timeOf);

// "of those tried (2 does not fit, 4 80.000 ms, 8 81.000 ms) 4 takes the least; what is stated rules out 1 (...)".
std::string explainMiniBatches(const MiniBatchChoice &choice);

} // namespace headrace::compiler
