// SPDX-License-Identifier: Apache-2.0
//
// A model cut into stages over the devices of a group: its tokens are, bit for bit, those of one device that has all of
// it, wherever each stage's weights, caches and streams lie and however many micro-batches are on their way.
#include <atomic>
#include <chrono>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/Kernels.h"
#include "tests/conformance/StagesUnderTest.h"
#include "tests/support/LongRun.h"

namespace headrace::core {
namespace {

using testing::HasSubstr;

// Sequences of one micro-batch: prompts in chunks of 8, then so many tokens each, half of them drawn, the others under
// penalties.
struct Requests {
  struct One {
    std::vector<int32_t> tokens;
    std::vector<int32_t> blocks;
    int64_t prompt = 0, cached = 0;
  };
  std::vector<std::vector<One>> miniBatches;
  std::vector<std::vector<SequenceRows>> rows;
  std::vector<absl::Span<const SequenceRows>> spans;
  bool penalises = true;

  Requests(const Options &options, int32_t salt) {
    for (int64_t m = 0; m < options.miniBatches; ++m) {
      auto &of = miniBatches.emplace_back();
      for (int64_t s = 0; s < options.sequences; ++s) {
        One one;
        one.prompt = 3 + (5 * s + 4 * m + salt) % 11;
        for (int32_t i = 0; i < one.prompt; ++i)
          one.tokens.push_back((7 * salt + 3 * i + 11 * static_cast<int32_t>(m + 2 * s) + 1) % 90);
        of.push_back(std::move(one));
      }
    }
  }
  absl::Span<const absl::Span<const SequenceRows>> next(Served &served) {
    rows.assign(miniBatches.size(), {});
    spans.clear();
    for (size_t m = 0; m < miniBatches.size(); ++m) {
      for (size_t s = 0; s < miniBatches[m].size(); ++s) {
        One &one = miniBatches[m][s];
        const int64_t count = std::min<int64_t>(8, static_cast<int64_t>(one.tokens.size()) - one.cached);
        served.grow(static_cast<uint32_t>(m), one.blocks, one.cached + count);
        rows[m].push_back(
            {.tokens =
                 absl::MakeConstSpan(one.tokens).subspan(static_cast<size_t>(one.cached), static_cast<size_t>(count)),
             .firstPosition = one.cached,
             .blocks = one.blocks,
             .sample = one.cached + count == static_cast<int64_t>(one.tokens.size()),
             .requestSlot = static_cast<int32_t>(s),
             .temperature = s % 2 == 0 ? 0.0f : 0.8f,
             .seed = 17 + s,
             .repetition = penalises && s % 2 == 0 ? 1.5f : 1.0f,
             .presence = penalises && s % 2 == 0 ? 0.5f : 0.0f,
             .frequency = penalises && s % 2 == 0 ? 0.25f : 0.0f,
             .promptTokens = one.prompt});
        one.cached += count;
      }
      spans.emplace_back(rows[m]);
    }
    return spans;
  }
  void take(absl::Span<const int32_t> tokens) {
    size_t at = 0;
    for (auto &of : miniBatches)
      for (One &one : of)
        if (one.cached == static_cast<int64_t>(one.tokens.size()))
          one.tokens.push_back(tokens[at++]);
    EXPECT_EQ(at, tokens.size());
  }
  std::vector<std::vector<int32_t>> all() const {
    std::vector<std::vector<int32_t>> out;
    for (const auto &of : miniBatches)
      for (const One &one : of)
        out.push_back(one.tokens);
    return out;
  }
};

constexpr int kIterations = 14;

std::vector<std::vector<int32_t>> generated(Served &served, const Options &options, bool penalises = true) {
  Requests requests(options, 1);
  requests.penalises = penalises;
  for (int i = 0; i < kIterations && !testing::Test::HasFailure(); ++i)
    requests.take(served.run(requests.next(served)));
  return requests.all();
}

void expectTheSame(const Options &options) {
  Served whole(options, {0});
  const auto wanted = generated(whole, options);
  for (const std::vector<int64_t> &cut : {std::vector<int64_t>{0, 3}, {0, 1, 5}, {0, 2, 3, 4}}) {
#ifdef HEADRACE_STAND_IN_TESTS // which takes ten times as long as recorded graphs
    if (cut.size() > 2 && !longRun())
      continue;
#endif
    Served stages(options, cut);
    ASSERT_FALSE(testing::Test::HasFailure());
    EXPECT_EQ(generated(stages, options), wanted) << cut.size() << " stages";
  }
}

TEST(Stages, TokensAreThoseOfOneDevice) {
  expectTheSame({});
  expectTheSame({.tied = true});
  expectTheSame({.opt = true});
}
TEST(Stages, WithWeightsAway) { expectTheSame({.interval = 1}); }
TEST(Stages, WithCachesAway) { expectTheSame({.interval = 2, .resident = 5}); }
TEST(Stages, WithMiniBatches) {
  expectTheSame({.miniBatches = 3});
  expectTheSame({.miniBatches = 2, .interval = 1, .streamsLeave = true});
}
TEST(Stages, WithPackedWeights) { expectTheSame({.interval = 1, .encoding = "q4:32"}); }
TEST(Stages, WithAttentionOnTheCpu) { expectTheSame({.miniBatches = 2, .attendsOnCpu = true}); }

// A stage that samples and does not embed has the ids of all rows: what penalties make of one device's tokens they make
// of those over stages, and else it is other tokens.
TEST(Stages, PenaltiesSeeTheIdsOfAllRows) {
  const Options options{.miniBatches = 2};
  for (const std::vector<int64_t> &cut : {std::vector<int64_t>{0, 3}, {0, 2, 4}}) {
    Served whole(options, {0}), penalised(options, cut), plain(options, cut);
    ASSERT_FALSE(HasFailure());
    const auto wanted = generated(whole, options);
    EXPECT_EQ(generated(penalised, options), wanted);
    const auto without = generated(plain, options, /*penalises=*/false);
    for (size_t s = 0; s < wanted.size(); ++s)
      EXPECT_EQ(without[s] == wanted[s], s % 2 == 1) << s;
  }
}

// Three on their way over three stages: each gets what it gets alone.
void expectEachGetsItsOwn(std::unique_ptr<DeviceGroup> group) {
  const Options options{.interval = 1};
  std::vector<std::vector<std::vector<int32_t>>> wanted;
  std::vector<Requests> requests;
  Options room = options;
  room.sequences = 6; // KV blocks for all of them
  for (int32_t m = 0; m < 3; ++m) {
    Served whole(options, {0});
    Requests alone(options, 1 + m);
    for (int i = 0; i < kIterations; ++i)
      alone.take(whole.run(alone.next(whole)));
    wanted.push_back(alone.all());
    requests.emplace_back(options, 1 + m);
  }
  Served stages(room, {0, 2, 4}, 3, /*virtualTime=*/false, std::move(group));
  ASSERT_FALSE(testing::Test::HasFailure());
  for (int i = 0; i < kIterations; ++i)
    for (Requests &of : requests) {
      if (i > 0) {
        const auto tokens = stages.stages().await();
        ASSERT_TRUE(tokens.ok()) << tokens.status();
        of.take(tokens->tokens);
      }
      const absl::Status begun = stages.stages().begin(of.next(stages)).status();
      ASSERT_TRUE(begun.ok()) << begun;
    }
  EXPECT_EQ(stages.stages().underWay(), 3u);
  EXPECT_EQ(stages.stages().begin({}).status().code(), absl::StatusCode::kFailedPrecondition);
  for (size_t m = 0; m < requests.size(); ++m) {
    const auto tokens = stages.stages().await();
    ASSERT_TRUE(tokens.ok()) << tokens.status();
    requests[m].take(tokens->tokens);
    EXPECT_EQ(requests[m].all(), wanted[m]) << m;
  }
  EXPECT_EQ(stages.stages().await().status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(Stages, MicroBatchesFollowEachOther) { expectEachGetsItsOwn(nullptr); }

// Stages change their placements one by one, at edges of their own, with others under way.
TEST(Stages, PlacementsChangeStageByStage) {
  const Options options{.interval = 1, .alsoResident = true};
  Served whole(options, {0}), stages(options, {0, 2, 4});
  ASSERT_FALSE(HasFailure());
  Requests alone(options, 1), staged(options, 1);
  for (int i = 0; i < kIterations; ++i) {
    alone.take(whole.run(alone.next(whole)));
    for (size_t s = 0; s < 3; ++s)
      ASSERT_TRUE(stages.stages().setPlacement(s, static_cast<uint32_t>((static_cast<size_t>(i / 2) + s) % 2)).ok());
    staged.take(stages.run(staged.next(stages)));
    for (size_t s = 0; s < 3; ++s)
      EXPECT_EQ(stages.runtime(s).placement(), (static_cast<size_t>(i / 2) + s) % 2);
  }
  EXPECT_EQ(staged.all(), alone.all());
  EXPECT_EQ(stages.stages().setPlacement(1, 2).message(), "stage 1: placement 2 asked for, its plan has 2");
}

#ifdef HEADRACE_STAND_IN_TESTS
// Two GPUs beside the host: sums have another order there (docs/cuda-kernels.md), tokens are the same.
TEST(Stages, OnGpusTokensAreTheHosts) {
  for (const Options &options : {Options{.interval = 1}, {.opt = true}, {.miniBatches = 2, .interval = 2}}) {
    Options onHost = options;
    onHost.kind = model::DeviceKind::Host;
    Served host(onHost, {0}), gpus(options, {0, 3});
    ASSERT_FALSE(HasFailure());
    EXPECT_EQ(generated(gpus, options), generated(host, onHost));
  }
}
#elif !defined(HEADRACE_EMULATED_TESTS)
// Attention that takes 100 ms more now and then.
std::atomic<int> attended = 0;
kernels::HostKernel heldUp(kernels::Op op) {
  kernels::HostKernel kernel = kernels::hostKernel(op);
  if (op == kernels::Op::Attention)
    kernel.run = [](const void *args, const kernels::HostWork &work, int64_t phase, int64_t unit, float *scratch) {
      if (attended++ % 30 == 0)
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
      kernels::hostKernel(kernels::Op::Attention).run(args, work, phase, unit, scratch);
    };
  return kernel;
}

// The one in the middle, whom both others wait for.
TEST(Stages, OneThatIsHeldUpChangesNoToken) {
  attended = 0;
  std::vector<host::HostOptions> devices(3, {.unpaced = true});
  devices[1].kernelOf = heldUp;
  expectEachGetsItsOwn(*host::makeHostGroup(devices, std::numeric_limits<double>::infinity()));
  EXPECT_GT(attended, 60); // three times, or more
}

// Stages of four equal layers in virtual time; head and embedding are next to nothing.
struct Timed {
  std::vector<plan::Plan> plans;
  std::unique_ptr<DeviceGroup> group;
  std::vector<std::unique_ptr<Runtime>> runtimes;
  std::unique_ptr<Stages> stages;

  Timed(size_t count, size_t microBatches, const PathLimits &bus = {}, int64_t interval = 0) {
    model::ModelSpec spec = tinyLlama(4 * static_cast<int64_t>(count));
    spec.hidden = 1024;
    spec.heads = spec.kvHeads = 8;
    spec.headDim = 128;
    spec.intermediate = 4096;
    group = std::move(sim::makeSimGroup(count, bus)).value();
    plans.reserve(count);
    std::vector<Runtime *> loaded;
    for (size_t i = 0; i < count; ++i) {
      plans.push_back(
          compiled(model::stageOf(spec, 4 * static_cast<int64_t>(i), 4),
                   {.sequences = static_cast<int64_t>(std::max<size_t>(2, microBatches)), .interval = interval}));
      runtimes.push_back(std::move(Runtime::load(plans.back(), group->device(i), {}, nullptr, {})).value());
      loaded.push_back(runtimes.back().get());
    }
    stages = std::move(Stages::make(loaded, *group, microBatches)).value();
  }
  // So many tokens of each micro-batch, one sequence each: how long, and of that what the longest stage worked.
  std::pair<int64_t, int64_t> run(int64_t tokens, size_t microBatches) {
    std::vector<std::vector<int32_t>> blocks(microBatches);
    std::vector<SequenceRows> rows(microBatches);
    std::vector<absl::Span<const SequenceRows>> spans(microBatches);
    const int32_t id = 1;
    const auto begin = [&](size_t m, int64_t at) {
      EXPECT_TRUE(stages->kvBlocks(0).grow(blocks[m], at + 1).ok());
      rows[m] = {.tokens = {&id, 1}, .firstPosition = at, .blocks = blocks[m], .sample = true, .requestSlot = 0};
      spans[m] = {&rows[m], 1};
      EXPECT_TRUE(stages->begin({&spans[m], 1}).ok());
    };
    const int64_t start = group->nowNs();
    for (size_t m = 0; m < microBatches; ++m)
      begin(m, 0);
    for (int64_t at = 1; at <= tokens; ++at)
      for (size_t m = 0; m < microBatches; ++m) {
        EXPECT_TRUE(stages->await().ok());
        if (at < tokens)
          begin(m, at);
      }
    return {group->nowNs() - start, tokens * static_cast<int64_t>(microBatches) * longestNs()};
  }
  int64_t longestNs() const {
    uint64_t longest = 0;
    for (const std::unique_ptr<Runtime> &runtime : runtimes)
      longest = std::max(longest, runtime->plan().variants[*runtime->choose(1, 1, 1)].predictedNs);
    return static_cast<int64_t>(longest);
  }
};

// The time that a stage has nothing to do, of all: (p - 1) / (n m + p - 1) with m >= p micro-batches of n tokens over p
// stages, and 1 - m / p with fewer.
TEST(Stages, BubblesAreThoseOfAPipeline) {
  for (const auto &[p, m, n] :
       {std::tuple<size_t, size_t, int64_t>{4, 4, 64}, {4, 6, 20}, {8, 8, 30}, {8, 12, 64}, {2, 3, 40}}) {
    Timed timed(p, m);
    const auto [all, busy] = timed.run(n, m);
    const double bubble = 1 - static_cast<double>(busy) / static_cast<double>(all);
    const double wanted =
        static_cast<double>(p - 1) / static_cast<double>(n * static_cast<int64_t>(m) + static_cast<int64_t>(p) - 1);
    EXPECT_NEAR(bubble, wanted, 0.03 * wanted) << p << " stages, " << m << " micro-batches";
  }
  for (const auto &[p, m] : {std::pair<size_t, size_t>{4, 2}, {8, 3}, {4, 1}}) {
    Timed timed(p, m);
    const auto [all, busy] = timed.run(40, m);
    EXPECT_NEAR(1 - static_cast<double>(busy) / static_cast<double>(all),
                1 - static_cast<double>(m) / static_cast<double>(p), 0.03)
        << p << " stages, " << m << " micro-batches";
  }
}

// Whatever comes over the link, an iteration takes what its busiest lane has to do, and next to nothing more; one
// behind the other, as micro-batches that keep all stages busy are, too.
TEST(Stages, AnIterationTakesWhatItsBusiestLaneTakes) {
  for (const int64_t interval : {0, 1, 2, 4})
    for (const size_t count : {4, 8}) {
      Timed timed(count, count, {}, interval);
      uint64_t longest = 0;
      for (const std::unique_ptr<Runtime> &runtime : timed.runtimes) {
        const plan::Variant &variant = runtime->plan().variants[*runtime->choose(1, 1, 1)];
        const uint64_t bound = std::max(variant.computeAloneNs, variant.linkAloneNs);
        EXPECT_GE(variant.predictedNs, bound);
        EXPECT_LE(static_cast<double>(variant.predictedNs), 1.03 * static_cast<double>(bound)) << interval;
        longest = std::max(longest, bound);
      }
      constexpr int64_t kTokens = 64;
      const int64_t launches = kTokens * static_cast<int64_t>(count) + static_cast<int64_t>(count) - 1;
      EXPECT_LE(static_cast<double>(timed.run(kTokens, count).first),
                1.03 * static_cast<double>(launches) * static_cast<double>(longest))
          << interval << ' ' << count;
    }
}

// Two stages whose layers all come over the link: on a bus as fast as one link each takes twice as long.
TEST(Stages, CopiesShareTheBus) {
  const auto ns = [](double bus) {
    Timed timed(2, 2, {bus, bus, bus}, /*interval=*/1);
    return static_cast<double>(timed.run(20, 2).first);
  };
  const double link = Timed(1 + 1, 1).plans.front().hardware.h2dBandwidth;
  EXPECT_NEAR(ns(link) / ns(100 * link), 2, 0.1);
}

#endif

TEST(Stages, RefusesWhatIsNotAModelsStagesInOrder) {
  Served served({}, {0, 2, 4});
  std::vector<Runtime *> runtimes = {&served.runtime(0), &served.runtime(1), &served.runtime(2)};
  const auto refusal = [&](absl::Span<Runtime *const> of) {
    return std::string(Stages::make(of, served.group(), 1).status().message());
  };
  EXPECT_EQ(refusal(absl::MakeSpan(runtimes).first(2)), "stage 2 is missing: layers 4 to 5 of tiny-llama are in none");
  std::swap(runtimes[1], runtimes[2]);
  EXPECT_EQ(refusal(runtimes), "stage 1 has layers 4 to 5, expected from 2 on");
  EXPECT_EQ(refusal({}), "0 stages on 3 devices: expected one device for each, and a stage");
  Served other({.encoding = "q4:32"}, {0, 2, 4});
  runtimes = {&served.runtime(0), &other.runtime(1), &served.runtime(2)};
  EXPECT_EQ(refusal(runtimes), "stage 1 has weights in q4:32, expected the checkpoint's type as the first");
}

} // namespace
} // namespace headrace::core
