// SPDX-License-Identifier: Apache-2.0
//
// Golden models through the recorded CUDA graphs, run on the host in an order drawn anew (EmulatedGraphDevice.h): tails
// of caches that rotate through places do not change a bit.
#include <random>

#include "tests/golden/GoldenFixture.h"
#include "tests/golden/RotatingCase.h"
#include "tests/support/LongRun.h"
#include "tests/unit/cuda/EmulatedGraphDevice.h"

namespace headrace::golden {
namespace {

using algorithms::WriteBack;

// The prompts of 1 and 5 ids, an emulated row takes its time: 1 + 2 x 5 blocks of 2 tokens, of which 7 are used.
constexpr int64_t kNewTokens = 4, kBlockTokens = 2;

// All of them with HEADRACE_LONG; else one that is drawn for each model, half of them first in, first out.
std::vector<RotatingCase> cases(const std::string &model, int64_t layers) {
  std::vector<RotatingCase> out;
  std::seed_seq seed(model.begin(), model.end());
  std::mt19937_64 random(seed);
  for (const WriteBack writeBack : {WriteBack::Mirror, WriteBack::All, WriteBack::Dirty}) {
    std::vector<RotatingCase> of;
    for (const int64_t places : placesOf(layers))
      for (const int64_t resident : {0, 1, 3}) {
        const auto drawn = random();
        of.push_back({.split = {.resident = resident,
                                .interval = static_cast<int64_t>(drawn % 3),
                                .wrap = drawn % 3 != 0,
                                .mixedTokens = drawn % 5 < 2 ? 3 : 0},
                      .places = places,
                      .decode = writeBack,
                      .mixed = writeBack});
      }
    out.insert(out.end(), of.begin(), of.end());
  }
  const size_t fifos = out.size();
  for (const Fifo &fifo : fifosOf(layers)) {
    const auto drawn = random();
    out.push_back({.split = {.resident = 0,
                             .interval = static_cast<int64_t>(drawn % 3),
                             .wrap = drawn % 3 != 0,
                             .mixedTokens = drawn % 5 < 2 ? 3 : 0},
                   .places = fifo.places,
                   .decode = WriteBack::All,
                   .mixed = WriteBack::All,
                   .fifo = fifo.visits});
  }
  if (!longRun())
    out = {random() % 2 == 0 ? out[random() % fifos] : out[fifos + random() % (out.size() - fifos)]};
  return out;
}

class EmulatedRotatingKv : public GoldenFixture {};

TEST_P(EmulatedRotatingKv, TokensAndLogitsAreBitIdenticalToTheAllResidentRun) {
  setup_.prompts.resize(2);
  setup_.maxNewTokens = kNewTokens;
  setup_.blockTokens = kBlockTokens;
  setup_.hardware = "h200";
  uint64_t order = 0;
  setup_.makeDevice = [&] { return cuda::makeEmulatedGraphDevice({.order = ++order}); };
  const absl::StatusOr<RunResult> resident = run(setup_);
  ASSERT_TRUE(resident.ok()) << resident.status();
  for (const RotatingCase &c : cases(GetParam(), setup_.spec.layers)) {
    SCOPED_TRACE(testing::Message() << c);
    const absl::StatusOr<RunResult> result = run(withCase(setup_, c, resident->kvBlocks));
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->residentBlocks, c.split.resident);
    EXPECT_EQ(result->generated.tokens, resident->generated.tokens);
    EXPECT_EQ(result->tokensInFlight, resident->generated.tokens);
    EXPECT_TRUE(result->generated.logits == resident->generated.logits);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, EmulatedRotatingKv, testing::ValuesIn(modelNames()), testName);

} // namespace
} // namespace headrace::golden
