// SPDX-License-Identifier: Apache-2.0
//
// HybridServe's packing (section 4.3.3, corrected: runtime/cost/PackMiniBatches.h) of a batch's sequences, each at its
// longest, into what the device has room for beside two layers' weights: how many mini-batches that makes. All of them
// are alike and mini-batches are equally large, so a search begins at the next divisor of the batch.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "compiler/choice/CompileRequest.h"
#include "compiler/search/Generator.h"

namespace headrace::compiler {

// 1 where the batch's KV is not to leave the device. `request` asks for one mini-batch; its buckets of sequences, which
// are of one of several, do not count. An error says that the goal is none, or that one sequence alone has no room.
absl::StatusOr<int64_t> packedMiniBatches(const CompileRequest &request, const Generator &policy);

} // namespace headrace::compiler
