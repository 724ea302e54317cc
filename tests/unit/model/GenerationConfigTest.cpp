// SPDX-License-Identifier: Apache-2.0
#include "runtime/model/GenerationConfig.h"

#include <gmock/gmock.h>

#include "tests/support/TestFiles.h"

namespace headrace::model {
namespace {

using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(GenerationConfig, AFolderWithoutFilesSaysNothing) {
  const TempFolder folder;
  const auto config = readGenerationConfig(folder.path());
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_THAT(config->endIds, IsEmpty());
  EXPECT_EQ(config->file, "");
  EXPECT_FALSE(config->temperature);
}

TEST(GenerationConfig, ReadsEndIdsAndSampling) {
  const TempFolder folder;
  folder.write("config.json", R"({"eos_token_id": 7})");
  folder.write("generation_config.json", R"({"eos_token_id": [2, 5], "do_sample": true, "temperature": 0.7,
      "top_p": 0.8, "top_k": 20, "min_p": 0.05, "repetition_penalty": 1.05, "max_new_tokens": 2048})");
  const auto config = readGenerationConfig(folder.path());
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_THAT(config->endIds, ElementsAre(2, 5));
  EXPECT_THAT(config->endIdsFile, EndsWith("/generation_config.json"));
  EXPECT_EQ(config->temperature, 0.7);
  EXPECT_EQ(config->topP, 0.8);
  EXPECT_EQ(config->topK, 20);
  EXPECT_EQ(config->minP, 0.05);
  EXPECT_EQ(config->repetitionPenalty, 1.05);
  EXPECT_THAT(config->notFollowed, IsEmpty());
}

TEST(GenerationConfig, EndIdsAreTheConfigsWhereTheOtherHasNone) {
  const TempFolder folder;
  folder.write("config.json", R"({"eos_token_id": 7})");
  folder.write("generation_config.json", R"({"eos_token_id": null})");
  const auto config = readGenerationConfig(folder.path());
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_THAT(config->endIds, ElementsAre(7));
  EXPECT_THAT(config->endIdsFile, EndsWith("/config.json"));
}

TEST(GenerationConfig, WithoutSamplingItIsGreedy) {
  const TempFolder folder;
  folder.write("generation_config.json", R"({"temperature": 0.7, "top_k": 20, "repetition_penalty": 1.1})");
  const auto config = readGenerationConfig(folder.path());
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_FALSE(config->temperature);
  EXPECT_FALSE(config->topK);
  EXPECT_THAT(config->notSampled, ElementsAre("temperature = 0.7", "top_k = 20"));
  EXPECT_EQ(config->repetitionPenalty, 1.1); // of greedy decoding, too
}

TEST(GenerationConfig, SamplingWithoutATemperatureIsOfOne) {
  const TempFolder folder;
  folder.write("generation_config.json", R"({"do_sample": true})");
  const auto config = readGenerationConfig(folder.path());
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->temperature, 1);
  EXPECT_FALSE(config->topK); // not transformers' 50
}

TEST(GenerationConfig, SaysWhatIsNotFollowed) {
  const TempFolder folder;
  folder.write("generation_config.json",
               R"({"num_beams": 4, "typical_p": 1.0, "suppress_tokens": [1, 2], "bad_words_ids": null})");
  const auto config = readGenerationConfig(folder.path());
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_THAT(config->notFollowed, ElementsAre("num_beams = 4", "suppress_tokens = [...]"));
}

TEST(GenerationConfig, RefusesByFileAndKey) {
  const auto refusal = [](const std::string &text) {
    const TempFolder folder;
    folder.write("generation_config.json", text);
    return std::string(readGenerationConfig(folder.path()).status().message());
  };
  EXPECT_THAT(refusal("{"), HasSubstr("generation_config.json"));
  EXPECT_THAT(refusal("[1]"), HasSubstr("generation_config.json: expected a JSON object"));
  EXPECT_THAT(refusal(R"({"eos_token_id": -1})"),
              HasSubstr("eos_token_id = -1: expected a token id, or a list of them"));
  EXPECT_THAT(refusal(R"({"eos_token_id": [1, "x"]})"), HasSubstr("eos_token_id = [...]: expected a token id"));
  EXPECT_THAT(refusal(R"({"do_sample": true, "top_p": 0})"),
              HasSubstr("top_p = 0: expected more than 0 and at most 1"));
  EXPECT_THAT(refusal(R"({"do_sample": true, "top_k": -3})"), HasSubstr("top_k = -3"));
  EXPECT_THAT(refusal(R"({"do_sample": "yes"})"), HasSubstr("do_sample = \"yes\""));
  EXPECT_THAT(refusal(R"({"do_sample": true, "min_p": 2})"), HasSubstr("min_p = 2: expected 0 to 1"));
  EXPECT_THAT(refusal(R"({"repetition_penalty": 0})"), HasSubstr("repetition_penalty = 0: expected a number above 0"));
}

} // namespace
} // namespace headrace::model
