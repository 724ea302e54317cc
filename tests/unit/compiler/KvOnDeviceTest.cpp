// SPDX-License-Identifier: Apache-2.0
//
// What KV may take of the device: blocks that stay, and the slots or places that the others go through.
#include "compiler/choice/KvOnDevice.h"

#include <algorithm>
#include <optional>
#include <string>

#include "compiler/Compile.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/plan/value/CacheMap.h"
#include "tests/support/LongRun.h"
#include "tests/support/RandomSplits.h"
#include "tests/unit/compiler/Requests.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace headrace::compiler {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(KvOnDevice, SharesBytesBetweenBlocksThatStayAndSlots) {
  const KvOnDevice kv{.caches = 40, .blocks = 200, .blockBytes = 256};
  EXPECT_EQ(kv.wholeBytes(), 8000 * 256u);
  EXPECT_EQ(kv.splitBytes(94, 2), 3972 * 256u); // 40 x 94 + 2 x 106
  EXPECT_EQ(kv.mostResident(4000 * 256, 2, 1), 94);
  EXPECT_EQ(kv.mostResident(4010 * 256 - 1, 2, 1), 94);
  EXPECT_EQ(kv.mostResident(4010 * 256, 2, 1), 95); // 40 x 95 + 2 x 105
  EXPECT_EQ(kv.mostResident(8000 * 256, 2, 1), 200);
  EXPECT_EQ(kv.mostResident(8000 * 256 - 1, 2, 1), 199); // 40 x 199 + 2 x 1 = 7,962
  // A block of each and slots for the other 199: 40 + 398.
  EXPECT_EQ(kv.leastBytes(2), 438 * 256u);
  EXPECT_EQ(kv.mostResident(438 * 256, 2, 1), 1);
  EXPECT_EQ(kv.mostResident(438 * 256 - 1, 2, 1), std::nullopt);
  EXPECT_EQ(kv.mostResident(438 * 256 - 1, 2, 0), 0); // slots for all 200: 400
  EXPECT_EQ(kv.mostResident(400 * 256 - 1, 2, 0), std::nullopt);
}

// As many ranges as caches hold what caches would: there is no use in splitting these.
TEST(KvOnDevice, IsWholeWhereEachCacheHasARangeOfItsOwn) {
  const KvOnDevice kv{.caches = 2, .blocks = 9, .blockBytes = 512};
  EXPECT_EQ(kv.leastBytes(2), 18 * 512u);
  EXPECT_EQ(kv.mostResident(18 * 512, 2, 1), 9);
  EXPECT_EQ(kv.mostResident(18 * 512 - 1, 2, 1), std::nullopt);
}

// Blocks of 100 bytes, four caches of ten, three ranges: R = 4 takes align(1600) + 3 x align(600) = 1792 + 2304, R = 5
// align(2000) + 3 x align(500) = 2048 + 1536: less.
TEST(KvOnDevice, AlignsAsItIsLaidOut) {
  const KvOnDevice kv{.caches = 4, .blocks = 10, .blockBytes = 100};
  EXPECT_EQ(kv.wholeBytes(), 4096u);
  EXPECT_EQ(kv.splitBytes(4, 3), 4096u);
  EXPECT_EQ(kv.splitBytes(5, 3), 3584u);
  EXPECT_EQ(kv.splitBytes(8, 3), 4096u); // 3328 + 768
  EXPECT_EQ(kv.splitBytes(7, 3), 4352u);
  EXPECT_EQ(kv.splitBytes(6, 3), 4096u);
  EXPECT_EQ(kv.leastBytes(3), 3584u);
  EXPECT_EQ(kv.mostResident(3584, 3, 1), 5);
  EXPECT_EQ(kv.mostResident(3583, 3, 1), std::nullopt);
}

TEST(KvOnDevice, RangesAreThoseOfACircle) {
  EXPECT_EQ(rangesOfSlots(1, 2), 1);
  EXPECT_EQ(rangesOfSlots(2, 2), 2);
  EXPECT_EQ(rangesOfSlots(6, 2), 2);
  EXPECT_EQ(rangesOfSlots(7, 2), 3); // 2 + 2 + 3
  EXPECT_EQ(rangesOfSlots(40, 2), 2);
  EXPECT_EQ(rangesOfSlots(40, 3), 4); // 13 turns, one of which has 4
}

// Of six layers 65 blocks of 4 KiB each: with 400 of them for KV (400 - 2 x 65) / (6 - 2) = 67, so all stay; with 300
// (300 - 130) / 4 = 42, 6 x 42 + 2 x 23 = 298.
TEST(KvOnDevice, ThePlanSaysWhatSlotsTake) {
  CompileRequest r = request(tinyLlama(6));
  r.goal.context = 512;
  r.policy.name = "interval";
  r.goal.kvDeviceMemory = 300 * 4096;
  const auto plan = compile(r);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan::CacheMap(*plan, plan->placements[0]).resident(), 42);
  EXPECT_EQ(plan::kvSlotBytes(*plan, 0), 46 * 4096u);
  EXPECT_EQ(plan::kvDeviceBytes(*plan, 0), 298 * 4096u);
  EXPECT_THAT(plan->reason, HasSubstr(". KV takes 1.16 MiB of the device, 184.00 KiB of that the slots that blocks on "
                                      "the host go through"));
  r.goal.kvDeviceMemory = 0;
  const auto none = compile(r);
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_EQ(plan::CacheMap(*none, none->placements[0]).resident(), 0);
  EXPECT_EQ(plan::kvDeviceBytes(*none, 0), 130 * 4096u);
  EXPECT_THAT(none->reason, HasSubstr(". KV takes 520.00 KiB of the device, all of that the slots that blocks on the "
                                      "host go through"));
}

// Where it is away in units of its own, in slots among others' slots.
TEST(KvOnDevice, SlotsOfWeightsAreNoneOfKv) {
  CompileRequest r = request(tinyLlama(6));
  r.goal.context = 512;
  r.goal.kvDeviceMemory = 300 * 4096;
  r.policy.interval = 2;
  r.policy.residuals = model::Residuals::Host;
  const auto plan = compile(r);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_GT(plan->placements[0].slots.size(), 4u);
  EXPECT_EQ(plan::kvSlotBytes(*plan, 0), 46 * 4096u);
}

TEST(KvOnDevice, PieHasTwoPlacesWhereNoBlockIsToStay) {
  CompileRequest r = request(tinyLlama(6));
  r.goal.context = 512;
  r.policy.name = "pie";
  r.goal.kvDeviceMemory = 0;
  const auto plan = compile(r);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan::kvDeviceBytes(*plan, 0), 2 * 65 * 4096u);
  EXPECT_EQ(plan::kvBytesByHome(*plan, 0).device, 0u);
  r.policy.kvPlaces = 4;
  const auto four = compile(r);
  ASSERT_TRUE(four.ok()) << four.status();
  EXPECT_EQ(plan::kvDeviceBytes(*four, 0), 4 * 65 * 4096u);
}

// Any small model, and what a block of one of its caches is, and how many there are.
struct Asked {
  CompileRequest request;
  int64_t caches = 0, blocks = 0;
  uint64_t block = 0; // bytes
};

Asked anyRequest(core::Draw &draw) {
  const int64_t layers = draw.between(1, 11);
  model::ModelSpec spec = draw.oneIn(2) ? tinyLlama(layers) : tinyOpt(layers);
  spec.headDim = draw.oneOf<int64_t>({4, 10, 16});
  CompileRequest r = request(spec);
  r.hardware.memoryBytes = r.hardware.hostMemoryBytes = uint64_t{1} << 34;
  r.hardware.h2dBandwidth = r.hardware.d2hBandwidth = draw.oneOf({1e7, 1e9, 1e11});
  r.hardware.duplexBandwidth = 2 * r.hardware.h2dBandwidth;
  r.goal.miniBatches = draw.oneIn(3) ? 2 : 1;
  const int64_t sequences = draw.between(1, 3); // of a mini-batch
  r.goal.batch = sequences * r.goal.miniBatches;
  r.goal.context = draw.between(2, 199);
  r.goal.blockTokens = draw.oneOf<int64_t>({1, 3, 16});
  r.buckets = {.newTokens = {sequences + 1}, .sequences = {sequences}, .contexts = {*r.goal.context}};
  if (draw.oneIn(4) && r.goal.miniBatches == 1)
    r.policy.name = "pie";
  else if (draw.oneIn(2))
    r.policy.name = "joint";
  else
    r.policy.none = true;
  if (r.policy.name != "pie")
    r.policy.kvWriteBack = draw.oneOf({model::KvWriteBack::Auto, model::KvWriteBack::Mirror, model::KvWriteBack::All});
  if (r.policy.none && layers > 3 && draw.oneIn(3))
    r.policy.kvPlaces = 2;
  if (r.policy.name == "joint") {
    r.policy.actRatio = model::ActRatio();
    r.policy.offloadEmbedding = r.policy.offloadHead = model::AutoOnOff::Off;
  }
  return {r, layers * r.goal.miniBatches,
          1 + sequences * ((*r.goal.context + r.goal.blockTokens - 1) / r.goal.blockTokens),
          2 * 4 * static_cast<uint64_t>(spec.kvRows() * r.goal.blockTokens)};
}

uint64_t aligned(uint64_t bytes) { return (bytes + 255) / 256 * 256; }

// As the plan's extents and slots have it, of which all are KV's where weights stay.
struct Counted {
  uint64_t home = 0, tail = 0, slots = 0; // bytes; of a cache
  size_t ranges = 0;
  uint64_t all() const { return aligned(home) + slots; }
};
Counted countedIn(const plan::Plan &plan) {
  Counted counted;
  for (const plan::Extent &extent : plan.placements[0].extents)
    if (plan.buffers[extent.buffer].kind == plan::BufferKind::Kv) {
      (extent.space == plan::Space::Device ? counted.home : counted.tail) += extent.bytes;
    } else {
      EXPECT_EQ(extent.space, plan::Space::Device) << plan.reason;
    }
  for (const plan::Slot &slot : plan.placements[0].slots)
    counted.slots += slot.bytes;
  counted.ranges = plan.placements[0].slots.size();
  return counted;
}

void expectWithin(const Asked &asked, uint64_t bytes) {
  CompileRequest r = asked.request;
  r.goal.kvDeviceMemory = bytes;
  const auto plan = compile(r);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const auto caches = static_cast<uint64_t>(asked.caches);
  const uint64_t whole = caches * aligned(static_cast<uint64_t>(asked.blocks) * asked.block);
  Counted counted = countedIn(*plan);
  if (counted.tail == 0) {
    EXPECT_GE(bytes, whole);
    EXPECT_EQ(counted.slots, 0u);
    return;
  }
  EXPECT_LE(counted.all(), bytes);
  EXPECT_EQ(counted.all(), plan::kvDeviceBytes(*plan, 0));
  EXPECT_LT(bytes, whole);
  if (r.policy.name == "pie") { // one place more is too much, or they would not come back to where they were
    EXPECT_EQ(counted.home, 0u);
    r.policy.kvPlaces = static_cast<int64_t>(counted.ranges) + 1;
    EXPECT_EQ(compile(r).status().code(), absl::StatusCode::kInvalidArgument);
    return;
  }
  EXPECT_GT(counted.home, 0u);
  counted.home += caches * asked.block;
  counted.tail -= caches * asked.block;
  if (counted.tail > 0) { // else they would all stay
    EXPECT_GT(aligned(counted.home) + counted.ranges * aligned(counted.tail / caches), bytes);
  }
}

TEST(KvOnDevice, IsWithinWhatIsStatedAndOneBlockMoreWouldNotBe) {
  for (int seed = 0; seed < casesOf(60, 2000); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    core::Draw draw(static_cast<uint64_t>(seed));
    Asked asked = anyRequest(draw);
    CompileRequest &r = asked.request;
    const auto refusal = [&](uint64_t bytes) {
      r.goal.kvDeviceMemory = bytes;
      const absl::Status status = compile(r).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
      return std::string(status.message());
    };
    const std::string message = refusal(1), expected = "goal.kv_device_memory = 1: expected at least ";
    ASSERT_THAT(message, StartsWith(expected));
    const uint64_t least = std::stoull(message.substr(expected.size()));
    EXPECT_THAT(refusal(least - 1), HasSubstr(": expected at least " + std::to_string(least) + " bytes"));
    expectWithin(asked, least);
    const uint64_t all =
        static_cast<uint64_t>(asked.caches) * aligned(static_cast<uint64_t>(asked.blocks) * asked.block);
    const uint64_t most = r.policy.kvPlaces ? all - 1 : all + all / 8; // of places none where all of it stays
    if (least <= most)
      expectWithin(asked, static_cast<uint64_t>(draw.between(static_cast<int64_t>(least), static_cast<int64_t>(most))));
    if (testing::Test::HasFailure())
      return;
  }
}

} // namespace
} // namespace headrace::compiler
