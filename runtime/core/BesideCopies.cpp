// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/BesideCopies.h"

#include "runtime/base/Text.h"

namespace headrace::core {
namespace {

absl::Status checkRange(std::string_view device, std::string_view what, uint64_t offset, uint64_t bytes,
                        uint64_t size) {
  if (bytes <= size && offset <= size - bytes)
    return absl::OkStatus();
  return absl::OutOfRangeError(model::cat(device, ": copies beside launches: bytes [", offset, ", +", bytes,
                                          ") are outside ", what, " of ", size, " bytes"));
}

} // namespace

absl::Status checkCopies(std::string_view device, absl::Span<const BlockCopy> copies, uint64_t arenaBytes,
                         uint64_t swapBytes) {
  if (swapBytes == 0)
    return absl::FailedPreconditionError(model::cat(device, ": copies beside launches: no swap memory is reserved"));
  if (copies.empty())
    return absl::InvalidArgumentError(model::cat(device, ": copies beside launches: none, expected at least one"));
  for (const BlockCopy &copy : copies) {
    if (copy.bytes == 0)
      return absl::InvalidArgumentError(
          model::cat(device, ": copies beside launches: one of 0 bytes, expected at least one byte"));
    if (absl::Status status = checkRange(device, "the arena", copy.device, copy.bytes, arenaBytes); !status.ok())
      return status;
    if (absl::Status status = checkRange(device, "the swap memory", copy.swap, copy.bytes, swapBytes); !status.ok())
      return status;
  }
  return absl::OkStatus();
}

absl::Status checkTicket(std::string_view device, uint64_t ticket, uint64_t given) {
  if (ticket >= 1 && ticket <= given)
    return absl::OkStatus();
  return absl::FailedPreconditionError(
      model::cat(device, ": copies beside launches: ticket ", ticket, " asked for, ", given, " were given"));
}

uint64_t CopyTickets::add(absl::Span<const BlockCopy> copies, const Counts &ended) {
  while (!ends_.empty() && reached(ended, ends_[ends_.first()]))
    ends_.giveUpBefore(ends_.first() + 1);
  for (const BlockCopy &copy : copies)
    ++asked_[copy.toDevice ? 1 : 0];
  return ends_.add(asked_) + 1;
}

CopyTickets::Counts CopyTickets::endOf(uint64_t ticket) const {
  return ticket <= ends_.first() ? Counts{} : ends_[ticket - 1];
}

bool CopyTickets::ended(uint64_t ticket, const Counts &ended) const { return reached(ended, endOf(ticket)); }

} // namespace headrace::core
