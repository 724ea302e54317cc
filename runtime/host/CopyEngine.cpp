// SPDX-License-Identifier: Apache-2.0
#include "runtime/host/CopyEngine.h"

#include <algorithm>

namespace headrace::host {
namespace {

// How long before its end a copy is announced: twice the 10 us that an idle core of a virtual machine takes to wake
// (the transfer thread's, then the waiter's), and some more. The waiter then spins for what is left.
constexpr int64_t kAnnounceNs = 30'000;

} // namespace

CopyEngine::CopyEngine(Shared &shared, Direction direction, Bus *bus, uint32_t link)
    : s_(shared), direction_(direction), lane_(direction == Direction::HostToDevice ? 1 : 2),
      counter_(static_cast<Counter>(lane_)), bytes_(lane_ == 1 ? shared.h2dBytes : shared.d2hBytes), bus_(bus),
      link_(link) {}

bool CopyEngine::advance() {
  bool acted = false;
  for (;;) {
    if (copying_) {
      if (copyChunk())
        return true;
      if (!ended()) {
        announceEnd();
        return acted;
      }
      if (bus_ != nullptr)
        bus_->takeEnd(link_, direction_); // and starts the next copy before time goes on, if it can
      endStep(bus_ != nullptr ? bus_->arrivalNs(link_, direction_, size_) : threads::monotonicNs());
    } else if (!begin()) {
      return acted;
    }
    acted = true;
  }
}

void CopyEngine::addWaits(std::array<uint64_t, kCounters> &wanted, int64_t &deadlineNs) const {
  if (copying_) {
    if (bus_ == nullptr) { // between two chunks
      deadlineNs = 0;
      return;
    }
    int64_t ns = bus_->arrivalNs(link_, direction_, copied_);
    if (copied_ == size_)
      ns -= !announced_ ? kAnnounceNs : ns - threads::monotonicNs() > kLongSpinNs ? kLongSpinNs : 0;
    deadlineNs = std::min(deadlineNs, ns);
    return;
  }
  uint64_t &threshold = wanted[static_cast<size_t>(blockedOn_.counter)];
  threshold = std::min(threshold, blockedOn_.threshold);
}

bool CopyEngine::reached(const Want &want) {
  blockedOn_ = want;
  return s_.signals.reached(want);
}

// Enters the next launch, ends one that has no more steps, or starts the next copy. False if that has to wait.
bool CopyEngine::begin() {
  if (!inLaunch_) {
    if (!reached({Counter::Launched, launches_ + 1}) || s_.signals.value(Counter::Launched) >= kStop)
      return false;
    for (size_t lane = 0; lane < kHostLanes; ++lane)
      if (!reached({static_cast<Counter>(lane), launch().base[lane]}))
        return false;
    readyNs_ = std::max(readyNs_, launch().launchedNs);
    for (const std::atomic<int64_t> &endedNs : s_.endedNs)
      readyNs_ = std::max(readyNs_, endedNs.load(std::memory_order_relaxed));
    inLaunch_ = true;
    next_ = 0;
    return true;
  }
  if (next_ == steps().size()) {
    s_.endedNs[lane_].store(readyNs_, std::memory_order_relaxed);
    s_.signals.advance(counter_, launch().end[lane_]);
    ++launches_;
    inLaunch_ = false;
    return true;
  }
  for (uint8_t w = 0; w < step().waitCount; ++w) {
    const Want &want = step().waits[w];
    if (!reached({want.counter, launch().base[static_cast<size_t>(want.counter)] + want.threshold}))
      return false;
    if (want.threshold > 0)
      readyNs_ =
          std::max(readyNs_, launch().graph->lanes[static_cast<size_t>(want.counter)][want.threshold - 1].endedNs);
  }
  startNs_ = readyNs_; // the link has been this copy's since then
  copying_ = true;
  announced_ = false;
  const core::CopyRun run = step().copy.runIn(launch().inUse);
  from_ = run.offset;
  size_ = run.bytes;
  copied_ = 0;
  if (bus_ != nullptr)
    bus_->start(link_, direction_, size_, startNs_);
  return true;
}

// A chunk is copied while it crosses the link: once its first byte would have arrived.
bool CopyEngine::copyChunk() {
  if (copied_ == size_)
    return false;
  if (bus_ != nullptr) {
    const int64_t now = threads::monotonicNs();
    bus_->advance(now);
    if (bus_->arrivalNs(link_, direction_, copied_) > now)
      return false;
  }
  const uint64_t bytes = std::min(kChunkBytes, size_ - copied_);
  core::copyPart(step().copy, from_ + copied_, bytes);
  copied_ += bytes;
  return true;
}

bool CopyEngine::ended() {
  if (copied_ < size_)
    return false;
  if (bus_ == nullptr)
    return true;
  bus_->advance(threads::monotonicNs());
  return bus_->ended(link_, direction_);
}

void CopyEngine::announceEnd() {
  if (announced_ || bus_->arrivalNs(link_, direction_, size_) - threads::monotonicNs() > kAnnounceNs)
    return;
  announced_ = true;
  if (step().signals)
    s_.signals.announce(counter_, launch().base[lane_] + next_ + 1);
}

void CopyEngine::endStep(int64_t endNs) {
  LaneStep &s = step();
  readyNs_ = s.endedNs = endNs;
  bytes_.fetch_add(size_, std::memory_order_relaxed);
  if (s_.trace) { // seen a little after it happened, and so that copies do not overlap
    const int64_t seenNs = threads::monotonicNs();
    launch().graph->times[s.step] = {std::max(startNs_, previousSeenNs_), seenNs};
    previousSeenNs_ = s.endedNs = seenNs;
  }
  copying_ = false;
  ++next_;
  if (s.signals)
    s_.signals.advance(counter_, launch().base[lane_] + next_);
}

} // namespace headrace::host
