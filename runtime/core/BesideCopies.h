// SPDX-License-Identifier: Apache-2.0
//
// Copies beside launches, for KV that is away from its blocks: swapped out, or handed over. What every device checks
// and counts of them, in the same words; how they run is each device's own (Device::copyBeside).
//
//   launches   | n | n + 1 | n + 2 |
//   h2d, d2h   |   | asked for behind n: share the lanes with the copies of n + 1, n + 2 ...
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "runtime/core/Ring.h"

namespace headrace::core {

// Between the arena and swap memory, `bytes` above 0.
struct BlockCopy {
  bool toDevice = false;
  uint64_t device = 0, swap = 0; // offsets
  uint64_t bytes = 0;
};

// FailedPrecondition where no swap memory is reserved; InvalidArgument for no copies, and a copy of nothing;
// OutOfRange for one that reaches beyond the arena or swap memory. `device` begins the message.
absl::Status checkCopies(std::string_view device, absl::Span<const BlockCopy> copies, uint64_t arenaBytes,
                         uint64_t swapBytes);

// FailedPrecondition for a ticket that is not one of those given.
absl::Status checkTicket(std::string_view device, uint64_t ticket, uint64_t given);

// Which copies were asked for with which ticket. Copies of one direction end in the order they were asked for, so a
// ticket has ended once so many of each have. Allocates while more tickets are under way than ever before.
class CopyTickets {
public:
  using Counts = std::array<uint64_t, 2>; // to the host, to the device

  // A ticket for these copies, of which so many (`ended`, of all) had ended before. Numbers count from 1.
  uint64_t add(absl::Span<const BlockCopy> copies, const Counts &ended);
  const Counts &asked() const { return asked_; } // of all tickets
  absl::Status check(std::string_view device, uint64_t ticket) const {
    return checkTicket(device, ticket, ends_.next());
  }
  // How many of each must have ended; zeros for one that is known to have.
  Counts endOf(uint64_t ticket) const;
  bool ended(uint64_t ticket, const Counts &ended) const;

private:
  static bool reached(const Counts &ended, const Counts &end) { return ended[0] >= end[0] && ended[1] >= end[1]; }

  Ring<Counts, 64> ends_; // ticket n is number n - 1
  Counts asked_{};
};

} // namespace headrace::core
