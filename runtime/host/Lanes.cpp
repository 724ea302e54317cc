// SPDX-License-Identifier: Apache-2.0
#include "runtime/host/Lanes.h"

#include <sys/prctl.h>

#include <algorithm>
#include <cstring>

namespace headrace::host {
namespace {

// Every byte 0xff: a NaN as F32, F16 and BF16.
constexpr int kPoisonByte = 0xff;

// How long before its end a copy is announced: twice the 10 us that an idle core of a virtual machine takes to wake
// (the transfer thread's, then the waiter's), and some more. The waiter then spins for what is left.
constexpr int64_t kAnnounceNs = 30'000;

class ComputeLane {
public:
  explicit ComputeLane(Shared &shared) : s_(shared) {}

  void run() {
    for (uint64_t n = 0;; ++n) {
      s_.signals.wait(Thread::Compute, {Counter::Launched, n + 1});
      if (s_.signals.value(Counter::Launched) >= kStop)
        return;
      runLaunch(s_.ring[n % kRing]);
    }
  }

private:
  void runLaunch(const Launch &launch) {
    HostGraph &graph = *launch.graph;
    waitFor({Counter::H2D, launch.base[1]});
    waitFor({Counter::D2H, launch.base[2]});
    for (uint32_t i = 0; i < graph.poisonBefore; ++i)
      poison(graph.poison[i]);
    if (launch.staging != nullptr)
      std::memcpy(static_cast<void *>(s_.meta), launch.staging, s_.metaBytes);
    uint64_t ended = launch.base[0];
    for (const LaneStep &step : graph.lanes[0]) {
      for (uint8_t w = 0; w < step.waitCount; ++w) {
        const Want &want = step.waits[w];
        waitFor({want.counter, launch.base[static_cast<size_t>(want.counter)] + want.threshold});
      }
      const int64_t start = s_.trace ? monotonicNs() : 0;
      execute(step);
      if (s_.trace)
        graph.times[step.step] = {start, monotonicNs()};
      ++ended;
      if (step.signals)
        s_.signals.advance(Counter::Compute, ended);
      for (uint32_t i = 0; i < step.poisonCount; ++i)
        poison(graph.poison[step.firstPoison + i]);
    }
    s_.signals.advance(Counter::Compute, launch.end[0]);
  }

  void execute(const LaneStep &step) {
    switch (step.kind) {
    case plan::StepKind::Compute:
      step.kernel(step.args);
      if (step.directRowBytes != 0)
        s_.h2dBytes.fetch_add(step.directRowBytes * static_cast<uint64_t>(s_.meta->numTokens),
                              std::memory_order_relaxed);
      break;
    case plan::StepKind::Copy: // debug mode only; else the transfer thread's
      std::memcpy(step.destination, step.source, step.bytes);
      (step.lane == plan::Lane::H2D ? s_.h2dBytes : s_.d2hBytes).fetch_add(step.bytes, std::memory_order_relaxed);
      break;
    case plan::StepKind::Publish:
      publish();
      break;
    }
  }

  void publish() {
    TokenSlot &slot = s_.tokens[s_.meta->iteration % kTokenSlots];
    slot.count = s_.meta->numSampled;
    std::copy_n(s_.output, slot.count, slot.tokens.begin());
    slot.iteration = s_.meta->iteration;
    slot.visibleNs = monotonicNs();
    s_.signals.advance(Counter::Published, s_.meta->iteration);
  }

  void waitFor(const Want &want) {
    if (const int64_t ns = s_.signals.wait(Thread::Compute, want); ns != 0)
      s_.stallNs.fetch_add(ns, std::memory_order_relaxed);
  }

  void poison(const ByteRange &range) {
    std::memset(s_.bases.device + range.begin, kPoisonByte, range.end - range.begin);
  }

  Shared &s_;
};

// One direction of a link: an in-order queue of copies.
class Engine {
public:
  Engine(Shared &shared, Direction direction, Bus *bus, uint32_t link)
      : s_(shared), direction_(direction), lane_(direction == Direction::HostToDevice ? 1 : 2),
        counter_(static_cast<Counter>(lane_)), bytes_(lane_ == 1 ? shared.h2dBytes : shared.d2hBytes), bus_(bus),
        link_(link) {}

  // Goes as far as it can without waiting, but copies at most one chunk. False if it did nothing.
  bool advance() {
    bool acted = false;
    for (;;) {
      if (copying_) {
        if (copyChunk())
          return true;
        if (!ended()) {
          announceEnd();
          return acted;
        }
        endStep(bus_ != nullptr ? bus_->arrivalNs(link_, direction_, step().bytes) : monotonicNs());
      } else if (!begin()) {
        return acted;
      }
      acted = true;
    }
  }

  // What it waits for when advance() has done nothing: a counter, or the time of the next bytes. For the end of a copy
  // it wakes early enough to announce it, and to spin at the end.
  void addWaits(std::array<uint64_t, kCounters> &wanted, int64_t &deadlineNs) const {
    if (copying_) {
      int64_t ns = bus_->arrivalNs(link_, direction_, copied_);
      if (copied_ == step().bytes)
        ns -= !announced_ ? kAnnounceNs : ns - monotonicNs() > kLongSpinNs ? kLongSpinNs : 0;
      deadlineNs = std::min(deadlineNs, ns);
      return;
    }
    uint64_t &threshold = wanted[static_cast<size_t>(blockedOn_.counter)];
    threshold = std::min(threshold, blockedOn_.threshold);
  }

private:
  const Launch &launch() const { return s_.ring[launches_ % kRing]; }
  const std::vector<LaneStep> &steps() const { return launch().graph->lanes[lane_]; }
  const LaneStep &step() const { return steps()[next_]; }

  bool reached(const Want &want) {
    blockedOn_ = want;
    const bool yes = s_.signals.reached(want);
    follows_ &= yes;
    return yes;
  }

  // Enters the next launch, ends one that has no more steps, or starts the next copy. False if that has to wait.
  bool begin() {
    if (!inLaunch_) {
      if (!reached({Counter::Launched, launches_ + 1}) || s_.signals.value(Counter::Launched) >= kStop)
        return false;
      for (size_t lane = 0; lane < kHostLanes; ++lane)
        if (!reached({static_cast<Counter>(lane), launch().base[lane]}))
          return false;
      inLaunch_ = true;
      next_ = 0;
      return true;
    }
    if (next_ == steps().size()) {
      s_.signals.advance(counter_, launch().end[lane_]);
      ++launches_;
      inLaunch_ = false;
      return true;
    }
    for (uint8_t w = 0; w < step().waitCount; ++w) {
      const Want &want = step().waits[w];
      if (!reached({want.counter, launch().base[static_cast<size_t>(want.counter)] + want.threshold}))
        return false;
    }
    // If nothing else has held it up, the link has been this copy's from the end of the one before.
    startNs_ = follows_ ? previousEndNs_ : monotonicNs();
    copying_ = true;
    announced_ = false;
    copied_ = 0;
    if (bus_ != nullptr)
      bus_->start(link_, direction_, step().bytes, startNs_);
    return true;
  }

  // A chunk is copied while it crosses the link: once its first byte would have arrived.
  bool copyChunk() {
    const LaneStep &s = step();
    if (copied_ == s.bytes)
      return false;
    if (bus_ != nullptr) {
      const int64_t now = monotonicNs();
      bus_->advance(now);
      if (bus_->arrivalNs(link_, direction_, copied_) > now)
        return false;
    }
    const uint64_t bytes = std::min(kChunkBytes, s.bytes - copied_);
    std::memcpy(s.destination + copied_, s.source + copied_, bytes);
    copied_ += bytes;
    return true;
  }

  bool ended() {
    const LaneStep &s = step();
    if (copied_ < s.bytes)
      return false;
    if (bus_ == nullptr)
      return true;
    const int64_t now = monotonicNs();
    bus_->advance(now);
    return bus_->arrivalNs(link_, direction_, s.bytes) <= now;
  }

  void announceEnd() {
    if (announced_ || bus_->arrivalNs(link_, direction_, step().bytes) - monotonicNs() > kAnnounceNs)
      return;
    announced_ = true;
    if (step().signals)
      s_.signals.announce(counter_, launch().base[lane_] + next_ + 1);
  }

  void endStep(int64_t endNs) {
    const LaneStep &s = step();
    bytes_.fetch_add(s.bytes, std::memory_order_relaxed);
    if (s_.trace) { // seen a little after it happened, and so that copies do not overlap
      const int64_t seenNs = monotonicNs();
      launch().graph->times[s.step] = {std::max(startNs_, previousSeenNs_), seenNs};
      previousSeenNs_ = seenNs;
    }
    follows_ = true;
    previousEndNs_ = endNs;
    copying_ = false;
    ++next_;
    if (s.signals)
      s_.signals.advance(counter_, launch().base[lane_] + next_);
  }

  Shared &s_;
  const Direction direction_;
  const size_t lane_;
  const Counter counter_;
  std::atomic<uint64_t> &bytes_;
  Bus *bus_;
  const uint32_t link_;

  uint64_t launches_ = 0; // ended
  bool inLaunch_ = false;
  size_t next_ = 0; // step
  bool copying_ = false;
  bool announced_ = false; // that it will soon have ended
  uint64_t copied_ = 0;
  int64_t startNs_ = 0;
  bool follows_ = false; // nothing but the copy before has held up the next one
  int64_t previousEndNs_ = 0, previousSeenNs_ = 0;
  Want blockedOn_{Counter::Launched, 0};
};

} // namespace

void runComputeLane(Shared &shared) { ComputeLane(shared).run(); }

void runTransferLanes(Shared &shared, const LinkSpeed *speed) {
  // Deadlines are in microseconds; the default slack of timers is 50.
  (void)prctl(PR_SET_TIMERSLACK, 1);
  Bus bus;
  const uint32_t link = speed != nullptr ? bus.addLink(*speed) : 0;
  Bus *pacing = speed != nullptr ? &bus : nullptr;
  std::array<Engine, 2> engines = {Engine(shared, Direction::HostToDevice, pacing, link),
                                   Engine(shared, Direction::DeviceToHost, pacing, link)};
  while (shared.signals.value(Counter::Launched) < kStop) {
    bool acted = false;
    for (Engine &engine : engines)
      acted |= engine.advance();
    if (acted)
      continue;
    std::array<uint64_t, kCounters> wanted;
    wanted.fill(kNever);
    int64_t deadlineNs = kNever;
    for (const Engine &engine : engines)
      engine.addWaits(wanted, deadlineNs);
    std::array<Want, kCounters> wants;
    size_t count = 0;
    for (size_t c = 0; c < kCounters; ++c)
      if (wanted[c] != kNever)
        wants[count++] = {static_cast<Counter>(c), wanted[c]};
    shared.signals.waitAny(Thread::Transfer, {wants.data(), count}, deadlineNs);
  }
}

} // namespace headrace::host
