// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/GraphSteps.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/TinyPlan.h"

namespace headrace::core {
namespace {

using plan::kNone;
using testing::ElementsAre;
using testing::HasSubstr;

// Compute steps ("c"), copies in ("i") and out ("o"), and publishes ("p").
plan::Schedule scheduleOf(const std::string &steps, const std::vector<plan::Edge> &edges = {}) {
  plan::Schedule schedule;
  schedule.name = "S";
  schedule.edges = edges;
  for (const char kind : steps) {
    plan::Step step;
    step.kind = kind == 'c' ? plan::StepKind::Compute : kind == 'p' ? plan::StepKind::Publish : plan::StepKind::Copy;
    if (step.kind == plan::StepKind::Copy) {
      step.lane = kind == 'i' ? plan::Lane::H2D : plan::Lane::D2H;
      step.firstOperand = static_cast<uint32_t>(schedule.operands.size());
      step.operandCount = 2;
      const plan::Operand host{.space = plan::Space::Host, .bytes = 256, .address = 512};
      const plan::Operand device{.bytes = 256, .address = 1024};
      schedule.operands.push_back(kind == 'i' ? host : device);
      schedule.operands.push_back(kind == 'i' ? device : host);
    }
    schedule.steps.push_back(step);
  }
  return schedule;
}

std::string refusal(const plan::Schedule &schedule, bool transition = false) {
  static const plan::Variant kVariant;
  const absl::Status status = checkSteps({.schedule = &schedule, .variant = transition ? nullptr : &kVariant});
  EXPECT_TRUE(status.ok() || status.code() == absl::StatusCode::kInvalidArgument) << status;
  return std::string(status.message());
}

TEST(GraphSteps, AKeyIsAVariantOrATransitionOfThePlan) {
  plan::Plan plan = tinyPlan({.spec = tinyLlama(4), .offloaded = {1, 3}, .wrap = true});
  const auto variant = graphSource(plan, {.transition = false, .index = 1});
  ASSERT_TRUE(variant.ok()) << variant.status();
  EXPECT_EQ(variant->variant, &plan.variants[1]);
  EXPECT_EQ(variant->schedule, &plan.schedules[plan.variants[1].schedule]);
  EXPECT_EQ(variant->durationsNs.data(), plan.variants[1].durationsNs.data());
  EXPECT_EQ(variant->bucket.tokens, plan.variants[1].newTokens);
  EXPECT_EQ(variant->bucket.sequences, plan.variants[1].sequences);
  ASSERT_FALSE(plan.transitions.empty());
  const auto transition = graphSource(plan, {.transition = true, .index = 0});
  ASSERT_TRUE(transition.ok()) << transition.status();
  EXPECT_EQ(transition->variant, nullptr);
  EXPECT_EQ(transition->schedule, &plan.schedules[plan.transitions[0].schedule]);

  EXPECT_EQ(graphSource(plan, {.transition = false, .index = 2}).status().message(),
            "variant 2 to build, the plan has 2");
  EXPECT_EQ(graphSource(plan, {.transition = true, .index = 7}).status().message(),
            "transition 7 to build, the plan has 1");
  plan.variants[0].schedule = 9;
  EXPECT_THAT(std::string(graphSource(plan, {}).status().message()), HasSubstr("variant 0: schedule 9, the plan has "));
}

TEST(GraphSteps, StepsOfAFormThatNoGraphHasAreRefused) {
  EXPECT_EQ(refusal(scheduleOf("icop")), "");
  EXPECT_EQ(refusal(scheduleOf("io"), /*transition=*/true), "");
  EXPECT_EQ(refusal(scheduleOf("ic"), /*transition=*/true), "schedule 'S', step 1: a transition has copies only");
  EXPECT_EQ(refusal(scheduleOf("p"), /*transition=*/true), "schedule 'S', step 0: a transition has copies only");
  EXPECT_EQ(refusal(scheduleOf("cc")), "schedule 'S': 0 publish steps, expected 1");
  EXPECT_EQ(refusal(scheduleOf("cpp")), "schedule 'S': 2 publish steps, expected 1");
  plan::Schedule schedule = scheduleOf("icp");
  schedule.steps[1].lane = plan::Lane::Cpu;
  EXPECT_EQ(refusal(schedule), "");
  schedule.steps[2].lane = plan::Lane::Cpu;
  EXPECT_EQ(refusal(schedule), "schedule 'S', step 2: publish in lane 'cpu'");
  schedule = scheduleOf("icp");
  schedule.steps[1].lane = plan::Lane::D2H;
  EXPECT_EQ(refusal(schedule), "schedule 'S', step 1: compute in lane 'd2h'");
  schedule = scheduleOf("icp");
  schedule.steps[2].lane = plan::Lane::H2D;
  EXPECT_EQ(refusal(schedule), "schedule 'S', step 2: publish in lane 'h2d'");
  schedule = scheduleOf("icp");
  schedule.operands.pop_back();
  EXPECT_EQ(refusal(schedule), "schedule 'S', step 0: its operands are outside the schedule's list");
}

TEST(GraphSteps, ACopysSidesAreWhereItsDirectionSays) {
  std::byte device[2048], host[1024];
  const GraphSpaces spaces{{device, host}, sizeof(device), sizeof(host)};
  const plan::Plan plan;
  const auto in = copySides(plan, scheduleOf("i"), 0, spaces), out = copySides(plan, scheduleOf("o"), 0, spaces);
  ASSERT_TRUE(in.ok() && out.ok());
  EXPECT_TRUE(in->toDevice);
  EXPECT_EQ(in->source, host + 512);
  EXPECT_EQ(in->destination, device + 1024);
  EXPECT_EQ(in->bytes, 256u);
  EXPECT_FALSE(out->toDevice);
  EXPECT_EQ(out->source, device + 1024);
  EXPECT_EQ(out->destination, host + 512);

  const auto refused = [&](auto &&change) {
    plan::Schedule schedule = scheduleOf("i");
    change(schedule);
    return std::string(copySides(plan, schedule, 0, spaces).status().message());
  };
  EXPECT_THAT(refused([](plan::Schedule &s) { s.steps[0].operandCount = 1; }),
              HasSubstr("step 0: a copy has 2 operands, this one 1"));
  EXPECT_THAT(refused([](plan::Schedule &s) { s.steps[0].lane = plan::Lane::D2H; }),
              HasSubstr("a copy in lane 'd2h' whose sides are not those of its direction"));
  EXPECT_THAT(refused([](plan::Schedule &s) { s.operands[1].bytes = 128; }), HasSubstr("a copy of 256 bytes to 128"));
  EXPECT_THAT(refused([](plan::Schedule &s) { s.operands[0].address = 769; }), // 769 + 256 is one more than 1024
              HasSubstr("bytes [769, +256) are outside the host slab of 1024"));
  EXPECT_THAT(refused([](plan::Schedule &s) { s.operands[1].address = ~uint64_t{0}; }),
              HasSubstr("are outside the arena of 2048"));
}

// A copy into blocks [4, 20) of kv.1, of 1 KiB: from byte 0 of the host, one run, to byte 1024 of the device, a block
// every 4 KiB (four layers).
struct Interleaved {
  plan::Plan plan = tinyPlan({.spec = tinyLlama(4)});
  plan::Schedule schedule = scheduleOf("i");
  std::vector<std::byte> device = std::vector<std::byte>(64 * 1024), host = std::vector<std::byte>(16 * 1024);

  Interleaved() {
    schedule.operands[0] = {.buffer = plan.kvBuffer(1), .space = plan::Space::Host, .bufferOffset = 4096};
    schedule.operands[0].bytes = 16 * 1024;
    schedule.operands[1] = schedule.operands[0];
    schedule.operands[1].space = plan::Space::Device;
    schedule.operands[1].interleaved = true;
    schedule.operands[1].address = 1024;
  }
  absl::StatusOr<CopySides> sides() {
    return copySides(plan, schedule, 0, {{device.data(), host.data()}, device.size(), host.size()});
  }
  std::string refused() { return std::string(sides().status().message()); }
};

TEST(GraphSteps, TheBlocksOfAnInterleavedSideAreRows) {
  Interleaved copy;
  ASSERT_EQ(copy.plan.kvBlockBytes(), 1024u);
  auto sides = copy.sides();
  ASSERT_TRUE(sides.ok()) << sides.status();
  EXPECT_TRUE(sides->inRows());
  EXPECT_EQ(sides->rows(), 16u);
  EXPECT_EQ(sides->rowBytes, 1024u);
  EXPECT_EQ(sides->pitch, 4096u);
  EXPECT_EQ(sides->bytes, 16u * 1024);
  EXPECT_FALSE(sides->sized.has_value());
  // The last row ends at 1024 + 15 * 4096 + 1024 = 63,488 of 65,536: two KiB further on it ends with the arena.
  copy.schedule.operands[1].address += 2048;
  EXPECT_TRUE(copy.sides().ok());
  copy.schedule.operands[1].address += 256;
  EXPECT_THAT(copy.refused(), HasSubstr("bytes [3328, +62464) are outside the arena of 65536"));
  copy.schedule.operands[1].address = 0;
  copy.schedule.operands[0].bytes = copy.schedule.operands[1].bytes = 16 * 1024 - 256;
  EXPECT_THAT(copy.refused(),
              HasSubstr("an interleaved copy of 16128 bytes, expected blocks of a layer's cache, of 1024"));
  copy.schedule.operands[1].buffer = 0;
  EXPECT_THAT(copy.refused(), HasSubstr("expected blocks of a layer's cache, of 0"));
  copy.schedule.operands[0].interleaved = true;
  EXPECT_THAT(copy.refused(), HasSubstr("a copy whose side on the host is interleaved, expected one run"));
  Interleaved single; // block 4 alone, 1 KiB at byte 1024
  single.schedule.operands[0].bytes = single.schedule.operands[1].bytes = 1024;
  sides = single.sides();
  ASSERT_TRUE(sides.ok()) << sides.status();
  EXPECT_FALSE(sides->inRows());
  EXPECT_EQ(sides->bytes, 1024u);
  Interleaved one; // of one layer: the blocks follow each other
  one.plan = tinyPlan({.spec = tinyLlama(1)});
  one.schedule.operands[0].buffer = one.schedule.operands[1].buffer = one.plan.kvBuffer(0);
  sides = one.sides();
  ASSERT_TRUE(sides.ok()) << sides.status();
  EXPECT_FALSE(sides->inRows());
  EXPECT_EQ(sides->rows(), 1u);
}

// Bytes 1000 to 3999 of the copy: the end of block 0, blocks 1 and 2, the beginning of block 3.
TEST(GraphSteps, AnyPartOfACopyInRowsIsCopied) {
  Interleaved copy;
  for (size_t i = 0; i < copy.host.size(); ++i)
    copy.host[i] = static_cast<std::byte>(1 + i % 251);
  const std::vector<std::byte> from = copy.host;
  auto sides = copy.sides();
  ASSERT_TRUE(sides.ok()) << sides.status();
  copyPart(*sides, 1000, 3000);
  std::vector<std::byte> expected(copy.device.size());
  for (size_t i = 1000; i < 4000; ++i)
    expected[1024 + i / 1024 * 4096 + i % 1024] = from[i];
  EXPECT_EQ(copy.device, expected);
  // And back.
  copy.schedule.steps[0].lane = plan::Lane::D2H;
  std::swap(copy.schedule.operands[0], copy.schedule.operands[1]);
  sides = copy.sides();
  ASSERT_TRUE(sides.ok()) << sides.status();
  copy.host.assign(copy.host.size(), std::byte{0});
  copyPart(*sides, 0, 4000);
  for (size_t i = 0; i < copy.host.size(); ++i)
    ASSERT_EQ(copy.host[i], i >= 1000 && i < 4000 ? from[i] : std::byte{0}) << i;
}

TEST(GraphSteps, AResizableCopySaysItsBlocks) {
  Interleaved copy;
  copy.schedule.steps[0].resizable = true;
  auto sides = copy.sides();
  ASSERT_TRUE(sides.ok() && sides->sized.has_value()) << sides.status();
  EXPECT_EQ(sides->sized->firstBlock, 4);
  EXPECT_EQ(sides->sized->blockBytes, 1024u);
  EXPECT_EQ(sides->sized->bytes, 16u * 1024);
  EXPECT_TRUE(sides->sized->wholeBlocks);
  EXPECT_EQ(sides->bytesIn(InUse{}), 16u * 1024);
  EXPECT_EQ(sides->bytesIn(InUse{.kvBlocks = 9}), 5u * 1024);
  copy.schedule.operands[1].interleaved = false;
  sides = copy.sides();
  ASSERT_TRUE(sides.ok() && sides->sized.has_value()) << sides.status();
  EXPECT_FALSE(sides->sized->wholeBlocks);
  EXPECT_EQ(sides->bytesIn(InUse{.kvBlocks = 4}), 256u);
  copy.schedule.operands[0].bufferOffset = 4096 + 256;
  EXPECT_THAT(copy.refused(), HasSubstr("begins at byte 4352 of buffer "));
  copy.schedule.operands[0] = {.buffer = 0, .space = plan::Space::Host, .bytes = 16 * 1024};
  EXPECT_THAT(
      copy.refused(),
      HasSubstr("begins at byte 0 of buffer 0, expected a layer's cache and the beginning of a block of 0 bytes"));
  copy.schedule.steps[0].kind = plan::StepKind::Compute;
  EXPECT_THAT(std::string(sizedCopy(copy.plan, copy.schedule, 0).status().message()),
              HasSubstr("step 0: its size may change, but it is no copy"));
}

// Blocks [4, 20), one run, back to the host.
TEST(GraphSteps, ACopyOfWhatWasWrittenBeginsWhereThatDoes) {
  Interleaved copy;
  copy.schedule.operands[1].interleaved = false;
  copy.schedule.steps[0].resizable = copy.schedule.steps[0].dirtyOnly = true;
  EXPECT_EQ(copy.refused(),
            "schedule 'S', step 0: a copy of what was written, expected one to the host in an iteration");
  copy.schedule.steps[0].lane = plan::Lane::D2H;
  std::swap(copy.schedule.operands[0], copy.schedule.operands[1]);
  const auto sides = copy.sides();
  ASSERT_TRUE(sides.ok() && sides->sized.has_value()) << sides.status();
  EXPECT_TRUE(sides->sized->dirtyOnly);
  EXPECT_EQ(sides->runIn(InUse{}), (CopyRun{0, 16 * 1024}));
  EXPECT_EQ(sides->runIn(InUse{.writtenBegin = 9, .writtenEnd = 12}), (CopyRun{5 * 1024, 3 * 1024}));
  copy.schedule.iterationClass = plan::IterationClass::Transition;
  EXPECT_THAT(copy.refused(), HasSubstr("expected one to the host in an iteration"));
  copy.schedule.steps[0].resizable = false;
  EXPECT_EQ(copy.refused(), "schedule 'S', step 0: a copy of what was written whose size may not change");
}

TEST(GraphSteps, ALaneWaitsForTheLastStepOfAnotherOnce) {
  // h2d: 0, 1; compute: 2, 3, 4 and the publish.
  const auto waits = stepWaits(scheduleOf("iicccp", {{0, 2}, {1, 2}, {0, 3}, {2, 3}, {1, 4}, {0, 4}}));
  ASSERT_TRUE(waits.ok()) << waits.status();
  EXPECT_THAT((*waits)[2], ElementsAre(kNone, 1, kNone, kNone)); // of 0 and 1 the last
  EXPECT_THAT((*waits)[3],
              ElementsAre(kNone, kNone, kNone, kNone)); // 2 has waited for 1; it is in the lane of 3 itself
  EXPECT_THAT((*waits)[4], ElementsAre(kNone, kNone, kNone, kNone));
  // What one lane has waited for another has not: 1 is waited for by compute and by d2h.
  const auto both = stepWaits(scheduleOf("cicop", {{0, 1}, {1, 2}, {1, 3}, {2, 3}, {3, 4}}));
  ASSERT_TRUE(both.ok()) << both.status();
  EXPECT_THAT((*both)[1], ElementsAre(0, kNone, kNone, kNone));
  EXPECT_THAT((*both)[2], ElementsAre(kNone, 1, kNone, kNone));
  EXPECT_THAT((*both)[3], ElementsAre(2, 1, kNone, kNone));
  EXPECT_THAT((*both)[4], ElementsAre(kNone, kNone, 3, kNone));
  // Step 1 is the CPU's: of a device that is the CPU it stands between 0 and 3, and only the copy waits.
  plan::Schedule schedule = scheduleOf("ccocp", {{0, 1}, {0, 2}, {1, 2}, {1, 3}, {2, 3}});
  schedule.steps[1].lane = plan::Lane::Cpu;
  const auto beside = stepWaits(schedule), same = stepWaits(schedule, /*isCpu=*/true);
  ASSERT_TRUE(beside.ok() && same.ok());
  EXPECT_THAT((*beside)[1], ElementsAre(0, kNone, kNone, kNone));
  EXPECT_THAT((*beside)[2], ElementsAre(0, kNone, kNone, 1));
  EXPECT_THAT((*beside)[3], ElementsAre(kNone, kNone, 2, 1));
  EXPECT_THAT((*same)[1], ElementsAre(kNone, kNone, kNone, kNone));
  EXPECT_THAT((*same)[2], ElementsAre(1, kNone, kNone, kNone));
  EXPECT_THAT((*same)[3], ElementsAre(kNone, kNone, 2, kNone));
  EXPECT_THAT(std::string(stepWaits(scheduleOf("icp", {{1, 0}})).status().message()),
              HasSubstr("edge from step 1 to 0"));
  EXPECT_THAT(std::string(stepWaits(scheduleOf("icp", {{0, 9}})).status().message()),
              HasSubstr("edge from step 0 to 9"));
}

} // namespace
} // namespace headrace::core
