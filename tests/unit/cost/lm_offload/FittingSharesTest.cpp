// SPDX-License-Identifier: Apache-2.0
#include "runtime/cost/lm_offload/FittingShares.h"

#include <gtest/gtest.h>

#include "tests/unit/cost/lm_offload/RoundModel.h"

namespace headrace::cost {
namespace {

// Beside 200 bytes outside layers: a layer of weights 2000 and two slots of what is away; KV of 6 tokens 960 a layer,
// two slots of a half of that; hidden states on the host. With one layer away 200 + 2000 + 2 x 1000 and KV's
// 960 x 2 layers where all of it stays; 480 less of slots for KV then.
TEST(FittingShares, HaveAsMuchKvAsThereIsRoomFor) {
  const OffloadModel model = roundModel();
  OffloadMachine machine = roundMachine();
  OffloadSetting setting = roundSetting();
  setting.percent = {100, 0, 100, 0, 0, 100};
  const auto deviceOf = [&](const model::Percent &percent) {
    OffloadSetting of = setting;
    of.percent = percent;
    return offloadBytes(model, of).device;
  };
  const auto all = sharesWithAway(model, machine, setting, 0);
  ASSERT_TRUE(all);
  EXPECT_EQ(*all, (model::Percent{100, 0, 100, 0, 0, 100}));
  EXPECT_EQ(deviceOf(*all), 200U + 2 * 2000 + 2 * 960);
  const auto half = sharesWithAway(model, machine, setting, 1);
  ASSERT_TRUE(half);
  EXPECT_EQ(half->wg, 50);
  EXPECT_EQ(half->cg, 100);
  machine.deviceBytes = deviceOf(*half) - 300;
  const auto less = sharesWithAway(model, machine, setting, 1);
  ASSERT_TRUE(less);
  EXPECT_LT(less->cg, 100);
  EXPECT_GT(less->cg, 0);
  EXPECT_NEAR(static_cast<double>(deviceOf(*less)), static_cast<double>(machine.deviceBytes), 1);
  machine.deviceBytes = 1000;
  EXPECT_FALSE(sharesWithAway(model, machine, setting, 1));
  machine = roundMachine();
  machine.hostBytes = 1000; // of the 2000 of a layer's weights
  EXPECT_FALSE(sharesWithAway(model, machine, setting, 1));
}

// Weights at 100 bytes/s take longer than all else: of what fits the fewest layers away are the fastest.
TEST(FittingShares, AreTheFastestThatFit) {
  const OffloadModel model = roundModel();
  OffloadMachine machine = roundMachine();
  const auto all = fastestShares(model, machine, {}, roundSetting());
  ASSERT_TRUE(all);
  EXPECT_EQ(all->wg, 100);
  EXPECT_EQ(all->cg, 100);
  OffloadSetting setting = roundSetting();
  setting.percent = *all;
  machine.deviceBytes = offloadBytes(model, setting).device - 1;
  const auto less = fastestShares(model, machine, {}, roundSetting());
  ASSERT_TRUE(less);
  EXPECT_EQ(less->wg, 100); // a little of KV leaves
  EXPECT_LT(less->cg, 100);
  machine.deviceBytes = 10;
  EXPECT_FALSE(fastestShares(model, machine, {}, roundSetting()));
}

} // namespace
} // namespace headrace::cost
