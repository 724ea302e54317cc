// SPDX-License-Identifier: Apache-2.0
#include "runtime/sim/BesideCopies.h"

#include <algorithm>

namespace headrace::sim {
namespace {

constexpr int64_t kEndedNs = 0; // of tickets that were given up

} // namespace

void BesideCopies::clear() {
  for (Row &row : rows_) {
    row.copies.clear();
    row.released = 0;
    row.left = 0;
  }
  tickets_.clear();
  lastEndNs_ = 0;
}

void BesideCopies::add(Row &row, const Copy &copy) {
  if (row.copies.empty())
    row.left = Progress{copy.timed.ns} * kFullRate;
  if (row.released == row.copies.next() && copy.readyNs != kUnknownNs)
    ++row.released;
  row.copies.add(copy);
}

uint64_t BesideCopies::ask(absl::Span<const core::BlockCopy> copies, const LinkRates &link, uint64_t after,
                           int64_t readyNs, int64_t nowNs) {
  while (!tickets_.empty() && tickets_[tickets_.first()].copies == 0 && tickets_[tickets_.first()].endNs <= nowNs)
    tickets_.giveUpBefore(tickets_.first() + 1);
  const uint64_t ticket = tickets_.add({.copies = copies.size()}) + 1;
  for (const core::BlockCopy &copy : copies)
    add(rows_[copy.toDevice ? 0 : 1], {timedCopy(copy.bytes, copy.toDevice, link), ticket, after, readyNs});
  return ticket;
}

void BesideCopies::launchEnded(uint64_t launches, int64_t endNs) {
  for (Row &row : rows_)
    for (; row.released != row.copies.next() && row.copies[row.released].after <= launches; ++row.released)
      row.copies[row.released].readyNs = endNs;
}

const int64_t &BesideCopies::endNs(uint64_t ticket) const {
  return ticket <= tickets_.first() ? kEndedNs : tickets_[ticket - 1].endNs;
}

void BesideCopies::endFront(size_t direction, int64_t endNs) {
  Row &row = rows_[direction];
  Ticket &of = tickets_[front(direction).ticket - 1];
  of.lastNs = std::max(of.lastNs, endNs);
  if (--of.copies == 0)
    of.endNs = of.lastNs;
  lastEndNs_ = std::max(lastEndNs_, endNs);
  row.copies.giveUpBefore(row.copies.first() + 1);
  if (!empty(direction))
    row.left = Progress{front(direction).timed.ns} * kFullRate;
}

BesideCopies::Rates BesideCopies::rates(const LaneRates &lanes, const LaneRates::AtWork &launch) const {
  const LaneRates::AtWork all = atWork(launch);
  const auto rate = [&](size_t d) { return lanes.of(d, all) / (launch[d] && !empty(d) ? 2 : 1); };
  return {rate(0), rate(1)};
}

void BesideCopies::endDone(int64_t nowNs) {
  for (size_t d = 0; d < 2; ++d)
    while (!empty(d) && rows_[d].left == 0)
      endFront(d, nowNs);
}

Progress BesideCopies::leastWait(const Rates &rates, Progress ns) const {
  for (size_t d = 0; d < 2; ++d)
    if (!empty(d))
      ns = std::min(ns, nsLeft(rows_[d].left, rates[d]));
  return ns;
}

void BesideCopies::pass(const Rates &rates, uint64_t ns) {
  for (size_t d = 0; d < 2; ++d)
    if (!empty(d))
      rows_[d].left -= std::min(rows_[d].left, Progress{rates[d]} * ns);
}

int64_t BesideCopies::playAlone(int64_t fromNs, int64_t toNs, const LaneRates &lanes, uint64_t ticket) {
  while (!idle()) {
    endDone(fromNs);
    if (fromNs >= toNs || idle() || (ticket != 0 && endNs(ticket) != kUnknownNs))
      break;
    const Rates at = rates(lanes, {});
    const auto wait = static_cast<int64_t>(leastWait(at, static_cast<Progress>(toNs - fromNs)));
    pass(at, static_cast<uint64_t>(wait));
    fromNs += wait;
  }
  return idle() && toNs != kNeverNs ? std::max(fromNs, toNs) : fromNs;
}

} // namespace headrace::sim
