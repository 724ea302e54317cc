// SPDX-License-Identifier: Apache-2.0
//
// Moves what a KV block holds, of all layers and the ids of its tokens, from one at home on the host to another,
// wherever that is at home.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/core/Device.h"
#include "runtime/core/KvPlaces.h"
#include "runtime/plan/value/Plan.h"

namespace headrace::serve {

class BlockMover {
public:
  explicit BlockMover(const plan::Plan &plan);

  // Bytes of a block, of all layers and its ids.
  uint64_t blockBytes(bool act) const {
    return static_cast<uint64_t>(layers_) * (act ? plan_.actBlockBytes() : plan_.kvBlockBytes()) + row_.size();
  }
  bool actsOnHost() const { return !acts_.empty(); }
  // Blocks of a mini-batch in a placement. Nothing is in flight, and homes are current (Runtime::flushKv); behind it
  // Runtime::kvWritten. Returns the bytes that went over the link. A device in virtual time takes what they take alone.
  absl::StatusOr<uint64_t> move(uint32_t placement, uint32_t miniBatch, int32_t from, int32_t to, core::Device &device);

private:
  const plan::Plan &plan_;
  int64_t layers_ = 0;
  std::vector<core::KvLayout> layouts_; // by placement
  std::vector<uint64_t> acts_; // where activation blocks lie on the host, by layer and mini-batch; empty: not all do
  std::vector<std::byte> row_; // ids of a block
};

} // namespace headrace::serve
