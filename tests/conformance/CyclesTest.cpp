// SPDX-License-Identifier: Apache-2.0
//
// The runtime on plans by hand whose tails are written back, or go round over 1 to 8 schedules: tokens are those of
// caches that are all on the device, bit for bit, on every device that computes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>

#include "runtime/plan/proof/PlanVerifier.h"
#include "runtime/serve/engine/BatchEngine.h"
#include "runtime/serve/engine/Engine.h"
#ifndef HEADRACE_EMULATED_TESTS
#include "runtime/serve/fleet/KvHandover.h"
#endif
#include "tests/conformance/DevicesUnderTest.h"
#include "tests/conformance/ShadowKv.h"
#include "tests/conformance/TailPlans.h"
#include "tests/support/LongRun.h"
#include "tests/support/WrongWeights.h"

namespace headrace::core {
namespace {

using testing::HasSubstr;

#ifdef HEADRACE_EMULATED_TESTS
constexpr int64_t kNewTokens = 4;
#else
constexpr int64_t kNewTokens = 24;
#endif

// Blocks have 4 tokens; the first prompt alone is in two iterations of prompts.
serve::GenerateRequest requestOf(int64_t newTokens = kNewTokens) {
  serve::GenerateRequest request;
  request.prompts = {{1, 2, 3, 4, 5, 6, 7, 8, 9}, {42}, {7, 7, 149}};
  request.maxNewTokens = newTokens;
  request.sampling = {.temperature = 1, .topP = 0.9f, .seed = 3};
  request.sampling.repetitionPenalty = 1.5f;
  return request;
}

// A plan on a device, ready to generate.
struct Loaded {
  Loaded(plan::Plan planIn, std::shared_ptr<Device> on, const model::WeightSource *weights = nullptr)
      : plan(std::move(planIn)), device(std::move(on)) {
    const absl::Status status = plan::verifyPlan(plan, "plan");
    EXPECT_TRUE(status.ok()) << status;
    const auto synthetic = model::syntheticWeights(1);
    auto loaded = Runtime::load(plan, *device, {}, weights != nullptr ? weights : synthetic.get(), {});
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    runtime = *std::move(loaded);
  }
  std::vector<std::vector<int32_t>> tokens(const serve::GenerateRequest &request) {
    const auto generated = generate(*runtime, request);
    EXPECT_TRUE(generated.ok()) << generated.status();
    return generated.ok() ? generated->tokens : std::vector<std::vector<int32_t>>{};
  }
  const plan::Plan plan;
  const std::shared_ptr<Device> device;
  std::unique_ptr<Runtime> runtime;
};

struct Form {
  WriteBack how;
  int64_t resident;
};
constexpr Form kForms[] = {{WriteBack::Mirror, 3}, {WriteBack::All, 3}, {WriteBack::Dirty, 3},
                           {WriteBack::Mirror, 0}, {WriteBack::All, 0}, {WriteBack::Dirty, 0}};

// Emulated graphs take a thousand times as long as the host: a few forms, all where there is time.
bool runs([[maybe_unused]] uint32_t places, [[maybe_unused]] const Form &form) {
#ifdef HEADRACE_EMULATED_TESTS
  constexpr std::pair<uint32_t, const Form *> kFew[] = {{1, &kForms[4]}, {2, &kForms[5]}, {3, &kForms[1]}};
  return longRun() || std::find(std::begin(kFew), std::end(kFew), std::pair(places, &form)) != std::end(kFew);
#else
  return true;
#endif
}

class Cycles : public testing::TestWithParam<DeviceUnderTest> {
protected:
  TinyPlanOptions options(int64_t layers) const { return {.spec = tinyLlama(layers), .kind = GetParam().plansFor}; }
  // Of a cache that is all on the device.
  const std::vector<std::vector<int32_t>> &expected(int64_t layers) {
    std::vector<std::vector<int32_t>> &tokens = expected_[layers];
    if (tokens.empty())
      tokens = Loaded(tinyPlan(options(layers)), GetParam().make()).tokens(requestOf());
    return tokens;
  }
  plan::Plan round(uint32_t places, const Form &form) const {
    return tailPlan(options(places + 1), form.resident, places, form.how, goingRound(places, form.how));
  }
  std::map<int64_t, std::vector<std::vector<int32_t>>> expected_;
};

// In the first run a transition brings what the first phase begins with; then, and in the second, every iteration
// begins with what the one before has left, prompts and decodes of one row to three in turn.
TEST_P(Cycles, GoRoundWithTheTokensOfAResidentCache) {
  for (uint32_t places = 1; places <= 8; ++places)
    for (const Form &form : kForms) {
      SCOPED_TRACE(testing::Message() << places << " phases, " << nameOf(form.how) << ", " << form.resident
                                      << " blocks on the device");
      if (!runs(places, form))
        continue;
      const auto shadow = std::make_shared<ShadowKv>(GetParam().make());
      Loaded loaded(round(places, form), shadow);
      ASSERT_EQ(loaded.plan.schedules[0].period, places);
      ASSERT_EQ(loaded.tokens(requestOf()), expected(places + 1));
      const bool entersEmpty = loaded.plan.schedules[0].entryState == 0;
      EXPECT_EQ(loaded.runtime->transitionsRun(), entersEmpty ? 0u : 1u);
      const uint64_t first = loaded.runtime->launched();
      ASSERT_EQ(loaded.tokens(requestOf()), expected(places + 1));
      EXPECT_EQ(loaded.runtime->transitionsRun(), entersEmpty ? 0u : 1u);
      EXPECT_GT(loaded.runtime->launched(), first);
      EXPECT_GT(loaded.device->counters().d2hBytes, 0u);
      EXPECT_EQ(shadow->found(), "");
    }
}

// One schedule a class, tails in turns in two or three slots; and the cycle of two in which one tail stays.
TEST_P(Cycles, OtherWaysToMoveTailsHaveTheseTokensToo) {
  for (const Form &form : kForms) {
    SCOPED_TRACE(testing::Message() << nameOf(form.how) << ", " << form.resident << " blocks on the device");
    if (!runs(3, form))
      continue;
    for (const uint32_t slots : {2u, 3u}) {
      Loaded turns(tailPlan(options(4), form.resident, slots, form.how, {plan::test::inTurns(4, slots, form.how)}),
                   GetParam().make());
      ASSERT_EQ(turns.tokens(requestOf()), expected(4));
      EXPECT_EQ(turns.runtime->transitionsRun(), 0u);
    }
    Loaded staying(tailPlan(options(3), form.resident, 2, form.how, plan::test::staying(form.how)), GetParam().make());
    ASSERT_EQ(staying.tokens(requestOf()), expected(3));
    EXPECT_EQ(staying.runtime->transitionsRun(), 1u);
  }
}

// A flush between any two iterations changes nothing but where the cycle begins again.
TEST_P(Cycles, AFlushAtAnyEdgeLosesNothing) {
  const Form &form = kForms[1];
  Loaded loaded(round(3, form), GetParam().make());
  const serve::GenerateRequest request = requestOf();
  std::vector<std::vector<int32_t>> tokens(3);
  serve::EngineOptions engineOptions{.watermark = 0, .depth = 1};
  engineOptions.onToken = [&](const serve::EngineToken &token) { tokens[token.request - 1].push_back(token.token); };
  auto engine = serve::Engine::create(*loaded.runtime, std::move(engineOptions));
  ASSERT_TRUE(engine.ok()) << engine.status();
  for (size_t s = 0; s < 3; ++s) {
    serve::Sampling sampling = request.sampling;
    sampling.seed += s;
    ASSERT_TRUE(
        (*engine)->submit({.prompt = request.prompts[s], .maxNewTokens = kNewTokens, .sampling = sampling}).ok());
  }
  uint64_t flushed = 0;
  for (int i = 0; *(*engine)->step(); ++i)
    if (i % 3 != 1) {
      const uint64_t before = loaded.runtime->transitionsRun();
      ASSERT_TRUE(loaded.runtime->flushKv().ok());
      flushed += loaded.runtime->transitionsRun() - before;
      ASSERT_TRUE(loaded.device->drain().ok());
      // What slots hold is no longer looked at.
      loaded.runtime->kvWritten();
    }
  EXPECT_EQ(tokens, expected(4));
  EXPECT_GT(flushed, 0u);
}

// Between a cycle of two with nothing on the device and one with five blocks there, in the middle of both: every change
// starts with what slots hold, and dirty states go by their flush.
TEST_P(Cycles, PlacementsChangeInTheMiddleOfThem) {
  for (const WriteBack none : {WriteBack::All, WriteBack::Dirty, WriteBack::Mirror})
    for (const WriteBack five : {WriteBack::Dirty, WriteBack::All, WriteBack::Mirror}) {
      SCOPED_TRACE(testing::Message() << nameOf(none) << ", then " << nameOf(five));
#ifdef HEADRACE_EMULATED_TESTS
      if (!longRun() && (none != WriteBack::All || five != WriteBack::Dirty))
        continue;
#endif
      Loaded loaded(tailPlan(options(3), {tailsOf(0, 2, none, goingRound(2, none)),
                                          tailsOf(5, 2, five, plan::test::staying(five))}),
                    GetParam().make());
      std::vector<std::vector<int32_t>> tokens(3);
      int iteration = 0;
      uint64_t changes = 0;
      serve::EngineOptions engineOptions{.watermark = 0};
      engineOptions.onToken = [&](const serve::EngineToken &token) {
        tokens[token.request - 1].push_back(token.token);
      };
      engineOptions.placementOf = [&](const serve::ComposedIteration &) {
        const uint32_t placement = iteration++ / 3 % 2 == 0 ? 0 : 1; // three iterations each, one more than go round
        changes += placement != loaded.runtime->placement();
        return placement;
      };
      auto engine = serve::Engine::create(*loaded.runtime, std::move(engineOptions));
      ASSERT_TRUE(engine.ok()) << engine.status();
      const serve::GenerateRequest request = requestOf();
      for (size_t s = 0; s < 3; ++s) {
        serve::Sampling sampling = request.sampling;
        sampling.seed += s;
        ASSERT_TRUE(
            (*engine)->submit({.prompt = request.prompts[s], .maxNewTokens = kNewTokens, .sampling = sampling}).ok());
      }
      for (;;) {
        const absl::StatusOr<bool> more = (*engine)->step();
        ASSERT_TRUE(more.ok()) << more.status();
        if (!*more)
          break;
      }
      EXPECT_EQ(tokens, expected(3));
      EXPECT_GT(changes, 0u);
    }
}

INSTANTIATE_TEST_SUITE_P(Devices, Cycles, testing::ValuesIn(devicesWithData()),
                         [](const auto &info) { return std::string(info.param.name); });

#ifndef HEADRACE_EMULATED_TESTS
// Prefilled on one instance and decoded on another in the middle of its cycle, while that one has requests of its own:
// what either had in slots alone is at home before blocks are read or written.
TEST(CyclesOnTheHost, AHandOverTakesWhatIsInSlotsAndLosesNothing) {
  const serve::GenerateRequest request = requestOf();
  const auto options = [] { return TinyPlanOptions{.spec = tinyLlama(4)}; };
  const auto expected = Loaded(tinyPlan(options()), host::makeHostDevice({.unpaced = true})).tokens(request);
  for (const Form &form : kForms) {
    SCOPED_TRACE(testing::Message() << nameOf(form.how) << " " << form.resident);
    const auto loaded = [&] {
      return Loaded(tailPlan(options(), form.resident, 3, form.how, goingRound(3, form.how)),
                    host::makeHostDevice({.unpaced = true}));
    };
    Loaded left = loaded(), right = loaded();
    std::map<size_t, std::vector<int32_t>> tokens; // by sampling seed, which is the request's
    std::map<uint64_t, size_t> leftOf, rightOf;
    const auto made = [&](Runtime &runtime, std::map<uint64_t, size_t> &of) {
      serve::EngineOptions engineOptions{.watermark = 0, .depth = 1};
      engineOptions.onToken = [&](const serve::EngineToken &token) {
        tokens[of.at(token.request)].push_back(token.token);
      };
      return *serve::Engine::create(runtime, std::move(engineOptions));
    };
    const auto of = [&](size_t s, int64_t newTokens) {
      serve::Sampling sampling = request.sampling;
      sampling.seed += s;
      return serve::EngineRequest{
          .prompt = request.prompts[s], .maxNewTokens = newTokens, .sampling = sampling, .keepBlocks = newTokens == 1};
    };
    const auto prefill = made(*left.runtime, leftOf), decode = made(*right.runtime, rightOf);
    leftOf = {{1, 0}, {2, 1}}, rightOf = {{1, 2}, {2, 0}, {3, 1}};
    ASSERT_EQ(*decode->submit(of(2, kNewTokens)), 1u); // its own
    for (int i = 0; i < 5; ++i)
      ASSERT_TRUE(*decode->step());
    for (size_t s = 0; s < 2; ++s)
      ASSERT_EQ(*prefill->submit(of(s, 1)), s + 1);
    while (*prefill->launch({}))
      ASSERT_TRUE(prefill->read().ok());
    for (core::Runtime *runtime : {left.runtime.get(), right.runtime.get()})
      ASSERT_TRUE(serve::KvHandover::reserve(*runtime).ok());
    serve::KvHandover handover;
    for (size_t s = 0; s < 2; ++s) {
      ASSERT_EQ(*decode->submitPrefilled(of(s, kNewTokens), tokens[s].at(0)), s + 2);
      const absl::Status moved =
          handover.move(*left.runtime, prefill->blocksOf(s + 1), *right.runtime, decode->blocksOf(s + 2));
      ASSERT_TRUE(moved.ok()) << moved;
      ASSERT_TRUE(*decode->step());
    }
    while (*decode->step()) {
    }
    for (size_t s = 0; s < 3; ++s)
      EXPECT_EQ(tokens[s], expected[s]) << s;
  }
}

// A request whose numbers are wrong is looked into with an iteration of its own, in the middle of the cycle: the
// others' rows, which are only in slots then, stay.
TEST(CyclesOnTheHost, ARequestThatFailsTakesNothingOfTheOthers) {
  const WrongWeights weights(
      1, {{"embedding", model::TensorRole::TokenTable, 140, 3, std::numeric_limits<float>::quiet_NaN()}});
  const auto run = [&](plan::Plan plan, bool withWrong) {
    Loaded loaded(std::move(plan), host::makeHostDevice({.unpaced = true}), &weights);
    std::map<uint64_t, std::vector<int32_t>> tokens;
    std::string failure;
    serve::EngineOptions options{.watermark = 0};
    options.onToken = [&](const serve::EngineToken &token) { tokens[token.request].push_back(token.token); };
    options.onEnd = [&](const serve::EngineEnd &end) {
      if (end.reason == serve::EndReason::Failed)
        failure += std::to_string(end.request) + ": " + std::string(end.why.message());
    };
    auto engine = serve::Engine::create(*loaded.runtime, std::move(options));
    EXPECT_TRUE(engine.ok()) << engine.status();
    EXPECT_TRUE((*engine)->submit({.prompt = {1, 2, 3, 4, 5}, .maxNewTokens = 24}).ok());
    EXPECT_TRUE((*engine)->submit({.prompt = {9, 8}, .maxNewTokens = 20}).ok());
    for (int i = 0; *(*engine)->step(); ++i)
      if (withWrong && (i == 5 || i == 12)) {
        EXPECT_TRUE((*engine)->submit({.prompt = {3, 140, 3, 5, 6, 7, 8, 9, 10}, .maxNewTokens = 9}).ok());
      }
    if (withWrong) {
      EXPECT_THAT(failure, testing::AllOf(HasSubstr("3: "), HasSubstr("4: "),
                                          HasSubstr("embed embedding, at position 1, column 3 (nan)")));
    }
    tokens.erase(3), tokens.erase(4);
    return tokens;
  };
  const auto expected = run(tinyPlan({.spec = tinyLlama(4)}), false);
  ASSERT_EQ(expected.at(1).size(), 24u);
  for (const Form &form : kForms) {
    EXPECT_EQ(run(tailPlan({.spec = tinyLlama(4)}, form.resident, 3, form.how, goingRound(3, form.how)), true),
              expected)
        << nameOf(form.how) << " " << form.resident;
  }
}
#endif

} // namespace
} // namespace headrace::core
