// SPDX-License-Identifier: Apache-2.0
//
// Work on weights in pieces, which several threads may take.
#pragma once

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace headrace::model {

// Calls f(i) for each i below `count`, in any order and by any threads, and returns once all have ended.
using Each = absl::FunctionRef<void(int64_t count, absl::FunctionRef<void(int64_t)> f)>;

// By the calling thread, in order.
void eachInOrder(int64_t count, absl::FunctionRef<void(int64_t)> f);

// Calls piece(i) for each i below `count`. The error is that of the first piece, by number, that has one, whoever takes
// which; all pieces before it are done, of those after it some may not be.
absl::Status eachPiece(Each each, int64_t count, absl::FunctionRef<absl::Status(int64_t)> piece);

} // namespace headrace::model
