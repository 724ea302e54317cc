// SPDX-License-Identifier: Apache-2.0
//
// Golden models through the recorded CUDA graphs, run on the host in an order drawn anew (EmulatedGraphDevice.h): how
// many blocks of the caches are on the device does not change a bit.
#include <random>

#include "tests/golden/GoldenFixture.h"
#include "tests/golden/SplitCase.h"
#include "tests/support/LongRun.h"
#include "tests/unit/cuda/EmulatedGraphDevice.h"

namespace headrace::golden {
namespace {

// The prompts of 1 and 5 ids, an emulated row takes its time: 1 + 2 x 5 blocks of 2 tokens; 5 + 3 rows take 4 of them,
// 1 + 3 take 2. So the first 7 are used, the scratch block included.
constexpr int64_t kNewTokens = 4, kBlockTokens = 2, kBlocks = 11, kUsed = 7;

// All of them with HEADRACE_LONG; else one that is drawn of those with blocks in use away.
std::vector<SplitCase> cases(const std::string &model) {
  std::vector<SplitCase> out;
  std::seed_seq seed(model.begin(), model.end());
  std::mt19937_64 random(seed);
  for (int64_t resident = 1; resident <= kBlocks; ++resident)
    for (const int64_t interval : {0, 1, 2}) {
      const auto drawn = random();
      out.push_back({.resident = resident,
                     .interval = interval,
                     .slots = static_cast<int64_t>(drawn % 4),
                     .wrap = drawn % 3 != 0,
                     .mixedTokens = drawn % 5 < 2 ? 3 : 0});
    }
  if (!longRun())
    out = {out[random() % (3 * (kUsed - 1))]};
  return out;
}

class EmulatedSplitKv : public GoldenFixture {};

TEST_P(EmulatedSplitKv, TokensAndLogitsAreBitIdenticalToTheAllResidentRun) {
  setup_.prompts.resize(2);
  setup_.maxNewTokens = kNewTokens;
  setup_.blockTokens = kBlockTokens;
  setup_.hardware = "h200";
  uint64_t order = 0;
  setup_.makeDevice = [&] { return cuda::makeEmulatedGraphDevice({.order = ++order}); };
  const absl::StatusOr<RunResult> resident = run(setup_);
  ASSERT_TRUE(resident.ok()) << resident.status();
  ASSERT_EQ(resident->residentBlocks, kBlocks);
  for (const SplitCase &c : cases(GetParam())) {
    SCOPED_TRACE(testing::Message() << c);
    const absl::StatusOr<RunResult> result = run(withCase(setup_, c, kBlocks));
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->residentBlocks, c.resident);
    EXPECT_EQ(result->kvBlocks, kBlocks);
    EXPECT_EQ(result->generated.tokens, resident->generated.tokens);
    EXPECT_EQ(result->tokensInFlight, resident->generated.tokens);
    EXPECT_TRUE(result->generated.logits == resident->generated.logits);
    // In chunks the shorter may end before the longer begins, and leave it its blocks; that one has 4 in any case.
    if (c.mixedTokens == 0 || c.resident >= kUsed || c.resident <= 4) {
      EXPECT_EQ(result->generated.counters.d2hBytes > 0, c.resident < kUsed);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, EmulatedSplitKv, testing::ValuesIn(allModels()), testName);

} // namespace
} // namespace headrace::golden
