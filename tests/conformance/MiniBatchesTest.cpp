// SPDX-License-Identifier: Apache-2.0
//
// Plans that pass each layer for one to four mini-batches: the tokens of a request are, bit for bit, those of the
// request alone on the all-resident plan of one mini-batch, whoever else is in whichever mini-batch, wherever caches
// and weights lie, however rows get home and whether residuals leave between layers; each mini-batch's copies have its
// own size; weights are brought once.
#include <gtest/gtest.h>

#include <cstring>

#include "runtime/core/MetaWriter.h"
#include "runtime/serve/engine/BatchEngine.h"
#include "tests/conformance/DevicesUnderTest.h"
#include "tests/conformance/EngineTraffic.h"

namespace headrace {
namespace {

using algorithms::WriteBack;

// Of each mini-batch: 2 sequences of at most 16 blocks of 4 tokens, and the scratch block; so each 256th of a tail from
// block 1 on is an eighth of a block.
constexpr int64_t kLayers = 4, kSequences = 2, kContext = 64, kBlocks = 33;

compiler::CompileRequest ask(model::DeviceKind kind, int64_t miniBatches) {
  compiler::CompileRequest request;
  request.model = core::tinyLlama(kLayers);
  request.hardware = core::tinyPlan({.spec = core::tinyLlama(1), .kind = kind}).hardware;
  request.hardware.flopsF32 = request.hardware.flopsF16 = request.hardware.memoryBandwidth = 1e10;
  request.hardware.flopsEfficiency = request.hardware.memoryEfficiency = 0.5;
  request.goal.miniBatches = miniBatches;
  request.goal.batch = kSequences * miniBatches;
  request.goal.context = kContext;
  request.goal.blockTokens = 4;
  return request;
}

struct Placed {
  int64_t miniBatches = 1;
  int64_t resident = kBlocks; // blocks on the device, the scratch block included
  int64_t interval = 0;       // of the weights, 0 none away
  WriteBack writeBack = WriteBack::Mirror;
  bool residualsLeave = false;
};
std::ostream &operator<<(std::ostream &out, const Placed &p) {
  return out << p.miniBatches << " mini-batches, " << p.resident << " blocks, interval " << p.interval
             << ", written back " << static_cast<int>(p.writeBack) << ", residuals "
             << (p.residualsLeave ? "leave" : "stay");
}

class MiniBatches : public testing::TestWithParam<core::DeviceUnderTest> {
protected:
  static bool emulated() { return GetParam().plansFor != model::DeviceKind::Host; }
  static bool few() { return emulated() && !longRun(); }
  static std::unique_ptr<Loaded> load(const Placed &placed, std::shared_ptr<core::Device> device) {
    compiler::CompileRequest request = ask(GetParam().plansFor, placed.miniBatches);
    request.buckets = {.newTokens = {1, kSequences, 8}, .sequences = {1, kSequences}, .contexts = {16, kContext}};
    compiler::Candidate candidate =
        compiler::stated(request.model, {placed.interval > 0 ? compiler::interval(placed.interval) : compiler::none()})
            .front();
    if (placed.resident < kBlocks)
      candidate.residency.setKvAway(kLayers, placed.resident);
    candidate.residency.kv().decodeBack = candidate.residency.kv().mixedBack = placed.writeBack;
    if (placed.residualsLeave)
      request.policy.residuals = model::Residuals::Host;
    request.placements = {candidate};
    return Loaded::load(request, std::move(device));
  }
  // Of 13, 1, 3, ... tokens.
  static std::vector<std::vector<int32_t>> prompts(int64_t count) {
    std::vector<std::vector<int32_t>> out(static_cast<size_t>(count));
    for (size_t p = 0; p < out.size(); ++p)
      for (size_t i = 0; i < std::vector<size_t>{13, 1, 3, 9, 30, 2, 17, 5}[p % 8]; ++i)
        out[p].push_back(static_cast<int32_t>((7 * p + 3 * i + 1) % 150));
    return out;
  }
  static int64_t newTokens() { return few() ? 3 : 12; }
  // What each of them gives alone.
  static std::vector<std::vector<int32_t>> expected(int64_t count) {
    const auto by = load({}, GetParam().make());
    std::vector<std::vector<int32_t>> out;
    for (const std::vector<int32_t> &prompt : prompts(count))
      out.push_back(alone(*by, {.prompt = prompt, .maxNewTokens = newTokens()}));
    return out;
  }
  static std::vector<Placed> cases(int64_t miniBatches) {
    std::vector<Placed> out;
    for (const WriteBack writeBack : {WriteBack::Mirror, WriteBack::All, WriteBack::Dirty})
      for (const int64_t resident : {int64_t{0}, int64_t{1}, int64_t{3}, kBlocks})
        for (const int64_t interval : {0, 2})
          if (resident < kBlocks || writeBack == WriteBack::Mirror)
            for (const bool leave : {false, true})
              out.push_back({miniBatches, resident, interval, writeBack, leave});
    if (longRun())
      return out;
    if (few())
      return {out[static_cast<size_t>(3 + 8 * miniBatches)]};
    std::vector<Placed> some; // a fifth
    for (size_t i = static_cast<size_t>(miniBatches) % 5; i < out.size(); i += 5)
      some.push_back(out[i]);
    return some;
  }
};

// Prefill in chunks beside decoding, two iterations in flight: as many requests as there are seats, one less (one
// mini-batch has fewer), and one (all others are empty).
TEST_P(MiniBatches, TokensAreThoseOfEachRequestAlone) {
  const auto alones = expected(4 * kSequences);
  for (int64_t m = 1; m <= 4; ++m)
    for (const Placed &placed : cases(m)) {
      SCOPED_TRACE(testing::Message() << placed);
      const auto shadow = std::make_shared<core::ShadowKv>(GetParam().make());
      const auto loaded = load(placed, shadow);
      ASSERT_NE(loaded, nullptr);
      EXPECT_EQ(loaded->plan.miniBatches, static_cast<uint32_t>(m));
      for (const int64_t requests : {m * kSequences, m * kSequences - 1, int64_t{1}}) {
        if (few() && requests == m * kSequences)
          continue;
        const auto result =
            serve::generate(*loaded->runtime, {.prompts = prompts(requests), .maxNewTokens = newTokens()});
        ASSERT_TRUE(result.ok()) << result.status();
        EXPECT_EQ(result->tokens, std::vector(alones.begin(), alones.begin() + requests));
        ASSERT_EQ(shadow->found(), "");
      }
      EXPECT_EQ(shadow->launchesWithEmpty() > 0, m > 1);
      EXPECT_EQ(shadow->unevenLaunches() > 0, m > 1);
      EXPECT_EQ(loaded->runtime->missingVariants(), 0u);
    }
}

INSTANTIATE_TEST_SUITE_P(Devices, MiniBatches, testing::ValuesIn(core::devicesOfPlans(core::devicesWithData())),
                         [](const auto &info) { return std::string(info.param.name); });

// By hand: three mini-batches, of which a launch has 2, 9 and no blocks of a tail from block 1 on in use.
class MiniBatchCopies : public testing::TestWithParam<core::DeviceUnderTest> {
protected:
  // Launches one row of each mini-batch at the end of so many blocks, none where there are none.
  void launch(const std::vector<int64_t> &blocks) {
    std::vector<core::SequenceRows> rows(blocks.size());
    std::vector<absl::Span<const core::SequenceRows>> each(blocks.size());
    tables_.resize(blocks.size());
    const int32_t token = 1;
    int64_t sequences = 0, context = 1;
    for (uint32_t m = 0; m < blocks.size(); ++m) {
      if (blocks[m] == 0)
        continue;
      const int64_t tokens = blocks[m] * 4;
      ASSERT_TRUE(on_->runtime->kvBlocks(m).grow(tables_[m], tokens).ok());
      rows[m] = {.tokens = {&token, 1}, .firstPosition = tokens - 1, .blocks = tables_[m], .sample = true};
      each[m] = {&rows[m], 1};
      sequences = 1;
      context = std::max(context, tokens);
    }
    const auto variant = on_->runtime->choose(1, sequences, context);
    ASSERT_TRUE(variant.ok()) << variant.status();
    ASSERT_TRUE(core::writeMetas(on_->plan.metaLayout, 4, each, on_->device->meta()).ok());
    const absl::Status launched = on_->runtime->launch(*variant);
    ASSERT_TRUE(launched.ok()) << launched;
    schedule_ = &on_->plan.schedules[on_->plan.variants[*variant].schedule];
  }
  std::unique_ptr<Loaded> on_;
  std::vector<std::vector<int32_t>> tables_; // by mini-batch
  const plan::Schedule *schedule_ = nullptr; // of the last launch
};

// Two launches in flight: 2, 9 and 0 blocks in use, then 5, 9 and 16. A copy has at least its first 256th, here an
// eighth of a block, which is less than the 256 bytes a copy is a multiple of. Written back whole as much goes home as
// comes; else the block of the one row.
TEST_P(MiniBatchCopies, HaveTheirMiniBatchsOwnSizeInOneLaunch) {
  for (const WriteBack writeBack : {WriteBack::All, WriteBack::Dirty}) {
    for (const int64_t interval : {0, 1}) {
      SCOPED_TRACE(testing::Message() << static_cast<int>(writeBack) << ", interval " << interval);
      compiler::CompileRequest request = ask(GetParam().plansFor, 3);
      request.buckets = {.newTokens = {kSequences}, .sequences = {kSequences}, .contexts = {kContext}};
      compiler::Candidate candidate =
          compiler::stated(request.model, {interval > 0 ? compiler::interval(interval) : compiler::none()}).front();
      candidate.residency.wrap.around = false;
      candidate.residency.setKvAway(kLayers, 1);
      candidate.residency.kv().decodeBack = candidate.residency.kv().mixedBack = writeBack;
      request.placements = {candidate};
      on_ = Loaded::load(request, GetParam().make());
      ASSERT_NE(on_, nullptr);
      tables_.clear();
      ASSERT_NO_FATAL_FAILURE(launch({1, 1, 1})); // behind it no transition
      ASSERT_TRUE(on_->device->drain().ok());
      const core::DeviceCounters before = on_->device->counters();
      ASSERT_NO_FATAL_FAILURE(launch({2, 9, 0}));
      ASSERT_NO_FATAL_FAILURE(launch({5, 9, 16}));
      ASSERT_TRUE(on_->device->drain().ok());
      const core::DeviceCounters after = on_->device->counters();
      // The third has a block from the first launch on.
      const uint64_t block = on_->plan.kvBlockBytes(), blocks = (2 + 9 + 1) + (5 + 9 + 16);
      uint64_t weights = 0; // each once a launch
      for (const plan::Extent &extent : on_->plan.placements[0].extents)
        if (on_->plan.buffers[extent.buffer].kind == plan::BufferKind::Weight && extent.space == plan::Space::Host)
          weights += extent.bytes;
      EXPECT_EQ(weights > 0, interval > 0);
      EXPECT_EQ(after.h2dBytes - before.h2dBytes, kLayers * blocks * block + 2 * weights);
      // Of a launch in which a mini-batch writes nothing the least that is copied goes home.
      ASSERT_LE(block / 8, core::kSizeAlign);
      const uint64_t home = writeBack == WriteBack::All ? blocks * block : 2 * block + core::kSizeAlign + 3 * block;
      EXPECT_EQ(after.d2hBytes - before.d2hBytes, kLayers * home);
    }
  }
}

// Residuals of three mini-batches of up to 64 rows: four 256ths are a row. 5, 1 and no rows go home behind 3 of 4
// layers and come back; one that has none copies the first.
TEST_P(MiniBatchCopies, OfResidualsAreTheLaunchsRows) {
  compiler::CompileRequest request = ask(GetParam().plansFor, 3);
  request.policy.residuals = model::Residuals::Host;
  request.buckets = {.newTokens = {kSequences, 64}, .sequences = {kSequences}, .contexts = {kContext}};
  request.placements = {compiler::stated(request.model, {compiler::none()}).front()};
  on_ = Loaded::load(request, GetParam().make());
  ASSERT_NE(on_, nullptr);
  const core::DeviceCounters before = on_->device->counters();
  const std::vector<int32_t> tokens{1, 2, 3, 4, 5};
  core::SequenceRows rows[2];
  std::vector<absl::Span<const core::SequenceRows>> each(3);
  tables_.resize(2);
  for (uint32_t m = 0; m < 2; ++m) {
    const size_t count = m == 0 ? 5 : 1;
    ASSERT_TRUE(on_->runtime->kvBlocks(m).grow(tables_[m], static_cast<int64_t>(count)).ok());
    rows[m] = {.tokens = {tokens.data(), count}, .firstPosition = 0, .blocks = tables_[m], .sample = true};
    each[m] = {&rows[m], 1};
  }
  const auto variant = on_->runtime->choose(5, 1, 5);
  ASSERT_TRUE(variant.ok()) << variant.status();
  ASSERT_TRUE(core::writeMetas(on_->plan.metaLayout, 4, each, on_->device->meta()).ok());
  ASSERT_TRUE(on_->runtime->launch(*variant).ok());
  ASSERT_TRUE(on_->device->drain().ok());
  const core::DeviceCounters after = on_->device->counters();
  const auto row = static_cast<uint64_t>(on_->plan.model->hidden) * sizeof(float);
  EXPECT_EQ(after.d2hBytes - before.d2hBytes, (kLayers - 1) * (5 + 1 + 1) * row);
  EXPECT_EQ(after.h2dBytes - before.h2dBytes, (kLayers - 1) * (5 + 1 + 1) * row);
}

INSTANTIATE_TEST_SUITE_P(Devices, MiniBatchCopies, testing::ValuesIn(core::kDevices),
                         [](const auto &info) { return std::string(info.param.name); });

// A plan of EngineTraffic.h with one to four mini-batches, each of its batch; where caches are split, rows get home
// either way.
compiler::CompileRequest anyPlanOfMiniBatches(Draw &draw, model::DeviceKind kind) {
  compiler::CompileRequest asked = anyPlan(draw, kind);
  asked.goal.miniBatches = draw.oneIn(10) ? 1 : draw.between(2, 4);
  asked.goal.batch = *asked.goal.batch * asked.goal.miniBatches;
  asked.goal.kvTokens = *asked.goal.kvTokens * asked.goal.miniBatches;
  // Residuals leave in half of those that they may leave in, under the rule eager; no draw more than without.
  const bool eager = std::all_of(asked.placements.begin(), asked.placements.end(),
                                 [](const compiler::Candidate &c) { return c.residency.start == algorithms::kEager; });
  if (eager && *asked.goal.kvTokens / asked.goal.blockTokens % 2 == 0)
    asked.policy.residuals = model::Residuals::Host;
  for (compiler::Candidate &candidate : asked.placements) {
    if (candidate.residency.weights().ringBytes() > 0) // units of all kinds, in slots
      candidate.residency.weights().setSlots(draw.between(1, 3));
    if (candidate.residency.firstKvBlockAway()) {
      candidate.residency.kv().decodeBack = draw.oneOf({WriteBack::Mirror, WriteBack::All, WriteBack::Dirty});
      candidate.residency.kv().mixedBack = draw.oneOf({WriteBack::Mirror, WriteBack::All, WriteBack::Dirty});
    }
  }
  return asked;
}

class EngineOfMiniBatches : public testing::TestWithParam<core::DeviceUnderTest> {};

TEST_P(EngineOfMiniBatches, RequestsGetTheTokensThatTheyGetAlone) {
  const bool emulated = GetParam().plansFor != model::DeviceKind::Host;
  // The device that keeps no data by chance shows the most.
  const uint64_t fast = emulated ? 12 : GetParam().keepsData ? 2000 : 5000;
  const uint64_t iterations = longRun() ? (emulated ? 600 : 50000) : fast;
  Seen sum;
  const uint64_t first = std::strlen(GetParam().name) * 1000000; // most devices have traffic of their own
  for (uint64_t seed = first; sum.iterations < iterations; ++seed) {
    SCOPED_TRACE(testing::Message() << "case " << seed);
    Draw draw(seed);
    Traffic traffic(draw, anyPlanOfMiniBatches(draw, GetParam().plansFor), GetParam().make());
    ASSERT_NO_FATAL_FAILURE(traffic.run(emulated ? 6 : 40));
    ASSERT_NO_FATAL_FAILURE(traffic.check(GetParam().make()));
    add(sum, traffic.seen);
  }
  if (emulated)
    return;
  EXPECT_GT(sum.withEmpty, iterations / 50);
  EXPECT_GT(sum.uneven, iterations / 5);
  expectAll(sum);
}

#ifndef HEADRACE_EMULATED_TESTS
// Of a static batch one mini-batch has a prompt of 20 tokens and 4 more, the other one of 4 and 20 more: the first is
// over after 24 rows, all that the context has, and has no rows while the other goes on.
TEST(StaticMiniBatches, OneThatIsOverRestsUntilTheOthersAre) {
  Draw draw(1);
  compiler::CompileRequest asked = core::anyModel(draw, model::DeviceKind::Host);
  asked.goal.batch = asked.goal.miniBatches = 2;
  asked.goal.context = 24;
  asked.buckets = {.newTokens = {1, 8}, .sequences = {1}, .contexts = {24}};
  asked.placements = compiler::stated(asked.model, {compiler::none()});
  const auto served = Loaded::load(asked, sim::makeSimDevice());
  ASSERT_NE(served, nullptr);
  std::map<uint64_t, int64_t> tokens;
  EngineOptions options{.batching = serve::Batching::Static};
  options.onToken = [&](const serve::EngineToken &token) { ++tokens[token.request]; };
  options.onEnd = [](const serve::EngineEnd &end) { EXPECT_TRUE(end.why.ok()) << end.why; };
  const auto engine = serve::Engine::create(*served->runtime, std::move(options));
  ASSERT_TRUE(engine.ok()) << engine.status();
  ASSERT_TRUE((*engine)->submit({.prompt = std::vector<int32_t>(20, 1), .maxNewTokens = 4}).ok());
  ASSERT_TRUE((*engine)->submit({.prompt = std::vector<int32_t>(4, 1), .maxNewTokens = 20}).ok());
  for (bool more = true; more;) {
    const auto stepped = (*engine)->step();
    ASSERT_TRUE(stepped.ok()) << stepped.status();
    more = *stepped;
  }
  EXPECT_EQ(tokens, (std::map<uint64_t, int64_t>{{1, 4}, {2, 20}}));
}
#endif

INSTANTIATE_TEST_SUITE_P(Devices, EngineOfMiniBatches, testing::ValuesIn(core::devicesOfPlans(core::devicesWithData())),
                         [](const auto &info) { return std::string(info.param.name); });

#ifndef HEADRACE_EMULATED_TESTS
TEST(EngineOfMiniBatchesInVirtualTime, EveryBlockHasOneOwnerAndComesBack) {
  const uint64_t iterations = longRun() ? 500000 : 20000;
  Seen sum;
  for (uint64_t seed = 1; sum.iterations < iterations; ++seed) {
    SCOPED_TRACE(testing::Message() << "case " << seed);
    Draw draw(seed);
    Traffic traffic(draw, anyPlanOfMiniBatches(draw, model::DeviceKind::Host), sim::makeSimDevice());
    ASSERT_NO_FATAL_FAILURE(traffic.run(100));
    add(sum, traffic.seen);
  }
  EXPECT_GT(sum.withEmpty, iterations / 50);
  expectAll(sum);
}
#endif

} // namespace
} // namespace headrace
