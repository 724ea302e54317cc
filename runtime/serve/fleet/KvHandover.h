// SPDX-License-Identifier: Apache-2.0
//
// Moves the KV cache of a request from the instance that prefilled it to the one that decodes it (Select-N, section
// 4.4: prefill and decode on separate instances), beside the iterations of both: by way of swap memory
// (core/BesideCopies.h), in portions, each of which goes out, across and in while others are on their way.
//
//   sender      blocks --d2h--> slots of its swap memory
//                                 | host copy                  portion    0    1    2    3 ...
//   receiver                    slots of its swap memory       goes out   = =  = =  = =
//               blocks <--h2d---'                              comes in         = =  = =  = =
//
// Blocks at home on the host are copied within host memory. Those of the receiver come last, at an edge between two of
// its iterations: what launches copy there, and what they write back, may lie on the same bytes until then.
//
//   begin() -> advance() again and again, whenever something may have ended -> true -> finish() at an edge
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/core/BlockMover.h"
#include "runtime/core/Runtime.h"

namespace headrace::serve {

// KV blocks of sequences with these many cached tokens.
uint64_t handoverBlocks(const plan::Plan &plan, absl::Span<const int64_t> tokens);
// Bytes that a hand-over of so many blocks moves, with the ids of their tokens.
uint64_t handoverBytes(const plan::Plan &plan, uint64_t blocks);
// Copies of one direction that a hand-over of so many blocks makes at most, which lie in so many runs of numbers that
// follow each other.
uint64_t handoverCopies(const plan::Plan &from, const plan::Plan &to, uint64_t blocks, uint64_t runs);
// Bytes of a portion at most, of a hand-over of so many: an eighth of it, or what a slot holds.
uint64_t handoverPortion(const plan::Plan &from, const plan::Plan &to, uint64_t bytes);
// Times that a hand-over of so many bytes fills all slots.
uint64_t handoverRounds(const plan::Plan &from, const plan::Plan &to, uint64_t bytes);

// FailedPrecondition, naming the first difference, unless blocks of one plan's cache mean the same in the other's:
// model, tokens a block, element type.
absl::Status checkHandover(const plan::Plan &from, const plan::Plan &to);

// One at a time of a sender, and of a receiver.
class KvHandover {
public:
  // Takes the swap memory that hand-overs from and to a runtime need; once, before any.
  static absl::Status reserve(core::Runtime &runtime);

  // Begins to hand over what `fromBlocks` hold in every layer, and which tokens that is of, into `toBlocks`, one for
  // one. The sender writes home what is only in its slots; its blocks stay as they are, and launches that it makes
  // meanwhile leave them alone. Allocates where there is more of them than ever before, or another sender; what follows
  // allocates where more is written to homes on the host than ever before. InvalidArgument if the lists differ in
  // length or name a block outside a cache; FailedPrecondition while one is under way.
  absl::Status begin(core::Runtime &from, absl::Span<const int32_t> fromBlocks, core::Runtime &to,
                     absl::Span<const int32_t> toBlocks);
  // Does what can be done without waiting. True: finish() may follow. Nothing comes in while it is not to be brought.
  absl::StatusOr<bool> advance(bool bring = true);
  // Something is on its way into the receiver, or there: its placement stays until finish().
  bool brings() const { return to_ != nullptr && brought_ > 0; }
  bool active() const { return to_ != nullptr; }
  // With no iteration of the receiver in flight: blocks at home on the host are written, and its next launch brings
  // what slots hold of caches anew.
  absl::Status finish();
  // Gives it up, once what is under way has ended.
  void abandon();
  // Whose device did not do what the last call that failed asked of it; null: neither's.
  const core::Runtime *failed() const { return failed_; }

  // All of these, waiting. The receiver has no iteration in flight.
  absl::Status move(core::Runtime &from, absl::Span<const int32_t> fromBlocks, core::Runtime &to,
                    absl::Span<const int32_t> toBlocks);

private:
  struct Portion {
    uint64_t first = 0, end = 0; // parts
    uint64_t out = 0, in = 0;    // tickets; 0: nothing is copied by the link
  };
  struct HomeRun { // in the receiver's slab, of tails_
    plan::BlockPlace place;
    uint64_t bytes = 0;
  };
  plan::BlockPart part(uint64_t number) const;
  uint64_t bytesOf(const plan::BlockPart &part) const;
  plan::BlockPlace source(const plan::BlockPart &part) const;
  plan::BlockPlace target(const plan::BlockPart &part) const;
  absl::Status sendOut(Portion &portion);
  absl::Status bringIn(Portion &portion);
  absl::StatusOr<bool> ended(core::Runtime &of, uint64_t ticket);
  absl::Status done(const core::Runtime &of, const absl::Status &status);
  bool data() const;
  uint64_t slotOf(const Portion &portion) const;

  core::Runtime *from_ = nullptr, *to_ = nullptr; // null: none is under way
  const core::Runtime *failed_ = nullptr;
  std::vector<int32_t> fromBlocks_, toBlocks_;
  uint64_t slotBytes_ = 0;
  bool byNumber_ = false; // parts of a block follow each other, else those of a layer
  std::vector<Portion> portions_;
  size_t sent_ = 0, brought_ = 0, ended_ = 0; // portions: asked for out, in, and there
  std::vector<std::byte> tails_;              // what is written to homes in the end
  std::vector<HomeRun> homes_;
};

} // namespace headrace::serve
