// SPDX-License-Identifier: Apache-2.0
//
// What every device must do with copies whose size a launch chooses: here blocks [4, 20) of 1 KiB of the caches of four
// layers (KvCopies.h), so that the least that is copied, 256 bytes, are four 256ths, and so many blocks in use below 20
// are so many KiB.
#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/core/GraphSteps.h"
#include "runtime/core/MetaWriter.h"
#include "tests/conformance/DevicesUnderTest.h"
#include "tests/support/KvCopies.h"
#include "tests/support/TinyPlan.h"

namespace headrace::core {
namespace {

constexpr int64_t kLayers = 4;
constexpr uint64_t kBlock = 1024, kAll = 16 * kBlock;

class SizedCopies : public testing::TestWithParam<DeviceUnderTest> {
protected:
  SizedCopies() : device_(GetParam().make()) {}

  void open(bool interleaved, bool trace = false) {
    plan_ = tinyPlan({.spec = tinyLlama(kLayers), .offloaded = {1, 3}, .kind = GetParam().plansFor});
    copies_ = {.interleaved = interleaved};
    const uint64_t begin = plan_.arenaBytes;
    addKvCopies(plan_, copies_);
    written_.assign(plan_.arenaBytes - begin, std::byte{0});
    ASSERT_EQ(plan_.kvBlockBytes(), kBlock);
    const absl::Status status = device_->open(plan_, {.trace = trace});
    ASSERT_TRUE(status.ok()) << status;
    variant_ = ready({.transition = false, .index = 0});
    transition_ = ready({.transition = true, .index = 0});
    clear();
  }
  Graph *ready(const GraphKey &key) {
    auto graph = device_->build(key);
    EXPECT_TRUE(graph.ok()) << graph.status();
    graphs_.push_back(*std::move(graph));
    const absl::Status status = device_->upload(*graphs_.back());
    EXPECT_TRUE(status.ok()) << status;
    return graphs_.back().get();
  }
  // The host's blocks are there, the device's are zeros.
  void clear() {
    if (!device_->holdsData())
      return;
    for (int64_t layer = 0; layer < kLayers; ++layer)
      for (uint64_t i = 0; i < kAll; ++i)
        device_->hostSlab()[copies_.host[static_cast<size_t>(layer)] + i] = value(layer, i);
    const absl::Status status =
        device_->writeDevice(plan_.arenaBytes - written_.size(), std::vector<std::byte>(written_.size()));
    ASSERT_TRUE(status.ok()) << status;
  }
  // Of a layer's blocks; neither zero nor poison.
  static std::byte value(int64_t layer, uint64_t i) {
    return static_cast<std::byte>(1 + (i + 61 * static_cast<uint64_t>(layer)) % 250);
  }
  void launch(const InUse &inUse) {
    const int32_t token = 1, block = 1;
    const SequenceRows rows{.tokens = {&token, 1}, .blocks = {&block, 1}, .sample = true};
    absl::Status status = writeMeta(plan_.metaLayout, plan_.blockTokens, {&rows, 1}, device_->meta());
    ASSERT_TRUE(status.ok()) << status;
    status = device_->launch(*variant_, inUse);
    ASSERT_TRUE(status.ok()) << status;
  }
  // `sizes`: bytes of each layer's copy, of the launches since `before`; and what the variant copies beside.
  void expectMoved(const DeviceCounters &before, std::initializer_list<uint64_t> sizes, uint64_t iterations) {
    ASSERT_TRUE(device_->drain().ok());
    uint64_t h2d = iterations * (plan::linkBytes(plan_.schedules[0]).h2d - kLayers * kAll);
    for (const uint64_t size : sizes)
      h2d += kLayers * size;
    EXPECT_EQ(device_->counters().h2dBytes - before.h2dBytes, h2d);
  }
  // Of each layer exactly the first `bytes` have arrived, one run or blocks of all layers in turn.
  void expectArrived(uint64_t bytes) {
    if (!device_->holdsData())
      return;
    const uint64_t begin = plan_.arenaBytes - written_.size();
    ASSERT_TRUE(device_->readDevice(begin, absl::MakeSpan(written_)).ok());
    for (int64_t layer = 0; layer < kLayers; ++layer)
      for (uint64_t i = 0; i < kAll; ++i) {
        const uint64_t at = copies_.device[static_cast<size_t>(layer)] - begin +
                            (copies_.interleaved ? i / kBlock * kLayers * kBlock + i % kBlock : i);
        ASSERT_EQ(written_[at] == value(layer, i), i < bytes) << "layer " << layer << ", byte " << i;
      }
  }

  plan::Plan plan_;
  KvCopies copies_;
  std::vector<std::byte> written_; // the last of the arena, which the copies write
  std::vector<std::unique_ptr<Graph>> graphs_;
  std::shared_ptr<Device> device_;
  Graph *variant_ = nullptr, *transition_ = nullptr;
};

TEST_P(SizedCopies, AreAllWhereNothingElseIsSaid) {
  open(/*interleaved=*/false);
  const DeviceCounters before = device_->counters();
  launch({});
  expectMoved(before, {kAll}, 1);
  expectArrived(kAll);
  EXPECT_EQ(device_->counters().sizesSet, 0u);
}

TEST_P(SizedCopies, OfTwoLaunchesInFlightEachKeepsItsOwn) {
  open(/*interleaved=*/false);
  DeviceCounters before = device_->counters();
  launch({.kvBlocks = 15}); // 11 of 16 blocks
  launch({.kvBlocks = 9});  // 5
  expectMoved(before, {11 * kBlock, 5 * kBlock}, 2);
  expectArrived((GetParam().keepsData ? 11 : 5) * kBlock);
  clear();
  before = device_->counters();
  launch({.kvBlocks = 9});
  launch({.kvBlocks = 15});
  expectMoved(before, {5 * kBlock, 11 * kBlock}, 2);
  expectArrived(11 * kBlock);
}

TEST_P(SizedCopies, AreNeitherNothingNorMoreThanThePlanSays) {
  open(/*interleaved=*/false);
  for (const int64_t kvBlocks : {int64_t{0}, int64_t{4}, int64_t{-1}}) {
    clear();
    const DeviceCounters before = device_->counters();
    launch({.kvBlocks = kvBlocks});
    expectMoved(before, {256}, 1);
    expectArrived(256);
  }
  for (const int64_t kvBlocks : {int64_t{20}, int64_t{21}, int64_t{1} << 62}) {
    clear();
    const DeviceCounters before = device_->counters();
    launch({.kvBlocks = kvBlocks});
    expectMoved(before, {kAll}, 1);
    expectArrived(kAll);
  }
}

TEST_P(SizedCopies, OfTransitionsToo) {
  open(/*interleaved=*/false);
  const DeviceCounters before = device_->counters();
  ASSERT_TRUE(device_->launch(*transition_, InUse{.kvBlocks = 12}).ok()); // 8 of 16 blocks
  ASSERT_TRUE(device_->launch(*transition_, InUse{.kvBlocks = 5}).ok());  // 1
  expectMoved(before, {8 * kBlock, 1 * kBlock}, 0);
  expectArrived((GetParam().keepsData ? 8 : 1) * kBlock);
}

TEST_P(SizedCopies, InterleavedBlocksArriveBetweenThoseOfOtherLayers) {
  open(/*interleaved=*/true);
  DeviceCounters before = device_->counters();
  launch({});
  expectMoved(before, {kAll}, 1);
  expectArrived(kAll);
  clear();
  before = device_->counters();
  launch({.kvBlocks = 9});
  launch({.kvBlocks = 0});
  const uint64_t five = GetParam().sizesRows ? 5 * kBlock : kAll, least = GetParam().sizesRows ? kBlock : kAll;
  expectMoved(before, {five, least}, 2);
  expectArrived(five);
  clear();
  before = device_->counters();
  ASSERT_TRUE(device_->launch(*transition_, InUse{.kvBlocks = 9}).ok());
  expectMoved(before, {five}, 0);
  expectArrived(five);
}

#if !defined(HEADRACE_EMULATED_TESTS) && !defined(HEADRACE_STAND_IN_TESTS)
// Times are exact where they are made up.
class SizedCopiesInVirtualTime : public SizedCopies {};

// A microsecond of latency and a nanosecond a byte.
TEST_P(SizedCopiesInVirtualTime, TakeAsLongAsTheirBytesDo) {
  open(/*interleaved=*/false, /*trace=*/true);
  for (const auto &[kvBlocks, bytes] : {std::pair<int64_t, int64_t>{4, 256}, {9, 5 * 1024}, {100, 16 * 1024}}) {
    launch({.kvBlocks = kvBlocks});
    ASSERT_TRUE(device_->drain().ok());
    for (size_t layer = 0; layer < kLayers; ++layer) {
      const StepTime &time = device_->lastTimes()[layer];
      EXPECT_EQ(time.endNs - time.startNs, 1000 + bytes) << kvBlocks;
    }
  }
}

TEST_P(SizedCopiesInVirtualTime, InFlightTakeTheTimesOfOneByOne) {
  const auto visible = [&](bool oneByOne) {
    open(/*interleaved=*/false);
    const int64_t startNs = device_->nowNs();
    std::vector<int64_t> times;
    const auto await = [&](uint64_t n) {
      EXPECT_TRUE(device_->awaitTokens(n).ok());
      times.push_back(device_->tokensVisibleNs(n) - startNs);
    };
    uint64_t n = 0;
    for (const int64_t kvBlocks : {20, 5, 9, 9, 0, 100}) {
      launch({.kvBlocks = kvBlocks});
      if (++n > 1 && !oneByOne)
        await(n - 1);
      if (oneByOne)
        await(n);
    }
    if (!oneByOne)
      await(n);
    return times;
  };
  const std::vector<int64_t> apart = visible(true);
  EXPECT_EQ(visible(false), apart);
  EXPECT_EQ(apart.size(), 6u);
}

INSTANTIATE_TEST_SUITE_P(Devices, SizedCopiesInVirtualTime, testing::ValuesIn(devicesInVirtualTime()),
                         [](const auto &info) { return std::string(info.param.name); });
#endif

// Where graphs hold sizes: four copies each time they are others than those of the graph's launch before.
TEST_P(SizedCopies, AreSetWhereTheyHaveChanged) {
  open(/*interleaved=*/false);
  const bool held = GetParam().plansFor == model::DeviceKind::Cuda;
  uint64_t changes = 0;
  for (const auto &[kvBlocks, changed] :
       {std::pair{20, false}, {9, true}, {9, false}, {10, true}, {4, true}, {0, false}, {30, true}, {20, false}}) {
    launch({.kvBlocks = kvBlocks});
    changes += changed;
    EXPECT_EQ(device_->counters().sizesSet, held ? kLayers * changes : 0) << kvBlocks;
  }
  ASSERT_TRUE(device_->launch(*transition_, {}).ok()); // another graph
  EXPECT_EQ(device_->counters().sizesSet, held ? kLayers * changes : 0);
  ASSERT_TRUE(device_->drain().ok());
}

INSTANTIATE_TEST_SUITE_P(Devices, SizedCopies, testing::ValuesIn(kDevices),
                         [](const auto &info) { return std::string(info.param.name); });

} // namespace
} // namespace headrace::core
