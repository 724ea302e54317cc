// SPDX-License-Identifier: Apache-2.0
#include "runtime/sim/BesideCopies.h"

#include <algorithm>

namespace headrace::sim {
namespace {

constexpr size_t kFirstRing = 1024;
constexpr int64_t kEndedNs = 0; // of tickets that were given up

// The ring of numbers [first, next), with room for one more.
template <typename T> void makeRoom(std::vector<T> &ring, uint64_t first, uint64_t next) {
  if (next - first < ring.size())
    return;
  std::vector<T> larger(std::max(2 * ring.size(), kFirstRing));
  for (uint64_t n = first; n != next; ++n)
    larger[n % larger.size()] = ring[n % ring.size()];
  ring.swap(larger);
}

} // namespace

void BesideCopies::clear() {
  for (Row &row : rows_) {
    row.first = row.next = row.released = 0;
    row.left = 0;
  }
  oldest_ = next_ = 1;
  lastEndNs_ = 0;
}

void BesideCopies::add(Row &row, const Copy &copy) {
  makeRoom(row.ring, row.first, row.next);
  if (row.first == row.next)
    row.left = Progress{copy.timed.ns} * kFullRate;
  if (row.released == row.next && copy.readyNs != kUnknownNs)
    ++row.released;
  row.ring[row.next++ % row.ring.size()] = copy;
}

uint64_t BesideCopies::ask(absl::Span<const core::BlockCopy> copies, const LinkRates &link, uint64_t after,
                           int64_t readyNs, int64_t nowNs) {
  while (oldest_ != next_ && ticket(oldest_).copies == 0 && ticket(oldest_).endNs <= nowNs)
    ++oldest_;
  makeRoom(tickets_, oldest_, next_);
  ticket(next_) = {.copies = copies.size()};
  for (const core::BlockCopy &copy : copies)
    add(rows_[copy.toDevice ? 0 : 1], {timedCopy(copy.bytes, copy.toDevice, link), next_, after, readyNs});
  return next_++;
}

void BesideCopies::launchEnded(uint64_t launches, int64_t endNs) {
  for (Row &row : rows_)
    for (; row.released != row.next && at(row, row.released).after <= launches; ++row.released)
      row.ring[row.released % row.ring.size()].readyNs = endNs;
}

const int64_t &BesideCopies::endNs(uint64_t number) const {
  return number < oldest_ ? kEndedNs : tickets_[number % tickets_.size()].endNs;
}

void BesideCopies::endFront(size_t direction, int64_t endNs) {
  Row &row = rows_[direction];
  Ticket &of = ticket(front(direction).ticket);
  of.lastNs = std::max(of.lastNs, endNs);
  if (--of.copies == 0)
    of.endNs = of.lastNs;
  lastEndNs_ = std::max(lastEndNs_, endNs);
  ++row.first;
  if (!empty(direction))
    row.left = Progress{front(direction).timed.ns} * kFullRate;
}

int64_t BesideCopies::playAlone(int64_t fromNs, int64_t toNs, uint64_t bothRate, uint64_t ticket) {
  while (!idle()) {
    for (size_t d = 0; d < 2; ++d)
      while (!empty(d) && left(d) == 0)
        endFront(d, fromNs);
    if (fromNs >= toNs || idle() || (ticket != 0 && endNs(ticket) != kUnknownNs))
      break;
    const uint64_t rate = rateBeside(bothRate, !empty(0) && !empty(1), false);
    int64_t wait = toNs - fromNs;
    for (size_t d = 0; d < 2; ++d)
      if (!empty(d))
        wait = static_cast<int64_t>(std::min<Progress>(static_cast<Progress>(wait), (left(d) + rate - 1) / rate));
    fromNs += wait;
    for (size_t d = 0; d < 2; ++d)
      if (!empty(d))
        left(d) -= std::min(left(d), Progress{rate} * static_cast<uint64_t>(wait));
  }
  return idle() && toNs != kNeverNs ? std::max(fromNs, toNs) : fromNs;
}

} // namespace headrace::sim
