// SPDX-License-Identifier: Apache-2.0
//
// Prompts that one device prefills and another decodes, where either may have its caches split: tokens are those of one
// device with all blocks resident, whatever the two placements are, with another request decoding on the receiver
// before and after, and while both change placement.
#include <gtest/gtest.h>

#include <map>

#include "compiler/Compile.h"
#include "runtime/core/Runtime.h"
#include "runtime/serve/engine/BatchEngine.h"
#include "runtime/serve/engine/Engine.h"
#include "runtime/serve/fleet/KvHandover.h"
#include "runtime/sim/SimDevice.h"
#include "tests/conformance/DevicesUnderTest.h"
#include "tests/support/LongRun.h"
#include "tests/support/PackedCaches.h"
#include "tests/support/StatedPlacements.h"
#include "tests/support/TinyPlan.h"

namespace headrace::serve {
namespace {

// 1 + 3 x 10 blocks of 4 tokens; two requests at once have 14 of them in use: of 10, 1 and 3 tokens with 7 more 5, 2
// and 3, of 9 tokens with 7 more 4.
constexpr int64_t kBlocks = 31, kLayers = 4;

class SplitHandover : public testing::TestWithParam<core::DeviceUnderTest> {
protected:
  // Of a device of so many operations and bytes a second.
  static compiler::CompileRequest ask(double rate) {
    compiler::CompileRequest request;
    request.model = core::tinyLlama(kLayers);
    request.hardware = core::tinyPlan({.spec = core::tinyLlama(1), .kind = GetParam().plansFor}).hardware;
    request.hardware.flopsF32 = request.hardware.flopsF16 = request.hardware.memoryBandwidth = rate;
    request.hardware.flopsEfficiency = request.hardware.memoryEfficiency = 0.5;
    request.goal.batch = 4;
    request.goal.context = 40;
    request.goal.blockTokens = 4;
    core::packCaches(request, GetParam().kvBits);
    return request;
  }
  // All blocks on the device, some of those in use, none but scratch; weights at home and away; slots that go round and
  // that do not.
  static plan::Plan compile() {
    const struct {
      int64_t resident, interval, slots;
      bool wrap;
    } placements[] = {{kBlocks, 0, 0, true}, {4, 0, 0, true}, {1, 2, 3, true}, {7, 1, 1, false}, {1, 0, 4, true}};
    compiler::CompileRequest request = ask(1e10);
    request.buckets = {.newTokens = {1, 4, 7}, .sequences = {1, 4}, .contexts = {40}};
    for (const auto &[resident, interval, slots, wrap] : placements) {
      compiler::Candidate candidate =
          compiler::stated(request.model, {interval > 0 ? compiler::interval(interval) : compiler::none()}).front();
      candidate.name += " kv " + std::to_string(resident) + " slots " + std::to_string(slots);
      candidate.residency.wrap.around = wrap;
      candidate.residency.kv().setSlots(slots);
      if (resident < kBlocks)
        candidate.residency.setKvAway(kLayers, resident);
      request.placements.push_back(candidate);
    }
    auto plan = compiler::compile(request);
    EXPECT_TRUE(plan.ok()) << plan.status();
    return plan.ok() ? *std::move(plan) : plan::Plan{};
  }
  static GenerateRequest handedOver() {
    GenerateRequest request;
    request.prompts = {{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, {42}, {7, 7, 149}};
    request.maxNewTokens = 8;
    request.sampling = {.temperature = 1, .topP = 0.9f, .seed = 3};
    request.sampling.repetitionPenalty = 1.5f; // of ids that are handed over, too
    request.sampling.frequencyPenalty = 0.5f;
    return request;
  }
  static GenerateRequest local() {
    GenerateRequest request = handedOver();
    request.prompts = {{100, 90, 80, 70, 60, 50, 40, 30, 20}};
    return request;
  }

  struct Loaded {
    std::shared_ptr<core::Device> device = GetParam().make();
    std::unique_ptr<core::Runtime> runtime;
    Loaded(const plan::Plan &plan, uint32_t placement) {
      const auto weights = model::syntheticWeights(1);
      auto loaded = core::Runtime::load(plan, *device, {}, weights.get(), {.placement = placement});
      EXPECT_TRUE(loaded.ok()) << loaded.status();
      runtime = *std::move(loaded);
      const absl::Status reserved = KvHandover::reserve(*runtime);
      EXPECT_TRUE(reserved.ok()) << reserved;
    }
  };
  // One iteration at a time.
  struct Running {
    std::unique_ptr<Engine> engine;
    std::map<uint64_t, std::vector<int32_t>> tokens; // by id
    size_t left = 0;                                 // requests that have not ended
    explicit Running(core::Runtime &runtime) {
      EngineOptions options;
      options.watermark = 0;
      options.depth = 1;
      options.onToken = [this](const EngineToken &token) { tokens[token.request].push_back(token.token); };
      options.onEnd = [this](const EngineEnd &) { --left; };
      auto made = Engine::create(runtime, std::move(options));
      EXPECT_TRUE(made.ok()) << made.status();
      engine = *std::move(made);
    }
    static EngineRequest of(const GenerateRequest &request, size_t sequence, bool keepBlocks = false) {
      Sampling sampling = request.sampling;
      sampling.seed += sequence;
      return {.prompt = request.prompts[sequence],
              .maxNewTokens = request.maxNewTokens,
              .sampling = sampling,
              .keepBlocks = keepBlocks};
    }
    std::vector<uint64_t> submit(const GenerateRequest &request, bool keepBlocks = false) {
      std::vector<uint64_t> ids;
      for (size_t s = 0; s < request.prompts.size(); ++s) {
        const auto id = engine->submit(of(request, s, keepBlocks));
        EXPECT_TRUE(id.ok()) << id.status();
        ids.push_back(*id);
      }
      left += ids.size();
      return ids;
    }
    void step(uint32_t placement) {
      const auto launched = engine->launch({.placement = placement, .prefill = Prefill::Separate});
      ASSERT_TRUE(launched.ok() && *launched) << launched.status();
      const absl::Status read = engine->read();
      ASSERT_TRUE(read.ok()) << read;
    }
  };

  // What has been prefilled, request by request; `joined`: by what numbers the receiver knows them.
  static void handOver(const GenerateRequest &request, const std::vector<uint64_t> &ids, Loaded &left, Running &prefill,
                       Loaded &right, Running &decode, std::vector<uint64_t> &joined) {
    KvHandover handover;
    for (size_t s = 0; s < request.prompts.size(); ++s) {
      const auto id = decode.engine->submitPrefilled(Running::of(request, s), prefill.tokens[ids[s]].at(0));
      ASSERT_TRUE(id.ok()) << id.status();
      joined.push_back(*id);
      ++decode.left;
      const absl::Status moved =
          handover.move(*left.runtime, prefill.engine->blocksOf(ids[s]), *right.runtime, decode.engine->blocksOf(*id));
      ASSERT_TRUE(moved.ok()) << moved;
      prefill.engine->releaseBlocks(ids[s]);
      EXPECT_TRUE(prefill.engine->blocksOf(ids[s]).empty());
    }
  }
  // The first of each is the sender's.
  static void expectTokens(const GenerateResult &expected, const std::vector<uint64_t> &ids, Running &prefill,
                           const std::vector<uint64_t> &joined, Running &decode) {
    for (size_t s = 0; s < joined.size(); ++s) {
      std::vector<int32_t> tokens = prefill.tokens[ids[s]];
      tokens.insert(tokens.end(), decode.tokens[joined[s]].begin(), decode.tokens[joined[s]].end());
      EXPECT_EQ(tokens, expected.tokens[s]);
    }
  }
};

TEST_P(SplitHandover, TokensAreThoseOfOneDeviceWithAllBlocks) {
  const plan::Plan plan = compile();
  ASSERT_EQ(plan.placements.size(), 5u);
  Loaded whole(plan, 0);
  const GenerateRequest request = handedOver(), own = local();
  const auto expected = generate(*whole.runtime, request), expectedOwn = generate(*whole.runtime, own);
  ASSERT_TRUE(expected.ok() && expectedOwn.ok()) << expected.status() << expectedOwn.status();
  GenerateRequest first = request;
  first.maxNewTokens = 1;
  // An emulated row takes its time: one pair of placements.
  const bool few = GetParam().plansFor != model::DeviceKind::Host && !longRun();
  for (uint32_t from = 0; from < 5; ++from)
    for (uint32_t to = 0; to < 5; ++to)
      for (const bool changes : {false, true}) {
        if (few && !(from == 1 && to == 1 && !changes))
          continue;
        SCOPED_TRACE(testing::Message() << "from " << plan.placements[from].name << " to " << plan.placements[to].name
                                        << ", changes " << changes);
        Loaded left(plan, from), right(plan, to);
        Running prefill(*left.runtime), decode(*right.runtime);
        // The receiver decodes something of its own, which leaves tails in its slots for the next iteration.
        const uint64_t other = decode.submit(own).front();
        for (int i = 0; i < 4; ++i)
          decode.step(changes ? (to + i) % 5 : to);
        const std::vector<uint64_t> ids = prefill.submit(first, true);
        for (uint32_t i = 0; prefill.left > 0; ++i)
          prefill.step(changes ? (from + i) % 5 : from);
        std::vector<uint64_t> joined;
        handOver(request, ids, left, prefill, right, decode, joined);
        // Both decode together.
        for (uint32_t i = 0; decode.left > 0; ++i) {
          decode.step(changes ? (to + i / 2) % 5 : to);
          if (HasFatalFailure())
            return;
        }
        expectTokens(*expected, ids, prefill, joined, decode);
        EXPECT_EQ(decode.tokens[other], expectedOwn->tokens.front());
        EXPECT_EQ(right.runtime->kvBlocks().endOfUse(), 1);
        EXPECT_EQ(left.runtime->kvBlocks().endOfUse(), 1);
      }
}

// The receiver decodes on while it comes, and so does the sender with a request of its own.
TEST_P(SplitHandover, BothGoOnMeanwhile) {
  const plan::Plan plan = compile();
  ASSERT_EQ(plan.placements.size(), 5u);
  Loaded whole(plan, 0);
  const GenerateRequest request = handedOver(), own = local();
  const auto expected = generate(*whole.runtime, request), expectedOwn = generate(*whole.runtime, own);
  ASSERT_TRUE(expected.ok() && expectedOwn.ok()) << expected.status() << expectedOwn.status();
  GenerateRequest first = request;
  first.maxNewTokens = 1;
  const bool few = GetParam().plansFor != model::DeviceKind::Host && !longRun();
  for (uint32_t from = 0; from < 5; ++from)
    for (uint32_t to = 0; to < 5; ++to) {
      if (few && !(from == 1 && to == 4))
        continue;
      SCOPED_TRACE(testing::Message() << "from " << plan.placements[from].name << " to " << plan.placements[to].name);
      Loaded left(plan, from), right(plan, to);
      Running prefill(*left.runtime), decode(*right.runtime);
      const uint64_t other = decode.submit(own).front();
      for (int i = 0; i < 3; ++i)
        decode.step(to);
      const std::vector<uint64_t> ids = prefill.submit(first, true);
      while (prefill.left > 0)
        prefill.step(from);
      const uint64_t next = prefill.submit(own).front();
      std::vector<int32_t> out, in;
      std::vector<std::vector<int32_t>> blocks; // of each sequence
      for (const uint64_t id : ids)
        for (const int32_t block : prefill.engine->blocksOf(id))
          out.push_back(block);
      ASSERT_TRUE(right.runtime->kvBlocks().grow(in, static_cast<int64_t>(out.size()) * plan.blockTokens).ok());
      for (size_t s = 0, at = 0; s < ids.size(); ++s) {
        const auto count = prefill.engine->blocksOf(ids[s]).size();
        blocks.emplace_back(in.begin() + static_cast<std::ptrdiff_t>(at),
                            in.begin() + static_cast<std::ptrdiff_t>(at + count));
        at += count;
      }
      KvHandover handover;
      ASSERT_TRUE(handover.begin(*left.runtime, out, *right.runtime, in).ok());
      EXPECT_EQ(handover.begin(*left.runtime, out, *right.runtime, in).code(), absl::StatusCode::kFailedPrecondition);
      for (;;) {
        const auto there = handover.advance();
        ASSERT_TRUE(there.ok()) << there.status();
        if (*there)
          break;
        if (decode.left > 0)
          decode.step(to);
        if (prefill.left > 0)
          prefill.step(from);
      }
      const absl::Status finished = handover.finish();
      ASSERT_TRUE(finished.ok()) << finished;
      std::vector<uint64_t> joined;
      for (size_t s = 0; s < ids.size(); ++s) {
        const auto id =
            decode.engine->submitPrefilled(Running::of(request, s), prefill.tokens[ids[s]].at(0), blocks[s]);
        ASSERT_TRUE(id.ok()) << id.status();
        EXPECT_TRUE(blocks[s].empty());
        joined.push_back(*id);
        ++decode.left;
        prefill.engine->releaseBlocks(ids[s]);
      }
      while (decode.left > 0 && !HasFatalFailure())
        decode.step(to);
      while (prefill.left > 0 && !HasFatalFailure())
        prefill.step(from);
      expectTokens(*expected, ids, prefill, joined, decode);
      EXPECT_EQ(decode.tokens[other], expectedOwn->tokens.front());
      EXPECT_EQ(prefill.tokens[next], expectedOwn->tokens.front());
      EXPECT_EQ(right.runtime->kvBlocks().endOfUse(), 1);
      EXPECT_EQ(left.runtime->kvBlocks().endOfUse(), 1);
    }
}

// What a device has prefilled is decoded where the CPU attends, beside another request.
TEST_P(SplitHandover, ToCachesThatTheCpuAttendsTo) {
  compiler::CompileRequest onCpu = ask(1e10);
  onCpu.buckets = {.newTokens = {1, 4, 7}, .sequences = {1, 4}, .contexts = {40}};
  compiler::Candidate &candidate =
      onCpu.placements.emplace_back(compiler::stated(onCpu.model, {compiler::none()}).front());
  candidate.residency.setKvAway(kLayers, 0);
  candidate.attendsOnCpu = true;
  const auto attends = compiler::compile(onCpu);
  ASSERT_TRUE(attends.ok()) << attends.status();
  const plan::Plan plan = compile();
  Loaded whole(plan, 0);
  const GenerateRequest request = handedOver(), own = local();
  const auto expected = generate(*whole.runtime, request), expectedOwn = generate(*whole.runtime, own);
  ASSERT_TRUE(expected.ok() && expectedOwn.ok()) << expected.status() << expectedOwn.status();
  GenerateRequest first = request;
  first.maxNewTokens = 1;
  for (uint32_t from = 0; from < 5; ++from) {
    SCOPED_TRACE(plan.placements[from].name);
    Loaded left(plan, from), right(*attends, 0);
    Running prefill(*left.runtime), decode(*right.runtime);
    const uint64_t other = decode.submit(own).front();
    for (int i = 0; i < 4; ++i)
      decode.step(0);
    const std::vector<uint64_t> ids = prefill.submit(first, true);
    while (prefill.left > 0)
      prefill.step(from);
    std::vector<uint64_t> joined;
    handOver(request, ids, left, prefill, right, decode, joined);
    while (decode.left > 0 && !HasFatalFailure())
      decode.step(0);
    expectTokens(*expected, ids, prefill, joined, decode);
    EXPECT_EQ(decode.tokens[other], expectedOwn->tokens.front());
  }
}

// Given up on its way: what was under way has ended, and another one may follow.
TEST_P(SplitHandover, MayBeGivenUp) {
  const plan::Plan plan = compile();
  Loaded left(plan, 1), right(plan, 2);
  const std::vector<int32_t> blocks{1, 2, 3, 9, 10};
  KvHandover handover;
  EXPECT_EQ(handover.advance().status().code(), absl::StatusCode::kFailedPrecondition);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(handover.begin(*left.runtime, blocks, *right.runtime, blocks).ok());
    ASSERT_TRUE(handover.advance(i != 1).ok());
    if (i == 1) {
      EXPECT_FALSE(handover.brings());
    }
    handover.abandon();
    EXPECT_FALSE(handover.active());
  }
  EXPECT_TRUE(handover.move(*left.runtime, blocks, *right.runtime, blocks).ok());
}

// Blocks that were filled otherwise are in no slot: tails are brought anew, in virtual time as well. Weights stay.
TEST_P(SplitHandover, SlotsForgetTailsAndKeepWeights) {
  for (const int64_t resident : {kBlocks, int64_t{4}}) {
    // Fast enough that the link decides: copies are carried over an iteration's edge.
    compiler::CompileRequest request = ask(1e12);
    request.buckets = {.newTokens = {1, 4}, .sequences = {4}, .contexts = {40}};
    request.placements = compiler::stated(request.model, {compiler::interval(2)});
    if (resident < kBlocks)
      request.placements.front().residency.setKvAway(kLayers, resident);
    const auto plan = compiler::compile(request);
    ASSERT_TRUE(plan.ok()) << plan.status();
    for (const bool virtualTime : {false, true}) {
      const std::shared_ptr<core::Device> device = virtualTime ? sim::makeSimDevice() : GetParam().make();
      const auto weights = model::syntheticWeights(1);
      const auto runtime = core::Runtime::load(*plan, *device, {}, weights.get(), {});
      ASSERT_TRUE(runtime.ok()) << runtime.status();
      GenerateRequest asked;
      asked.prompts = {{1, 2, 3, 4}, {42, 43, 44, 45}, {7, 7, 149}}; // two blocks each, once they decode
      asked.maxNewTokens = 4;
      uint64_t before = 0, written = 0;
      asked.onIteration = [&](const IterationSeen &seen) {
        if (seen.prefill || written > 0)
          return;
        before = (*runtime)->transitionsRun();
        (*runtime)->kvWritten();
        written = (*runtime)->launched();
      };
      asked.stopTokens = {-1}; // which none is: one iteration is in flight
      const auto result = generate(**runtime, asked);
      ASSERT_TRUE(result.ok()) << result.status();
      ASSERT_GT(before, 0u);
      EXPECT_EQ((*runtime)->transitionsRun() - before, resident < kBlocks ? 1u : 0u) << resident << " " << virtualTime;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, SplitHandover,
                         testing::ValuesIn(core::devicesOfPlans(core::devicesWithPackedKvToo())),
                         [](const auto &info) { return std::string(info.param.name); });

} // namespace
} // namespace headrace::serve
