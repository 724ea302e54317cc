// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "runtime/serve/engine/BatchEngine.h"
#include "tests/support/TinyPlan.h"

namespace headrace::serve {
namespace {

using testing::HasSubstr;

// Context 40, batch 3, vocabulary 150, blocks of 4 tokens: 30 blocks beside the scratch block.
class CheckRequest : public testing::Test {
protected:
  std::string refusal(const GenerateRequest &request) {
    const absl::Status status = checkRequest(plan_, request);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  }
  GenerateRequest good() {
    GenerateRequest request;
    request.prompts = {{0, 1}, {149}};
    request.maxNewTokens = 38; // with the first prompt exactly the context
    return request;
  }
  plan::Plan plan_ = core::tinyPlan({.spec = core::tinyLlama(1)});
};

TEST_F(CheckRequest, AcceptsWhatJustFits) { EXPECT_TRUE(checkRequest(plan_, good()).ok()); }

TEST_F(CheckRequest, RefusesPromptsByName) {
  GenerateRequest request = good();
  request.prompts = {};
  EXPECT_THAT(refusal(request), HasSubstr("no prompts"));
  request.prompts = {{1}, {}};
  EXPECT_THAT(refusal(request), HasSubstr("prompt 1 is empty"));
  request.prompts = {{1, 150}};
  EXPECT_THAT(refusal(request),
              HasSubstr("prompt 0: token id 150 at position 1 is outside the vocabulary, expected 0 to 149"));
  request.prompts = {{-1}};
  EXPECT_THAT(refusal(request), HasSubstr("token id -1 at position 0"));
  request.prompts = {{1}, {1}, {1}, {1}};
  EXPECT_THAT(refusal(request), HasSubstr("4 prompts, the plan's batch is 3"));
}

TEST_F(CheckRequest, RefusesMoreThanTheContext) {
  GenerateRequest request = good();
  request.maxNewTokens = 39;
  EXPECT_THAT(refusal(request), HasSubstr("prompt 0: 2 tokens and 39 new ones are more than the plan's context of 40"));
  request.maxNewTokens = std::numeric_limits<int64_t>::max();
  EXPECT_THAT(refusal(request), HasSubstr("more than the plan's context of 40"));
  request.maxNewTokens = 1;
  request.prompts = {std::vector<int32_t>(41, 1)};
  EXPECT_THAT(refusal(request), HasSubstr("prompt 0: 41 tokens and 1 new ones"));
}

TEST_F(CheckRequest, RefusesMoreThanTheBlocksHold) {
  plan_.kvBlocks = 20; // 19 to give; the first prompt needs 10, the second 39 / 4 rounded up: 10
  EXPECT_THAT(refusal(good()), HasSubstr("need 20 KV blocks of 4 tokens, the plan has 19"));
}

// Prompts that take turns: each must fit alone.
TEST_F(CheckRequest, PromptsThatWaitTheirTurnMayBeMoreThanTheBatchAndItsBlocks) {
  GenerateRequest request = good();
  request.prompts.assign(4, {0, 1});
  EXPECT_TRUE(checkPrompts(plan_, request).ok());
  plan_.kvBlocks = 11; // 10 to give, each needs 10
  EXPECT_TRUE(checkPrompts(plan_, request).ok());
  plan_.kvBlocks = 10;
  EXPECT_EQ(checkPrompts(plan_, request).message(),
            "prompt 0 and its new tokens need 10 KV blocks of 4 tokens, the plan has 9");
  plan_.kvBlocks = 11;
  plan_.placements[0].kvBlocks = 8;
  plan_.placements[0].name = "few";
  EXPECT_TRUE(checkPrompts(plan_, request).ok());
  EXPECT_EQ(checkPrompts(plan_, request, 0).message(),
            "prompt 0 and its new tokens need 10 KV blocks of 4 tokens, placement 'few' has 7");
}

TEST_F(CheckRequest, RefusesParametersThatMeanNothing) {
  GenerateRequest request = good();
  request.maxNewTokens = 0;
  EXPECT_THAT(refusal(request), HasSubstr("max new tokens = 0, expected at least 1"));
  request = good();
  request.sampling.temperature = -0.5f;
  EXPECT_THAT(refusal(request), HasSubstr("temperature = -0.5, expected 0 or more"));
  request.sampling.temperature = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(refusal(request), HasSubstr("temperature = nan"));
  request = good();
  for (float topP : {0.0f, 1.5f, std::numeric_limits<float>::quiet_NaN()}) {
    request.sampling.topP = topP;
    EXPECT_THAT(refusal(request), HasSubstr("expected more than 0 and at most 1"));
  }
}

TEST_F(CheckRequest, RefusesFiltersAndPenaltiesOutOfRange) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  const auto refused = [&](float Sampling::*field, std::initializer_list<float> values, const char *message) {
    for (const float value : values) {
      GenerateRequest request = good();
      request.sampling.*field = value;
      EXPECT_THAT(refusal(request), HasSubstr(message)) << value;
    }
  };
  GenerateRequest request = good();
  request.sampling.topK = -1;
  EXPECT_THAT(refusal(request), HasSubstr("top-k = -1, expected 0 for all, or more"));
  refused(&Sampling::minP, {-0.1f, 1.1f, nan}, "expected 0 to 1");
  refused(&Sampling::repetitionPenalty, {0, -1, nan, infinity}, "repetition penalty = ");
  refused(&Sampling::presencePenalty, {-2.1f, 2.1f, nan}, "presence penalty = ");
  refused(&Sampling::frequencyPenalty, {-2.1f, 2.1f, nan}, "frequency penalty = ");
  // What they end with is theirs.
  for (const float end : {-2.0f, 2.0f}) {
    request = good();
    request.sampling.presencePenalty = request.sampling.frequencyPenalty = end;
    EXPECT_TRUE(checkPrompts(plan_, request).ok()) << end;
  }
  for (const float end : {0.0f, 1.0f}) {
    request = good();
    request.sampling.minP = end;
    EXPECT_TRUE(checkPrompts(plan_, request).ok()) << end;
  }
}

} // namespace
} // namespace headrace::serve
