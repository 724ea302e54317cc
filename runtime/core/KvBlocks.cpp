// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/KvBlocks.h"

#include <algorithm>
#include <functional>

#include "absl/strings/str_cat.h"

namespace headrace::core {

KvBlocks::KvBlocks(int64_t blocks, int64_t blockTokens)
    : blockTokens_(blockTokens), limit_(blocks), free_(std::max<int64_t>(0, blocks - 1)),
      used_(static_cast<size_t>(std::max<int64_t>(0, blocks)), 0) {
  for (int64_t block = 1; block < blocks; ++block)
    heap_.push_back(static_cast<int32_t>(block)); // ascending: already a heap
}

absl::Status KvBlocks::grow(std::vector<int32_t> &table, int64_t tokens) {
  const int64_t wanted = blocksFor(tokens) - static_cast<int64_t>(table.size());
  if (wanted > 0 && wanted > freeBlocks())
    return absl::ResourceExhaustedError(
        absl::StrCat("KV cache: ", wanted, " more blocks wanted, ", std::max<int64_t>(0, freeBlocks()), " are free"));
  for (int64_t i = 0; i < wanted; ++i) {
    std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
    table.push_back(heap_.back());
    used_[static_cast<size_t>(heap_.back())] = 1;
    end_ = std::max<int64_t>(end_, heap_.back() + 1);
    heap_.pop_back();
    --free_;
    ++inUse_;
  }
  return absl::OkStatus();
}

void KvBlocks::release(std::vector<int32_t> &table) { shrink(table, 0); }

void KvBlocks::shrink(std::vector<int32_t> &table, int64_t tokens) {
  for (; static_cast<int64_t>(table.size()) > blocksFor(tokens); table.pop_back()) {
    const int32_t block = table.back();
    heap_.push_back(block); // its capacity was taken by the constructor
    std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
    used_[static_cast<size_t>(block)] = 0;
    free_ += block < limit_;
    --inUse_;
  }
  while (end_ > 1 && used_[static_cast<size_t>(end_ - 1)] == 0)
    --end_;
}

bool KvBlocks::lower(int32_t &block) {
  if (heap_.empty() || heap_.front() >= block)
    return false;
  const int32_t higher = block;
  std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
  block = heap_.back();
  heap_.back() = higher;
  std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
  used_[static_cast<size_t>(block)] = 1;
  used_[static_cast<size_t>(higher)] = 0;
  free_ += static_cast<int64_t>(higher < limit_) - static_cast<int64_t>(block < limit_);
  while (end_ > 1 && used_[static_cast<size_t>(end_ - 1)] == 0)
    --end_;
  return true;
}

int64_t KvBlocks::blocksInUseAbove(int64_t limit) const {
  if (limit >= static_cast<int64_t>(used_.size()))
    return 0;
  return std::count(used_.begin() + limit, used_.end(), uint8_t{1});
}

absl::Status KvBlocks::setLimit(int64_t limit) {
  if (limit < 1 || limit > static_cast<int64_t>(used_.size()))
    return absl::InvalidArgumentError(
        absl::StrCat("KV cache: a limit of ", limit, " blocks, expected 1 to ", used_.size()));
  if (const int64_t above = blocksInUseAbove(limit); above > 0)
    return absl::FailedPreconditionError(
        absl::StrCat("KV cache: ", above, " blocks from ", limit, " on are in use, and are not taken back"));
  limit_ = limit;
  free_ = std::count(used_.begin() + 1, used_.begin() + limit, uint8_t{0});
  return absl::OkStatus();
}

} // namespace headrace::core
