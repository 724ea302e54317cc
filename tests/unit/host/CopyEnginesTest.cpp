// SPDX-License-Identifier: Apache-2.0
#include "runtime/host/CopyEngines.h"

#include <gtest/gtest.h>

#include <numeric>
#include <thread>
#include <vector>

namespace headrace::host {
namespace {

constexpr uint64_t kBytes = 3 * kChunkBytes - 5;

void double_(const void *args) {
  auto &values = *static_cast<std::vector<uint8_t> *const *>(args);
  for (uint8_t &value : *values)
    value = static_cast<uint8_t>(2 * value);
}

// A launch that brings bytes in, doubles them and takes them out; and brings others in behind them.
class DoublingGraph {
public:
  DoublingGraph() : host(kBytes), device(kBytes), out(kBytes), last(kBytes) {
    std::iota(host.begin(), host.end(), uint8_t{0});
    graph.lanes[1] = {copy(host, device, Counter::Compute, 0), copy(host, last, Counter::D2H, 1)};
    graph.lanes[2] = {copy(device, out, Counter::Compute, 1)};
    LaneStep doubling;
    doubling.kernel = kernels::wholeKernel<double_>();
    doubling.args = &doubled_;
    doubling.signals = true;
    LaneStep end = doubling;
    end.args = &none_;
    doubling.waitCount = end.waitCount = 1;
    doubling.waits[0] = {Counter::H2D, 1};
    end.waits[0] = {Counter::H2D, 2};
    graph.lanes[0] = {doubling, end};
  }
  void expectDone() const {
    for (size_t i = 0; i < kBytes; ++i) {
      ASSERT_EQ(out[i], static_cast<uint8_t>(2 * host[i])) << i;
      ASSERT_EQ(last[i], host[i]) << i;
    }
  }

  HostGraph graph;
  std::vector<uint8_t> host, device, out, last;

private:
  static LaneStep copy(std::vector<uint8_t> &from, std::vector<uint8_t> &to, Counter after, uint64_t threshold) {
    LaneStep step;
    step.kind = plan::StepKind::Copy;
    step.copy.source = reinterpret_cast<const std::byte *>(from.data());
    step.copy.destination = reinterpret_cast<std::byte *>(to.data());
    step.copy.bytes = kBytes;
    step.signals = true;
    step.waitCount = 1;
    step.waits[0] = {after, threshold};
    return step;
  }
  std::vector<uint8_t> nothing_;
  std::vector<uint8_t> *doubled_ = &device, *none_ = &nothing_;
};

void launch(Shared &shared, HostGraph &graph, uint64_t launches) {
  std::array<uint64_t, kHostLanes> ended{};
  for (uint64_t n = 0; n < launches; ++n) {
    Launch &next = shared.ring[n];
    next = {.graph = &graph, .base = ended, .end = ended, .launchedNs = threads::monotonicNs()};
    for (size_t lane = 0; lane < kHostLanes; ++lane)
      next.end[lane] += graph.lanes[lane].size() + 1;
    ended = next.end;
  }
  shared.signals.advance(Counter::Launched, launches);
}

// No thread but the compute lane's runs: a transfer thread that never gets its core.
void playWithoutTransferThread(const LinkSpeed *speed) {
  DoublingGraph doubling;
  Shared shared;
  CopyEngines engines(1, {});
  engines.attach(0, shared, speed);
  threads::ThreadPool pool(1, 1);
  shared.copies = &engines;
  shared.pool = &pool;
  launch(shared, doubling.graph, 2);
  std::thread compute(runComputeLane, std::ref(shared));
  shared.signals.wait(Thread::Caller, {Counter::Compute, shared.ring[1].end[0]});
  EXPECT_TRUE(shared.signals.reached({Counter::H2D, shared.ring[1].base[1] + 2})); // both copies of the second
  EXPECT_EQ(shared.h2dBytes, 4 * kBytes);
  EXPECT_EQ(shared.d2hBytes, 2 * kBytes);
  doubling.expectDone();
  shared.signals.advance(Counter::Launched, kStop);
  compute.join();
}

TEST(CopyEngines, AWaitingLaneDoesThePacedCopiesOfATransferThreadWithoutACore) {
  const LinkSpeed speed{.h2d = 4e9, .d2h = 4e9, .both = 6e9, .latencyNs = 1000};
  playWithoutTransferThread(&speed);
}

TEST(CopyEngines, AWaitingLaneDoesTheCopiesAtMemcpysSpeed) { playWithoutTransferThread(nullptr); }

bool takesOver(CopyEngines &engines) { // for a wait since ever
  const int64_t nextNs = engines.takeOver(0);
  return nextNs <= threads::monotonicNs();
}

// Nothing is late: the transfer thread's turn, and the lane looks again later.
TEST(CopyEngines, WhatIsNotLateIsLeftToTheTransferThread) {
  DoublingGraph doubling;
  Shared shared;
  const LinkSpeed slow{.h2d = 1e4, .d2h = 1e4, .both = 2e4}; // a chunk in 26 s
  CopyEngines engines(1, {});
  engines.attach(0, shared, &slow);
  launch(shared, doubling.graph, 1);
  std::vector<Signals::WantOf> wants;
  int64_t deadlineNs = 0;
  while (engines.step(wants, deadlineNs)) { // the first chunk is copied as it begins to cross
  }
  const int64_t now = threads::monotonicNs();
  EXPECT_GT(deadlineNs, now + 10'000'000'000);
  EXPECT_GT(engines.takeOver(0), deadlineNs);
  EXPECT_EQ(shared.h2dBytes, 0u);
}

// A counter that is reached is not late before the lane has waited for a while.
TEST(CopyEngines, ALaneGivesTheTransferThreadTimeToWake) {
  DoublingGraph doubling;
  Shared shared;
  CopyEngines engines(1, {});
  engines.attach(0, shared, nullptr);
  launch(shared, doubling.graph, 1); // not seen by the engines yet
  EXPECT_GT(engines.takeOver(threads::kNever / 2), threads::monotonicNs());
  EXPECT_FALSE(shared.signals.reached({Counter::H2D, 1}));
  for (int chunks = 0; chunks < 3; ++chunks)
    EXPECT_TRUE(takesOver(engines));
  EXPECT_TRUE(takesOver(engines)); // sees its end
  EXPECT_TRUE(shared.signals.reached({Counter::H2D, 1}));
}

// 256 KiB at 2^28 B/s: 976,562.5 ns, whenever the copy is looked at.
TEST(CopyEngines, ACopySeenLateHasBegunWhenTheLastThingItWaitsForHadHappened) {
  const std::vector<std::byte> from(kChunkBytes);
  std::vector<std::byte> to(kChunkBytes);
  HostGraph graph;
  LaneStep step, copy;
  step.signals = copy.signals = true;
  copy.kind = plan::StepKind::Copy;
  copy.copy.source = from.data();
  copy.copy.destination = to.data();
  copy.copy.bytes = kChunkBytes;
  copy.waitCount = 1;
  copy.waits[0] = {Counter::Compute, 1};
  graph.lanes[0] = {step};
  graph.lanes[1] = {copy};
  Shared shared;
  const LinkSpeed speed{.h2d = 1 << 28, .d2h = 1 << 28, .both = 1 << 29};
  CopyEngines engines(1, {});
  engines.attach(0, shared, &speed);
  std::array<uint64_t, kHostLanes> ended{};
  // Launches, plays the compute lane, and only then has the engines look; when the copy ended.
  const auto copyEnds = [&](uint64_t n, int64_t launchedNs, int64_t computedNs) {
    Launch &next = shared.ring[n];
    next = {
        .graph = &graph, .base = ended, .end = {ended[0] + 2, ended[1] + 2, ended[2] + 1}, .launchedNs = launchedNs};
    ended = next.end;
    graph.lanes[0][0].endedNs = computedNs;
    shared.signals.advance(Counter::Launched, n + 1);
    shared.signals.advance(Counter::Compute, next.end[0]);
    std::vector<Signals::WantOf> wants;
    int64_t deadlineNs = 0;
    while (!shared.signals.reached({Counter::H2D, next.end[1]}) || !shared.signals.reached({Counter::D2H, next.end[2]}))
      engines.step(wants, deadlineNs);
    return graph.lanes[1][0].endedNs;
  };
  const int64_t now = threads::monotonicNs() - 1'000'000'000;
  const auto expectEnd = [](int64_t ns, int64_t beganNs) {
    EXPECT_NEAR(static_cast<double>(ns - beganNs), 976'562.5, 1);
  };
  expectEnd(copyEnds(0, now, now + 50'000), now + 50'000);                   // the step
  expectEnd(copyEnds(1, now + 3'000'000, now + 10), now + 3'000'000);        // the launch
  expectEnd(copyEnds(2, now + 3'100'000, now + 3'100'000), now + 3'976'563); // the copy before
  shared.endedNs[0] = now + 9'000'000;
  expectEnd(copyEnds(3, now + 8'000'000, now + 10), now + 9'000'000); // the end of the launch before
}

} // namespace
} // namespace headrace::host
