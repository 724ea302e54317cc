// SPDX-License-Identifier: Apache-2.0
#include "runtime/model/Pieces.h"

#include <atomic>
#include <mutex>
#include <utility>

namespace headrace::model {

void eachInOrder(int64_t count, absl::FunctionRef<void(int64_t)> f) {
  for (int64_t i = 0; i < count; ++i)
    f(i);
}

absl::Status eachPiece(Each each, int64_t count, absl::FunctionRef<absl::Status(int64_t)> piece) {
  std::atomic<int64_t> failed{count}; // the first so far
  std::mutex mutex;
  absl::Status first;
  each(count, [&](int64_t i) {
    if (i > failed.load(std::memory_order_relaxed))
      return;
    absl::Status status = piece(i);
    if (status.ok())
      return;
    const std::lock_guard<std::mutex> lock(mutex);
    if (i < failed.load(std::memory_order_relaxed)) {
      failed.store(i, std::memory_order_relaxed);
      first = std::move(status);
    }
  });
  return first;
}

} // namespace headrace::model
