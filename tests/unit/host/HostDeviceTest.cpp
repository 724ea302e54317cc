// SPDX-License-Identifier: Apache-2.0
//
// What only the host device does; what all devices do is in tests/conformance.
#include "runtime/host/HostDevice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <limits>
#include <thread>

#include "runtime/core/MetaWriter.h"
#include "runtime/core/Runtime.h"
#include "runtime/host/Lanes.h"
#include "runtime/threads/LowLatency.h"
#include "tests/support/KvCopies.h"
#include "tests/support/TinyPlan.h"
#include "tests/support/WrongWeights.h"

namespace headrace::host {
namespace {

using testing::HasSubstr;

void launchOneRow(core::Device &device, core::Runtime &runtime, uint32_t variant) {
  const plan::Plan &plan = runtime.plan();
  const int32_t token = 1, block = 1;
  const core::SequenceRows rows{.tokens = {&token, 1}, .blocks = {&block, 1}, .sample = true};
  ASSERT_TRUE(core::writeMeta(plan.metaLayout, plan.blockTokens, {&rows, 1}, device.meta()).ok());
  ASSERT_TRUE(runtime.launch(variant).ok());
}

std::unique_ptr<core::Runtime> load(const plan::Plan &plan, core::Device &device, const core::DeviceOptions &options) {
  const auto weights = model::syntheticWeights(3);
  auto runtime = core::Runtime::load(plan, device, options, weights.get(), {});
  EXPECT_TRUE(runtime.ok()) << runtime.status();
  return runtime.ok() ? *std::move(runtime) : nullptr;
}

std::string openError(const plan::Plan &plan, const core::DeviceOptions &options, const HostOptions &hostOptions = {}) {
  const absl::Status status = makeHostDevice(hostOptions)->open(plan, options);
  EXPECT_FALSE(status.ok());
  return std::string(status.message());
}

TEST(HostDeviceRefuses, LinksThatCannotBePaced) {
  plan::Plan plan = core::tinyPlan({.spec = core::tinyLlama(1)});
  EXPECT_THAT(openError(plan, {.linkBandwidth = -1}), HasSubstr("link bandwidth = -1"));
  EXPECT_THAT(openError(plan, {.linkBandwidth = std::nan("")}), HasSubstr("link bandwidth = nan"));
  EXPECT_THAT(openError(plan, {.linkBandwidth = std::numeric_limits<double>::infinity()}),
              HasSubstr("expected a positive"));
  plan.hardware.h2dBandwidth = 0;
  EXPECT_THAT(openError(plan, {}), HasSubstr("h2d bandwidth = 0, expected a positive number of bytes/s"));
  plan.hardware.h2dBandwidth = 1e9;
  plan.hardware.d2hBandwidth = 0;
  EXPECT_THAT(openError(plan, {}), HasSubstr("d2h bandwidth = 0"));
  EXPECT_TRUE(makeHostDevice({.unpaced = true})->open(plan, {}).ok());
}

TEST(HostDeviceRefuses, NumbersOfThreadsBelowOne) {
  const plan::Plan plan = core::tinyPlan({.spec = core::tinyLlama(1)});
  EXPECT_THAT(openError(plan, {}, {.threads = 0}), HasSubstr("threads = 0, expected at least 1"));
  EXPECT_THAT(openError(plan, {}, {.threads = -1}), HasSubstr("threads = -1"));
}

TEST(HostDeviceRefuses, CoresThatTheMachineHasNot) {
  const plan::Plan plan = core::tinyPlan({.spec = core::tinyLlama(1)});
  EXPECT_THAT(openError(plan, {}, {.computeCore = 1 << 20}), HasSubstr("pinning the compute lane to core 1048576"));
  EXPECT_THAT(openError(plan, {}, {.transferCore = 1023}), HasSubstr("pinning the transfer lane to core 1023"));
}

// Either the machine grants it and everything runs as before, or open() names what it does not grant.
TEST(HostDevice, LowLatencyIsGrantedOrRefusedByName) {
  const plan::Plan plan = core::tinyPlan({.spec = core::tinyLlama(1)});
  const auto device = makeHostDevice({.lowLatency = true});
  std::thread([&] { // the thread that opens the device stays urgent
    const absl::Status status = device->open(plan, {});
    if (status.ok()) {
      EXPECT_TRUE(threads::AwakeCores::hold().ok()); // so does the next one that asks
      EXPECT_TRUE(device->open(plan, {}).ok());      // and this one again
    } else {
      EXPECT_EQ(status.code() == absl::StatusCode::kPermissionDenied || status.code() == absl::StatusCode::kNotFound,
                true)
          << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr("low latency: "));
      EXPECT_TRUE(device->hostSlab().empty()); // nothing half open
      EXPECT_EQ(device->open(plan, {}).code(), status.code());
    }
  })
      .join();
}

TEST(HostDeviceRefuses, PlansOfOtherHardware) {
  plan::Plan plan = core::tinyPlan({.spec = core::tinyLlama(1)});
  plan.hardware.kind = model::DeviceKind::Cuda;
  plan.activationDtype = model::DType::F16;
  EXPECT_THAT(openError(plan, {}), HasSubstr("the plan is for cuda hardware (test, f16 activations)"));
}

TEST(HostDeviceRefuses, PlansWithoutIoBuffers) {
  plan::Plan plan = core::tinyPlan({.spec = core::tinyLlama(1)});
  for (int last = 0; last < 2; ++last) // of "history", then of "output"
    plan.placements[0].extents.pop_back();
  EXPECT_THAT(openError(plan, {}), HasSubstr("buffer 'output' has no home of"));
  plan.placements.clear();
  EXPECT_THAT(openError(plan, {}), HasSubstr("no placement"));
}

TEST(HostDevice, PacedCopiesTakeAtLeastLatencyAndBytesByBandwidth) {
  plan::Plan plan = core::tinyPlan({.spec = core::tinyLlama(4), .offloaded = {1, 3}});
  plan.hardware.copyLatency = 20e-6;
  const auto device = makeHostDevice();
  const auto runtime = load(plan, *device, {.linkBandwidth = 500e6, .trace = true});
  launchOneRow(*device, *runtime, 0);
  ASSERT_TRUE(device->drain().ok());
  const plan::Schedule &schedule = plan.schedules[0];
  // Copies follow each other: none ends before all that went before it have had their time.
  int copies = 0;
  int64_t firstNs = 0, soFarNs = 0;
  for (size_t i = 0; i < schedule.steps.size(); ++i)
    if (schedule.steps[i].kind == plan::StepKind::Copy) {
      const core::StepTime &time = device->lastTimes()[i];
      firstNs = copies++ == 0 ? time.startNs : firstNs;
      soFarNs += 20'000 + static_cast<int64_t>(schedule.steps[i].linkBytes) * 2; // 2 ns a byte
      EXPECT_GE(time.endNs - firstNs, soFarNs) << i;
    }
  EXPECT_EQ(copies, 8);
}

// Five rows: two of block 2, three of block 3. A row is 2 x 2 heads x 16 floats = 256 bytes in each of the two layers.
TEST(HostDevice, AppendedRowsAreWrittenToTheirHome) {
  const plan::Plan plan = core::tinyPlan({.spec = core::tinyLlama(2), .mirroredFrom = 3});
  for (const bool poison : {false, true}) {
    const auto device = makeHostDevice({.poison = poison});
    const auto runtime = load(plan, *device, {.linkBandwidth = 1e6});
    const std::byte untouched{0xee};
    std::fill(device->hostSlab().begin(), device->hostSlab().end(), untouched);
    const int32_t tokens[] = {1, 2, 3, 4, 5}, blocks[] = {1, 5, 2, 3};
    const core::SequenceRows rows{.tokens = tokens, .firstPosition = 10, .blocks = blocks, .sample = true};
    ASSERT_TRUE(core::writeMeta(plan.metaLayout, plan.blockTokens, {&rows, 1}, device->meta()).ok());
    ASSERT_TRUE(runtime->launch(1).ok());
    ASSERT_TRUE(device->drain().ok());
    EXPECT_EQ(device->counters().d2hBytes, 2u * 3 * 256);
    EXPECT_EQ(device->counters().h2dBytes, 0u);

    std::vector<std::byte> expected(plan.hostBytes, untouched);
    const plan::Schedule &schedule = plan.schedules[1];
    for (size_t i = 0; i < schedule.steps.size(); ++i)
      for (uint32_t o = 0; o < schedule.steps[i].operandCount; ++o) {
        const plan::Operand &home = schedule.operands[schedule.steps[i].firstOperand + o];
        if (home.arg != plan::Arg::KvHome)
          continue;
        // Rows 0 to 2 of block 3, the first that has a home: of each of four planes of four rows of 64 bytes.
        for (uint64_t plane = 0; plane < 4; ++plane) {
          const uint64_t cache = plan.placements[0].extents[home.buffer].address + home.bufferOffset + plane * 256;
          ASSERT_TRUE(
              device->readDevice(cache, absl::MakeSpan(expected).subspan(home.address + plane * 256, 3 * 64)).ok());
        }
      }
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), device->hostSlab().begin()));
  }
}

TEST(HostDevice, DirectWritesArePacedByTheirBytes) {
  Shared shared;
  EXPECT_EQ(shared.directWriteNs(1000), 0); // unpaced
  EXPECT_EQ(Shared::directWriteRateOf(nullptr), 0);
  const LinkSpeed slow{.h2d = 2e9, .d2h = 0.5e9, .both = 2e9}, shares{.h2d = 2e9, .d2h = 2e9, .both = 0.5e9};
  EXPECT_EQ(Shared::directWriteRateOf(&slow), 0.5); // bytes a ns
  EXPECT_EQ(Shared::directWriteRateOf(&shares), 0.5);
  shared.directWriteRate = Shared::directWriteRateOf(&slow);
  EXPECT_EQ(shared.directWriteNs(0), 0);
  EXPECT_EQ(shared.directWriteNs(1000), 2000);
  shared.directWriteRate = 3;
  EXPECT_EQ(shared.directWriteNs(1000), 334); // rounded up
}

TEST(HostDevice, CopiesLongerThanAChunkArriveWhole) {
  core::TinyPlanOptions options{.spec = core::tinyLlama(2), .offloaded = {0, 1}};
  options.spec.intermediate = 2048; // up: 4096 rows of 64 floats, a mebibyte, four chunks
  const plan::Plan plan = core::tinyPlan(options);
  uint64_t largest = 0;
  for (const plan::Step &step : plan.schedules[0].steps)
    largest = std::max(largest, step.linkBytes);
  ASSERT_GT(largest, 3 * kChunkBytes);
  const auto device = makeHostDevice();
  const auto runtime = load(plan, *device, {.linkBandwidth = 4e9});
  launchOneRow(*device, *runtime, 0);
  ASSERT_TRUE(device->drain().ok());
  for (uint32_t k = 0; k < 2; ++k) { // each layer has a slot of its own, and keeps it
    const plan::Slot &slot = plan.placements[0].slots[k];
    std::vector<std::byte> bytes(slot.bytes);
    ASSERT_TRUE(device->readDevice(slot.address, absl::MakeSpan(bytes)).ok());
    const uint64_t home = plan.placements[0].extents[1 + 4 * k].address;
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), device->hostSlab().data() + home));
  }
}

TEST(HostDevice, TheDebugModePoisonsWhatNoBufferHolds) {
  const plan::Plan plan = core::tinyPlan({.spec = core::tinyLlama(2), .offloaded = {0, 1}});
  const auto device = makeHostDevice({.poison = true});
  const auto runtime = load(plan, *device, {});
  launchOneRow(*device, *runtime, 0);
  ASSERT_TRUE(device->drain().ok());
  const auto isPoisoned = [&](uint64_t address, uint64_t bytes) {
    std::vector<std::byte> read(bytes);
    EXPECT_TRUE(device->readDevice(address, absl::MakeSpan(read)).ok());
    return std::all_of(read.begin(), read.end(), [](std::byte b) { return b == std::byte{0xff}; });
  };
  for (const plan::Slot &slot : plan.placements[0].slots)
    EXPECT_TRUE(isPoisoned(slot.address, slot.bytes));
  for (const plan::Local &local : plan.schedules[0].locals)
    EXPECT_EQ(isPoisoned(local.address, local.buffer.bytes), local.buffer.name != "logits") << local.buffer.name;
  for (const plan::Extent &extent : plan.placements[0].extents)
    if (extent.space == plan::Space::Device) {
      EXPECT_FALSE(isPoisoned(extent.address, extent.bytes)) << plan.buffers[extent.buffer].name;
    }
}

TEST(HostDevice, StallsAreCountedWhereComputeWaitsForCopies) {
  const plan::Plan plan = core::tinyPlan({.spec = core::tinyLlama(1), .offloaded = {0}});
  const auto device = makeHostDevice();
  const auto runtime = load(plan, *device, {.linkBandwidth = 5e6}); // a layer is over 100 KB: 20 ms
  launchOneRow(*device, *runtime, 0);
  ASSERT_TRUE(device->drain().ok());
  EXPECT_GT(device->counters().stallNs, 0);
}

TEST(HostDevice, CanBeOpenedAgainWithAnotherPlan) {
  const plan::Plan first = core::tinyPlan({.spec = core::tinyLlama(1)});
  const plan::Plan second = core::tinyPlan({.spec = core::tinyOpt(2), .offloaded = {1}});
  const auto device = makeHostDevice();
  {
    const auto runtime = load(first, *device, {});
    launchOneRow(*device, *runtime, 0);
  } // with a launch in flight
  const auto runtime = load(second, *device, {});
  launchOneRow(*device, *runtime, 0);
  EXPECT_TRUE(runtime->awaitTokens().ok());
  EXPECT_EQ(device->counters().launches, 1u);
}

// So many iterations of one row each, on a device with so many threads; what the last of them sampled.
int32_t lastToken(int threads, int iterations) {
  const plan::Plan plan = core::tinyPlan({.spec = core::tinyLlama(2), .offloaded = {1}, .context = 40});
  const auto device = makeHostDevice({.threads = threads, .unpaced = true, .unitNs = 0});
  const auto runtime = load(plan, *device, {});
  const int32_t blocks[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  int32_t last = -1;
  for (int i = 0; i < iterations; ++i) {
    const int32_t token = i == 0 ? 5 : -1;
    const core::SequenceRows rows{.tokens = {&token, 1}, .firstPosition = i, .blocks = blocks, .sample = true};
    EXPECT_TRUE(core::writeMeta(plan.metaLayout, plan.blockTokens, {&rows, 1}, device->meta()).ok());
    EXPECT_TRUE(runtime->launch(0).ok());
    const auto tokens = runtime->awaitTokens();
    EXPECT_TRUE(tokens.ok()) << tokens.status();
    last = tokens.ok() ? (*tokens)[0] : -2;
  }
  return last;
}

TEST(HostDeviceThreads, TwoRuntimesInOneProcessHaveTheirOwn) {
  const int32_t expected = lastToken(1, 30);
  std::thread other([&] { EXPECT_EQ(lastToken(3, 30), expected); });
  EXPECT_EQ(lastToken(2, 30), expected);
  other.join();
}

// The token table is 1,500 x 512 of F32, 3 MB: several pieces to lay out, and to write to the device. Every other layer
// is in host memory.
std::vector<std::byte> loadedWeights(int threads) {
  model::ModelSpec spec = core::tinyLlama(2);
  spec.vocab = 1500;
  spec.hidden = 512;
  const plan::Plan plan = core::tinyPlan({.spec = spec, .offloaded = {1}});
  const auto device = makeHostDevice({.threads = threads, .unpaced = true});
  const auto runtime = load(plan, *device, {});
  std::vector<std::byte> all;
  for (const plan::Extent &extent : plan.placements[0].extents) {
    if (plan.buffers[extent.buffer].kind != plan::BufferKind::Weight)
      continue;
    std::vector<std::byte> bytes(extent.bytes);
    if (extent.space == plan::Space::Device)
      EXPECT_TRUE(device->readDevice(extent.address, absl::MakeSpan(bytes)).ok());
    else
      std::copy_n(device->hostSlab().data() + extent.address, extent.bytes, bytes.data());
    all.insert(all.end(), bytes.begin(), bytes.end());
  }
  return all;
}

TEST(HostDeviceThreads, LoadTheSameWeightsAndNoneIsLeftOver) {
  const auto threadsNow = [] {
    const std::filesystem::directory_iterator all("/proc/self/task");
    return std::distance(begin(all), end(all));
  };
  const auto before = threadsNow();
  const std::vector<std::byte> byOne = loadedWeights(1);
  EXPECT_GT(byOne.size(), 3'000'000u);
  for (const int threads : {2, 3, 8})
    EXPECT_TRUE(loadedWeights(threads) == byOne) << threads;
  EXPECT_EQ(threadsNow(), before);
}

#ifndef HEADRACE_TSAN
// A child has none of its parent's threads, and devices of its own; the parent's go on.
TEST(HostDeviceThreads, AChildProcessComputesAndSoDoesItsParent) {
  const plan::Plan plan = core::tinyPlan({.spec = core::tinyLlama(2)});
  const auto device = makeHostDevice({.threads = 3, .unpaced = true, .unitNs = 0});
  const auto runtime = load(plan, *device, {});
  launchOneRow(*device, *runtime, 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0)
    ::_exit(lastToken(3, 10) == lastToken(1, 10) && !testing::Test::HasFailure() ? 0 : 1);
  EXPECT_TRUE(runtime->awaitTokens().ok());
  launchOneRow(*device, *runtime, 0);
  EXPECT_TRUE(runtime->awaitTokens().ok());
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}
#endif

// The embedding of token 1 is wrong, which the first compute step says. Where tails are written back the rest runs all
// the same: here of each layer's blocks 4 to 19 those that are in use, 4 and 5, to the place that shows it.
TEST(HostDeviceWrongNumbers, WhereTailsAreWrittenBackTheVariantRunsToItsEnd) {
  for (const bool back : {false, true}) {
    plan::Plan plan = core::tinyPlan({.spec = core::tinyLlama(2)});
    core::KvCopies copies{.back = core::CopiedBack::InUse};
    core::addKvCopies(plan, copies);
    if (!back) // the same, but for the copies to the host: the last two steps
      for (plan::Schedule *schedule : {&plan.schedules[0], &plan.schedules[1]}) {
        schedule->steps.resize(schedule->steps.size() - 2);
        schedule->edges.resize(schedule->edges.size() - 2);
      }
    const auto device = makeHostDevice({.unpaced = true});
    const core::WrongWeights weights(
        3, {{"embedding", model::TensorRole::TokenTable, 1, 3, std::numeric_limits<float>::quiet_NaN()}});
    auto runtime = core::Runtime::load(plan, *device, {}, &weights, {});
    ASSERT_TRUE(runtime.ok()) << runtime.status();
    std::vector<int32_t> table;
    ASSERT_TRUE((*runtime)->kvBlocks().grow(table, 5 * plan.blockTokens).ok()); // blocks 1 to 5
    const absl::Span<std::byte> slab = device->hostSlab();
    for (const uint64_t from : copies.host)
      slab[from] = slab[from + 2047] = std::byte{7};
    for (const uint64_t to : copies.backHost)
      slab[to] = slab[to + 2047] = slab[to + 2048] = std::byte{0};
    const int32_t token = 1;
    const core::SequenceRows rows{.tokens = {&token, 1}, .blocks = table, .sample = true};
    ASSERT_TRUE(core::writeMeta(plan.metaLayout, plan.blockTokens, {&rows, 1}, device->meta()).ok());
    const auto found = (*runtime)->findWrongNumber(0);
    ASSERT_TRUE(found.ok() && found->has_value()) << found.status();
    EXPECT_EQ(plan.schedules[0].steps[(*found)->step].op, kernels::Op::Embed);
    EXPECT_EQ((*found)->column, 3);
    for (const uint64_t to : copies.backHost) {
      EXPECT_EQ(slab[to], std::byte{static_cast<unsigned char>(back ? 7 : 0)});
      EXPECT_EQ(slab[to + 2047], std::byte{static_cast<unsigned char>(back ? 7 : 0)});
      EXPECT_EQ(slab[to + 2048], std::byte{0});
    }
  }
}

} // namespace
} // namespace headrace::host
