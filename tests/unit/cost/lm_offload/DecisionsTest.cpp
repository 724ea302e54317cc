// SPDX-License-Identifier: Apache-2.0
#include "runtime/cost/lm_offload/Decisions.h"

#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/cost/lm_offload/RoundModel.h"

namespace headrace::cost {
namespace {

using testing::HasSubstr;

// Plain, weights packed, KV packed, both; then on the CPU plain and weights packed.
std::vector<OffloadSetting> sixSettings() {
  std::vector<OffloadSetting> settings;
  for (const AttentionPlace place : {AttentionPlace::kDevice, AttentionPlace::kCpu}) {
    for (const bool kv : {false, true}) {
      for (const bool weights : {false, true}) {
        if (kv && place == AttentionPlace::kCpu)
          continue;
        settings.push_back(roundSetting());
        settings.back().attention = place;
        if (weights)
          settings.back().weights = kQ4;
        if (kv)
          settings.back().kv = kQ4;
      }
    }
  }
  return settings;
}

// T_gen of the six, in seconds of which generate is 2 T_pf + 4 T_gen:
//   device  h2d 10 + 5.6 + 0.8 | device 8 + 0.36     plain 16.4, device 8.36: 16.4
//           weights packed     2.81 + 5.6 + 0.8      h2d 9.21, device 13.36: 13.36
//           KV packed          10 + 1.575 + 0.8      h2d 12.375, device 10.16: 12.375
//           both                                     h2d 5.19, device 15.16: 15.16
//   CPU     18 and 18
// T_pf is the device's 24.96, with 5 for unpacked weights and 1.2 for packed KV.
TEST(Decisions, AreTheFastestOfBothSides) {
  const std::vector<OffloadSetting> settings = sixSettings();
  const auto decisions = decide(roundModel(), roundMachine(), FlexGenRuntime(), settings);
  ASSERT_TRUE(decisions.ok()) << decisions.status();
  EXPECT_EQ(decisions->best, 2u); // 2 x 26.16 + 4 x 12.375 = 101.82
  EXPECT_EQ(decisions->packWeights.no, 2u);
  EXPECT_EQ(decisions->packWeights.yes, 1u); // 2 x 29.96 + 4 x 13.36 = 113.36; both 2 x 31.16 + 4 x 15.16 = 122.96
  EXPECT_EQ(decisions->packKv.yes, 2u);
  EXPECT_EQ(decisions->packKv.no, 1u);
  EXPECT_EQ(decisions->attendOnCpu.no, 2u);
  EXPECT_EQ(decisions->attendOnCpu.yes, 4u); // 2 x 24.96 + 4 x 18
  EXPECT_NEAR(decisions->forms[2]->generate, 101.82, 1e-9);
  EXPECT_NEAR(decisions->forms[1]->generate, 113.36, 1e-9);
  EXPECT_EQ(decisionsText(*decisions), "pack weights: no, 0.1 tokens/s (h2d); with it 0.1 tokens/s (device)\n"
                                       "pack KV: yes, 0.1 tokens/s (h2d); without 0.1 tokens/s (device)\n"
                                       "attend on the CPU: no, 0.1 tokens/s (h2d); with it 0.1 tokens/s (cpu)\n");
}

TEST(Decisions, LeaveOutWhatDoesNotFit) {
  const std::vector<OffloadSetting> settings = sixSettings();
  OffloadMachine machine = roundMachine();
  machine.hostBytes = 3000; // plain 4160; weights packed 2 x (281.25 + 960) + 240 = 2722.5
  auto decisions = decide(roundModel(), machine, FlexGenRuntime(), settings);
  ASSERT_TRUE(decisions.ok()) << decisions.status();
  EXPECT_FALSE(decisions->forms[0].has_value());
  EXPECT_EQ(decisions->packWeights.no, 2u); // with KV packed 2 x (1000 + 270) + 240 = 2780
  machine.hostBytes = 2750;
  decisions = decide(roundModel(), machine, FlexGenRuntime(), settings);
  ASSERT_TRUE(decisions.ok()) << decisions.status();
  EXPECT_EQ(decisions->best, 1u);
  EXPECT_EQ(decisions->packWeights.no, std::nullopt);
  EXPECT_THAT(decisionsText(*decisions), HasSubstr("without nothing fits\n"));
  machine.hostBytes = 100;
  EXPECT_EQ(decide(roundModel(), machine, FlexGenRuntime(), settings).status(),
            absl::ResourceExhaustedError("4160 bytes of host memory: the machine has 100"));
}

TEST(Decisions, RefuseWhatTheClosedFormRefuses) {
  EXPECT_EQ(decide(roundModel(), roundMachine(), FlexGenRuntime(), {}).status().code(),
            absl::StatusCode::kInvalidArgument);
  std::vector<OffloadSetting> settings = sixSettings();
  settings[5].output = 1;
  EXPECT_EQ(decide(roundModel(), roundMachine(), FlexGenRuntime(), settings).status().code(),
            absl::StatusCode::kInvalidArgument);
}

} // namespace
} // namespace headrace::cost
