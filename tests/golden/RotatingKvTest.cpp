// SPDX-License-Identifier: Apache-2.0
//
// Tails of a golden model's caches that rotate through places do not change a bit: every cycle that a plan can have
// against the all-resident run, however tails are written back, with blocks on the device and without any, with weights
// away as well, prompts at once and in chunks beside decoding.
#include <random>

#include "tests/golden/GoldenFixture.h"
#include "tests/golden/RotatingCase.h"
#include "tests/support/LongRun.h"

namespace headrace::golden {
namespace {

using algorithms::WriteBack;

// 4 prompts of 33, 17, 5 and 1 ids and 12 new tokens: 1 + 4 x 12 blocks of 4 tokens, 45 rows at most take 12 of them;
// the first 29 are used, the scratch block included.
constexpr int64_t kNewTokens = 12, kBlockTokens = 4;

// All of them with HEADRACE_LONG; else some that are drawn, both ways to write back among them.
std::vector<RotatingCase> cases(const std::string &model, int64_t layers) {
  const bool all = longRun();
  constexpr std::pair<WriteBack, WriteBack> kWriteBacks[] = {{WriteBack::Mirror, WriteBack::Mirror},
                                                             {WriteBack::All, WriteBack::All},
                                                             {WriteBack::Dirty, WriteBack::Dirty},
                                                             {WriteBack::Dirty, WriteBack::Mirror},
                                                             {WriteBack::Mirror, WriteBack::Dirty}};
  std::vector<RotatingCase> out;
  std::seed_seq seed(model.begin(), model.end());
  std::mt19937_64 random(seed);
  for (const int64_t places : placesOf(layers))
    for (const int64_t resident : {0, 1, 7})
      for (const auto &[decode, mixed] : kWriteBacks)
        for (const bool poison : {false, true}) {
          const auto drawn = random();
          const RotatingCase added{.split = {.resident = resident,
                                             .interval = static_cast<int64_t>(drawn % 3),
                                             .wrap = drawn % 5 != 0,
                                             .mixedTokens = drawn % 7 < 3 ? 13 : 0,
                                             .poison = poison},
                                   .places = places,
                                   .decode = decode,
                                   .mixed = mixed};
          if (all || drawn % 29 == 0 || (decode != WriteBack::Mirror && decode == mixed && drawn % 17 == 0))
            out.push_back(added);
        }
  return out;
}

// Layers that are swapped whole: no blocks stay on the device. Written back as they are given up, as Pie does, or else.
// Some of them in turns in any case, through two places and through one.
std::vector<RotatingCase> fifoCases(const std::string &model, int64_t layers) {
  std::vector<RotatingCase> out;
  std::seed_seq seed(model.begin(), model.end());
  std::mt19937_64 random(seed);
  for (const Fifo &fifo : fifosOf(layers))
    for (const WriteBack writeBack : {WriteBack::All, WriteBack::All, WriteBack::Mirror, WriteBack::Dirty}) {
      const auto drawn = random();
      if (longRun() || drawn % 31 == 0 || out.empty() || (fifo.places == layers - 2 && fifo.visits.in >= 6))
        out.push_back({.split = {.resident = 0,
                                 .interval = static_cast<int64_t>(drawn % 3),
                                 .wrap = drawn % 5 != 0,
                                 .mixedTokens = drawn % 7 < 3 ? 13 : 0,
                                 .poison = drawn % 2 == 0},
                       .places = fifo.places,
                       .decode = writeBack,
                       .mixed = writeBack,
                       .fifo = fifo.visits});
    }
  return out;
}

class RotatingKv : public GoldenFixture {};

TEST_P(RotatingKv, TokensAndLogitsAreBitIdenticalToTheAllResidentRun) {
  setup_.maxNewTokens = kNewTokens;
  setup_.blockTokens = kBlockTokens;
  const absl::StatusOr<RunResult> resident = run(setup_);
  ASSERT_TRUE(resident.ok()) << resident.status();
  std::vector<RotatingCase> drawn = cases(GetParam(), setup_.spec.layers);
  for (const RotatingCase &c : fifoCases(GetParam(), setup_.spec.layers))
    drawn.push_back(c);
  ASSERT_GE(drawn.size(), 3u);
  for (const RotatingCase &c : drawn) {
    SCOPED_TRACE(testing::Message() << c);
    const absl::StatusOr<RunResult> result = run(withCase(setup_, c, resident->kvBlocks));
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->residentBlocks, c.split.resident);
    EXPECT_EQ(result->generated.tokens, resident->generated.tokens);
    EXPECT_EQ(result->tokensInFlight, resident->generated.tokens);
    EXPECT_TRUE(result->generated.logits == resident->generated.logits);
    EXPECT_GT(result->generated.counters.h2dBytes, resident->generated.counters.h2dBytes);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, RotatingKv, testing::ValuesIn(modelNames()), testName);

} // namespace
} // namespace headrace::golden
