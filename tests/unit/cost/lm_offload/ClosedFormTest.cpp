// SPDX-License-Identifier: Apache-2.0
#include "runtime/cost/lm_offload/ClosedForm.h"

#include <limits>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/cost/lm_offload/RoundModel.h"

namespace headrace::cost {
namespace {

using testing::HasSubstr;

constexpr FlexGenRuntime kOverlapped, kSerial = {.serial = true};
constexpr FlexGenRuntime kFlexGen = {.serial = true, .unpackPerMiniBatch = true};

ClosedForm formOf(const OffloadSetting &setting, const FlexGenRuntime &runtime = kOverlapped,
                  const OffloadMachine &machine = roundMachine()) {
  const auto form = closedForm(roundModel(), machine, runtime, setting);
  EXPECT_TRUE(form.ok()) << form.status();
  return form.value_or(ClosedForm());
}

std::string refused(const OffloadSetting &setting, const OffloadMachine &machine = roundMachine()) {
  const auto form = closedForm(roundModel(), machine, kOverlapped, setting);
  EXPECT_EQ(form.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(form.status().message());
}

TEST(ClosedForm, HasSixTasksOfALayer) {
  const ClosedForm form = formOf(roundSetting());
  // Decode at the mean context 3 + 3 / 2 = 4.5, of which one token is new.
  EXPECT_DOUBLE_EQ(form.decode.loadWeights, 10);       // half of 2000 bytes at 100 a second
  EXPECT_DOUBLE_EQ(form.decode.loadCache, 5.6);        // 160 x 3.5 / 100
  EXPECT_DOUBLE_EQ(form.decode.loadHidden, 0.8);       // 80 / 100
  EXPECT_DOUBLE_EQ(form.decode.storeCache, 3.2);       // 160 / 50
  EXPECT_DOUBLE_EQ(form.decode.storeHidden, 1.6);      // 80 / 50
  EXPECT_DOUBLE_EQ(form.decode.linear, 8);             // 2 parts x 2 x 1000 x 2 sequences / 1000
  EXPECT_DOUBLE_EQ(form.decode.deviceAttention, 0.36); // 160 x 4.5 / 2000
  EXPECT_EQ(form.decode.cpuAttention, 0);
  EXPECT_EQ(form.decode.packing(), 0);
  EXPECT_DOUBLE_EQ(form.prefill.loadWeights, 10);
  EXPECT_EQ(form.prefill.loadCache, 0);
  EXPECT_DOUBLE_EQ(form.prefill.loadHidden, 2.4); // 3 tokens x 80 / 100
  EXPECT_DOUBLE_EQ(form.prefill.storeCache, 9.6); // 3 x 160 / 50
  EXPECT_DOUBLE_EQ(form.prefill.storeHidden, 4.8);
  EXPECT_DOUBLE_EQ(form.prefill.linear, 24);            // 2 x 2 x 1000 x 2 x 3 / 1000
  EXPECT_DOUBLE_EQ(form.prefill.deviceAttention, 0.96); // 4 x 10 x 4 sequences x (1 + 2 + 3) / 1000
}

TEST(ClosedForm, IsTheLongestLane) {
  const ClosedForm form = formOf(roundSetting());
  EXPECT_DOUBLE_EQ(form.prefillLayer.seconds, 24.96); // device; h2d 12.4, d2h 14.4, both (1240 + 720) / 150
  EXPECT_EQ(form.prefillLayer.limit, LimitingLane::kDevice);
  EXPECT_DOUBLE_EQ(form.decodeLayer.seconds, 16.4); // h2d 10.8 + 4.8 and 10.8 + 6.4
  EXPECT_EQ(form.decodeLayer.limit, LimitingLane::kH2d);
  EXPECT_DOUBLE_EQ(form.iteration, 32.8);
  EXPECT_DOUBLE_EQ(form.generate, 2 * 24.96 + 2 * 32.8);
  EXPECT_DOUBLE_EQ(form.tokensPerSecond, 12 / 115.52);
  OffloadMachine machine = roundMachine();
  machine.duplexBandwidth = 100; // (1560 + 240) / 100 = 18, (1720 + 240) / 100 = 19.6
  EXPECT_DOUBLE_EQ(formOf(roundSetting(), kOverlapped, machine).decodeLayer.seconds, 18.8);
  EXPECT_EQ(formOf(roundSetting(), kOverlapped, machine).decodeLayer.limit, LimitingLane::kDuplex);
  machine.d2hBandwidth = 10; // 4 x 1.2 x 5 = 24
  machine.duplexBandwidth = 110;
  EXPECT_DOUBLE_EQ(formOf(roundSetting(), kOverlapped, machine).decodeLayer.seconds, 24);
  EXPECT_EQ(formOf(roundSetting(), kOverlapped, machine).decodeLayer.limit, LimitingLane::kD2h);
}

TEST(ClosedForm, ReadsWeightsForEachMiniBatchWhereThatTakesLonger) {
  OffloadMachine machine = roundMachine();
  machine.deviceBandwidth = 100; // 2 x max(4, 2000 / 100)
  EXPECT_DOUBLE_EQ(formOf(roundSetting(), kOverlapped, machine).decode.linear, 40);
}

TEST(ClosedForm, AttendsOnTheCpuToWhatIsInHostMemory) {
  OffloadSetting setting = roundSetting();
  setting.attention = AttentionPlace::kCpu;
  const ClosedForm form = formOf(setting);
  EXPECT_DOUBLE_EQ(form.decode.cpuAttention, 18); // 160 x 4.5 / 40
  EXPECT_EQ(form.decode.loadCache, 0);
  EXPECT_DOUBLE_EQ(form.decode.loadHidden, 1.6);  // what attention gives comes as well
  EXPECT_DOUBLE_EQ(form.decode.storeHidden, 3.2); // q goes
  EXPECT_DOUBLE_EQ(form.decode.storeCache, 3.2);  // and the new K and V
  EXPECT_EQ(form.decode.deviceAttention, 0);
  EXPECT_DOUBLE_EQ(form.decodeLayer.seconds, 18); // 16 and 20
  EXPECT_EQ(form.decodeLayer.limit, LimitingLane::kCpu);
  setting.percent.cg = 25; // a quarter is attended where it is
  setting.percent.cc = 75;
  EXPECT_DOUBLE_EQ(formOf(setting).decode.cpuAttention, 13.5);
  EXPECT_DOUBLE_EQ(formOf(setting).decode.deviceAttention, 0.09); // 0.25 x 160 x 4.5 / 2000
  EXPECT_DOUBLE_EQ(formOf(setting).decode.loadHidden, 1.4);
}

// The mean of the longest: h2d takes 17.6 at both contexts, the CPU 16 and 20. At the mean context it would be 18.
TEST(ClosedForm, IsAMeanOverContexts) {
  OffloadSetting setting = roundSetting();
  setting.attention = AttentionPlace::kCpu;
  setting.percent.wg = 20;
  setting.percent.wc = 80;
  EXPECT_DOUBLE_EQ(formOf(setting).decodeLayer.seconds, 18.8);
}

TEST(ClosedForm, PacksAndUnpacksOnTheDevice) {
  OffloadSetting setting = roundSetting();
  setting.weights = setting.kv = kQ4;
  const ClosedForm form = formOf(setting);
  EXPECT_DOUBLE_EQ(form.decode.loadWeights, 10 * kPacked);
  EXPECT_DOUBLE_EQ(form.decode.loadCache, 5.6 * kPacked);
  EXPECT_DOUBLE_EQ(form.decode.storeCache, 3.2 * kPacked);
  EXPECT_DOUBLE_EQ(form.decode.loadHidden, 0.8);
  EXPECT_DOUBLE_EQ(form.decode.unpackWeights, 5); // 2000 / 400: those on the device are packed, too
  EXPECT_DOUBLE_EQ(form.decode.unpackCache, 1.4); // 160 x 3.5 / 400
  EXPECT_DOUBLE_EQ(form.decode.packCache, 0.4);
  EXPECT_EQ(form.prefill.unpackCache, 0);
  EXPECT_DOUBLE_EQ(form.prefill.packCache, 1.2);
  EXPECT_DOUBLE_EQ(form.decodeLayer.seconds, 15.16); // device: 8 + 5 + 0.4 + (1.2 + 0.32 and 1.6 + 0.4)
}

// As plans do: products of up to two rows and attention read codes as they are, K and V are unpacked at a rate of their
// own, and each of two passes starts ops for 3 s, 2 more where it unpacks.
TEST(ClosedForm, IsOfHowPlansUnpack) {
  OffloadMachine machine = roundMachine();
  machine.attendsPacked = true;
  machine.cachePacking = 800;
  machine.packedProductRows = 2;
  machine.passOverhead = 3;
  machine.unpackOverhead = 2;
  OffloadSetting setting = roundSetting();
  setting.weights = setting.kv = kQ4;
  const ClosedForm form = formOf(setting, kOverlapped, machine);
  EXPECT_DOUBLE_EQ(form.decode.unpackCache, 160 * 3.5 / 800);
  EXPECT_DOUBLE_EQ(form.decode.deviceAttention, 160 * kPacked * 4.5 / 2000);
  EXPECT_EQ(form.decode.unpackWeights, 0); // 4 sequences in 2 parts
  EXPECT_DOUBLE_EQ(form.decode.linear, 2 * std::max(2 * 1000 * 2 / 1000.0, 2000 * kPacked / 2000));
  EXPECT_EQ(form.decode.overhead, 2 * 3);
  EXPECT_DOUBLE_EQ(form.prefill.unpackWeights, 2000 / 400.0); // 6 rows
  EXPECT_EQ(form.prefill.overhead, 2 * (3 + 2));
  EXPECT_EQ(form.decode.device(), form.decode.packing() + form.decode.linear + form.decode.deviceAttention + 6);
}

TEST(ClosedForm, OfASerialRuntimeIsLoadsThenTheRest) {
  EXPECT_DOUBLE_EQ(formOf(roundSetting(), kSerial).decodeLayer.seconds, 24.76);  // 15.6 + 8.32 and 17.2 + 8.4
  EXPECT_DOUBLE_EQ(formOf(roundSetting(), kSerial).prefillLayer.seconds, 37.36); // 12.4 + 24.96
  EXPECT_EQ(formOf(roundSetting(), kSerial).decodeLayer.limit, LimitingLane::kSerial);
  OffloadSetting setting = roundSetting();
  setting.attention = AttentionPlace::kCpu;
  EXPECT_DOUBLE_EQ(formOf(setting, kSerial).decodeLayer.seconds, 37.6); // 11.6 + 8 + (16 and 20)
  OffloadMachine machine = roundMachine();
  machine.d2hBandwidth = 10; // 24 of stores beside 23.92, then beside 25.6
  machine.duplexBandwidth = 110;
  EXPECT_DOUBLE_EQ(formOf(roundSetting(), kSerial, machine).decodeLayer.seconds, 24.8);
}

// Packing saves 10 x (1 - 0.28125) = 7.19 seconds of the link. Unpacking takes 5 once, and 10 where each of the two
// mini-batches unpacks anew: with the one it pays to pack weights, with the other it does not.
TEST(ClosedForm, TurnsWithHowOftenWeightsAreUnpacked) {
  OffloadSetting packed = roundSetting();
  packed.weights = kQ4;
  const double plain = formOf(roundSetting(), kSerial).decodeLayer.seconds;
  EXPECT_DOUBLE_EQ(formOf(packed, kSerial).decodeLayer.seconds, plain - 7.1875 + 5);
  EXPECT_DOUBLE_EQ(formOf(packed, kFlexGen).decodeLayer.seconds, plain - 7.1875 + 10);
}

TEST(ClosedForm, InitLoadsWeightsAsTheyArePacked) {
  OffloadMachine machine = roundMachine();
  EXPECT_FALSE(formOf(roundSetting(), kOverlapped, machine).init.has_value());
  machine.load = 1000;
  EXPECT_DOUBLE_EQ(*formOf(roundSetting(), kOverlapped, machine).init, 4.2); // 2 x 2000 + 200 bytes
  OffloadSetting packed = roundSetting();
  packed.weights = kQ4;
  const ClosedForm form = formOf(packed, kOverlapped, machine);
  EXPECT_DOUBLE_EQ(*form.init, 1.325); // 2 x 562.5 + 200 bytes
  EXPECT_DOUBLE_EQ(form.total(), 1.325 + form.generate);
}

TEST(ClosedForm, SaysWhatAMachineMustHold) {
  const OffloadBytes bytes = offloadBytes(roundModel(), roundSetting());
  EXPECT_EQ(bytes.host, 2 * (1000 + 160 * 6) + 3 * 80);             // weights, KV of 6 tokens; hidden states
  EXPECT_EQ(bytes.device, 2 * 1000 + 200 + 2 * 1000 + 2 * 160 * 3); // half; outside; slots: weights, KV of two parts
  OffloadSetting packed = roundSetting();
  packed.weights = packed.kv = kQ4;
  packed.percent = {50, 50, 50, 50, 100, 0};
  EXPECT_EQ(offloadBytes(roundModel(), packed).host, 833); // 2 x (281.25 + 0.5 x 0.28125 x 960)
  // The same half; outside; hidden states; slots and room to unpack of weights, then of KV.
  EXPECT_EQ(offloadBytes(roundModel(), packed).device, 832.5 + 200 + 240 + (562.5 + 2000) + (135 + 480));
  OffloadMachine machine = roundMachine();
  EXPECT_TRUE(checkFits(roundModel(), machine, roundSetting()).ok());
  machine.hostBytes = 4159;
  EXPECT_EQ(checkFits(roundModel(), machine, roundSetting()),
            absl::ResourceExhaustedError("4160 bytes of host memory: the machine has 4159"));
  machine.hostBytes = 4160;
  machine.deviceBytes = 5159;
  EXPECT_EQ(checkFits(roundModel(), machine, roundSetting()),
            absl::ResourceExhaustedError("5160 bytes of device memory: the machine has 5159"));
}

TEST(ClosedForm, IsOfAModel) {
  model::ModelSpec spec;
  spec.layers = 48;
  spec.hidden = 7168;
  spec.heads = spec.kvHeads = 56;
  spec.headDim = 128;
  spec.intermediate = 28672;
  spec.vocab = 50272;
  spec.maxPositions = 2048;
  spec.activation = model::Activation::Relu;
  spec.learnedPositions = true;
  spec.positionOffset = 2;
  spec.tiedEmbeddings = true;
  const OffloadModel opt = offloadModel(spec);
  EXPECT_EQ(opt.layerWeights, 4 * 7168LL * 7168 + 2 * 7168LL * 28672); // 4 h1^2 + 2 h1 h2
  EXPECT_EQ(opt.outsideWeights, (50272 + 2050) * 7168LL);
  EXPECT_EQ(opt.longestContext, 2048);
  spec.activation = model::Activation::SiluGate;
  spec.learnedPositions = spec.tiedEmbeddings = false;
  spec.kvHeads = 8;
  const OffloadModel llama = offloadModel(spec);
  EXPECT_EQ(llama.layerWeights, 2 * 7168LL * 7168 + 2 * 7168LL * 1024 + 3 * 7168LL * 28672);
  EXPECT_EQ(llama.outsideWeights, 2 * 50272 * 7168LL);
  EXPECT_EQ(llama.kvRows, 1024);
}

TEST(ClosedForm, RefusesWhatIsNoSetting) {
  const auto with = [](auto OffloadSetting::*field, auto value) {
    OffloadSetting setting = roundSetting();
    setting.*field = value;
    return refused(setting);
  };
  EXPECT_EQ(with(&OffloadSetting::block, 0), "block: 0 sequences: expected at least 1");
  EXPECT_EQ(with(&OffloadSetting::miniBatches, 5), "mini-batches: 5: expected 1 to 4, one for each sequence");
  EXPECT_EQ(with(&OffloadSetting::prompt, 0), "prompt: 0 tokens: expected at least 1");
  EXPECT_THAT(with(&OffloadSetting::output, 1), HasSubstr("output: 1 tokens: expected at least 2"));
  EXPECT_EQ(with(&OffloadSetting::output, 62), "context: 3 + 62 tokens: expected at most the model's 64");
  EXPECT_EQ(with(&OffloadSetting::prompt, std::numeric_limits<int64_t>::max()),
            "context: 9223372036854775807 + 3 tokens: expected at most the model's 64");
  EXPECT_THAT(with(&OffloadSetting::percent, model::Percent{50, 40, 0, 100, 0, 100}),
              HasSubstr("percent: expected wg + wc = 100, not 90"));
  OffloadMachine machine = roundMachine();
  machine.devicePacking = 0;
  EXPECT_EQ(refused(roundSetting(), machine), "devicePacking: 0: expected a positive rate");
  machine = roundMachine();
  machine.load = -1;
  EXPECT_EQ(refused(roundSetting(), machine), "load: -1: expected a positive rate, or 0 where there is none");
}

TEST(ClosedForm, AttendsToPackedRowsOnTheCpuWhereThereIsARate) {
  OffloadSetting setting = roundSetting();
  setting.attention = AttentionPlace::kCpu;
  setting.kv = kQ4;
  EXPECT_EQ(refused(setting), "attention: on the CPU with packed K and V: the machine has no rate for it");
  OffloadMachine machine = roundMachine();
  machine.cpuPackedAttention = 30;
  const ClosedForm form = formOf(setting, kOverlapped, machine);
  EXPECT_DOUBLE_EQ(form.decode.cpuAttention, 24); // 160 x 4.5 / 30
  EXPECT_EQ(form.decode.unpackCache, 0);
}

} // namespace
} // namespace headrace::cost
