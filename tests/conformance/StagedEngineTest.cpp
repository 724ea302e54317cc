// SPDX-License-Identifier: Apache-2.0
//
// An engine over a model's stages: requests that come, are preempted, are cancelled and end as they like; each gets
// what it gets alone on one device, to the last bit of its logits, whoever runs beside it, and no block is lost.
#include <random>

#include <gmock/gmock.h>

#include "runtime/serve/traffic/Traffic.h"
#include "tests/conformance/StagesUnderTest.h"
#include "tests/support/LongRun.h"

namespace headrace::serve {
namespace {

using core::Options;
using core::Served;
using testing::HasSubstr;

size_t turnsOf(const Options &options, size_t stages) {
  return std::min(stages, static_cast<size_t>(options.sequences));
}

GenerateRequest requestOf(uint64_t seed, size_t prompts) {
  std::mt19937_64 draw(seed);
  GenerateRequest request;
  for (size_t p = 0; p < prompts; ++p) {
    auto &prompt = request.prompts.emplace_back();
    for (uint64_t i = 0, n = 1 + draw() % 24; i < n; ++i)
      prompt.push_back(static_cast<int32_t>(draw() % 90));
  }
  request.maxNewTokens = 1 + static_cast<int64_t>(draw() % 30);
  request.sampling.temperature = draw() % 2 == 0 ? 0.0f : 0.9f;
  request.sampling.seed = draw() % 1000;
  request.stopTokens = {static_cast<int32_t>(draw() % 90)};
  request.separatePrefill = draw() % 4 == 0;
  if (draw() % 2 == 0)
    request.sampling.repetitionPenalty = 1.3f;
  return request;
}

// Of every third prompt the reply ends at its fourth token.
void endSome(GenerateRequest &request, std::vector<int> &tokens) {
  tokens.assign(request.prompts.size(), 0);
  request.onToken = [&tokens](size_t prompt, int32_t) { return prompt % 3 != 0 || ++tokens[prompt] < 4; };
}

void expectTheSame(const Options &options, uint64_t seed, size_t prompts) {
  GenerateRequest request = requestOf(seed, prompts);
  std::vector<int> tokens;
  endSome(request, tokens);
  Options room = options;
  room.kvTokens = 0; // nobody is preempted there
  Served whole(room, {0});
  const auto wanted = generate(whole.runtime(0), request);
  ASSERT_TRUE(wanted.ok()) << wanted.status();
  for (const std::vector<int64_t> &cut : {std::vector<int64_t>{0, 3}, {0, 2, 3, 4}}) {
    Served stages(options, cut, turnsOf(options, cut.size()));
    ASSERT_FALSE(testing::Test::HasFailure());
    const int64_t free = stages.stages().kvBlocks(0).freeBlocks();
    endSome(request, tokens);
    const auto made = generate(stages.stages(), request);
    ASSERT_TRUE(made.ok()) << made.status();
    EXPECT_EQ(made->tokens, wanted->tokens) << "seed " << seed << ", " << cut.size() << " stages";
    EXPECT_EQ(made->ends, wanted->ends);
    for (uint32_t i = 0; i < options.miniBatches; ++i)
      EXPECT_EQ(stages.stages().kvBlocks(i).freeBlocks(), free);
  }
}

TEST(StagedEngine, EachPromptGetsWhatItGetsAlone) {
  const uint64_t rounds = longRun() ? 60 : 4;
  for (uint64_t seed = 1; seed <= rounds; ++seed) {
    expectTheSame({.sequences = 4}, seed, 23);
    expectTheSame({.sequences = 4, .interval = 2, .resident = 9}, seed, 11);
    expectTheSame({.miniBatches = 2, .sequences = 3, .interval = 1}, seed, 17);
    expectTheSame({.miniBatches = 2, .sequences = 2, .attendsOnCpu = true}, seed, 9);
  }
}

// KV blocks for 68 tokens of a mini-batch, where four sequences may want 54 each.
TEST(StagedEngine, WhoIsPreemptedGetsTheSame) {
  const uint64_t rounds = longRun() ? 60 : 6;
  for (uint64_t seed = 1; seed <= rounds; ++seed) {
    expectTheSame({.sequences = 4, .kvTokens = 68}, seed, 23);
    expectTheSame({.miniBatches = 2, .sequences = 4, .interval = 2, .kvTokens = 68}, seed, 23);
  }
}

// Of prompts that come in chunks, of tokens that were generated, and of what is computed anew behind a preemption.
TEST(StagedEngine, PenaltiesCountAllTokens) {
  struct Case {
    Options options;
    std::vector<int64_t> cut;
  };
  for (const auto &[options, cut] : std::vector<Case>{
           {{.sequences = 4, .kvTokens = 68}, {0, 3}},
           {{.sequences = 4, .kvTokens = 68}, {0, 2, 4}},
           {{.miniBatches = 2, .sequences = 4, .interval = 2, .kvTokens = 68, .streamsLeave = true}, {0, 3}},
           {{.miniBatches = 2, .sequences = 4, .kvTokens = 68, .attendsOnCpu = true}, {0, 1, 4}}}) {
    GenerateRequest request = requestOf(3, 23);
    for (std::vector<int32_t> &prompt : request.prompts)
      prompt.resize(24, 7); // two chunks
    request.maxNewTokens = 30;
    request.stopTokens = {};
    request.sampling = {};
    Options room = options;
    room.kvTokens = 0;
    Served whole(room, {0}), stages(options, cut, turnsOf(options, cut.size()));
    ASSERT_FALSE(HasFailure());
    const auto plain = generate(whole.runtime(0), request);
    ASSERT_TRUE(plain.ok()) << plain.status();
    std::vector<Sampling> penalised(3);
    penalised[0].repetitionPenalty = 1.5f; // of prompts, too
    penalised[1].presencePenalty = 1;
    penalised[2].frequencyPenalty = 0.25f;
    for (const Sampling &sampling : penalised) {
      request.sampling = sampling;
      const auto wanted = generate(whole.runtime(0), request), made = generate(stages.stages(), request);
      ASSERT_TRUE(wanted.ok() && made.ok()) << wanted.status() << made.status();
      EXPECT_EQ(made->tokens, wanted->tokens);
      EXPECT_NE(made->tokens, plain->tokens);
      EXPECT_EQ(wanted->preemptions, 0u);
      EXPECT_GT(made->preemptions, 0u);
    }
  }
}

// The youngest of all gives its blocks up: first come, first served over micro-batches.
TEST(StagedEngine, ThePreemptedIsTheYoungestOfAll) {
  Served stages({.sequences = 2, .kvTokens = 64}, {0, 3}, 2, /*virtualTime=*/true);
  std::vector<uint64_t> preempted(4, 0), ends;
  EngineOptions options;
  options.watermark = 0;
  options.onEnd = [&](const EngineEnd &end) {
    ends.push_back(end.request);
    preempted[end.request] = end.preemptions;
    EXPECT_EQ(end.reason, EndReason::Length) << end.why;
  };
  auto engine = Engine::create(stages.stages(), std::move(options));
  ASSERT_TRUE(engine.ok()) << engine.status();
  // 16 blocks of 4 tokens; two of 8 + 40 tokens want 12 each.
  for (int i = 0; i < 2; ++i)
    ASSERT_TRUE((*engine)->submit({.prompt = std::vector<int32_t>(8, 1), .maxNewTokens = 40}).ok());
  for (bool more = true; more;) {
    const auto stepped = (*engine)->step();
    ASSERT_TRUE(stepped.ok()) << stepped.status();
    more = *stepped;
  }
  EXPECT_EQ(ends, (std::vector<uint64_t>{1, 2}));
  EXPECT_EQ(preempted[1], 0u);
  EXPECT_GE(preempted[2], 1u);
  EXPECT_EQ(stages.stages().kvBlocks(0).used(), 0);
}

// One that needs more blocks than there are says so; the others end.
TEST(StagedEngine, AloneWithoutABlockFails) {
  Served stages({.sequences = 2}, {0, 3}, 2, /*virtualTime=*/true);
  ASSERT_TRUE(stages.stages().kvBlocks(0).setLimit(5).ok()); // the scratch block, and 4
  std::vector<EndReason> ends(3, EndReason::Cancelled);
  EngineOptions options;
  options.onEnd = [&](const EngineEnd &end) {
    ends[end.request] = end.reason;
    if (!end.why.ok()) {
      EXPECT_THAT(std::string(end.why.message()), HasSubstr("position 16: the request has 4 KV blocks and needs one"));
    }
  };
  auto engine = Engine::create(stages.stages(), std::move(options));
  ASSERT_TRUE(engine.ok()) << engine.status();
  ASSERT_TRUE((*engine)->submit({.prompt = std::vector<int32_t>(8, 1), .maxNewTokens = 20}).ok());
  ASSERT_TRUE((*engine)->submit({.prompt = std::vector<int32_t>(8, 2), .maxNewTokens = 4}).ok());
  for (bool more = true; more;) {
    const auto stepped = (*engine)->step();
    ASSERT_TRUE(stepped.ok()) << stepped.status();
    more = *stepped;
  }
  EXPECT_EQ(ends[1], EndReason::Failed);
  EXPECT_EQ(ends[2], EndReason::Length);
}

// What may be away, packed and where attention is, all of it beside all: weights x caches x mini-batches x encoding x
// model x 2 to 4 stages; a share of it, and with HEADRACE_LONG all.
std::vector<std::pair<Options, size_t>> matrix() {
  std::vector<std::pair<Options, size_t>> all;
  for (const int64_t interval : {0, 1, 2})
    for (const int caches : {0, 1, 2}) // on the device, split, on the host with attention there
      for (const int64_t miniBatches : {1, 2})
        for (const char *encoding : {"", "q4:32", "q8:32"})
          for (const bool opt : {false, true})
            for (const size_t stages : {2, 3, 4})
              all.push_back({{.opt = opt,
                              .miniBatches = miniBatches,
                              .sequences = 3,
                              .interval = interval,
                              .resident = caches == 1 ? 9 : 0,
                              .streamsLeave = miniBatches == 2 && interval == 1 && caches != 2,
                              .attendsOnCpu = caches == 2,
                              .encoding = encoding},
                             stages});
  return all;
}

TEST(StagedEngine, TokensAndLogitsAreThoseOfOneDevice) {
  const std::vector<std::pair<Options, size_t>> all = matrix();
  const std::vector<int64_t> cuts[] = {{0, 4}, {0, 1, 4}, {0, 2, 3, 5}};
  size_t ran = 0;
  for (size_t i = seedOfRun().value_or(0) % 13; i < all.size(); i += longRun() ? 1 : 13) {
    const auto &[options, count] = all[i];
    GenerateRequest request = requestOf(i, 6);
    request.keepLogits = options.miniBatches == 1;
    Options resident{.opt = options.opt, .miniBatches = options.miniBatches, .sequences = 3};
    resident.encoding = options.encoding;
    Served whole(resident, {0}), stages(options, cuts[count - 2], turnsOf(options, count));
    ASSERT_FALSE(HasFailure()) << i;
    const auto wanted = generate(whole.runtime(0), request), made = generate(stages.stages(), request);
    ASSERT_TRUE(wanted.ok() && made.ok()) << i << ": " << wanted.status() << made.status();
    EXPECT_EQ(made->tokens, wanted->tokens) << i;
    EXPECT_EQ(made->logits, wanted->logits) << i;
    EXPECT_EQ(made->logits.empty(), !request.keepLogits);
    ++ran;
  }
  EXPECT_GE(ran, longRun() ? size_t{324} : size_t{24});
}

// Ten thousand iterations in virtual time of requests that come at random, with few KV blocks; of some runs a part is
// cancelled.
TEST(StagedEngine, NoBlockIsLostInALongRun) {
  const Options options{.sequences = 6, .kvTokens = 100};
  Served stages(options, {0, 2, 4}, 3, /*virtualTime=*/true);
  const int64_t free = stages.stages().kvBlocks(0).freeBlocks();
  uint64_t iterations = 0, preemptions = 0;
  for (uint64_t seed = 1; iterations < 10'000; ++seed) {
    std::mt19937_64 draw(seed);
    std::vector<TrafficRequest> requests(100);
    int64_t at = 0;
    for (TrafficRequest &one : requests)
      one = {.arrivalNs = at += static_cast<int64_t>(draw() % 400'000),
             .promptTokens = 1 + static_cast<int64_t>(draw() % 24),
             .outputTokens = 1 + static_cast<int64_t>(draw() % 30)};
    const auto made = runTraffic(stages.stages(), requests, {});
    ASSERT_TRUE(made.ok()) << made.status();
    for (const RequestTimes &times : made->requests)
      EXPECT_TRUE(times.completed()) << times.why;
    iterations += made->engine.iterations;
    preemptions += made->engine.preemptions;
    GenerateRequest cancelled = requestOf(seed, 100);
    int asked = 0;
    cancelled.isInterrupted = [&] { return ++asked > 60; };
    const auto some = generate(stages.stages(), cancelled);
    ASSERT_TRUE(some.ok()) << some.status();
    iterations += some->iterations;
    EXPECT_THAT(some->ends, testing::Contains(EndReason::Cancelled));
    EXPECT_EQ(stages.stages().kvBlocks(0).freeBlocks(), free) << seed;
    EXPECT_EQ(stages.stages().underWay(), 0u);
  }
  EXPECT_GT(preemptions, 10u);
}

// A request that comes while a stage is free begins at once, and not behind the tokens of those under way.
TEST(StagedEngine, WhoComesBeginsWhereAStageIsFree) {
  Served stages({.sequences = 2, .interval = 1}, {0, 2, 4}, 2, /*virtualTime=*/true);
  const std::vector<TrafficRequest> one = {{.promptTokens = 8, .outputTokens = 4}};
  ASSERT_TRUE(runTraffic(stages.stages(), one, {}).ok()); // slots hold what an iteration leaves there
  const auto alone = runTraffic(stages.stages(), one, {});
  ASSERT_TRUE(alone.ok()) << alone.status();
  const int64_t ttft = alone->requests[0].ttftNs();
  const std::vector<TrafficRequest> two = {{.promptTokens = 8, .outputTokens = 4},
                                           {.arrivalNs = ttft / 2, .promptTokens = 8, .outputTokens = 4}};
  const auto made = runTraffic(stages.stages(), two, {});
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(made->requests[1].startNs, ttft / 2);
  EXPECT_LE(made->requests[1].ttftNs(), ttft);
}

TEST(StagedEngine, RefusesWhatStagesHaveNot) {
  Served stages({}, {0, 3}, 2);
  const auto refusal = [&](const std::function<void(GenerateRequest &)> &change) {
    GenerateRequest request = requestOf(1, 2);
    change(request);
    return std::string(generate(stages.stages(), request).status().message());
  };
  EXPECT_EQ(refusal([](GenerateRequest &r) { r.batching = Batching::Static; }),
            "static batches beside stages: expected none");
  EXPECT_EQ(refusal([](GenerateRequest &r) { r.swapBytes = 1 << 20; }), "swap space beside stages: expected none");
  EXPECT_EQ(refusal([](GenerateRequest &r) { r.placementOf = [](const ComposedIteration &) { return 0u; }; }),
            "placements that the caller chooses beside stages: expected none");
  EXPECT_THAT(refusal([](GenerateRequest &r) { r.prompts[1].clear(); }), HasSubstr("prompt 1"));
}

TEST(StagedEngine, SplitsTheBatchAmongAsManyMicroBatchesAsStages) {
  const plan::Plan plan = core::compiled(core::modelOf({}), {.sequences = 6});
  EXPECT_EQ(microBatchesOf(plan, 2), 2u);
  EXPECT_EQ(microBatchesOf(plan, 4), 4u);
  EXPECT_EQ(microBatchesOf(plan, 8), 6u); // no more than sequences
  EXPECT_EQ(microBatchesOf(plan, 3, 2), 2u);
  // Five sequences over two micro-batches: three and two run at once.
  Served stages({.sequences = 5}, {0, 3}, 2, /*virtualTime=*/true);
  std::vector<int64_t> sizes;
  EngineOptions options;
  options.onIteration = [&](const EngineIteration &iteration) { sizes.push_back(iteration.sequences); };
  auto engine = Engine::create(stages.stages(), std::move(options));
  ASSERT_TRUE(engine.ok()) << engine.status();
  for (int i = 0; i < 5; ++i)
    ASSERT_TRUE((*engine)->submit({.prompt = {1}, .maxNewTokens = 2}).ok());
  for (bool more = true; more;)
    more = (*engine)->step().value();
  EXPECT_EQ(sizes, (std::vector<int64_t>{3, 2, 3, 2}));
}

} // namespace
} // namespace headrace::serve
