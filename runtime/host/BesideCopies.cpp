// SPDX-License-Identifier: Apache-2.0
#include "runtime/host/BesideCopies.h"

#include <algorithm>
#include <cstring>

#include "runtime/host/Lanes.h"

namespace headrace::host {

void BesideRow::add(const BesideCopy &copy) {
  const std::scoped_lock lock(mutex_);
  copies_.add(copy);
}

BesideCopy BesideRow::at(uint64_t number) const {
  const std::scoped_lock lock(mutex_);
  return copies_[number];
}

void BesideRow::giveUpBefore(uint64_t number) {
  const std::scoped_lock lock(mutex_);
  copies_.giveUpBefore(number);
}

BesideEngine::BesideEngine(Shared &shared, Direction direction, Bus *bus, uint32_t link)
    : s_(shared), direction_(direction), bus_(bus), link_(link) {}

bool BesideEngine::advance() {
  bool acted = false;
  for (;;) {
    if (copying_) {
      if (copyChunk())
        return true;
      if (!ended())
        return acted;
      end();
    } else if (!begin()) {
      return acted;
    }
    acted = true;
  }
}

void BesideEngine::addWaits(std::array<uint64_t, kCounters> &wanted, int64_t &deadlineNs) const {
  if (copying_) {
    deadlineNs =
        bus_ == nullptr ? 0 : std::min(deadlineNs, bus_->arrivalNs(link_, direction_, copied_, CopyRow::Beside));
    return;
  }
  uint64_t &threshold = wanted[static_cast<size_t>(blockedOn_.counter)];
  threshold = std::min(threshold, blockedOn_.threshold);
}

bool BesideEngine::reached(const Want &want) {
  blockedOn_ = want;
  return s_.signals.reached(want);
}

bool BesideEngine::begin() {
  if (!reached({besideAsked(direction_), ended_ + 1}))
    return false;
  now_ = s_.beside[static_cast<size_t>(direction_)].at(ended_);
  readyNs_ = std::max(readyNs_, now_.askedNs);
  for (size_t lane = 0; lane < kHostLanes; ++lane) {
    if (!reached({static_cast<Counter>(lane), now_.after[lane]}))
      return false;
    readyNs_ = std::max(readyNs_, s_.endedNs[lane].load(std::memory_order_relaxed));
  }
  copying_ = true;
  copied_ = 0;
  if (bus_ != nullptr)
    bus_->start(link_, direction_, now_.copy.bytes, readyNs_, CopyRow::Beside);
  return true;
}

// A chunk is copied while it crosses the link, as CopyEngine has it.
bool BesideEngine::copyChunk() {
  if (copied_ == now_.copy.bytes)
    return false;
  if (bus_ != nullptr) {
    const int64_t now = threads::monotonicNs();
    bus_->advance(now);
    if (bus_->arrivalNs(link_, direction_, copied_, CopyRow::Beside) > now)
      return false;
  }
  const uint64_t bytes = std::min(kChunkBytes, now_.copy.bytes - copied_);
  std::byte *const device = s_.bases.device + now_.copy.device + copied_;
  std::byte *const swap = s_.swap + now_.copy.swap + copied_;
  if (direction_ == Direction::HostToDevice)
    std::memcpy(device, swap, bytes);
  else
    std::memcpy(swap, device, bytes);
  copied_ += bytes;
  return true;
}

bool BesideEngine::ended() {
  if (copied_ < now_.copy.bytes) // they may have arrived since copyChunk() looked
    return false;
  if (bus_ == nullptr)
    return true;
  bus_->advance(threads::monotonicNs());
  return bus_->ended(link_, direction_, CopyRow::Beside);
}

void BesideEngine::end() {
  if (bus_ != nullptr) {
    bus_->takeEnd(link_, direction_, CopyRow::Beside);
    readyNs_ = bus_->arrivalNs(link_, direction_, now_.copy.bytes, CopyRow::Beside);
  }
  (direction_ == Direction::HostToDevice ? s_.h2dBytes : s_.d2hBytes)
      .fetch_add(now_.copy.bytes, std::memory_order_relaxed);
  copying_ = false;
  s_.beside[static_cast<size_t>(direction_)].giveUpBefore(++ended_);
  s_.signals.advance(besideEnded(direction_), ended_);
}

} // namespace headrace::host
