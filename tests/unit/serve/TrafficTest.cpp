// SPDX-License-Identifier: Apache-2.0
#include "runtime/serve/traffic/Traffic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "runtime/host/HostDevice.h"
#include "runtime/serve/engine/BatchEngine.h"
#include "runtime/serve/traffic/Lengths.h"
#include "runtime/sim/SimDevice.h"
#include "tests/support/TinyPlan.h"

namespace headrace::serve {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Resident; an iteration of decodes takes 1000 ns, one with rows of prompts 3000, its tokens come at its end.
plan::Plan clockPlan(const core::TinyPlanOptions &options = {}) {
  plan::Plan plan = core::tinyPlan(options);
  for (size_t v = 0; v < plan.variants.size(); ++v) {
    std::vector<uint64_t> &ns = plan.variants[v].durationsNs;
    std::fill(ns.begin(), ns.end(), 0);
    ns.front() = v == 0 ? 1000 : 3000;
  }
  return plan;
}

class Sim {
public:
  explicit Sim(plan::Plan plan = clockPlan()) : plan_(std::move(plan)), device_(sim::makeSimDevice()) {
    auto runtime = core::Runtime::load(plan_, *device_, {}, nullptr, {});
    EXPECT_TRUE(runtime.ok()) << runtime.status();
    runtime_ = *std::move(runtime);
  }
  core::Runtime &runtime() { return *runtime_; }
  core::Device &device() { return *device_; }
  TrafficResult run(const std::vector<TrafficRequest> &requests, const TrafficOptions &options = {}) {
    auto result = runTraffic(*runtime_, requests, options);
    EXPECT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(runtime_->kvBlocks().endOfUse(), 1);
    return result.ok() ? *std::move(result) : TrafficResult();
  }
  std::string refusal(const std::vector<TrafficRequest> &requests, const TrafficOptions &options = {}) {
    const auto result = runTraffic(*runtime_, requests, options);
    EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(result.status().message());
  }

private:
  const plan::Plan plan_;
  const std::unique_ptr<core::Device> device_;
  std::unique_ptr<core::Runtime> runtime_;
};

TrafficRequest request(int64_t arrivalNs, int64_t promptTokens, int64_t outputTokens) {
  return {.arrivalNs = arrivalNs, .promptTokens = promptTokens, .outputTokens = outputTokens};
}

std::vector<int64_t> starts(const TrafficResult &result) {
  std::vector<int64_t> out;
  for (const RequestTimes &one : result.requests)
    out.push_back(one.startNs);
  return out;
}

// One iteration in flight. Request 0 comes to an idle engine: launched at 500, first token at 3500, decodes to 6500
// but for request 1, which comes in mid-iteration at 4000 and joins at 4500: 4500 to 7500 has its prompt.
//   500 [prompt 0] 3500 [decode] 4500 [decode 0, prompt 1] 7500 [decode both] 8500
TEST(RunTraffic, RequestsJoinAtTheFirstEdgeAfterTheyCome) {
  Sim sim;
  const TrafficResult result =
      sim.run({request(500, 5, 4), request(4000, 3, 2)}, {.engine = {.depth = 1}, .keepTokenTimes = true});
  const RequestTimes &first = result.requests[0], &second = result.requests[1];
  EXPECT_EQ(first.startNs, 500);
  EXPECT_EQ(first.queueingNs(), 0);
  EXPECT_EQ(first.ttftNs(), 3000);
  EXPECT_EQ(first.lastTokenNs, 8500);
  EXPECT_EQ(first.outputTokens, 4);
  EXPECT_EQ(first.tpotNs(), 5000 / 3.0);
  EXPECT_EQ(second.startNs, 4500);
  EXPECT_EQ(second.queueingNs(), 500);
  EXPECT_EQ(second.firstTokenNs, 7500);
  EXPECT_EQ(second.latencyNs(), 4500);
  EXPECT_TRUE(first.completed() && second.completed());
  EXPECT_THAT(result.itlNs, testing::UnorderedElementsAre(1000, 3000, 1000, 1000));
  EXPECT_EQ(result.durationNs, 8500);
  EXPECT_EQ(result.engine.iterations, 4u);
  EXPECT_EQ(result.device.launches, 4u);
}

// The edge itself is in time, a nanosecond later is not.
TEST(RunTraffic, WhoComesAtTheEdgeJoins) {
  for (const int64_t late : {0, 1}) {
    Sim sim;
    const TrafficResult result = sim.run({request(0, 5, 3), request(3000 + late, 1, 1)}, {.engine = {.depth = 1}});
    EXPECT_THAT(starts(result), ElementsAre(0, late == 0 ? 3000 : 4000));
  }
}

// Two in flight: at 0 the prompt and the decode behind it are launched, at 3000, when the first token is read, the
// next decode, to run from 4000. What comes at 3500 joins when the second token is read, at 4000, and runs from 5000.
TEST(RunTraffic, WithTwoInFlightALaunchIsAnIterationAhead) {
  Sim sim;
  const TrafficResult result = sim.run({request(0, 5, 8), request(3500, 3, 1)});
  EXPECT_THAT(starts(result), ElementsAre(0, 4000));
  EXPECT_EQ(result.requests[1].firstTokenNs, 5000 + 3000);
}

TEST(RunTraffic, TheClockGoesOnToTheNextArrival) {
  Sim sim;
  EXPECT_TRUE(sim.device().waitUntil(777).ok()); // times count from the start
  const TrafficResult result = sim.run({request(0, 2, 1), request(3'600'000'000'000, 2, 1)});
  EXPECT_THAT(starts(result), ElementsAre(0, 3'600'000'000'000));
  EXPECT_EQ(result.durationNs, 3'600'000'003'000);
}

TEST(RunTraffic, NothingComes) {
  const TrafficResult result = Sim().run({}, {.sampleEveryNs = 10});
  EXPECT_EQ(result.durationNs, 0);
  EXPECT_TRUE(result.requests.empty());
}

// Copies of a wrap-around schedule end after the tokens came: the next launch waits for them, and who comes while it
// waits joins it. Nobody starts before it has come, nor later than the end of what ran then.
TEST(RunTraffic, WhoComesWhileALaunchWaitsForItsStagingCopyJoinsIt) {
  plan::Plan plan = core::tinyPlan({.offloaded = {0, 1, 2, 3}, .wrap = true});
  Sim lone(plan);
  std::vector<int64_t> launches;
  TrafficOptions options;
  options.engine.onIteration = [&](const EngineIteration &iteration) { launches.push_back(iteration.launchNs); };
  const int64_t startNs = lone.device().nowNs();
  lone.run({request(0, 2, 12)}, options);
  ASSERT_EQ(launches.size(), 12u);
  for (size_t i = 4; i < 8; ++i) {
    Sim sim(plan);
    const TrafficResult result = sim.run({request(0, 2, 12), request(launches[i] - startNs, 1, 1)}, {});
    EXPECT_EQ(result.requests[1].startNs, launches[i] - startNs) << i;
    EXPECT_EQ(result.requests[1].queueingNs(), 0);
  }
}

// Two at a time, one iteration in flight: at 3000 both have ended, and two that came meanwhile are let in; at 6000 one
// more. It is then that they come.
TEST(RunTraffic, MaxConcurrencyKeepsRequestsOutside) {
  Sim sim;
  const TrafficResult result = sim.run({request(0, 2, 1), request(0, 2, 1), request(0, 2, 1), request(1000, 2, 1),
                                        request(2000, 2, 1), request(9000, 2, 1)},
                                       {.engine = {.depth = 1}, .maxConcurrency = 2});
  EXPECT_THAT(starts(result), ElementsAre(0, 0, 3000, 3000, 6000, 9000));
  std::vector<int64_t> arrivals;
  for (const RequestTimes &one : result.requests)
    arrivals.push_back(one.arrivalNs);
  EXPECT_THAT(arrivals, ElementsAre(0, 0, 3000, 3000, 6000, 9000));
}

struct Samples {
  std::vector<int64_t> ns, blocks, running, waiting;
};
Samples samplesOf(const TrafficResult &result) {
  Samples out;
  for (const EngineSample &sample : result.samples) {
    out.ns.push_back(sample.ns);
    out.blocks.push_back(sample.kvBlocks);
    out.running.push_back(sample.running);
    out.waiting.push_back(sample.waiting);
  }
  return out;
}

// Blocks of 4 tokens: 5 of the prompt take 2 until the eighth token is there, one each 1000 ns from 5500 on.
TEST(RunTraffic, ASampleIsTheMostUntilTheNext) {
  Sim sim;
  const Samples got = samplesOf(sim.run({request(2500, 5, 6)}, {.engine = {.depth = 1}, .sampleEveryNs = 2000}));
  // Launched at 2500, 5500, ... 9500 with 5, 6, ... 10 rows, the ninth at 8500: at 10500 it has ended.
  EXPECT_THAT(got.ns, ElementsAre(0, 2000, 4000, 6000, 8000, 10000));
  EXPECT_THAT(got.blocks, ElementsAre(0, 2, 2, 2, 3, 3));
  EXPECT_THAT(got.running, ElementsAre(0, 1, 1, 1, 1, 1)); // to its last token
}

// A sample of all of it: three blocks only from 8500 on, one request of two waits at 7000 for the other's prompt.
TEST(RunTraffic, NoSampleIsTooLongForTheMost) {
  for (const int64_t every : {1000, 10'000, 1'000'000}) {
    Sim sim;
    const TrafficResult result =
        sim.run({request(2500, 5, 6), request(7000, 1, 1)}, {.engine = {.depth = 1}, .sampleEveryNs = every});
    const Samples got = samplesOf(result);
    EXPECT_EQ(*std::max_element(got.blocks.begin(), got.blocks.end()), result.peakKvBlocks) << every;
    EXPECT_EQ(*std::max_element(got.running.begin(), got.running.end()), 2) << every;
    EXPECT_EQ(*std::max_element(got.waiting.begin(), got.waiting.end()), 1) << every;
  }
}

// One seat, two in flight: request 1 takes it at 3000, when the last iteration of request 0 is launched and the one
// before it read. That runs to 4000, and so long request 1 waits.
TEST(RunTraffic, WhoHasASeatInALaterIterationDoesNotRunYet) {
  Sim sim;
  const Samples got =
      samplesOf(sim.run({request(0, 5, 2), request(0, 5, 2)}, {.engine = {.maxNumSeqs = 1}, .sampleEveryNs = 1000}));
  EXPECT_THAT(got.ns, ElementsAre(0, 1000, 2000, 3000, 4000, 5000, 6000, 7000));
  EXPECT_THAT(got.running, ElementsAre(1, 1, 1, 1, 1, 1, 1, 1));
  EXPECT_THAT(got.waiting, ElementsAre(1, 1, 1, 1, 0, 0, 0, 0));
}

// One that comes at the very time of a sample is in it, and in none before: it waits, until the iteration that runs to
// 3000 has ended.
TEST(RunTraffic, ASampleHasWhoComesAtItsTime) {
  Sim sim;
  const TrafficResult result =
      sim.run({request(0, 5, 3), request(2000, 5, 3)}, {.engine = {.depth = 1}, .sampleEveryNs = 2000});
  ASSERT_GE(result.samples.size(), 2u);
  EXPECT_EQ(result.samples[0].running, 1u);
  EXPECT_EQ(result.samples[0].waiting, 0u);
  EXPECT_EQ(result.samples[1].ns, 2000);
  EXPECT_EQ(result.samples[1].running, 2u);
  EXPECT_EQ(result.samples[1].waiting, 1u);
}

// 1,000,000 ns in samples of 1: halved at 65,536, 131,072, 262,144 and 524,288.
TEST(RunTraffic, SamplesAreThinnedWhenThereAreTooMany) {
  Sim sim;
  const TrafficResult result = sim.run({request(997'000, 5, 1)}, {.sampleEveryNs = 1});
  EXPECT_EQ(result.durationNs, 1'000'000);
  EXPECT_EQ(result.sampleEveryNs, 16);
  ASSERT_EQ(result.samples.size(), 62500u);
  for (size_t i = 0; i < result.samples.size(); ++i)
    ASSERT_EQ(result.samples[i].ns, static_cast<int64_t>(i) * 16);
}

// 8 blocks of 4 tokens; each request brings 8 + 15 rows, 6 blocks: the second is preempted once (EngineTest).
TEST(RunTraffic, PreemptionsAreCountedByRequest) {
  Sim sim;
  ASSERT_TRUE(sim.runtime().kvBlocks().setLimit(9).ok());
  TrafficOptions options;
  options.engine.watermark = 0;
  const TrafficResult result = sim.run({request(0, 8, 16), request(0, 8, 16)}, options);
  EXPECT_EQ(result.requests[0].preemptions, 0u);
  EXPECT_EQ(result.requests[1].preemptions, 1u);
  EXPECT_EQ(result.engine.preemptions, 1u);
  EXPECT_EQ(result.requests[1].outputTokens, 16);
  EXPECT_EQ(result.kvBlocks, 8);
  EXPECT_EQ(result.peakKvBlocks, 8);
}

// Context 40, 30 blocks of 4 tokens of which 5 may be used.
TEST(RunTraffic, ARequestThatIsRefusedSaysWhyAndTheOthersRun) {
  Sim sim;
  ASSERT_TRUE(sim.runtime().kvBlocks().setLimit(6).ok());
  const TrafficResult result = sim.run({request(0, 4, 2),
                                        request(1, 0, 1),
                                        request(2, int64_t{1} << 60, 1),
                                        request(3, 4, 0),
                                        request(4, 20, 21),
                                        {.arrivalNs = 5, .prompt = {1, 150}, .outputTokens = 1},
                                        request(6, 4, 2)});
  const auto why = [&](size_t r) { return std::string(result.requests[r].why.message()); };
  EXPECT_TRUE(result.requests[0].completed());
  EXPECT_EQ(why(1), "the prompt is empty, expected at least one token id");
  EXPECT_EQ(why(2), "the prompt has 1152921504606846976 tokens, the plan's context is 40");
  EXPECT_EQ(why(3), "max new tokens = 0, expected at least 1");
  EXPECT_EQ(why(4), "the prompt: 20 tokens and 21 new ones are more than the plan's context of 40");
  EXPECT_THAT(why(5), HasSubstr("token id 150 at position 1 is outside the vocabulary"));
  EXPECT_TRUE(result.requests[6].completed());
  for (size_t r = 1; r < 6; ++r) {
    EXPECT_FALSE(result.requests[r].completed());
    EXPECT_EQ(result.requests[r].startNs, -1);
  }
}

// It fits the plan's blocks but not those of the present placement.
TEST(RunTraffic, ARequestThatFindsTooFewBlocksFails) {
  Sim sim;
  ASSERT_TRUE(sim.runtime().kvBlocks().setLimit(6).ok());
  const TrafficResult result = sim.run({request(0, 20, 20), request(0, 4, 2)});
  EXPECT_EQ(result.requests[0].reason, EndReason::Failed);
  EXPECT_THAT(std::string(result.requests[0].why.message()), HasSubstr("needs one more"));
  EXPECT_FALSE(result.requests[0].completed());
  EXPECT_TRUE(result.requests[1].completed());
}

TEST(RunTraffic, RefusesByName) {
  Sim sim;
  EXPECT_EQ(sim.refusal({request(-1, 1, 1)}), "request 0 arrives at -1 ns, expected 0 or more");
  EXPECT_EQ(sim.refusal({request(5, 1, 1), request(4, 1, 1)}), "request 1 arrives at 4 ns, before request 0 at 5 ns");
  EXPECT_EQ(sim.refusal({}, {.maxConcurrency = -1}), "max concurrency = -1, expected 0 or more");
  EXPECT_EQ(sim.refusal({}, {.sampleEveryNs = -1}), "sample interval = -1 ns, expected 0 or more");
  EXPECT_THAT(sim.refusal({}, {.engine = {.maxNumSeqs = 99}}), HasSubstr("max_num_seqs = 99"));
}

// On the CPU, on a real clock: who comes when does not change a token.
TEST(RunTraffic, ARequestsTokensAreThoseOfTheRequestAlone) {
  const plan::Plan plan = core::tinyPlan({.offloaded = {1}});
  const auto device = host::makeHostDevice({.unpaced = true});
  const auto weights = model::syntheticWeights(1);
  const auto runtime = core::Runtime::load(plan, *device, {}, weights.get(), {});
  ASSERT_TRUE(runtime.ok()) << runtime.status();
  std::vector<TrafficRequest> requests;
  for (int64_t r = 0; r < 12; ++r)
    requests.push_back(request(r / 2 * 400'000, 1 + r * 5 % 11, 3 + r * 7 % 13));
  requests[5].prompt = {3, 1, 4, 1, 5};
  TrafficOptions options;
  options.sampling = {.temperature = 0.8f, .topP = 0.9f, .seed = 11};
  options.promptSeed = 4;
  std::vector<std::vector<int32_t>> tokens(requests.size());
  options.onToken = [&](size_t r, const EngineToken &token) { tokens[r].push_back(token.token); };
  const auto result = runTraffic(**runtime, requests, options);
  ASSERT_TRUE(result.ok()) << result.status();
  for (size_t r = 0; r < requests.size(); ++r) {
    const RequestTimes &times = result->requests[r];
    EXPECT_TRUE(times.completed());
    EXPECT_EQ(times.arrivalNs, requests[r].arrivalNs);
    EXPECT_GE(times.startNs, times.arrivalNs);
    EXPECT_GT(times.firstTokenNs, times.startNs);
    GenerateRequest alone{.prompts = {requests[r].prompt}, .maxNewTokens = requests[r].outputTokens};
    if (alone.prompts[0].empty())
      makeUpPrompt(requests[r].promptTokens, plan.model->vocab, 4, static_cast<uint64_t>(r), alone.prompts[0]);
    alone.sampling = options.sampling;
    alone.sampling.seed += r;
    const auto expected = generate(**runtime, alone);
    ASSERT_TRUE(expected.ok()) << expected.status();
    EXPECT_EQ(tokens[r], expected->tokens[0]) << r;
  }
}

TEST(RunTraffic, StopTokensEndARequestEarly) {
  Sim sim;
  TrafficOptions options;
  std::vector<int32_t> tokens;
  options.onToken = [&](size_t, const EngineToken &token) { tokens.push_back(token.token); };
  sim.run({request(0, 3, 10)}, options);
  ASSERT_EQ(tokens.size(), 10u);
  options.stopTokens = {tokens[4]};
  const auto before = static_cast<int64_t>(std::find(tokens.begin(), tokens.end(), tokens[4]) - tokens.begin());
  const TrafficResult result = sim.run({request(0, 3, 10)}, options);
  EXPECT_EQ(result.requests[0].reason, EndReason::Stop);
  EXPECT_EQ(result.requests[0].outputTokens, before + 1);
}

} // namespace
} // namespace headrace::serve
