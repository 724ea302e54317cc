// SPDX-License-Identifier: Apache-2.0
//
// Logits that are not finite end a batch, by prompt, position and the step that made them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "runtime/host/HostDevice.h"
#include "runtime/serve/engine/BatchEngine.h"
#include "tests/support/TinyPlan.h"
#include "tests/support/WrongWeights.h"

namespace headrace::serve {
namespace {

using core::ChangedValue;
using core::TinyPlanOptions;
using model::TensorRole;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

class Wrong {
public:
  Wrong(const TinyPlanOptions &options, std::vector<ChangedValue> changes, const host::HostOptions &device = {})
      : plan_(core::tinyPlan(options)), device_(host::makeHostDevice(device)) {
    const core::WrongWeights weights(1, std::move(changes));
    auto runtime = core::Runtime::load(plan_, *device_, {}, &weights, {});
    EXPECT_TRUE(runtime.ok()) << runtime.status();
    runtime_ = *std::move(runtime);
  }
  absl::StatusOr<GenerateResult> run(const GenerateRequest &request) { return generate(*runtime_, request); }
  std::string error(const GenerateRequest &request) {
    const absl::Status status = run(request).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
    return std::string(status.message());
  }

private:
  const plan::Plan plan_;
  const std::unique_ptr<core::Device> device_;
  std::unique_ptr<core::Runtime> runtime_;
};

GenerateRequest requestOf(std::vector<std::vector<int32_t>> prompts, int64_t newTokens = 4) {
  GenerateRequest request;
  request.prompts = std::move(prompts);
  request.maxNewTokens = newTokens;
  return request;
}

ChangedValue tokenRow(int32_t token, float value = kNan) {
  return {"embedding", TensorRole::TokenTable, token, 3, value};
}

TEST(WrongLogits, NameThePromptThePositionAndTheFirstStep) {
  // Token 7 is the second of prompt 1; the row of the embedding is what it reads.
  EXPECT_EQ(Wrong({}, {tokenRow(7)}).error(requestOf({{1, 2, 3}, {4, 7, 5, 6}})),
            "prompt 1, position 4: the logits are not finite (NaN or infinite), so there is no token; the first step "
            "that made such numbers: embed embedding, at position 1, column 3 (nan)");
  EXPECT_THAT(Wrong({}, {tokenRow(7, -kInfinity)}).error(requestOf({{7}})),
              EndsWith("embed embedding, at position 0, column 3 (-inf)"));
}

TEST(WrongLogits, OfSeveralPromptsNameTheFirst) {
  EXPECT_THAT(Wrong({}, {tokenRow(7)}).error(requestOf({{1, 2}, {7}, {3, 7}})),
              StartsWith("prompt 1, position 1: the logits (and those of 1 more prompt) are not finite"));
}

TEST(WrongLogits, AreThoseOfThePromptAloneWhateverSamplesThem) {
  GenerateRequest request = requestOf({{1, 2, 3}, {4, 7, 5, 6}});
  const std::string expected = Wrong({}, {tokenRow(7)}).error(request);
  request.sampling = {.temperature = 0.8f, .topP = 0.5f, .seed = 3};
  EXPECT_EQ(Wrong({}, {tokenRow(7)}).error(request), expected);
  request.keepLogits = true; // one iteration in flight
  EXPECT_EQ(Wrong({}, {tokenRow(7)}).error(request), expected);
  request.separatePrefill = true;
  EXPECT_EQ(Wrong({}, {tokenRow(7)}, {.poison = true}).error(request), expected);
}

// Wherever the weights are, and whatever slots held when the iteration failed.
TEST(WrongLogits, AreFoundInEveryPlacement) {
  const GenerateRequest request = requestOf({{1, 2, 3}, {4, 5}});
  for (const std::vector<int64_t> &offloaded : std::vector<std::vector<int64_t>>{{}, {1}, {0, 2}, {0, 1, 2, 3}})
    for (bool wrap : {false, true}) {
      Wrong wrong({.offloaded = offloaded, .wrap = wrap}, {{"layers.2.up", TensorRole::Matrix, 17, 5, kInfinity}});
      for (int again = 0; again < 2; ++again)
        EXPECT_THAT(wrong.error(request),
                    testing::ContainsRegex("prompt 0, position 3: .* layer 2, linear layers.2.up, "
                                           "at position 0, column 17 \\(-?inf\\)"));
    }
}

// The unit that is wrong is the one that is named, whichever it is.
TEST(WrongLogits, NameEveryKindOfStep) {
  const struct {
    ChangedValue change;
    const char *step;
  } cases[] = {
      {{"layers.1.qkv", TensorRole::NormWeight, 9}, "layer 1, norm layers.1.qkv, at position 0, column 9"},
      {{"layers.0.qkv", TensorRole::Matrix, 20, 1}, "layer 0, linear layers.0.qkv, at position 0, column 20"},
      {{"layers.1.out", TensorRole::Matrix, 63, 63}, "layer 1, linear layers.1.out, at position 0, column 63"},
      {{"layers.0.up", TensorRole::NormWeight, 0}, "layer 0, norm layers.0.up, at position 0, column 0"},
      {{"layers.0.up", TensorRole::Matrix, 95, 2}, "layer 0, linear layers.0.up, at position 0, column 95"},
      {{"layers.1.down", TensorRole::Matrix, 1, 95}, "layer 1, linear layers.1.down, at position 0, column 1"},
      {{"head", TensorRole::NormWeight, 4}, "norm head, at position 2, column 4"},
      {{"head", TensorRole::Matrix, 149, 0}, "linear head, at position 2, column 149"},
  };
  for (const auto &c : cases) {
    ChangedValue change = c.change;
    change.value = kNan;
    EXPECT_THAT(Wrong({.spec = core::tinyLlama(2)}, {change}).error(requestOf({{1, 2, 3}})),
                HasSubstr(absl::StrCat("numbers: ", c.step, " (")));
  }
  // A tied head reads the embedding: the row of a token that no prompt has is a column of logits.
  EXPECT_THAT(Wrong({.spec = core::tinyOpt(2)}, {tokenRow(149)}).error(requestOf({{1, 2, 3}})),
              HasSubstr("linear embedding, at position 2, column 149 (nan)"));
}

// Weights that are finite, and a product that is not: 1e30 * 1e30.
TEST(WrongLogits, ThatComeOfAnOverflowNameTheStepThatOverflowed) {
  EXPECT_THAT(Wrong({}, {{"layers.3.up", TensorRole::NormWeight, 5, 0, 1e30f},
                         {"layers.3.up", TensorRole::Matrix, 2, 5, 1e30f}})
                  .error(requestOf({{1, 2, 3}})),
              testing::ContainsRegex("layer 3, linear layers.3.up, at position 0, column 2 \\(-?inf\\)"));
}

// Buckets of 7 tokens: token 7 is in the first part of its prompt, and its numbers come to the second through the
// cache.
TEST(WrongLogits, ThatComeThroughTheCacheNameWhereTheyArose) {
  EXPECT_THAT(Wrong({}, {tokenRow(7)}).error(requestOf({{1, 2, 7, 3, 4, 5, 6, 8, 9, 10, 11, 12}})),
              testing::AllOf(StartsWith("prompt 0, position 12: "),
                             EndsWith("embed embedding, at position 2, column 3 (nan)")));
}

// A token that is sampled on the way, fed in by the device itself: the position is that of the next one.
TEST(WrongLogits, OfDecodedTokensNameTheirPosition) {
  GenerateRequest request = requestOf({{1, 2, 3}, {42}}, 8);
  const auto well = Wrong({.offloaded = {1, 2}, .wrap = true}, {}).run(request);
  ASSERT_TRUE(well.ok()) << well.status();
  // A token of prompt 1's, not the first two, that nothing before it has.
  const std::vector<int32_t> &tokens = well->tokens[1];
  size_t at = 2;
  const auto seen = [&](int32_t token) {
    const auto before = [&](const std::vector<int32_t> &all, size_t count) {
      return std::find(all.begin(), all.begin() + static_cast<ptrdiff_t>(count), token) !=
             all.begin() + static_cast<ptrdiff_t>(count);
    };
    return token == 42 || before(tokens, at) || before(request.prompts[0], 3) || before(well->tokens[0], at + 1);
  };
  while (at < 6 && seen(tokens[at]))
    ++at;
  ASSERT_LT(at, 6u);
  Wrong wrong({.offloaded = {1, 2}, .wrap = true}, {tokenRow(tokens[at])});
  EXPECT_THAT(wrong.error(request),
              testing::AllOf(StartsWith(absl::StrCat("prompt 1, position ", 2 + at, ": ")),
                             EndsWith(absl::StrCat("embed embedding, at position ", 1 + at, ", column 3 (nan)"))));
  // What comes next is served as ever.
  request.prompts = {{1, 2, 3}};
  request.maxNewTokens = static_cast<int64_t>(at) + 1;
  const auto next = wrong.run(request);
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_TRUE(std::equal(next->tokens[0].begin(), next->tokens[0].end(), well->tokens[0].begin()));
}

// A wrong row that nothing uses is nobody's.
TEST(WrongLogits, AreNotRaisedForWhatNoPromptReads) {
  const auto well = Wrong({}, {}).run(requestOf({{1, 2, 3}, {4}}));
  const auto other = Wrong({}, {tokenRow(140, kInfinity)}).run(requestOf({{1, 2, 3}, {4}}));
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ(other->tokens, well->tokens);
}

} // namespace
} // namespace headrace::serve
