// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/KvBlocks.h"

#include <algorithm>
#include <functional>

#include "absl/strings/str_cat.h"

namespace headrace::core {
namespace {

int32_t popLowest(std::vector<int32_t> &heap) {
  std::pop_heap(heap.begin(), heap.end(), std::greater<>());
  const int32_t lowest = heap.back();
  heap.pop_back();
  return lowest;
}
void push(std::vector<int32_t> &heap, int32_t block) {
  heap.push_back(block); // its capacity was taken by the constructor
  std::push_heap(heap.begin(), heap.end(), std::greater<>());
}

} // namespace

KvBlocks::KvBlocks(int64_t blocks, int64_t blockTokens, const ActBlocks &act)
    : blockTokens_(blockTokens), limit_(blocks), free_(act.blocks > 0 ? act.context : std::max<int64_t>(0, blocks - 1)),
      used_(static_cast<size_t>(std::max<int64_t>(0, blocks) + act.blocks), 0), act_(act), kvBlocks_(blocks) {
  for (int64_t block = 1; block < blocks; ++block)
    heap_.push_back(static_cast<int32_t>(block)); // ascending: already a heap
  for (int64_t block = blocks; block < blocks + act.blocks; ++block)
    actHeap_.push_back(static_cast<int32_t>(block));
}

absl::Status KvBlocks::grow(std::vector<int32_t> &table, int64_t tokens) {
  const auto has = static_cast<int64_t>(table.size());
  const int64_t wanted = blocksFor(tokens) - has;
  if (wanted <= 0)
    return absl::OkStatus();
  if (wanted > freeBlocks())
    return absl::ResourceExhaustedError(
        absl::StrCat("KV cache: ", wanted, " more blocks wanted, ", std::max<int64_t>(0, freeBlocks()), " are free"));
  if (act_.blocks > 0) {
    const int64_t act = act_.share.of(has + wanted) - act_.share.of(has);
    if (act > static_cast<int64_t>(actHeap_.size()) || wanted - act > static_cast<int64_t>(heap_.size()))
      return absl::ResourceExhaustedError(absl::StrCat("KV cache: ", act, " activation blocks and ", wanted - act,
                                                       " KV blocks wanted, ", actHeap_.size(), " and ", heap_.size(),
                                                       " are free"));
  }
  tables_ += has == 0;
  for (int64_t i = has; i < has + wanted; ++i) {
    const bool act = act_.share.isAct(i);
    const int32_t block = popLowest(act ? actHeap_ : heap_);
    table.push_back(block);
    used_[static_cast<size_t>(block)] = 1;
    if (act)
      actEnd_ = std::max(actEnd_, block + 1 - kvBlocks_);
    else
      end_ = std::max<int64_t>(end_, block + 1);
    --free_;
    ++inUse_;
  }
  return absl::OkStatus();
}

void KvBlocks::release(std::vector<int32_t> &table) { shrink(table, 0); }

void KvBlocks::shrink(std::vector<int32_t> &table, int64_t tokens) {
  tables_ -= !table.empty() && tokens <= 0;
  for (; static_cast<int64_t>(table.size()) > blocksFor(tokens); table.pop_back()) {
    const int32_t block = table.back();
    push(block < kvBlocks_ ? heap_ : actHeap_, block);
    used_[static_cast<size_t>(block)] = 0;
    free_ += act_.blocks > 0 || block < limit_;
    --inUse_;
  }
  trimEnds();
}

void KvBlocks::trimEnds() {
  while (end_ > 1 && used_[static_cast<size_t>(end_ - 1)] == 0)
    --end_;
  while (actEnd_ > 0 && used_[static_cast<size_t>(kvBlocks_ + actEnd_ - 1)] == 0)
    --actEnd_;
}

bool KvBlocks::lower(int32_t &block) {
  std::vector<int32_t> &heap = block < kvBlocks_ ? heap_ : actHeap_;
  if (heap.empty() || heap.front() >= block)
    return false;
  const int32_t higher = block;
  block = popLowest(heap);
  push(heap, higher);
  used_[static_cast<size_t>(block)] = 1;
  used_[static_cast<size_t>(higher)] = 0;
  if (act_.blocks == 0)
    free_ += static_cast<int64_t>(higher < limit_) - static_cast<int64_t>(block < limit_);
  trimEnds();
  return true;
}

int64_t KvBlocks::blocksInUseAbove(int64_t limit) const {
  if (limit >= kvBlocks_)
    return 0;
  return std::count(used_.begin() + limit, used_.begin() + kvBlocks_, uint8_t{1});
}

absl::Status KvBlocks::setLimit(int64_t limit) {
  if (limit < 1 || limit > kvBlocks_)
    return absl::InvalidArgumentError(
        absl::StrCat("KV cache: a limit of ", limit, " blocks, expected 1 to ", kvBlocks_));
  if (act_.blocks > 0 && limit < kvBlocks_)
    return absl::InvalidArgumentError(absl::StrCat("KV cache: a limit of ", limit, " blocks, expected all ", kvBlocks_,
                                                   ": their number is that of activation blocks"));
  if (const int64_t above = blocksInUseAbove(limit); above > 0)
    return absl::FailedPreconditionError(
        absl::StrCat("KV cache: ", above, " blocks from ", limit, " on are in use, and are not taken back"));
  limit_ = limit;
  if (act_.blocks == 0)
    free_ = std::count(used_.begin() + 1, used_.begin() + limit, uint8_t{0});
  return absl::OkStatus();
}

} // namespace headrace::core
