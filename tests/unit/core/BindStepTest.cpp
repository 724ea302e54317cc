// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/BindStep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/model/ModelSpec.h"
#include "tests/support/TinyPlan.h"

namespace headrace::core {
namespace {

using kernels::Op;
using model::TensorRole;
using model::UnitRole;
using plan::Arg;
using testing::HasSubstr;

// A plan whose bytes need not exist: binding only computes addresses.
struct Bound {
  explicit Bound(const TinyPlanOptions &options) : plan(tinyPlan(options)), binding(plan, kernels::Order::Panel16) {}

  const plan::Schedule &schedule() const { return plan.schedules[1]; }
  const plan::Variant &variant() const { return plan.variants[1]; } // mixed: 7 tokens, 3 sequences, context 40
  // The n-th step of an op in the mixed schedule.
  uint32_t step(Op op, int n = 0) const {
    for (uint32_t i = 0; i < schedule().steps.size(); ++i)
      if (schedule().steps[i].kind == plan::StepKind::Compute && schedule().steps[i].op == op && n-- == 0)
        return i;
    ADD_FAILURE() << "no such step";
    return 0;
  }
  plan::Operand &operand(uint32_t step, Arg arg) {
    plan::Schedule &s = plan.schedules[1];
    for (uint32_t o = 0; o < s.steps[step].operandCount; ++o)
      if (plan::Operand &operand = s.operands[s.steps[step].firstOperand + o]; operand.arg == arg)
        return operand;
    ADD_FAILURE() << "no operand " << plan::argName(arg);
    return s.operands[0];
  }
  template <typename Args> Args args(uint32_t step) const {
    auto bound = binding.bind(schedule(), step, variant(), bases);
    EXPECT_TRUE(bound.ok()) << bound.status();
    return bound.ok() ? std::get<Args>(bound->args) : Args{};
  }
  std::string refusal(uint32_t step) const {
    auto bound = binding.bind(schedule(), step, variant(), bases);
    EXPECT_EQ(bound.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(bound.status().message());
  }
  const void *device(uint64_t address) const { return bases.device + address; }

  plan::Plan plan;
  BindContext binding;
  Bases bases{reinterpret_cast<std::byte *>(uintptr_t{1} << 40), reinterpret_cast<std::byte *>(uintptr_t{1} << 41)};
};

TEST(BindStep, EmbedReadsTheTableOfItsUnit) {
  Bound b({.spec = tinyLlama(2)});
  const auto args = b.args<kernels::EmbedArgs>(b.step(Op::Embed));
  EXPECT_EQ(args.table, b.device(b.plan.placements[0].extents[0].address)); // the table is the unit's first tensor
  EXPECT_EQ(args.positions, nullptr);
  EXPECT_EQ(args.vocab, 150);
  EXPECT_EQ(args.hidden, 64);
  EXPECT_EQ(args.order, kernels::Order::RowMajor); // not the head's operand
  EXPECT_EQ(args.elem, kernels::Elem::F32);
  EXPECT_EQ(args.meta, b.device(b.plan.placements[0].extents[b.plan.ioBuffer(plan::Io::Meta)].address));
  EXPECT_EQ(args.history, b.device(b.plan.placements[0].extents[b.plan.ioBuffer(plan::Io::History)].address));
}

// Of the operands of an embedding.
TEST(BindStep, KeptIdsGoWhereEmbedKeepsThem) {
  Bound b({.spec = tinyLlama(2)});
  const uint32_t step = b.step(Op::Embed);
  const auto embed = b.args<kernels::EmbedArgs>(step);
  b.plan.schedules[1].steps[step].op = Op::KeepIds;
  const auto args = b.args<kernels::KeepIdsArgs>(step);
  EXPECT_EQ(args.meta, embed.meta);
  EXPECT_EQ(args.sampled, embed.sampled);
  EXPECT_EQ(args.history, embed.history);
  b.operand(step, Arg::History).bytes = 100;
  EXPECT_THAT(b.refusal(step), HasSubstr("(keep_ids, layer -1): operand history has 100 bytes, it needs "));
}

TEST(BindStep, ATiedTableIsInTheKernelsOrderAndHasPositionsBehindIt) {
  Bound b({.spec = tinyOpt(2)});
  const auto args = b.args<kernels::EmbedArgs>(b.step(Op::Embed));
  EXPECT_EQ(args.order, kernels::Order::Panel16);
  EXPECT_EQ(args.elem, kernels::Elem::BF16);
  EXPECT_EQ(args.positionOffset, 2);
  const model::Tensor *positions = b.binding.layout().units[0].find(TensorRole::PositionTable);
  EXPECT_EQ(args.positions, b.device(b.plan.placements[0].extents[0].address + positions->offset));
}

TEST(BindStep, ADirectEmbedReadsHostMemory) {
  Bound b({.spec = tinyLlama(2), .offloadEmbedding = true});
  const auto args = b.args<kernels::EmbedArgs>(b.step(Op::Embed));
  EXPECT_EQ(args.table, b.bases.host + b.plan.placements[0].extents[0].address);
}

TEST(BindStep, NormsOfLayersCountTokensTheFinalOneCountsSampledRows) {
  Bound b({.spec = tinyOpt(1)});
  const auto *meta = b.args<kernels::EmbedArgs>(b.step(Op::Embed)).meta;
  const auto first = b.args<kernels::NormArgs>(b.step(Op::Norm, 0));
  const auto last = b.args<kernels::NormArgs>(b.step(Op::Norm, 2)); // qkv's, up's, the head's
  EXPECT_EQ(first.count, &meta->numTokens);
  EXPECT_EQ(last.count, &meta->numSampled);
  EXPECT_EQ(first.eps, 1e-5f);
  const model::Unit &qkv = b.binding.layout().units[1];
  const uint64_t home = b.plan.placements[0].extents[1].address;
  EXPECT_EQ(first.weight, b.device(home + qkv.find(TensorRole::NormWeight)->offset));
  EXPECT_EQ(first.bias, b.device(home + qkv.find(TensorRole::NormBias)->offset));
  Bound llama({.spec = tinyLlama(1)});
  EXPECT_EQ(llama.args<kernels::NormArgs>(llama.step(Op::Norm)).bias, nullptr);
}

TEST(BindStep, LinearsTakeSizesFromTheTensorAndTheirBucketFromTheVariant) {
  Bound b({.spec = tinyOpt(1)});
  const auto qkv = b.args<kernels::LinearArgs>(b.step(Op::Linear, 0));
  EXPECT_EQ(qkv.n, 192); // 3 * 64
  EXPECT_EQ(qkv.k, 64);
  EXPECT_EQ(qkv.capacity, 7);
  EXPECT_EQ(qkv.residual, nullptr);
  EXPECT_NE(qkv.bias, nullptr);
  EXPECT_EQ(qkv.epilogue, kernels::Epilogue::None);
  EXPECT_EQ(qkv.order, kernels::Order::Panel16);
  const auto out = b.args<kernels::LinearArgs>(b.step(Op::Linear, 1));
  EXPECT_EQ(out.residual, out.y); // in place
  const auto up = b.args<kernels::LinearArgs>(b.step(Op::Linear, 2));
  EXPECT_EQ(up.n, 96);
  EXPECT_EQ(up.epilogue, kernels::Epilogue::Relu);
  const auto head = b.args<kernels::LinearArgs>(b.step(Op::Linear, 4));
  EXPECT_EQ(head.n, 150); // the tied table's rows, without padding
  EXPECT_EQ(head.capacity, 3);
  EXPECT_EQ(head.w, b.args<kernels::EmbedArgs>(b.step(Op::Embed)).table);
  EXPECT_EQ(head.count, &b.args<kernels::EmbedArgs>(b.step(Op::Embed)).meta->numSampled);
}

TEST(BindStep, AnOffloadedUnitIsReadWhereItsCopyPutIt) {
  Bound b({.spec = tinyLlama(2), .offloaded = {1}});
  const auto qkv = b.args<kernels::LinearArgs>(b.step(Op::Linear, 4)); // layer 1's first
  const model::Unit &unit = b.binding.layout().units[5];
  EXPECT_EQ(qkv.w, b.device(b.plan.placements[0].slots[0].address + unit.find(TensorRole::Matrix)->offset));
}

TEST(BindStep, AttentionActivationAndSamplingGetTheModelsSizes) {
  Bound b({.spec = tinyLlama(1)});
  const auto rope = b.args<kernels::RopeAppendArgs>(b.step(Op::RopeAppend));
  EXPECT_NE(rope.inverseFrequencies, nullptr);
  EXPECT_EQ(rope.headNorms, nullptr);
  EXPECT_EQ(rope.kvHeads, 2);
  const auto attention = b.args<kernels::AttentionArgs>(b.step(Op::Attention));
  EXPECT_EQ(attention.kv, rope.kv);
  const int64_t block = 2 * 2 * b.plan.blockTokens * attention.headDim; // k and v of two heads
  for (const kernels::KvSegments &s : {rope.segments, attention.segments}) {
    EXPECT_EQ(s.of(0), 0);
    EXPECT_EQ(s.of(b.plan.kvBlocks - 1), (b.plan.kvBlocks - 1) * block);
    EXPECT_EQ(s.end, b.plan.kvBlocks * block);
  }
  EXPECT_EQ(attention.scale, 0.25f); // 1 / sqrt(16)
  EXPECT_EQ(attention.maxContext, 40);
  EXPECT_EQ(attention.blockTokens, 4);
  EXPECT_EQ(b.args<kernels::ActivateArgs>(b.step(Op::Activate)).intermediate, 96);
  EXPECT_EQ(b.args<kernels::GatherRowsArgs>(b.step(Op::GatherRows)).hidden, 64);
  const auto sample = b.args<kernels::SampleArgs>(b.step(Op::Sample));
  EXPECT_EQ(sample.vocab, 150);
  EXPECT_EQ(sample.blockTokens, 4);
  EXPECT_EQ(sample.history, b.device(b.plan.placements[0].extents[b.plan.ioBuffer(plan::Io::History)].address));
  EXPECT_EQ(sample.output, b.device(b.plan.placements[0].extents[b.plan.ioBuffer(plan::Io::Output)].address));
  Bound opt({.spec = tinyOpt(1)});
  EXPECT_EQ(opt.args<kernels::RopeAppendArgs>(opt.step(Op::RopeAppend)).inverseFrequencies, nullptr);
}

TEST(BindStep, NormsOfHeadsAreInTheUnitOfQkv) {
  model::ModelSpec spec = tinyLlama(1);
  spec.qkNorm = true;
  Bound b({.spec = spec});
  const auto rope = b.args<kernels::RopeAppendArgs>(b.step(Op::RopeAppend));
  const uint64_t home = b.plan.placements[0].extents[1].address;
  const model::Unit &qkv = b.binding.layout().units[1];
  EXPECT_EQ(rope.headNorms, b.device(home + qkv.find(TensorRole::HeadNorms)->offset));
  EXPECT_EQ(rope.eps, static_cast<float>(spec.normEps));
}

TEST(BindStep, ArgsPointToTheStructOfTheOp) {
  Bound b({.spec = tinyLlama(1)});
  auto bound = b.binding.bind(b.schedule(), b.step(Op::Activate), b.variant(), b.bases);
  ASSERT_TRUE(bound.ok());
  EXPECT_EQ(bound->argsPointer(), &std::get<kernels::ActivateArgs>(bound->args));
}

// A cache of one layer, its first blocks on the device apart from each other as in a model of more layers: a block is
// 2 x 2 heads x 4 tokens x 16 x 4 bytes = 1024 bytes, 256 floats.
struct Split : Bound {
  static constexpr uint64_t kBlock = 1024, kHostAt = 512;
  static constexpr uint64_t kKv = 2 * 256; // where the cache begins, on the device
  // Blocks [0, resident), a tail [resident, all) at `tailAt`, a home of [first, all) at kHostAt of the slab.
  Split(uint64_t resident, uint64_t tailAt, uint64_t first) : Bound({.spec = tinyLlama(2)}) {
    const auto all = static_cast<uint64_t>(plan.kvBlocks);
    plan.hostBytes = kHostAt + all * kBlock;
    for (const Op op : {Op::RopeAppend, Op::Attention}) {
      const uint32_t at = step(op);
      plan::Schedule &s = plan.schedules[1];
      plan::Operand kv = operand(at, Arg::Kv), tail = kv, home = kv;
      kv.address = kKv, kv.bytes = resident * kBlock, kv.interleaved = true;
      tail.arg = Arg::KvTail, tail.address = tailAt;
      tail.bufferOffset = resident * kBlock, tail.bytes = (all - resident) * kBlock;
      home.arg = Arg::KvHome, home.space = plan::Space::Host, home.address = kHostAt;
      home.bufferOffset = first * kBlock, home.bytes = (all - first) * kBlock;
      // At the end of the list, as the step has more of them now.
      plan::Step &changed = s.steps[at];
      const auto begin = static_cast<uint32_t>(s.operands.size());
      for (uint32_t o = 0; o < changed.operandCount; ++o) {
        const plan::Operand kept = s.operands[changed.firstOperand + o];
        s.operands.push_back(kept.arg == Arg::Kv ? kv : kept);
      }
      if (resident < all)
        s.operands.push_back(tail);
      if (op == Op::RopeAppend && first < all) {
        s.operands.push_back(home);
        changed.direct = true;
      }
      changed.firstOperand = begin;
      changed.operandCount = static_cast<uint32_t>(s.operands.size()) - begin;
    }
  }
  plan::Operand &append(Arg arg) { return operand(step(Op::RopeAppend), arg); }
  std::string appendRefusal() const { return refusal(step(Op::RopeAppend)); }
};

TEST(BindStep, ASplitCacheIsTwoRunsFromTheLowerOfBoth) {
  Split behind(5, 100 * 1024, 3); // 5 blocks from 512 on, 2 x 1024 apart; the tail far behind them
  const int64_t blocks = behind.plan.kvBlocks;
  const auto rope = behind.args<kernels::RopeAppendArgs>(behind.step(Op::RopeAppend));
  const auto attention = behind.args<kernels::AttentionArgs>(behind.step(Op::Attention));
  EXPECT_EQ(rope.kv, behind.device(512));
  EXPECT_EQ(attention.kv, rope.kv);
  for (const kernels::KvSegments &s : {rope.segments, attention.segments}) {
    EXPECT_EQ(s.of(0), 0);
    EXPECT_EQ(s.of(4), 4 * 512);                // floats
    EXPECT_EQ(s.of(5), (100 * 1024 - 512) / 4); // the tail
    EXPECT_EQ(s.of(7), (100 * 1024 - 512) / 4 + 2 * 256);
    EXPECT_EQ(s.end, s.of(blocks - 1) + 256);
  }
  EXPECT_EQ(rope.home, behind.bases.host + 512);
  EXPECT_EQ(rope.homeFirst, 3);
  EXPECT_EQ(rope.homeEnd, blocks);
  EXPECT_EQ(rope.homeStride, 256);

  Split before(5, 512, 5); // the tail lies lower
  before.append(Arg::Kv).address = 512 + 100 * 1024;
  const auto lower = before.args<kernels::RopeAppendArgs>(before.step(Op::RopeAppend));
  EXPECT_EQ(lower.kv, before.device(512));
  EXPECT_EQ(lower.segments.of(5), 0);
  EXPECT_EQ(lower.segments.of(0), 100 * 256); // floats
  EXPECT_EQ(lower.segments.of(1), 100 * 256 + 512);
  EXPECT_EQ(lower.segments.end, 100 * 256 + 4 * 512 + 256);
  EXPECT_EQ(lower.homeFirst, 5);
}

TEST(BindStep, AScheduleThatUsesNoneOfTheTailHasOneRunOfBlocksApart) {
  Split b(5, 100 * 1024, 1);
  b.plan.schedules[1].kvBlocks = 5;
  const uint32_t attention = b.step(Op::Attention);
  --b.plan.schedules[1].steps[attention].operandCount; // the tail
  const auto args = b.args<kernels::AttentionArgs>(attention);
  EXPECT_EQ(args.segments.of(4), 4 * 512);
  EXPECT_EQ(args.segments.end, 4 * 512 + 256);
  const auto rope = b.args<kernels::RopeAppendArgs>(b.step(Op::RopeAppend));
  EXPECT_EQ(rope.homeFirst, 1);
}

// Copies write the tail back: of the blocks on the device those from 3 on are written to the host, or none are.
TEST(BindStep, OnlyBlocksOnTheDeviceHaveAHomeToWriteToWhereTheTailIsCopiedBack) {
  Split b(5, 100 * 1024, 3);
  b.append(Arg::KvHome).bytes = 2 * 1024;
  const auto rope = b.args<kernels::RopeAppendArgs>(b.step(Op::RopeAppend));
  EXPECT_EQ(rope.home, b.bases.host + 512);
  EXPECT_EQ(rope.homeFirst, 3);
  EXPECT_EQ(rope.homeEnd, 5);
  Split none(5, 100 * 1024, static_cast<uint64_t>(b.plan.kvBlocks)); // no operand
  EXPECT_EQ(none.args<kernels::RopeAppendArgs>(none.step(Op::RopeAppend)).home, nullptr);
}

// Nothing of the cache is at home on the device: the tail is all of it, the scratch block with it.
TEST(BindStep, ACacheMayBeATailAlone) {
  Split b(0, 100 * 1024, 0);
  const int64_t blocks = b.plan.kvBlocks;
  for (const Op op : {Op::RopeAppend, Op::Attention}) { // without Kv
    plan::Step &step = b.plan.schedules[1].steps[b.step(op)];
    const auto begin = b.plan.schedules[1].operands.begin() + step.firstOperand;
    const auto kv = std::find_if(begin, begin + step.operandCount,
                                 [](const plan::Operand &operand) { return operand.arg == Arg::Kv; });
    std::rotate(kv, kv + 1, begin + step.operandCount);
    --step.operandCount;
  }
  EXPECT_THAT(b.appendRefusal(), HasSubstr("operand kv home begins at block 0, the scratch block"));
  b.plan.placements[0].extents.push_back(
      {.buffer = b.plan.kvBuffer(0), .space = plan::Space::Host, .bytes = static_cast<uint64_t>(blocks) * 1024});
  const auto rope = b.args<kernels::RopeAppendArgs>(b.step(Op::RopeAppend));
  const auto attention = b.args<kernels::AttentionArgs>(b.step(Op::Attention));
  EXPECT_EQ(rope.kv, b.device(100 * 1024));
  EXPECT_EQ(attention.kv, rope.kv);
  for (const kernels::KvSegments &s : {rope.segments, attention.segments}) {
    EXPECT_EQ(s.of(0), 0);
    EXPECT_EQ(s.of(7), 7 * 256);
    EXPECT_EQ(s.end, blocks * 256);
    EXPECT_TRUE(s.multipleOf(256));
  }
  EXPECT_EQ(rope.home, b.bases.host + 512);
  EXPECT_EQ(rope.homeFirst, 0);
  EXPECT_EQ(rope.homeEnd, blocks);
  b.append(Arg::KvTail).bufferOffset = 1024;
  EXPECT_THAT(b.appendRefusal(), HasSubstr("operand kv tail begins at block 1, expected block 0, where kv ends"));
}

TEST(BindStep, ACacheThatIsNotSplitHasNoHome) {
  Bound b({.spec = tinyLlama(1)});
  EXPECT_EQ(b.args<kernels::RopeAppendArgs>(b.step(Op::RopeAppend)).home, nullptr);
}

// ---- Refusals

TEST(BindStepRefuses, AMissingOperand) {
  Bound b({.spec = tinyLlama(1)});
  const uint32_t step = b.step(Op::Attention);
  b.operand(step, Arg::Kv).arg = Arg::Residual;
  EXPECT_THAT(b.refusal(step), HasSubstr("(attention, layer 0): operand kv is missing"));
}

TEST(BindStepRefuses, AnOperandSmallerThanTheBucketNeeds) {
  Bound b({.spec = tinyLlama(1)});
  const uint32_t step = b.step(Op::Activate);
  b.operand(step, Arg::Y).bytes = 2000;
  // 7 rows of 96 floats
  EXPECT_THAT(b.refusal(step), HasSubstr("operand y has 2000 bytes, it needs 2688"));
}

TEST(BindStepRefuses, AnOperandThatLacksPartOfItsTensor) {
  Bound b({.spec = tinyLlama(1)});
  const uint32_t step = b.step(Op::Linear);
  b.operand(step, Arg::Weight).bytes -= 1;
  EXPECT_THAT(b.refusal(step), HasSubstr("operand weight does not cover bytes ["));
}

TEST(BindStepRefuses, ATensorAtTheWrongOffset) {
  Bound b({.spec = tinyLlama(1)});
  const uint32_t step = b.step(Op::Linear);
  b.operand(step, Arg::Weight).bufferOffset += 256;
  EXPECT_THAT(b.refusal(step), HasSubstr("operand weight does not cover bytes ["));
}

TEST(BindStepRefuses, WeightsThatAreNotAUnit) {
  Bound b({.spec = tinyLlama(1)});
  const uint32_t step = b.step(Op::Linear);
  b.operand(step, Arg::Weight).buffer = b.plan.ioBuffer(plan::Io::Meta);
  EXPECT_THAT(b.refusal(step), HasSubstr("not one of the 6 weight units")); // embedding, 4, head
}

TEST(BindStepRefuses, AUnitThatTheOpCannotUse) {
  Bound b({.spec = tinyLlama(1)});
  const uint32_t linear = b.step(Op::Linear), norm = b.step(Op::Norm), embed = b.step(Op::Embed);
  b.operand(linear, Arg::Weight).buffer = 0;
  EXPECT_THAT(b.refusal(linear), HasSubstr("unit embedding has no matrix for a linear op"));
  b.operand(norm, Arg::NormWeights).buffer = 2;
  EXPECT_THAT(b.refusal(norm), HasSubstr("unit layers.0.out has no norm"));
  b.operand(embed, Arg::Table).buffer = 1;
  EXPECT_THAT(b.refusal(embed), HasSubstr("unit layers.0.qkv has no token table"));
}

TEST(BindStepRefuses, HostMemoryInAStepThatIsNotDirect) {
  Bound b({.spec = tinyLlama(1), .offloadEmbedding = true});
  const uint32_t step = b.step(Op::Embed);
  b.plan.schedules[1].steps[step].direct = false;
  EXPECT_THAT(b.refusal(step), HasSubstr("operand table is in host memory and the step is not direct"));
}

TEST(BindStepRefuses, AddressesOutsideTheirMemory) {
  Bound b({.spec = tinyLlama(1)});
  const uint32_t step = b.step(Op::Activate);
  b.operand(step, Arg::X).address = b.plan.arenaBytes - 1024;
  EXPECT_THAT(b.refusal(step), HasSubstr("are outside its memory of"));
  b.operand(step, Arg::X).address = ~uint64_t{0} - 5; // address + bytes overflows
  EXPECT_THAT(b.refusal(step), HasSubstr("are outside its memory of"));
}

TEST(BindStepRefuses, ABucketWhoseRowsOverflow) {
  Bound b({.spec = tinyLlama(1)});
  b.plan.variants[1].newTokens = int64_t{1} << 60;
  EXPECT_THAT(b.refusal(b.step(Op::Activate)), HasSubstr("it needs 18446744073709551615"));
}

TEST(BindStepRefuses, PartsOfACacheThatAreNoWholeBlocks) {
  Split kv(5, 100 * 1024, 3), tail(5, 100 * 1024, 3), home(5, 100 * 1024, 3);
  kv.append(Arg::Kv).bytes -= 4;
  EXPECT_THAT(kv.appendRefusal(), HasSubstr("(rope_append, layer 0): operand kv is bytes [0, +5116) of the cache, "
                                            "expected whole blocks of 1024"));
  tail.append(Arg::KvTail).bytes = 0;
  EXPECT_THAT(tail.appendRefusal(),
              HasSubstr("operand kv tail is bytes [5120, +0) of the cache, expected whole blocks of 1024"));
  home.append(Arg::KvHome).bufferOffset += 512;
  EXPECT_THAT(home.appendRefusal(), HasSubstr("operand kv home is bytes [3584, +"));
}

TEST(BindStepRefuses, PartsOfACacheThatDoNotMeet) {
  Split gap(5, 100 * 1024, 3), shorter(5, 100 * 1024, 3), start(5, 100 * 1024, 3);
  gap.append(Arg::KvTail).bufferOffset += 1024;
  EXPECT_THAT(gap.appendRefusal(), HasSubstr("operand kv tail begins at block 6, expected block 5, where kv ends"));
  const auto all = std::to_string(shorter.plan.kvBlocks);
  shorter.append(Arg::KvTail).bytes = 1024;
  EXPECT_THAT(shorter.appendRefusal(),
              HasSubstr("operand kv tail ends at block 6, blocks below " + all + " may be in use"));
  start.append(Arg::Kv).bufferOffset = 1024;
  EXPECT_THAT(start.appendRefusal(), HasSubstr("operand kv begins at byte 1024 of the cache, expected 0"));
  Split none(5, 100 * 1024, 3);
  none.append(Arg::KvTail).arg = Arg::Residual;
  EXPECT_THAT(none.appendRefusal(), HasSubstr("operand kv ends at block 5, blocks below " + all + " may be in use"));
}

TEST(BindStepRefuses, AHomeThatLacksBlocksToBeWritten) {
  Split late(5, 100 * 1024, 6), shorter(5, 100 * 1024, 3), scratch(5, 100 * 1024, 3);
  EXPECT_THAT(late.appendRefusal(),
              HasSubstr("operand kv home begins at block 6, expected at most block 5, where kv ends"));
  const auto all = std::to_string(shorter.plan.kvBlocks);
  shorter.append(Arg::KvHome).bytes = 1024;
  EXPECT_THAT(shorter.appendRefusal(),
              HasSubstr("operand kv home ends at block 4, expected block 5, where kv ends, or all below " + all +
                        ", which may be in use"));
  scratch.append(Arg::KvHome).bufferOffset = 0;
  EXPECT_THAT(scratch.appendRefusal(), HasSubstr("operand kv home begins at block 0, the scratch block"));
}

TEST(BindStepRefuses, PartsOfACacheInTheWrongMemoryOrOrder) {
  Split notDirect(5, 100 * 1024, 3), onDevice(5, 100 * 1024, 3), onHost(5, 100 * 1024, 3);
  notDirect.plan.schedules[1].steps[notDirect.step(Op::RopeAppend)].direct = false;
  EXPECT_THAT(notDirect.appendRefusal(), HasSubstr("operand kv home is in host memory and the step is not direct"));
  onDevice.append(Arg::KvHome).space = plan::Space::Device;
  EXPECT_THAT(onDevice.appendRefusal(), HasSubstr("operand kv home is in device memory, expected host memory"));
  onHost.append(Arg::KvTail).space = plan::Space::Host, onHost.append(Arg::KvTail).address = 0;
  onHost.append(Arg::KvTail).bytes = 1024;
  EXPECT_THAT(onHost.appendRefusal(), HasSubstr("operand kv tail is in host memory, expected device memory"));
  for (const Arg arg : {Arg::KvTail, Arg::KvHome}) {
    Split apart(5, 100 * 1024, 3);
    apart.append(arg).interleaved = true, apart.append(arg).bytes = 1024; // one block: inside its memory
    EXPECT_THAT(apart.appendRefusal(), HasSubstr("is interleaved, expected blocks one behind the other"));
  }
  Split odd(5, 100 * 1024, 3);
  odd.append(Arg::KvTail).address += 2;
  EXPECT_THAT(odd.appendRefusal(), HasSubstr("operand kv tail is at 102402 and kv at 512, expected whole elements of "
                                             "4 bytes between them"));
}

// The last block of five at 2 x 1024 apart ends at 4 x 2048 + 1024 = 9216.
TEST(BindStepRefuses, ACacheWhoseLastBlockIsOutsideTheArena) {
  Split b(5, 100 * 1024, 3);
  b.append(Arg::Kv).address = b.plan.arenaBytes - 9216;
  EXPECT_TRUE(b.binding.bind(b.schedule(), b.step(Op::RopeAppend), b.variant(), b.bases).ok());
  b.append(Arg::Kv).address += 256;
  EXPECT_THAT(b.appendRefusal(), HasSubstr(", +9216) are outside its memory of"));
}

TEST(BindStepRefuses, StepsThatAreNotThereOrDoNotCompute) {
  Bound b({.spec = tinyLlama(1), .offloaded = {0}});
  EXPECT_THAT(b.refusal(100000), HasSubstr("no step 100000"));
  uint32_t copy = 0;
  while (b.schedule().steps[copy].kind != plan::StepKind::Copy)
    ++copy;
  EXPECT_THAT(b.refusal(copy), HasSubstr("not a compute step"));
  b.plan.schedules[1].steps[0].firstOperand = 1u << 30;
  EXPECT_THAT(b.refusal(0), HasSubstr("its operands are outside the schedule's list"));
}

} // namespace
} // namespace headrace::core
