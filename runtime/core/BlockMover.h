// SPDX-License-Identifier: Apache-2.0
//
// Moves what blocks of caches hold (plan/value/CacheMap.h), otherwise than by a launch:
//
//   over the link, beside launches   add(), add() ... ask()   between blocks on the device and swap memory
//   within host memory               onHost()                 between copies of blocks on the host and other memory
//   at once                          move()                   from a block at home on the host to another block
//
// What is written on the host is written with no launch in flight, and homes are current (Runtime::flushKv()); behind
// it comes Runtime::kvWritten().
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/core/Device.h"
#include "runtime/plan/value/CacheMap.h"

namespace headrace::core {

class BlockMover {
public:
  // The plan and the device that it is open on outlive it. Takes the room that copies and a block's ids need.
  BlockMover(const plan::Plan &plan, Device &device);

  // A part of a block, if it is on the device: to or from so many bytes of swap memory. It becomes one copy with the
  // one before where both sides go on. All that are added before ask() go the same way.
  absl::Status add(bool toDevice, const plan::BlockPlace &place, uint64_t swap, uint64_t bytes);
  // Asks for all that were added. The last ticket, with which all of them have ended; 0: there are none.
  absl::StatusOr<uint64_t> ask();

  // Whether a part has a copy on the host that is read, or with `toBlock` written, for the block to be moved.
  static bool movesOnHost(const plan::BlockPlace &place, bool toBlock) {
    return place.host && (toBlock || !place.device);
  }
  // On a device that holds data: the part's copy on the host from or to `memory`.
  void onHost(const plan::BlockPlace &place, bool toBlock, absl::Span<std::byte> memory);

  // All parts of a mini-batch's block, at home on the host, to another one, wherever that is. Returns the bytes that
  // went over the link. A device in virtual time takes what they take alone.
  absl::StatusOr<uint64_t> move(const plan::CacheMap &map, uint32_t miniBatch, int32_t from, int32_t to);

private:
  absl::Status flush();

  const plan::Plan &plan_;
  Device &device_;
  std::vector<BlockCopy> batch_; // that is asked for next
  uint64_t ticket_ = 0;
  std::vector<std::byte> ids_; // of a block
};

} // namespace headrace::core
