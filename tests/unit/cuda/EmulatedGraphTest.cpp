// SPDX-License-Identifier: Apache-2.0
//
// Recorded graphs compute what they should: run with the kernels' own source on the host, they give the host device's
// tokens, and the same bits wherever weights live and in whatever order their edges allow.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "runtime/host/HostDevice.h"
#include "tests/unit/cuda/EmulatedGraphDevice.h"
#include "tests/unit/cuda/Generate.h"

namespace headrace::cuda {
namespace {

using core::tinyLlama;
using core::tinyOpt;

Outcome emulated(const core::TinyPlanOptions &options, const EmulatedGraphOptions &emulation = {}) {
  const plan::Plan plan = planFor(model::DeviceKind::Cuda, options);
  return generate(*makeEmulatedGraphDevice(emulation), plan);
}

TEST(EmulatedGraph, GivesTheHostsTokensInF32) {
  for (model::ModelSpec spec : {tinyLlama(2), tinyOpt(2)}) {
    spec.dtype = model::DType::F32;
    const core::TinyPlanOptions options{.spec = spec, .offloaded = {1}, .wrap = true};
    const plan::Plan plan = planFor(model::DeviceKind::Host, options);
    const Outcome wanted = generate(*host::makeHostDevice(), plan), found = emulated(options);
    EXPECT_EQ(found.tokens, wanted.tokens) << spec.name;
    EXPECT_EQ(wanted.tokens.size(), static_cast<size_t>(kIterations));
    EXPECT_LT(largestDifference(found.logits, wanted.logits), 1e-3) << spec.name;
  }
}

TEST(EmulatedGraph, BitsDependNeitherOnPlacementNorOnTheOrderOfNodes) {
  for (const model::ModelSpec &whole : models()) {
    model::ModelSpec spec = whole;
    spec.layers = 2;
    const Outcome resident = emulated({.spec = spec});
    uint64_t order = 0;
    for (bool wrap : {false, true})
      for (int64_t slots : {1, 2}) {
        const Outcome other =
            emulated({.spec = spec, .offloaded = {0, 1}, .wrap = wrap, .slots = slots}, {.order = ++order});
        EXPECT_EQ(other.tokens, resident.tokens) << spec.name;
        EXPECT_TRUE(sameBits(other.logits, resident.logits)) << spec.name << ", wrap " << wrap << ", slots " << slots;
      }
  }
}

TEST(EmulatedGraph, HeadsOfTensorCoresRunTheirKernels) {
  std::set<std::string> ran;
  for (const model::ModelSpec &spec : models())
    if (spec.headDim > 16)
      (void)emulated({.spec = spec, .offloaded = {1}}, {.ran = &ran});
  std::erase_if(ran, [](const std::string &kernel) { return !kernel.starts_with("attention_"); });
  EXPECT_THAT(ran, testing::ElementsAre("attention_decode_bf16_128", "attention_decode_f16_64",
                                        "attention_prefill_bf16_128_m64", "attention_prefill_f16_64_m64"));
}

TEST(EmulatedGraph, TwoLaunchesInFlightDoWhatTheyDoOneByOne) {
  for (const bool wrap : {false, true}) {
    const plan::Plan plan =
        planFor(model::DeviceKind::Cuda, {.spec = tinyLlama(2), .offloaded = {0, 1}, .wrap = wrap, .slots = 1});
    const Outcome apart = generate(*makeEmulatedGraphDevice({}), plan, /*oneByOne=*/true),
                  together = generate(*makeEmulatedGraphDevice({.order = 5}), plan);
    EXPECT_EQ(together.tokens, apart.tokens) << wrap;
    EXPECT_TRUE(sameBits(together.logits, apart.logits)) << wrap;
  }
}

TEST(EmulatedGraph, WhatTheLibraryDoesNotFuseIsDoneBehindIt) {
  model::ModelSpec spec = tinyOpt(2);
  spec.dtype = model::DType::F32;
  const Outcome fused = emulated({.spec = spec}), apart = emulated({.spec = spec}, {.fuse = FusePolicy::None});
  EXPECT_EQ(apart.tokens, fused.tokens);
  EXPECT_LT(largestDifference(apart.logits, fused.logits), 1e-3);
}

// 14 rows: blocks 1 to 3, and half of block 4. What no row was written to is as the device made it.
TEST(EmulatedGraph, TheHomeOfAMirroredCacheIsTheCacheAndChangesNothing) {
  model::ModelSpec spec = tinyLlama(2);
  spec.dtype = model::DType::F32;
  const Outcome without = emulated({.spec = spec, .offloaded = {0, 1}, .slots = 1});
  const plan::Plan plan =
      planFor(model::DeviceKind::Cuda, {.spec = spec, .offloaded = {0, 1}, .slots = 1, .mirroredFrom = 2});
  const auto device = makeEmulatedGraphDevice({.order = 4});
  const Outcome with = generate(*device, plan);
  EXPECT_EQ(with.tokens, without.tokens);
  EXPECT_TRUE(sameBits(with.logits, without.logits));
  int homes = 0;
  for (const plan::Operand &home : plan.schedules[0].operands)
    if (home.arg == plan::Arg::KvHome) {
      std::vector<std::byte> cache(home.bytes);
      const uint64_t address = plan.placements[0].extents[home.buffer].address + home.bufferOffset;
      ASSERT_TRUE(device->readDevice(address, absl::MakeSpan(cache)).ok());
      const auto mirrored = device->hostSlab().subspan(home.address, home.bytes);
      EXPECT_TRUE(std::equal(cache.begin(), cache.end(), mirrored.begin()));
      EXPECT_NE(mirrored[0], std::byte{0xff}); // block 2
      ++homes;
    }
  EXPECT_EQ(homes, 2);
}

TEST(EmulatedGraph, WithoutEdgesBetweenLanesItWouldShow) {
  const core::TinyPlanOptions options{.spec = tinyLlama(2), .offloaded = {0, 1}, .slots = 1};
  const Outcome right = emulated(options), wrong = emulated(options, {.order = 3, .dropCrossEdges = true});
  EXPECT_FALSE(sameBits(right.logits, wrong.logits));
}

} // namespace
} // namespace headrace::cuda
