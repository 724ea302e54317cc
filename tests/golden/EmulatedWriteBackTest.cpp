// SPDX-License-Identifier: Apache-2.0
//
// The same as WriteBackTest.cpp through the recorded CUDA graphs, run on the host in an order drawn anew.
#include "tests/golden/GoldenFixture.h"
#include "tests/golden/WriteBackCases.h"
#include "tests/support/LongRun.h"
#include "tests/unit/cuda/EmulatedGraphDevice.h"

namespace headrace::golden {
namespace {

// As in EmulatedSplitKvTest.cpp: 1 + 2 x 5 blocks of 2 tokens.
constexpr int64_t kNewTokens = 4, kBlockTokens = 2, kBlocks = 11;

class EmulatedWriteBackKv : public GoldenFixture {};

TEST_P(EmulatedWriteBackKv, TokensAndLogitsAreBitIdenticalToTheAllResidentRun) {
  setup_.prompts.resize(2);
  setup_.maxNewTokens = kNewTokens;
  setup_.blockTokens = kBlockTokens;
  setup_.hardware = "h200";
  uint64_t order = 0;
  setup_.makeDevice = [&] { return cuda::makeEmulatedGraphDevice({.order = ++order}); };
  const absl::StatusOr<RunResult> resident = run(setup_);
  ASSERT_TRUE(resident.ok()) << resident.status();
  std::vector<SplitCase> cases = writeBackCases(GetParam(), kBlocks, 3, /*poison=*/false, /*oneIn=*/12);
  if (!longRun())
    cases.resize(1); // an emulated row takes its time: all, no block on the device
  for (const SplitCase &c : cases) {
    SCOPED_TRACE(testing::Message() << c);
    const absl::StatusOr<RunResult> result = run(withCase(setup_, c, kBlocks));
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->residentBlocks, c.resident);
    EXPECT_EQ(result->generated.tokens, resident->generated.tokens);
    EXPECT_EQ(result->tokensInFlight, resident->generated.tokens);
    EXPECT_TRUE(result->generated.logits == resident->generated.logits);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, EmulatedWriteBackKv, testing::ValuesIn(allModels()), testName);

} // namespace
} // namespace headrace::golden
