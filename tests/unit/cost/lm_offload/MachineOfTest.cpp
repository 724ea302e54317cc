// SPDX-License-Identifier: Apache-2.0
#include "runtime/cost/lm_offload/MachineOf.h"

#include <gtest/gtest.h>

namespace headrace::cost {
namespace {

model::Hardware roundCard() {
  model::Hardware card;
  card.memoryBytes = 1000;
  card.hostMemoryBytes = 5000;
  card.flopsF32 = 100;
  card.flopsF16 = 1000;
  card.memoryBandwidth = 400;
  card.h2dBandwidth = 20;
  card.d2hBandwidth = 10;
  card.duplexBandwidth = 24;
  card.linkEfficiency = 0.5;
  card.flopsEfficiency = 0.5;
  card.memoryEfficiency = 0.25;
  return card;
}

model::ModelSpec halfSpec(model::DType dtype = model::DType::BF16) {
  model::ModelSpec spec;
  spec.dtype = dtype;
  spec.hidden = spec.headDim = 64, spec.heads = spec.kvHeads = 1, spec.intermediate = 128;
  return spec;
}

TEST(MachineOf, IsWhatPlansArePricedWith) {
  const OffloadMachine machine = offloadMachine(roundCard(), halfSpec(), std::nullopt, std::nullopt, 900);
  EXPECT_EQ(machine.h2dBandwidth, 10);
  EXPECT_EQ(machine.d2hBandwidth, 5);
  EXPECT_EQ(machine.duplexBandwidth, 12);
  EXPECT_EQ(machine.deviceFlops, 500);
  EXPECT_EQ(machine.deviceBandwidth, 100);
  EXPECT_EQ(machine.deviceBytes, 900U);
  EXPECT_EQ(machine.hostBytes, 5000U);
  EXPECT_EQ(machine.cpuAttention, 0);
  model::Hardware classes = roundCard();
  classes.classes.productFlopsEfficiency = 0.8;
  classes.classes.productMemoryEfficiency = 0.5;
  EXPECT_EQ(offloadMachine(classes, halfSpec(), std::nullopt, std::nullopt, 900).deviceFlops, 800);
  EXPECT_EQ(offloadMachine(classes, halfSpec(), std::nullopt, std::nullopt, 900).deviceBandwidth, 200);
  EXPECT_EQ(offloadMachine(roundCard(), halfSpec(model::DType::F32), std::nullopt, std::nullopt, 900).deviceFlops, 50);
}

// On a card codes are read and elements written at 100 bytes/s: of 128 bytes of elements q4 has 36 of codes. Two flops
// make a code an element of 2 bytes: 500 a second.
TEST(MachineOf, UnpacksAtTheRatesOfMemoryAndOfFlops) {
  const OffloadMachine q4 = offloadMachine(roundCard(), halfSpec(), model::Encoding::groups(4), std::nullopt, 900);
  EXPECT_DOUBLE_EQ(q4.devicePacking, 100 / (1 + 36.0 / 128));
  EXPECT_EQ(q4.cachePacking, 500);
  EXPECT_EQ(q4.packedProductRows, 8);
  EXPECT_TRUE(q4.attendsPacked);
  model::Hardware host = roundCard();
  host.kind = model::DeviceKind::Host;
  host.classes.unpackFlopsEfficiency = 0.1;
  const OffloadMachine cpu = offloadMachine(host, halfSpec(), model::Encoding::groups(4), std::nullopt, 900);
  EXPECT_EQ(cpu.deviceFlops, 50); // F32's
  EXPECT_EQ(cpu.devicePacking, 10);
  EXPECT_EQ(cpu.packedProductRows, 0);
}

// Four cores at 6 bytes/s are 24 of the 20 that host memory has. One query of 64 rows attends to as many of keys and of
// values: two flops an element of 2 bytes, of 8 flops 8 bytes/s; of 80 flops 80, so memory is the limit: 20. q8 has 72
// bytes for 128 of elements; two flops more: of 80 flops 40.
TEST(MachineOf, TheCpuAttendsAtTheRateOfHostMemoryOrOfFlops) {
  model::Hardware card = roundCard();
  card.cpu = {.cores = 4, .flops = 8, .memoryBandwidth = 20, .coreBandwidth = 6};
  EXPECT_EQ(offloadMachine(card, halfSpec(), std::nullopt, std::nullopt, 900).cpuAttention, 8);
  card.cpu.flops = 80;
  const OffloadMachine plain = offloadMachine(card, halfSpec(), std::nullopt, std::nullopt, 900);
  EXPECT_EQ(plain.cpuAttention, 20);
  EXPECT_EQ(plain.cpuPackedAttention, 0);
  EXPECT_DOUBLE_EQ(plain.cpuOverhead, 60e-6); // appending and attending
  const model::Encoding q8 = model::Encoding::groups(8);
  const double share = static_cast<double>(q8.groupBytes()) / (2.0 * static_cast<double>(q8.group));
  EXPECT_DOUBLE_EQ(offloadMachine(card, halfSpec(), std::nullopt, q8, 900).cpuPackedAttention,
                   std::min(20 / share, 40.0));
}

// Eight ops of a pass and attention start in a second each, or attention in five; each of four matrices is unpacked in
// one part, by two kernels of which the product's start is one.
TEST(MachineOf, StartsOps) {
  model::Hardware card = roundCard();
  card.launchOverhead = 1;
  EXPECT_EQ(offloadMachine(card, halfSpec(), std::nullopt, std::nullopt, 900).passOverhead, 9);
  EXPECT_EQ(offloadMachine(card, halfSpec(), std::nullopt, std::nullopt, 900).unpackOverhead, 0);
  card.classes.attentionOverhead = 5;
  const OffloadMachine q4 = offloadMachine(card, halfSpec(), model::Encoding::groups(4), std::nullopt, 900);
  EXPECT_EQ(q4.passOverhead, 13);
  EXPECT_EQ(q4.unpackOverhead, 4);
}

// On the host caches hold F32; hidden states do on every device.
TEST(MachineOf, HoldsCachesAndHiddenStatesAsPlansDo) {
  model::ModelSpec spec = halfSpec();
  spec.layers = 2, spec.hidden = 8, spec.heads = spec.kvHeads = 2, spec.headDim = 4, spec.vocab = 16;
  model::Hardware host = roundCard();
  EXPECT_EQ(plannedModel(spec, host).kvBytes, 0);
  EXPECT_EQ(plannedModel(spec, host).hiddenBytes, 4);
  host.kind = model::DeviceKind::Host;
  EXPECT_EQ(plannedModel(spec, host).kvBytes, 4);
  EXPECT_EQ(plannedModel(spec, host).elementBytes, 2);
}

} // namespace
} // namespace headrace::cost
