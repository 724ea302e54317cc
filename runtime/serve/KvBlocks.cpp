// SPDX-License-Identifier: Apache-2.0
#include "runtime/serve/KvBlocks.h"

#include <algorithm>
#include <functional>

#include "absl/strings/str_cat.h"

namespace headrace::serve {

KvBlocks::KvBlocks(int64_t blocks, int64_t blockTokens) : blockTokens_(blockTokens) {
  for (int64_t block = 1; block < blocks; ++block)
    free_.push_back(static_cast<int32_t>(block)); // ascending: already a heap
}

absl::Status KvBlocks::grow(std::vector<int32_t> &table, int64_t tokens) {
  const int64_t wanted = blocksFor(tokens) - static_cast<int64_t>(table.size());
  if (wanted > freeBlocks())
    return absl::ResourceExhaustedError(
        absl::StrCat("KV cache: ", wanted, " more blocks wanted, ", freeBlocks(), " are free"));
  for (int64_t i = 0; i < wanted; ++i) {
    std::pop_heap(free_.begin(), free_.end(), std::greater<>());
    table.push_back(free_.back());
    free_.pop_back();
  }
  return absl::OkStatus();
}

void KvBlocks::release(std::vector<int32_t> &table) {
  for (int32_t block : table) {
    free_.push_back(block); // its capacity was taken by the constructor
    std::push_heap(free_.begin(), free_.end(), std::greater<>());
  }
  table.clear();
}

} // namespace headrace::serve
