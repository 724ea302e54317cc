// SPDX-License-Identifier: Apache-2.0
#include "compiler/Compile.h"

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "kernels/Kernels.h"
#include "runtime/core/TransitionPaths.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/plan/PlanFile.h"
#include "runtime/plan/proof/PlanVerifier.h"
#include "runtime/plan/value/CacheMap.h"
#include "runtime/sim/Simulator.h"
#include "tests/support/StatedPlacements.h"
#include "tests/unit/compiler/Requests.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace headrace::compiler {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

std::set<int32_t> layersOnHost(const plan::Plan &plan, const plan::Placement &placement) {
  std::set<int32_t> layers;
  for (const plan::Extent &extent : placement.extents)
    if (extent.space == plan::Space::Host && plan.buffers[extent.buffer].layer >= 0)
      layers.insert(plan.buffers[extent.buffer].layer);
  return layers;
}

const plan::Step &embedOf(const plan::Schedule &schedule) {
  return *std::find_if(schedule.steps.begin(), schedule.steps.end(), [](const plan::Step &step) {
    return step.kind == plan::StepKind::Compute && step.op == kernels::Op::Embed;
  });
}

TEST(Compile, OffloadsNothingWhereEverythingFits) {
  const auto plan = compile(request(tinyLlama(3)));
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->placements.size(), 1u);
  EXPECT_EQ(plan->placements[0].name, "none");
  EXPECT_TRUE(plan->placements[0].slots.empty());
  EXPECT_EQ(plan->hostBytes, 0u);
  EXPECT_EQ(plan->states.size(), 1u);
  EXPECT_TRUE(plan->transitions.empty());
  EXPECT_THAT(plan->reason, HasSubstr("offload nothing"));
  EXPECT_EQ(plan->limitingResource, "compute");
  for (const plan::Schedule &schedule : plan->schedules) {
    EXPECT_TRUE(schedule.edges.empty()); // one lane
    // Embed; norm, qkv, rope, attention, out, norm, up, activate, down in 3 layers; gather, norm, head, sample,
    // publish.
    EXPECT_EQ(schedule.steps.size(), 1u + 9 * 3 + 5);
  }
  for (const plan::Variant &variant : plan->variants) {
    EXPECT_EQ(variant.predictedNs, variant.computeAloneNs);
    EXPECT_EQ(variant.linkAloneNs, 0u);
  }
}

TEST(Compile, MakesDecodeAndMixedVariantsOfTheBuckets) {
  CompileRequest r = request(tinyLlama(2));
  r.buckets.sequences = {1, 2};
  r.buckets.newTokens = {8, 32};
  r.buckets.contexts = {16, 64};
  const auto plan = compile(r);
  ASSERT_TRUE(plan.ok()) << plan.status();
  std::vector<std::string> decode, mixed;
  for (const plan::Variant &v : plan->variants) {
    const bool isDecode = plan->schedules[v.schedule].iterationClass == plan::IterationClass::Decode;
    (isDecode ? decode : mixed).push_back(absl::StrCat(v.newTokens, "x", v.sequences, "@", v.context));
  }
  EXPECT_THAT(decode, ElementsAre("1x1@16", "1x1@64", "2x2@16", "2x2@64"));
  // 32 new tokens of one sequence do not fit a context of 16, of two they do.
  EXPECT_THAT(mixed, ElementsAre("8x1@16", "8x1@64", "8x2@16", "8x2@64", "32x1@64", "32x2@16", "32x2@64"));
}

TEST(Compile, ThePlanSaysWhatItWasMadeFrom) {
  CompileRequest r = request(tinyLlama(2));
  r.modelPath = "some/folder";
  const auto plan = compile(r);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->modelPath, "some/folder");
  EXPECT_EQ(plan->modelHash, "0123");
  EXPECT_EQ(plan->goal.batch, 2);
  EXPECT_EQ(plan->goal.context, 64);
  EXPECT_EQ(plan->goal.kvTokens, 2 * 64);
  EXPECT_EQ(plan->kvBlocks, 2 * 64 / 16 + 1);
  EXPECT_EQ(plan->deviceMemory, uint64_t{1} << 30);
  EXPECT_EQ(plan->metaLayout.maxBlocksPerSequence, 64 / 16);
  EXPECT_EQ(plan->activationDtype, model::DType::F32);
  EXPECT_EQ(plan->kvEncoding, model::DType::F32);
}

TEST(Compile, OnCudaActivationsAndCacheAreOfTheCheckpointsType) {
  CompileRequest r = request(tinyQwen(2, false));
  r.hardware.kind = model::DeviceKind::Cuda;
  const auto plan = compile(r);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->activationDtype, model::DType::BF16);
  EXPECT_EQ(plan->kvEncoding, model::DType::BF16);
}

TEST(Compile, PackedWeightsTakeTheirOwnBytes) {
  CompileRequest r = request(tinyLlama(3)); // groups of 32 divide 64 and 96
  r.policy.interval = 1;
  std::string expected;
  const auto plain = compile(r);
  ASSERT_TRUE(plain.ok()) << plain.status();
  r.model->encodings = *model::weightEncodingsFromText("q4:32", r.model, expected);
  const auto plan = compile(r);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const model::WeightLayout layout = model::layoutWeights(plan->model);
  EXPECT_EQ(plan->hostBytes, 3 * layout.layerBytes(0));
  EXPECT_LT(plan->hostBytes * 3, plain->hostBytes * 2); // F32: 20 bytes of 128 a group, and what is not packed
  EXPECT_LT(plan->arenaBytes, plain->arenaBytes);
  for (const plan::Schedule &schedule : plan->schedules) {
    uint64_t copied = 0;
    for (const plan::Step &step : schedule.steps)
      if (step.kind == plan::StepKind::Copy)
        copied += step.linkBytes;
    if (schedule.iterationClass != plan::IterationClass::Transition) {
      EXPECT_EQ(copied, 3 * layout.layerBytes(0)) << schedule.name;
    }
  }
  EXPECT_LT(plan->variants[0].linkAloneNs, plain->variants[0].linkAloneNs);
}

// Four layers, 2 x 4 blocks of 16 tokens and the scratch block of each: in 4 bits a row of a head of 32 is 16 bytes of
// codes and 4 of a group's scale and minimum; in 8 bits one of 64 is 64 and 4.
TEST(Compile, PackedCachesTakeTheirOwnBytes) {
  CompileRequest r = request(tinyLlama(4));
  r.model->headDim = 32;
  const int64_t kvHeads = r.model->kvHeads;
  r.goal.kvEncoding = model::Encoding::groups(4);
  const auto plan = compile(r);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->kvEncoding, model::Encoding::groups(4, 32)); // the largest group that divides a head
  EXPECT_EQ(plan->goal.kvEncoding, plan->kvEncoding);
  EXPECT_THAT(plan->reason,
              ::testing::EndsWith(". Keys and values are in q4: 20 bytes of a head of 32, 0.312 of 16 bits"));
  EXPECT_EQ(plan->kvBlockBytes(), static_cast<uint64_t>(2 * kvHeads * 16 * 20));
  for (const plan::Extent &extent : plan->placements[0].extents)
    if (plan->buffers[extent.buffer].kind == plan::BufferKind::Kv) {
      EXPECT_EQ(extent.bytes, model::alignUp(static_cast<uint64_t>(plan->kvBlocks) * plan->kvBlockBytes()));
    }
  // Three blocks of each cache stay, and the other six go through two slots: 4 x 3 + 2 x 6.
  ASSERT_EQ(plan->kvBlocks, 9);
  r.goal.kvDeviceMemory = 24 * plan->kvBlockBytes();
  const auto split = compile(r);
  ASSERT_TRUE(split.ok()) << split.status();
  EXPECT_EQ(plan::CacheMap(*split, split->placements[0]).resident(), 3);
  EXPECT_EQ(split->hostBytes, 4 * 6 * plan->kvBlockBytes());
  for (const plan::Schedule &schedule : split->schedules)
    for (const plan::Step &step : schedule.steps)
      if (step.kind == plan::StepKind::Copy && step.lane == plan::Lane::H2D) {
        EXPECT_EQ(step.linkBytes, 6 * split->kvBlockBytes());
      }
  r.goal.kvDeviceMemory = std::nullopt;
  r.goal.kvEncoding = model::Encoding::groups(8);
  r.model->headDim = 64;
  const auto q8 = compile(r);
  ASSERT_TRUE(q8.ok()) << q8.status();
  EXPECT_EQ(q8->kvEncoding, model::Encoding::groups(8, 64));
  EXPECT_EQ(q8->kvBlockBytes(), static_cast<uint64_t>(2 * kvHeads * 16 * 68));
}

TEST(Compile, RefusesPackedCachesThatHeadsCannotHave) {
  CompileRequest r = request(tinyLlama(2));
  r.goal.kvEncoding = model::Encoding::groups(4);
  for (const model::DeviceKind kind : {model::DeviceKind::Host, model::DeviceKind::Cuda}) {
    r.hardware.kind = kind;
    const absl::Status refused = compile(r).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(std::string(refused.message()),
              "goal.kv_dtype = q4: expected f32, f16 or bf16: q4 has groups of 64 or 32 inside one token's head, and "
              "neither divides a head of 16");
  }
}

TEST(Compile, CudaTakesPackedWeightsAndPackedCaches) {
  CompileRequest r = request(tinyQwen(2, false));
  r.hardware.kind = model::DeviceKind::Cuda;
  std::string expected;
  r.model->encodings = *model::weightEncodingsFromText("up=q4:32", r.model, expected);
  const auto weights = compile(r);
  ASSERT_TRUE(weights.ok()) << weights.status();
  EXPECT_TRUE(weights->model->encodings.any());
  r.model->headDim = 32;
  r.goal.kvEncoding = model::Encoding::groups(4);
  const auto both = compile(r);
  ASSERT_TRUE(both.ok()) << both.status();
  EXPECT_EQ(both->kvEncoding, model::Encoding::groups(4, 32));
}

TEST(Compile, RefusesADeviceThatHasNoKernelForAnOp) {
  const auto compiled = [](model::DeviceKind kind, auto change) {
    CompileRequest r = request(tinyQwen3(2));
    r.hardware.kind = kind;
    change(*r.model);
    return compile(r).status();
  };
  const auto wideHeads = [](model::ModelSpec &spec) { spec.headDim = 258; };
  const auto manyWords = [](model::ModelSpec &spec) { spec.vocab = (1 << 18) + 1; };
  for (auto change : {+wideHeads, +manyWords})
    EXPECT_TRUE(compiled(model::DeviceKind::Host, change).ok());
  const absl::Status heads = compiled(model::DeviceKind::Cuda, wideHeads);
  EXPECT_EQ(heads.code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(heads.message(),
            "no kernel of hardware round for attention of tiny-qwen3-2: attention takes head sizes up to 256");
  EXPECT_EQ(compiled(model::DeviceKind::Cuda, manyWords).message(),
            "no kernel of hardware round for sample of tiny-qwen3-2: sample takes vocabularies of 1 to 262144 tokens");
  EXPECT_TRUE(compiled(model::DeviceKind::Cuda, [](model::ModelSpec &) {}).ok());
}

// 2^31 elements and more are not all counted by the library's kernels.
TEST(Compile, RefusesADeviceWhoseLibraryMayNotCountAProduct) {
  CompileRequest r = request(tinyQwen3(2));
  r.hardware.kind = model::DeviceKind::Cuda;
  r.hardware.memoryBytes = r.hardware.hostMemoryBytes = uint64_t{1} << 40;
  r.model->intermediate = int64_t{1} << 26;
  EXPECT_THAT(std::string(compile(r).status().message()), testing::HasSubstr("expected fewer than 2^31"));
}

TEST(Compile, NormsOfHeadsAreReadByRopeAppendFromTheUnitOfQkv) {
  CompileRequest r = request(tinyQwen3(2));
  const auto plan = compile(r);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const plan::Schedule &schedule = plan->schedules[0];
  int found = 0;
  for (const plan::Step &step : schedule.steps)
    for (uint32_t i = step.firstOperand; i < step.firstOperand + step.operandCount; ++i)
      if (const plan::Operand &operand = schedule.operands[i]; step.kind == plan::StepKind::Compute &&
                                                               step.op == kernels::Op::RopeAppend &&
                                                               operand.arg == plan::Arg::NormWeights) {
        EXPECT_EQ(plan->buffers[operand.buffer].name, absl::StrCat("layers.", step.layer, ".qkv"));
        ++found;
      }
  EXPECT_EQ(found, 2);
}

TEST(Compile, OffloadsTheLayersOfTheInterval) {
  CompileRequest r = request(tinyLlama(7));
  r.policy.interval = 3;
  r.policy.offloadEmbedding = r.policy.offloadHead = model::AutoOnOff::Off;
  const auto plan = compile(r);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const plan::Placement &placement = plan->placements[0];
  EXPECT_THAT(layersOnHost(*plan, placement), ElementsAre(2, 5));
  EXPECT_EQ(placement.interval, 3);
  EXPECT_EQ(placement.name, "interval 3");
  EXPECT_FALSE(plan::offloadedWeights(*plan, placement).embedding);
  EXPECT_THAT(plan->reason, HasSubstr("as asked for"));
  // Qkv, out, up and down of two layers, one behind the other in the slab.
  const model::WeightLayout layout = model::layoutWeights(r.model);
  EXPECT_EQ(plan->hostBytes, 2 * layout.layerBytes(0));
  uint64_t next = 0;
  for (const plan::Extent &extent : placement.extents)
    if (extent.space == plan::Space::Host) {
      EXPECT_EQ(extent.address, next);
      next += extent.bytes;
    }
}

TEST(Compile, AnOffloadedEmbeddingIsReadDirectly) {
  CompileRequest r = request(tinyLlama(2));
  r.policy.offloadLayers = 0;
  r.policy.offloadEmbedding = model::AutoOnOff::On;
  const auto plan = compile(r);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_TRUE(plan::offloadedWeights(*plan, plan->placements[0]).embedding);
  EXPECT_TRUE(plan->placements[0].extents[0].direct);
  EXPECT_TRUE(plan->placements[0].slots.empty());
  for (const plan::Schedule &schedule : plan->schedules) {
    EXPECT_TRUE(embedOf(schedule).direct);
    // One row of 64 elements of F32 for each token.
    EXPECT_EQ(embedOf(schedule).linkBytes, static_cast<uint64_t>(schedule.maxTokens) * 64 * 4);
    EXPECT_EQ(plan::linkBytes(schedule).h2d, embedOf(schedule).linkBytes);
  }
}

TEST(Compile, ATiedTableOnTheHostIsReadDirectlyAndPrefetchedForTheHead) {
  CompileRequest r = request(tinyOpt(3));
  r.policy.offloadLayers = 1;
  r.policy.offloadHead = model::AutoOnOff::On;
  const auto plan = compile(r);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_TRUE(plan::offloadedWeights(*plan, plan->placements[0]).embedding);
  EXPECT_TRUE(plan::offloadedWeights(*plan, plan->placements[0]).head);
  const plan::Schedule &schedule = plan->schedules[0];
  EXPECT_TRUE(embedOf(schedule).direct);
  uint64_t copied = 0;
  for (const plan::Step &step : schedule.steps)
    if (step.kind == plan::StepKind::Copy && schedule.operands[step.firstOperand].buffer == 0)
      copied += step.linkBytes;
  EXPECT_EQ(copied, plan->buffers[0].bytes);
}

TEST(Compile, IsDeterministicByteForByte) {
  CompileRequest r = request(tinyQwen(6, true));
  r.policy.interval = 2;
  const auto first = compile(r), second = compile(r);
  ASSERT_TRUE(first.ok() && second.ok()) << first.status() << second.status();
  EXPECT_EQ(plan::serialize(*first), plan::serialize(*second));
}

TEST(Compile, OneMatrixHasOneHome) {
  CompileRequest r = request(tinyLlama(4));
  r.model->tiedEmbeddings = true;
  r.policy.offloadLayers = 1;
  r.policy.offloadEmbedding = model::AutoOnOff::On;
  r.policy.offloadHead = model::AutoOnOff::Off;
  const auto refused = compile(r);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.status().message(), HasSubstr("has tied embeddings, both are one matrix"));
  r.policy.offloadHead = model::AutoOnOff::Auto;
  EXPECT_TRUE(compile(r).ok());
  r.model->tiedEmbeddings = false;
  r.policy.offloadHead = model::AutoOnOff::Off;
  EXPECT_TRUE(compile(r).ok());
}

TEST(Compile, SeveralPlacementsShareOneHostSlabAndOneCache) {
  CompileRequest r = request(tinyLlama(6));
  r.placements = stated(r.model, {interval(3), interval(2), none(), interval(3)});
  const auto plan = compile(r);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->placements.size(), 3u); // the last is the first once more
  EXPECT_THAT(layersOnHost(*plan, plan->placements[0]), ElementsAre(2, 5));
  EXPECT_THAT(layersOnHost(*plan, plan->placements[1]), ElementsAre(1, 3, 5));
  const model::WeightLayout layout = model::layoutWeights(r.model);
  EXPECT_EQ(plan->hostBytes, 4 * layout.layerBytes(0)); // layers 1, 2, 3 and 5
  for (const plan::Placement &placement : plan->placements)
    EXPECT_EQ(placement.extents[plan->kvBuffer(0)].address, plan->placements[0].extents[plan->kvBuffer(0)].address);
}

TEST(Compile, AUnitHasOneHomeInAllPlacementsThatKeepIt) {
  CompileRequest r = request(tinyLlama(8));
  r.placements = stated(
      r.model, {none(), interval(4), interval(2), interval(1)}); // each offloads what the one before does, and more
  const auto plan = compile(r);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->placements.size(), 4u);
  for (const plan::Placement &placement : plan->placements)
    for (size_t buffer = 0; buffer < plan->buffers.size(); ++buffer)
      if (placement.extents[buffer].space == plan::Space::Device) {
        EXPECT_EQ(placement.extents[buffer].address, plan->placements[0].extents[buffer].address)
            << placement.name << ", " << plan->buffers[buffer].name;
      }
  // What is common costs nothing: all together take what the resident one takes alone.
  r.placements = stated(r.model, {none()});
  const auto alone = compile(r);
  ASSERT_TRUE(alone.ok()) << alone.status();
  EXPECT_EQ(plan->arenaBytes, alone->arenaBytes);
}

// From a placement to one that has more at home there is a transition that brings just that, priced as sim plays it;
// the other way there is nothing to copy.
TEST(Compile, TransitionsBringWhatIsMissingAndNoMore) {
  CompileRequest r = request(tinyLlama(8));
  r.placements = stated(r.model, {none(), interval(4), interval(2)}); // layers 3, 7; layers 1, 3, 5, 7
  const auto plan = compile(r);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const uint64_t layer = model::layoutWeights(r.model).layerBytes(0);
  std::map<std::pair<uint32_t, uint32_t>, uint64_t> bytes;
  for (const plan::Transition &t : plan->transitions) {
    const plan::Schedule &schedule = plan->schedules[t.schedule];
    EXPECT_EQ(t.predictedNs, sim::Simulator(schedule).run(t.durationsNs, cost::Sharing()).iterationNs);
    if (schedule.fromPlacement != plan::kNone)
      bytes[{schedule.fromPlacement, schedule.placement}] = plan::linkBytes(schedule).h2d;
  }
  EXPECT_THAT(bytes,
              ElementsAre(Pair(Pair(1, 0), 2 * layer), Pair(Pair(2, 0), 4 * layer), Pair(Pair(2, 1), 2 * layer)));
}

// Of more than eight placements not every pair has its transition, and yet there is a way between any two.
TEST(Compile, ManyPlacementsAreJoinedByHops) {
  CompileRequest r = request(tinyLlama(16));
  std::vector<model::Policy> policies{none()};
  for (int64_t layers = 1; layers <= 16; ++layers)
    policies.emplace_back().offloadLayers = layers;
  r.placements = stated(r.model, policies);
  const auto plan = compile(r);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->placements.size(), 17u);
  size_t between = 0;
  for (const plan::Schedule &schedule : plan->schedules)
    between += schedule.fromPlacement != plan::kNone;
  EXPECT_LE(between, 2 * (16u + 15 + 13 + 9 + 1)); // 1, 2, 4, 8 and 16 further on, both ways
  const core::TransitionPaths paths(*plan);
  for (uint32_t from = 0; from < 17; ++from)
    for (uint32_t to = 0; to < 17; ++to)
      EXPECT_TRUE(paths.reaches(paths.config(from, 0), paths.config(to, 0))) << from << " to " << to;
}

TEST(Compile, TellsTheIrAfterEachPhaseAndItsProgress) {
  CompileRequest r = request(tinyLlama(4));
  r.policy.interval = 2;
  std::map<std::string, std::vector<std::string>> phases;
  r.onPhase = [&](std::string_view schedule, std::string_view phase, std::string_view text) {
    phases[std::string(schedule)].push_back(std::string(phase));
    EXPECT_THAT(std::string(text), HasSubstr("headrace.iteration"));
  };
  int last = 0, total = 0;
  r.progress = [&](const CompileProgress &at) {
    EXPECT_FALSE(at.choosing);
    EXPECT_EQ(at.done, last + 1);
    last = at.done;
    total = at.total;
  };
  const auto plan = compile(r);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(phases.size(), 2u);
  for (const auto &[schedule, names] : phases)
    EXPECT_THAT(names, ElementsAre("model", "homes", "movement", "lanes", "offsets")) << schedule;
  EXPECT_EQ(last, total);
}

// A refusal looks for what would do: long, and with no schedule made at its end.
TEST(Compile, TellsWhoseBucketsPlacementItLooksFor) {
  CompileRequest r = request(tinyLlama(4));
  r.policy.name = "headrace";
  r.goal.tpot = std::chrono::nanoseconds(1);
  std::set<size_t> buckets;
  int reports = 0, evaluated = 0;
  r.progress = [&](const CompileProgress &at) {
    EXPECT_TRUE(at.choosing);
    EXPECT_GE(at.evaluated, evaluated);
    evaluated = at.evaluated;
    if (++reports > 1 && at.nth > 0) {
      EXPECT_LE(at.nth, at.buckets);
      EXPECT_GT(at.bucket.tokens, 0);
      buckets.insert(at.nth);
    }
  };
  EXPECT_TRUE(absl::IsResourceExhausted(compile(r).status()));
  EXPECT_FALSE(buckets.empty());
  EXPECT_GT(evaluated, 0);
}

// Of four layers every one or none, by number and by interval.
TEST(Compile, AllLayersMayBeStatedAndNone) {
  const auto layersAway = [](auto change) {
    CompileRequest r = request(tinyLlama(4));
    change(r);
    const auto plan = compile(r);
    EXPECT_TRUE(plan.ok()) << plan.status();
    return plan.ok() ? plan::offloadedWeights(*plan, plan->placements[0]).layers : -1;
  };
  EXPECT_EQ(layersAway([](CompileRequest &r) { r.policy.interval = 1; }), 4);
  EXPECT_EQ(layersAway([](CompileRequest &r) { r.policy.interval = 4; }), 1);
  EXPECT_EQ(layersAway([](CompileRequest &r) { r.policy.offloadLayers = 4; }), 4);
  EXPECT_EQ(layersAway([](CompileRequest &r) { r.policy.offloadLayers = 0; }), 0);
}

TEST(Compile, RefusesWhatNoPlanCanMeet) {
  const auto refusal = [](auto change) {
    CompileRequest r = request(tinyLlama(4));
    change(r);
    return compile(r).status();
  };
  const auto expect = [&](auto change, absl::StatusCode code, const char *text) {
    const absl::Status status = refusal(change);
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
  };
  using absl::StatusCode;
  expect([](CompileRequest &r) { r.policy.name = "hybrid"; }, StatusCode::kInvalidArgument,
         "policy.name = \"hybrid\": expected \"auto\", \"interval\"");
  expect([](CompileRequest &r) { r.policy.interval = 0; }, StatusCode::kInvalidArgument,
         "policy.interval = 0: expected");
  expect([](CompileRequest &r) { r.policy.interval = 5; }, StatusCode::kInvalidArgument, "1 to 4");
  expect([](CompileRequest &r) { r.policy.offloadLayers = 5; }, StatusCode::kInvalidArgument,
         "policy.offload_layers = 5: expected");
  expect([](CompileRequest &r) { r.policy.offloadLayers = -1; }, StatusCode::kInvalidArgument,
         "policy.offload_layers = -1: expected");
  expect([](CompileRequest &r) { r.policy.slots = 0; }, StatusCode::kInvalidArgument, "policy.slots = 0: expected");
  expect([](CompileRequest &r) { r.policy.interval = 2, r.policy.none = true; }, StatusCode::kInvalidArgument,
         "policy.interval = 2: expected one of");
  expect([](CompileRequest &r) { r.policy.none = true, r.policy.offloadHead = model::AutoOnOff::On; },
         StatusCode::kInvalidArgument, "policy.interval = \"none\": expected no offload_embedding");
  expect([](CompileRequest &r) { r.model->kvHeads = 3; }, StatusCode::kInvalidArgument, "kv_heads");
  expect([](CompileRequest &r) { r.hardware.h2dBandwidth = 0; }, StatusCode::kInvalidArgument, "h2d_bandwidth");
}

// Every family's shape, every interval, every number of layers, both rules: the plan's own verifier finds nothing.
class EveryPlacement : public ::testing::TestWithParam<model::StartRule> {};
INSTANTIATE_TEST_SUITE_P(Rules, EveryPlacement, ::testing::Values(model::StartRule::Paper, model::StartRule::Eager),
                         [](const auto &info) { return std::string(model::startRuleName(info.param)); });

TEST_P(EveryPlacement, Verifies) {
  for (const model::ModelSpec &spec : {tinyLlama(7), tinyOpt(7), tinyQwen(6, true), tinyQwen(5, false), tinyQwen3(5)}) {
    CompileRequest r = request(spec);
    r.policy.startRule = GetParam();
    r.buckets.contexts = {64};
    for (const bool head : {false, true}) {
      r.policy.offloadHead = head ? model::AutoOnOff::On : model::AutoOnOff::Auto;
      for (int64_t n = 1; n <= spec.layers; ++n)
        for (const bool interval : {false, true})
          for (int64_t slots = 0; slots <= 3; ++slots) {
            r.policy.interval = interval ? std::optional(n) : std::nullopt;
            r.policy.offloadLayers = interval ? std::nullopt : std::optional(n);
            r.policy.slots = slots ? std::optional(slots) : std::nullopt;
            const auto plan = compile(r); // which verifies
            ASSERT_TRUE(plan.ok()) << spec.name << (interval ? " interval " : " layers ") << n << " slots " << slots
                                   << ": " << plan.status();
            EXPECT_EQ(plan::offloadedWeights(*plan, plan->placements[0]).layers, interval ? spec.layers / n : n);
          }
    }
  }
}

} // namespace
} // namespace headrace::compiler
