// SPDX-License-Identifier: Apache-2.0
#include <set>

#include <gmock/gmock.h>

#include "tests/support/Process.h"

namespace headrace::tools {
namespace {

using SamplingFlags = CommandLine;

TEST_F(SamplingFlags, FiltersAndPenaltiesAreWhatTheySay) {
  const auto tokens = [this](std::vector<std::string> flags) {
    std::vector<std::string> all = {
        "run", golden("llama-7-gqa-llama3-f32"), "--hardware", "host", "--prompt-ids", "1,2,3", "--max-new-tokens",
        "16"};
    all.insert(all.end(), flags.begin(), flags.end());
    return json(all)["tokens"][0].get<std::vector<int>>();
  };
  const std::vector<int> greedy = tokens({}), hot = tokens({"--temperature", "5"});
  EXPECT_NE(hot, greedy);
  EXPECT_EQ(tokens({"--temperature", "5", "--top-k", "1"}), greedy);
  EXPECT_EQ(tokens({"--temperature", "5", "--min-p", "1"}), greedy);
  EXPECT_EQ(tokens({"--temperature", "5", "--top-k", "-1", "--min-p", "0", "--repetition-penalty", "1"}), hot);
  // Logits of what there was become nearly 0, or far below: all others are likelier.
  std::vector<int> unlike = tokens({"--repeat-penalty", "1e6"});
  unlike.insert(unlike.end(), {1, 2, 3});
  EXPECT_EQ(std::set<int>(unlike.begin(), unlike.end()).size(), 19u);
  // 2 off each logit changes what these small weights say.
  EXPECT_NE(tokens({"--presence-penalty", "2"}), greedy);
  EXPECT_NE(tokens({"--frequency-penalty", "2"}), greedy);
}

} // namespace
} // namespace headrace::tools
