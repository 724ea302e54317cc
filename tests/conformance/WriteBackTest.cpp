// SPDX-License-Identifier: Apache-2.0
//
// What every device must do with copies to the host whose size, or start and size, a launch chooses: as
// SizedCopiesTest.cpp, blocks [4, 20) of 1 KiB of the caches of four layers, which a launch brings and copies back to
// another place. Four 256ths are the least that is copied, 256 bytes.
#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/core/InUse.h"
#include "runtime/core/MetaWriter.h"
#include "tests/conformance/DevicesUnderTest.h"
#include "tests/support/KvCopies.h"
#include "tests/support/TinyPlan.h"

namespace headrace::core {
namespace {

constexpr uint64_t kBlock = 1024, kAll = 16 * kBlock;
constexpr CopyRun blocks(uint64_t first, uint64_t count) { return {(first - 4) * kBlock, count * kBlock}; }

class WriteBack : public testing::TestWithParam<DeviceUnderTest> {
protected:
  WriteBack() : device_(GetParam().make()) {}

  struct Options {
    bool trace = false;
    double duplexBandwidth = 2e9; // both directions at their own rates
    int64_t layers = 4;
  };
  void open(CopiedBack back, const Options &options) {
    layers_ = options.layers;
    plan_ = tinyPlan({.spec = tinyLlama(layers_), .kind = GetParam().plansFor});
    plan_.hardware.duplexBandwidth = options.duplexBandwidth;
    copies_ = {.back = back};
    addKvCopies(plan_, copies_);
    ASSERT_EQ(plan_.kvBlockBytes(), kBlock);
    const absl::Status status = device_->open(plan_, {.trace = options.trace});
    ASSERT_TRUE(status.ok()) << status;
    variant_ = ready({.transition = false, .index = 0});
    transition_ = ready({.transition = true, .index = 0});
    clear();
  }
  void open(CopiedBack back) { open(back, {}); }
  Graph *ready(const GraphKey &key) {
    auto graph = device_->build(key);
    EXPECT_TRUE(graph.ok()) << graph.status();
    graphs_.push_back(*std::move(graph));
    const absl::Status status = device_->upload(*graphs_.back());
    EXPECT_TRUE(status.ok()) << status;
    return graphs_.back().get();
  }
  // What is brought is there, where it goes back to are zeros.
  void clear() {
    for (int64_t layer = 0; layer < layers_ && device_->holdsData(); ++layer)
      for (uint64_t i = 0; i < kAll; ++i) {
        device_->hostSlab()[copies_.host[static_cast<size_t>(layer)] + i] = value(layer, i);
        device_->hostSlab()[copies_.backHost[static_cast<size_t>(layer)] + i] = std::byte{0};
      }
  }
  // Of a layer's blocks; not zero.
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
  // Of each layer exactly these runs have come back since clear(), and been counted since `before`.
  void expectBack(const DeviceCounters &before, std::initializer_list<CopyRun> runs) {
    ASSERT_TRUE(device_->drain().ok());
    uint64_t bytes = 0;
    for (const CopyRun &run : runs)
      bytes += static_cast<uint64_t>(layers_) * run.bytes;
    EXPECT_EQ(device_->counters().d2hBytes - before.d2hBytes, bytes);
    for (int64_t layer = 0; layer < layers_ && device_->holdsData(); ++layer)
      for (uint64_t i = 0; i < kAll; ++i) {
        const bool back = std::any_of(runs.begin(), runs.end(), [&](const CopyRun &run) {
          return i >= run.offset && i < run.offset + run.bytes;
        });
        ASSERT_EQ(device_->hostSlab()[copies_.backHost[static_cast<size_t>(layer)] + i],
                  back ? value(layer, i) : std::byte{0})
            << "layer " << layer << ", byte " << i;
      }
  }

  plan::Plan plan_;
  KvCopies copies_;
  int64_t layers_ = 0;
  std::vector<std::unique_ptr<Graph>> graphs_;
  std::shared_ptr<Device> device_;
  Graph *variant_ = nullptr, *transition_ = nullptr;
};

TEST_P(WriteBack, ACopyOfOneSizeIsAlwaysAll) {
  open(CopiedBack::All);
  const DeviceCounters before = device_->counters();
  launch({});
  expectBack(before, {{0, kAll}});
  clear();
  ASSERT_TRUE(device_->launch(*transition_, {}).ok());
  expectBack(before, {{0, kAll}, {0, kAll}});
  EXPECT_EQ(device_->counters().sizesSet, 0u);
}

TEST_P(WriteBack, WhatIsInUseGoesBackFromTheFirstBlockOn) {
  open(CopiedBack::InUse);
  for (const auto &[kvBlocks, run] : {std::pair<int64_t, CopyRun>{9, blocks(4, 5)},
                                      {20, blocks(4, 16)},
                                      {100, blocks(4, 16)},
                                      {4, {0, 256}},
                                      {-1, {0, 256}}}) {
    clear();
    DeviceCounters before = device_->counters();
    // What the rows are written to is nothing to it.
    launch({.kvBlocks = kvBlocks, .writtenBegin = 7, .writtenEnd = 8});
    expectBack(before, {run});
    clear();
    before = device_->counters();
    ASSERT_TRUE(device_->launch(*transition_, InUse{.kvBlocks = kvBlocks}).ok());
    expectBack(before, {run});
  }
}

TEST_P(WriteBack, WhatWasWrittenGoesBackFromItsFirstBlockToItsLast) {
  open(CopiedBack::Written);
  for (const auto &[begin, end, run] : {std::tuple<int64_t, int64_t, CopyRun>{9, 12, blocks(9, 3)},
                                        {19, 20, blocks(19, 1)},
                                        {1, 6, blocks(4, 2)},
                                        {18, 99, blocks(18, 2)},
                                        {0, 99, blocks(4, 16)},
                                        {0, 0, {0, 256}}, // no rows but padding
                                        {1, 4, {0, 256}}, // below
                                        {20, 22, {0, 256}}}) {
    clear();
    const DeviceCounters before = device_->counters();
    launch({.writtenBegin = begin, .writtenEnd = end});
    expectBack(before, {run});
  }
}

// Blocks of 1 KiB from a share of 1.25 KiB on: number 5 begins in share 4, which begins at 5 KiB.
TEST_P(WriteBack, WhatWasWrittenIsRoundedToSharesAtBothEnds) {
  plan_ = tinyPlan({.spec = tinyLlama(layers_ = 2), .kind = GetParam().plansFor});
  copies_ = {.blocks = 320, .back = CopiedBack::Written};
  addKvCopies(plan_, copies_);
  ASSERT_TRUE(device_->open(plan_, {}).ok());
  variant_ = ready({.transition = false, .index = 0});
  for (const auto &[begin, end, shares] :
       {std::tuple<int64_t, int64_t, uint64_t>{9, 10, 1}, // 5 to 6 KiB: share 4, which ends at 6.25
        {10, 11, 2},                                      // 6 to 7: shares 4 and 5
        {10, 30, 17}}) {                                  // 6 to 26: shares 4 to 20, which ends at 26.25
    const DeviceCounters before = device_->counters();
    launch({.writtenBegin = begin, .writtenEnd = end});
    ASSERT_TRUE(device_->drain().ok());
    EXPECT_EQ(device_->counters().d2hBytes - before.d2hBytes, 2 * shares * 1280) << begin;
  }
}

TEST_P(WriteBack, OfTwoLaunchesInFlightEachKeepsItsOwn) {
  open(CopiedBack::Written);
  DeviceCounters before = device_->counters();
  launch({.kvBlocks = 9, .writtenBegin = 6, .writtenEnd = 8});
  launch({.kvBlocks = 16, .writtenBegin = 12, .writtenEnd = 15});
  expectBack(before, {blocks(6, 2), blocks(12, 3)});
  clear();
  before = device_->counters();
  launch({.writtenBegin = 16, .writtenEnd = 18}); // one as large as the other
  launch({.writtenBegin = 5, .writtenEnd = 7});
  launch({.writtenBegin = 10, .writtenEnd = 12});
  expectBack(before, {blocks(16, 2), blocks(5, 2), blocks(10, 2)});
}

TEST_P(WriteBack, BothDirectionsOfALaunchAreCounted) {
  open(CopiedBack::Written);
  const DeviceCounters before = device_->counters();
  launch({.kvBlocks = 15, .writtenBegin = 13, .writtenEnd = 15}); // 11 blocks in, 2 out
  launch({.kvBlocks = 9, .writtenBegin = 4, .writtenEnd = 5});    // 5 and 1
  expectBack(before, {blocks(13, 2), blocks(4, 1)});
  EXPECT_EQ(device_->counters().h2dBytes - before.h2dBytes, 4 * 16 * kBlock);
}

// Where graphs hold them: four copies each way, each time they are others than those of the graph's launch before.
TEST_P(WriteBack, StartsAreSetWhereTheyHaveChanged) {
  open(CopiedBack::Written);
  const bool held = GetParam().plansFor == model::DeviceKind::Cuda;
  uint64_t changes = 0;
  for (const auto &[begin, end, changed] :
       {std::tuple{0, 20, false}, {9, 11, true}, {9, 11, false}, {11, 13, true}, {0, 0, true}, {2, 3, false}}) {
    launch({.writtenBegin = begin, .writtenEnd = end});
    changes += changed;
    EXPECT_EQ(device_->counters().sizesSet, held ? 4 * changes : 0) << begin;
  }
  ASSERT_TRUE(device_->drain().ok());
}

INSTANTIATE_TEST_SUITE_P(Devices, WriteBack, testing::ValuesIn(kDevices),
                         [](const auto &info) { return std::string(info.param.name); });

#if !defined(HEADRACE_EMULATED_TESTS) && !defined(HEADRACE_STAND_IN_TESTS)
class WriteBackInVirtualTime : public WriteBack {};

// A microsecond of latency and a nanosecond a byte; while both directions copy each goes at 3/4. Two layers bring 5
// blocks and return 2, so 6120 ns and 3048 alone:
//
//   h2d  [ 0        6120 ][ 6120                 13256 ]        3048 until 10184, then 3072 alone
//   d2h                   [ 6120    10184 ]            [ 13256   16304 ]
TEST_P(WriteBackInVirtualTime, BothDirectionsShareTheLinkToTheNanosecond) {
  open(CopiedBack::Written, {.trace = true, .duplexBandwidth = 1.5e9, .layers = 2});
  for (int i = 0; i < 2; ++i) { // again, with another start
    launch({.kvBlocks = 9, .writtenBegin = 6 - i, .writtenEnd = 8 - i});
    ASSERT_TRUE(device_->drain().ok());
    const absl::Span<const StepTime> times = device_->lastTimes();
    const size_t back = times.size() - 2;
    const int64_t startNs = times[0].startNs;
    const auto expect = [&](size_t step, int64_t start, int64_t end) {
      EXPECT_EQ(times[step].startNs - startNs, start) << step;
      EXPECT_EQ(times[step].endNs - startNs, end) << step;
    };
    expect(0, 0, 6120);
    expect(1, 6120, 13256);
    expect(back, 6120, 10184);
    expect(back + 1, 13256, 16304);
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, WriteBackInVirtualTime, testing::ValuesIn(devicesInVirtualTime()),
                         [](const auto &info) { return std::string(info.param.name); });
#endif

} // namespace
} // namespace headrace::core
