// SPDX-License-Identifier: Apache-2.0
//
// Pie's expansion as a goal: all KV by that of the device, slots or places included.
//
// Six layers of tinyLlama at batch 2 and context 512: 65 blocks of 4 KiB a layer, the scratch block included, 390 in
// all. The tails go through two slots.
#include "compiler/choice/KvExpansion.h"

#include <algorithm>
#include <string>

#include "compiler/Compile.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/plan/value/CacheMap.h"
#include "tests/unit/compiler/Requests.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace headrace::compiler {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kBlock = 4096;

CompileRequest expanded(double expansion, int64_t layers = 6) {
  CompileRequest r = request(tinyLlama(layers));
  r.goal.context = 512;
  r.goal.expansion = expansion;
  r.buckets = {.newTokens = {1, 2, 8}, .sequences = {1, 2}, .contexts = {512}};
  return r;
}

int64_t residentIn(const plan::Plan &plan) { return plan::CacheMap(plan, plan.placements[0]).resident(); }

TEST(KvExpansion, IsBoundBySlotsAndByTheLink) {
  EXPECT_EQ(mostExpansion(40, 2), 20);
  EXPECT_EQ(mostExpansion(1, 2), 1);
  EXPECT_EQ(mostAutoExpansion(40, 2), 4);
  EXPECT_EQ(mostAutoExpansion(6, 2), 2);
  // 29 GB at 3.2 TB/s: 9.0625 ms, 3.797 GB over the link, thrice 11.39 beside 3.
  EXPECT_NEAR(linkExpansion(26e9, 3e9, 3.2e12, 419e9), 1 + 11.392 / 3, 1e-3);
  EXPECT_NEAR(linkExpansion(20e9, 10e9, 3e12, 50e9), 1.15, 1e-9); // 10 ms, 0.5 GB
}

TEST(KvExpansion, SaysHowMuchOfTheKvTheDeviceHas) {
  // 390 / 1.5 = 260 on the device: (260 - 2 x 65) / (6 - 2) = 32 stay, 6 x 32 + 2 x 33 = 258.
  const auto plan = compile(expanded(1.5));
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->kvBlocks, 65);
  EXPECT_EQ(residentIn(*plan), 32);
  ASSERT_EQ(plan->placements[0].slots.size(), 2u);
  for (const plan::Slot &slot : plan->placements[0].slots)
    EXPECT_EQ(slot.bytes, 33 * kBlock);
  EXPECT_THAT(plan->reason, HasSubstr("Expansion 1.51: 1.52 MiB of KV in all, 1.01 MiB of the device for it, 264.00 "
                                      "KiB of these the slots that the others go through"));
  EXPECT_EQ(plan->goal.expansion, 1.5);
}

TEST(KvExpansion, SaysHowMuchKvThereIs) {
  CompileRequest r = expanded(1.25);
  r.goal.kvDeviceMemory = 240 * kBlock; // 1.25 x 240 / 6 = 50, of which (240 - 2 x 50) / 4 = 35 stay
  const auto plan = compile(r);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->kvBlocks, 50);
  EXPECT_EQ(residentIn(*plan), 35);
  EXPECT_THAT(plan->reason, HasSubstr("Expansion 1.25: "));
  r.goal.expansion = 3; // 120 a layer: nobody could use more than 65
  const auto all = compile(r);
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_EQ(all->kvBlocks, 65);
  EXPECT_EQ(residentIn(*all), 27); // (240 - 130) / 4
  EXPECT_THAT(all->reason, HasSubstr("; 3 was asked for, batch x context has use for no more"));
}

// Seven caches take turns in three slots, two of which are free of neighbours on the circle: 7 / 3 at most, and of 455
// blocks / 2 = 227 (227 - 3 x 65) / (7 - 3) = 8 stay: 7 x 8 + 3 x 57 = 227.
TEST(KvExpansion, CountsTheSlotsThatThereAre) {
  EXPECT_THAT(std::string(compile(expanded(2.5, 7)).status().message()),
              HasSubstr("goal.expansion = 2.5: expected at most 2.33333: 7 layers' caches that go through 3 slots"));
  const auto plan = compile(expanded(2, 7));
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(residentIn(*plan), 8);
  EXPECT_EQ(plan->placements[0].slots.size(), 3u);
  EXPECT_EQ(plan::kvDeviceBytes(*plan, 0), 227 * kBlock);
  CompileRequest pie = expanded(3.5, 7); // two places, which are enough
  pie.policy.name = "pie";
  const auto places = compile(pie);
  ASSERT_TRUE(places.ok()) << places.status();
  EXPECT_EQ(places->placements[0].slots.size(), 2u);
}

TEST(KvExpansion, OneKeepsAllOnTheDevice) {
  const auto plan = compile(expanded(1));
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(residentIn(*plan), 65);
  CompileRequest r = expanded(1);
  r.goal.kvDeviceMemory = 240 * kBlock; // 40 a layer
  const auto less = compile(r);
  ASSERT_TRUE(less.ok()) << less.status();
  EXPECT_EQ(less->kvBlocks, 40);
  EXPECT_EQ(residentIn(*less), 40);
}

// Nothing is split by itself where an expansion says that nothing is away: it fits, with weights away, or not at all.
TEST(KvExpansion, OneIsNotPassedOverWhereMemoryIsShort) {
  CompileRequest r = expanded(1);
  const auto whole = compile(r);
  ASSERT_TRUE(whole.ok()) << whole.status();
  r.goal.deviceMemory = whole->arenaBytes - 1;
  r.policy.none = true;
  const auto refused = compile(r);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted) << refused.status();
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("the minimum is "));
  r.policy.none = false;
  const auto plan = compile(r);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(residentIn(*plan), 65);
  EXPECT_GT(plan::weightBytesByHome(*plan, 0).host, 0u);
}

TEST(KvExpansion, AutoHasRoomForTheMostThatMayServe) {
  CompileRequest r = expanded(model::kAutoExpansion);
  r.hardware.memoryBandwidth = 1e9;     // so that the link has time for more than that
  r.goal.kvDeviceMemory = 120 * kBlock; // 2 x 120 / 6 = 40, of which (120 - 80) / 4 = 10 stay
  const auto plan = compile(r);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->kvBlocks, 40);
  EXPECT_EQ(residentIn(*plan), 10);
  EXPECT_THAT(plan->reason, HasSubstr("; at most that: an engine offers what compute does not wait for"));
  r.hardware.memoryBandwidth = 1e15; // compute takes no time, and nothing would be brought in it
  const auto none = compile(r);
  EXPECT_EQ(none.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(none.status().message()), HasSubstr("one sequence of context 512 with an expansion of 1"));
  const auto fits = compile(expanded(model::kAutoExpansion));
  ASSERT_TRUE(fits.ok()) << fits.status();
  EXPECT_EQ(residentIn(*fits), 65); // what is left holds all
}

// 9 layers: n / (n - m) = 9 / 6.
TEST(KvExpansion, OfWholeLayersItIsPlaces) {
  CompileRequest r = expanded(1.5, 9);
  r.policy.name = "pie";
  r.hardware.h2dBandwidth = r.hardware.d2hBandwidth = 1e15;
  r.hardware.duplexBandwidth = 2e15;
  const auto plan = compile(r);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->placements[0].slots.size(), 6u);
  EXPECT_THAT(plan->reason, HasSubstr("expansion 1.50"));
  r.goal.kvDeviceMemory = 6 * 50 * kBlock; // places of 50 blocks
  const auto stated = compile(r);
  ASSERT_TRUE(stated.ok()) << stated.status();
  EXPECT_EQ(stated->kvBlocks, 50);
  EXPECT_EQ(stated->placements[0].slots.size(), 6u);
}

TEST(KvExpansion, RefusesByName) {
  const auto refused = [](const CompileRequest &r) { return std::string(compile(r).status().message()); };
  EXPECT_EQ(refused(expanded(3.5)),
            "goal.expansion = 3.5: expected at most 3: 6 layers' caches that go through 2 slots "
            "of the device");
  CompileRequest r = expanded(1.25);
  r.goal.kvDeviceMemory = 100 * kBlock; // of 33 blocks a layer 1 / 1.25: 159
  EXPECT_EQ(refused(r),
            "goal.kv_device_memory = 409600: expected at least 651264 bytes: one sequence of context 512 with "
            "an expansion of 1.25");
  r.goal.kvDeviceMemory = 159 * kBlock;
  EXPECT_EQ(refused(r), "");
  r = expanded(1.5);
  r.policy.name = "none";
  EXPECT_THAT(refused(r),
              HasSubstr("goal.expansion = 1.5 beside policy.name = \"none\": expected policy interval, pie, "));
  r.goal.expansion = model::kAutoExpansion;
  EXPECT_THAT(refused(r), HasSubstr("goal.expansion = \"auto\" beside policy.name = \"none\": expected policy "));
  r.policy.name = "pie";
  EXPECT_EQ(refused(r), "");
  r = expanded(1.5);
  r.policy.kvPlaces = 3;
  EXPECT_THAT(refused(r), HasSubstr("policy.kv_places = 3 beside goal.expansion = 1.5: expected one of them"));
  for (const double none : {0.5, -1.0, 1e7})
    EXPECT_THAT(refused(expanded(none)), HasSubstr("expected \"auto\" or 1 to 1e6")) << none;
}

} // namespace
} // namespace headrace::compiler
