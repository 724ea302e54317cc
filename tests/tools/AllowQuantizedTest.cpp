// SPDX-License-Identifier: Apache-2.0
//
// compile --allow-quantized: a policy packs weights where that is better by what it prefers, and says what each came
// to.
#include <gmock/gmock.h>

#include "tests/support/Process.h"

namespace headrace::tools {
namespace {

using testing::HasSubstr;
using testing::Not;

class AllowQuantized : public CommandLine {
protected:
  static nlohmann::json compiled(std::vector<std::string> more) {
    std::vector<std::string> all = {"compile", "tinyllama-1.1b", "--hardware", "host",     "--batch", "2", "--context",
                                    "16",      "--interval",     "2",          "--dry-run"};
    all.insert(all.end(), more.begin(), more.end());
    return json(all);
  }
};

TEST_F(AllowQuantized, TakesWhatIsFastestAndSaysWhatTheOthersAre) {
  const nlohmann::json asIs = compiled({}), q8 = compiled({"--weight-encoding", "q8"}),
                       q4 = compiled({"--weight-encoding", "q4"}), allowed = compiled({"--allow-quantized", "weights"});
  const std::string plain = asIs["reason"], reason = allowed["reason"];
  EXPECT_THAT(plain, Not(HasSubstr("Weights may be packed")));
  EXPECT_EQ(allowed["decode_tokens_per_second"], q4["decode_tokens_per_second"]);
  EXPECT_EQ(allowed["model"]["weight_encoding"], "q4");
  const auto ms = [](const nlohmann::json &of) {
    char text[32];
    std::snprintf(text, sizeof(text), "%.3f ms and ", 2e3 / of["decode_tokens_per_second"].get<double>());
    return std::string(text);
  };
  EXPECT_THAT(reason, HasSubstr(". Weights may be packed: as they are " + ms(asIs)));
  EXPECT_THAT(reason, HasSubstr(", q8 " + ms(q8)));
  EXPECT_THAT(reason, HasSubstr(", q4 " + ms(q4)));
  EXPECT_THAT(allowed["command"].get<std::string>(), HasSubstr(" --weight-encoding q4 "));
}

// On CUDA too: two rows are unpacked on the way, and memory brings 0.28 of the bytes.
TEST_F(AllowQuantized, CudaTakesPackedWeights) {
  const nlohmann::json cuda = json({"compile", "tinyllama-1.1b", "--hardware", "a10", "--batch", "2", "--context", "16",
                                    "--allow-quantized", "weights", "--dry-run"});
  EXPECT_EQ(cuda["model"]["weight_encoding"], "q4");
  EXPECT_THAT(cuda["reason"].get<std::string>(), HasSubstr(", q8 "));
  EXPECT_THAT(cuda["reason"].get<std::string>(), Not(HasSubstr("refused")));
}

// What fits packed alone is a plan.
TEST_F(AllowQuantized, WhatIsRefusedIsNotTaken) {
  const std::vector<std::string> small = {
      "compile", "tinyllama-1.1b",  "--hardware", "host",     "--batch", "2",        "--context",
      "16",      "--device-memory", "900MiB",     "--policy", "none",    "--dry-run"};
  EXPECT_EQ(headrace(small).status, 1);
  std::vector<std::string> allowed = small;
  allowed.insert(allowed.end(), {"--allow-quantized", "weights"});
  const nlohmann::json plan = json(allowed);
  EXPECT_EQ(plan["model"]["weight_encoding"], "q4");
  EXPECT_THAT(plan["reason"].get<std::string>(), HasSubstr("Weights may be packed: as they are refused ("));
}

TEST_F(AllowQuantized, RefusesByName) {
  const std::vector<std::string> base = {"compile", "tinyllama-1.1b", "--hardware", "host",     "--batch",
                                         "1",       "--context",      "16",         "--dry-run"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), base.begin(), base.end());
    return more;
  };
  refused(with({"--allow-quantized", "kv"}), 2, "--allow-quantized = \"kv\": expected nothing or weights");
  refused(with({"--allow-quantized", "weights", "--weight-encoding", "q8"}), 2,
          "--allow-quantized weights beside --weight-encoding q8, which states it: expected one of them");
  refused({"compile", golden("llama-7-gqa-llama3-f32"), "--hardware", "host", "--batch", "1", "--context", "16",
           "--dry-run", "--allow-quantized", "weights"},
          2, "has no operand whose input features groups of 32, 64 or 128 divide");
}

} // namespace
} // namespace headrace::tools
