// SPDX-License-Identifier: Apache-2.0
#include "runtime/cost/lm_offload/PrintedForm.h"

#include <gtest/gtest.h>

namespace headrace::cost {
namespace {

PrintedMachine roundPrinted() {
  return {.cpuFlops = 200,
          .cpuFrequency = 100,
          .cpuMemoryBandwidth = 400,
          .gpuFlops = 1200,
          .gpuFrequency = 400,
          .gpuMemoryBandwidth = 800,
          .linkBandwidth = 100};
}

PrintedSetting roundPacked() {
  PrintedSetting setting;
  setting.h1 = 10;
  setting.h2 = 20;
  setting.s = 3;
  setting.n = 4;
  setting.bls = 2;
  setting.wc = 0.5;
  setting.packWeights = setting.packKv = true;
  return setting;
}

TEST(PrintedForm, HasEquations12To16) {
  const PrintedForm f = printedForm(roundPrinted(), roundPacked());
  EXPECT_EQ(f.numWeights, 800);   // 4 x 100 + 2 x 200, of which half is on the CPU
  EXPECT_EQ(f.minmax, 4);         // 400 / 100
  EXPECT_EQ(f.normWgt, 6);        // 1200 / 200
  EXPECT_EQ(f.postprocessWgt, 1); // 400 / 400
  EXPECT_EQ(f.quanPfWgt, 11);
  EXPECT_EQ(f.tInit, 11);
  EXPECT_EQ(f.deNormWgt, 6);          // cpu_flops, there is no cpu_freq to replace
  EXPECT_EQ(f.dePostprocessWgt, 0.5); // 400 / 800
  EXPECT_EQ(f.dequanWgt, 6.5);
  PrintedSetting setting = roundPacked();
  setting.denormalising = Denormalising::kGpuFlops;
  EXPECT_EQ(printedForm(roundPrinted(), setting).deNormWgt, 1); // 1200 / 1200
  setting.denormalising = Denormalising::kGpuFrequency;
  EXPECT_EQ(printedForm(roundPrinted(), setting).deNormWgt, 3); // 1200 / 400
}

TEST(PrintedForm, HasEquations17To24) {
  const PrintedForm f = printedForm(roundPrinted(), roundPacked());
  EXPECT_EQ(f.pfKvCache, 160);        // 2 x 4 x 10 x 2
  EXPECT_EQ(f.oldKvCache, 800);       // 2 x 5 x 10 x 2 x 4
  EXPECT_EQ(f.newKvCache, 160);       // 2 x 10 x 2 x 4
  EXPECT_DOUBLE_EQ(f.quanPfCache, 1); // 160 / 400 + 480 / 1200 + 160 / 800
  EXPECT_DOUBLE_EQ(f.quanNewCache, 1);
  EXPECT_DOUBLE_EQ(f.dequanCache, 3); // 2400 / 1200 + 800 / 800
  EXPECT_EQ(f.tPrefillExtra, f.quanPfCache);
  PrintedSetting setting = roundPacked();
  setting.perToken = true;
  EXPECT_EQ(printedForm(roundPrinted(), setting).oldKvCache, 200);
  EXPECT_EQ(printedForm(roundPrinted(), setting).newKvCache, 40);
}

TEST(PrintedForm, HasEquations2To9) {
  PrintedSetting setting = roundPacked();
  const PrintedForm packed = printedForm(roundPrinted(), setting);
  EXPECT_DOUBLE_EQ(packed.loadWeight, 2 + 6.5); // 400 x 2 / 4 / 100
  EXPECT_DOUBLE_EQ(packed.loadCache, 4 + 3);    // 800 x 2 / 4 / 100
  EXPECT_DOUBLE_EQ(packed.storeCache, 0.8 + 1); // 160 x 2 / 4 / 100
  EXPECT_DOUBLE_EQ(packed.loadActivation, 0.4); // 10 x 2 x 2 / 100
  EXPECT_DOUBLE_EQ(packed.tGen, 8.5);
  setting.computeSeconds = 9;
  EXPECT_DOUBLE_EQ(printedForm(roundPrinted(), setting).tGen, 9);
  setting.r = 2; // "smaller"
  EXPECT_DOUBLE_EQ(printedForm(roundPrinted(), setting).loadWeight, 17);
  EXPECT_DOUBLE_EQ(printedForm(roundPrinted(), setting).storeCache, 3.6);
  setting.attentionOnCpu = true;
  EXPECT_EQ(printedForm(roundPrinted(), setting).loadCache, 0);
  EXPECT_EQ(printedForm(roundPrinted(), setting).storeCache, 0);
  setting.packWeights = setting.packKv = false;
  setting.attentionOnCpu = false;
  setting.r = 1;
  const PrintedForm plain = printedForm(roundPrinted(), setting);
  EXPECT_DOUBLE_EQ(plain.loadWeight, 8);
  EXPECT_DOUBLE_EQ(plain.loadCache, 16);
  EXPECT_DOUBLE_EQ(plain.storeCache, 3.2);
  EXPECT_EQ(plain.tInit, 0);
  EXPECT_EQ(plain.tPrefillExtra, 0);
}

TEST(PrintedForm, DecidesByTheReadingOfEquation14) {
  PrintedSetting setting = roundPacked();
  EXPECT_FALSE(printedDecisions(roundPrinted(), setting).packWeights); // 8.5 against 8
  EXPECT_TRUE(printedDecisions(roundPrinted(), setting).packKv);       // 7 + 1.8 against 16 + 3.2
  setting.denormalising = Denormalising::kGpuFlops;
  EXPECT_TRUE(printedDecisions(roundPrinted(), setting).packWeights); // 3.5
}

// Figure 3's OPT-30B: 64 + 128 tokens, a block of 640, 70.5% of weights on the CPU (Table 1).
PrintedSetting figure3() {
  PrintedSetting setting;
  setting.h1 = 7168;
  setting.h2 = 28672;
  setting.s = 64;
  setting.n = 128;
  setting.bls = 640;
  setting.wc = 38.88 / (48 * 1.1484);
  return setting;
}

PrintedMachine a100Printed(double linkBandwidth) {
  return {.cpuFlops = 2e9, // a core that makes one of its operations a cycle
          .cpuFrequency = 2e9,
          .cpuMemoryBandwidth = 200e9,
          .gpuFlops = 312e12,
          .gpuFrequency = 1.41e9,
          .gpuMemoryBandwidth = 1555e9,
          .linkBandwidth = linkBandwidth};
}

TEST(PrintedForm, TakesSecondsOrMillisecondsToUnpackAToken) {
  PrintedSetting setting = figure3();
  setting.wc = 1;
  setting.packWeights = true;
  // 48 x 616.6M weights x 3 operations
  EXPECT_NEAR(48 * printedForm(a100Printed(25e9), setting).deNormWgt, 44.4, 0.1);
  setting.denormalising = Denormalising::kGpuFlops;
  EXPECT_NEAR(48 * printedForm(a100Printed(25e9), setting).deNormWgt, 0.000285, 0.000001);
  setting.denormalising = Denormalising::kGpuFrequency;
  EXPECT_NEAR(48 * printedForm(a100Printed(25e9), setting).deNormWgt, 63.0, 0.1);
}

// Published, attention on the device: KV packed 82 tokens/s, both 55, neither 46, weights packed 35.
TEST(PrintedForm, HasNoReadingWithThePublishedOrder) {
  for (const Denormalising reading :
       {Denormalising::kCpuFlops, Denormalising::kGpuFlops, Denormalising::kGpuFrequency}) {
    for (const bool perToken : {false, true}) {
      for (const double link : {5e9, 11.1e9, 25e9, 32e9}) {
        PrintedSetting setting = figure3();
        setting.denormalising = reading;
        setting.perToken = perToken;
        const auto layer = [&](bool weights, bool kv) {
          setting.packWeights = weights;
          setting.packKv = kv;
          return printedForm(a100Printed(link), setting).tGen;
        };
        EXPECT_FALSE(layer(false, true) < layer(true, true) && layer(true, true) < layer(false, false) &&
                     layer(false, false) < layer(true, false))
            << link;
      }
    }
  }
}

} // namespace
} // namespace headrace::cost
