// SPDX-License-Identifier: Apache-2.0
#include "runtime/serve/engine/ForcedRows.h"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/host/HostDevice.h"
#include "runtime/serve/engine/BatchEngine.h"
#include "runtime/sim/SimDevice.h"
#include "tests/support/TinyPlan.h"
#include "tests/support/WrongWeights.h"

namespace headrace::serve {
namespace {

using Ids = std::vector<int32_t>;

class Forced {
public:
  explicit Forced(const core::TinyPlanOptions &options, std::vector<core::ChangedValue> changes = {})
      : plan_(core::tinyPlan(options)), device_(host::makeHostDevice({})) {
    const core::WrongWeights weights(1, std::move(changes));
    auto runtime = core::Runtime::load(plan_, *device_, {}, &weights, {});
    EXPECT_TRUE(runtime.ok()) << runtime.status();
    runtime_ = *std::move(runtime);
  }
  core::Runtime &runtime() { return *runtime_; }
  // Of all rows, so many at a time.
  std::vector<float> logits(const Ids &ids, int64_t atATime) {
    absl::StatusOr<ForcedRows> rows = ForcedRows::create(*runtime_);
    EXPECT_TRUE(rows.ok()) << rows.status();
    std::vector<float> out;
    while (rows->rows() < static_cast<int64_t>(ids.size())) {
      const int64_t left = static_cast<int64_t>(ids.size()) - rows->rows();
      const absl::Status status = rows->next(ids, std::min(left, atATime), out);
      EXPECT_TRUE(status.ok()) << status;
      if (!status.ok())
        break;
    }
    return out;
  }

private:
  const plan::Plan plan_;
  const std::unique_ptr<core::Device> device_;
  std::unique_ptr<core::Runtime> runtime_;
};

// Three prompt tokens and four that follow: rows 2 to 5 are those that the engine sampled them from.
TEST(ForcedRows, AreTheEnginesWhateverIsTakenAtATime) {
  Forced tiny({.offloaded = {1, 2}, .wrap = true});
  GenerateRequest request;
  request.prompts = {{5, 6, 7}};
  request.maxNewTokens = 4;
  request.keepLogits = true;
  const absl::StatusOr<GenerateResult> generated = generate(tiny.runtime(), request);
  ASSERT_TRUE(generated.ok()) << generated.status();
  Ids ids = request.prompts[0];
  ids.insert(ids.end(), generated->tokens[0].begin(), generated->tokens[0].end());
  const std::vector<float> one = tiny.logits(ids, 1);
  ASSERT_EQ(one.size(), 7u * 150u);
  const std::vector<float> &kept = generated->logits[0];
  EXPECT_TRUE(std::equal(kept.begin(), kept.end(), one.begin() + 2 * 150));
  EXPECT_TRUE(tiny.logits(ids, 2) == one);
  EXPECT_TRUE(tiny.logits(ids, 3) == one);
  EXPECT_EQ(tiny.runtime().kvBlocks().used(), 0);
}

TEST(ForcedRows, BeginAnewWithEachPrompt) {
  Forced tiny({});
  const std::vector<float> other = tiny.logits({9, 8, 7, 6}, 2);
  absl::StatusOr<ForcedRows> rows = ForcedRows::create(tiny.runtime());
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_EQ(rows->mostRows(), 3);
  const Ids first = {1, 2, 3}, second = {9, 8, 7, 6};
  std::vector<float> out;
  ASSERT_TRUE(rows->next(first, 3, out).ok());
  EXPECT_EQ(rows->rows(), 3);
  rows->restart();
  out.clear();
  ASSERT_TRUE(rows->next(second, 3, out).ok());
  ASSERT_TRUE(rows->next(second, 1, out).ok());
  EXPECT_TRUE(out == other);
}

TEST(ForcedRows, OfWrongNumbersNameThePositionAndTheStep) {
  Forced tiny({}, {{"embedding", model::TensorRole::TokenTable, 7, 3, std::numeric_limits<float>::quiet_NaN()}});
  absl::StatusOr<ForcedRows> rows = ForcedRows::create(tiny.runtime());
  ASSERT_TRUE(rows.ok()) << rows.status();
  std::vector<float> out;
  const absl::Status status = rows->next(Ids{1, 2, 7}, 3, out);
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_EQ(status.message(),
            "position 3: the logits are not finite (NaN or infinite), so there is no token; the first "
            "step that made such numbers: embed embedding, at position 2, column 3 (nan)");
}

TEST(ForcedRows, NeedData) {
  const plan::Plan plan = core::tinyPlan({});
  const std::unique_ptr<core::Device> device = sim::makeSimDevice();
  auto runtime = core::Runtime::load(plan, *device, {}, nullptr, {});
  ASSERT_TRUE(runtime.ok()) << runtime.status();
  const absl::StatusOr<ForcedRows> rows = ForcedRows::create(**runtime);
  EXPECT_EQ(rows.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(rows.status().message()), testing::HasSubstr("'sim' holds no data"));
}

} // namespace
} // namespace headrace::serve
