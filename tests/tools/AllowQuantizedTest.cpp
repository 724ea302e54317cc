// SPDX-License-Identifier: Apache-2.0
//
// --allow-quantized: a policy packs weights and caches where that is better by what it prefers, and says what each came
// to.
#include <cmath>
#include <cstdio>
#include <utility>

#include <gmock/gmock.h>

#include "tests/support/Process.h"

namespace headrace::tools {
namespace {

using testing::HasSubstr;
using testing::Not;

class AllowQuantized : public CommandLine {
protected:
  static nlohmann::json compiled(std::vector<std::string> more) {
    std::vector<std::string> all = {
        "compile", "tinyllama-1.1b",  "--hardware", "host",     "--batch", "2", "--context", "16", "--interval",
        "1",       "--h2d-bandwidth", "1GB/s",      "--dry-run"};
    all.insert(all.end(), more.begin(), more.end());
    return json(all);
  }
};

TEST_F(AllowQuantized, TakesWhatIsFastestAndSaysWhatTheOthersAre) {
  const nlohmann::json asIs = compiled({}), q8 = compiled({"--weight-encoding", "q8"}),
                       q4 = compiled({"--weight-encoding", "q4"}), allowed = compiled({"--allow-quantized", "weights"});
  const std::string plain = asIs["reason"], reason = allowed["reason"];
  EXPECT_THAT(plain, Not(HasSubstr("Encodings that are allowed")));
  EXPECT_EQ(allowed["plan_hash"], q4["plan_hash"]);
  EXPECT_EQ(allowed["model"]["weight_encoding"], "q4");
  const auto ms = [](const nlohmann::json &of) {
    char text[32];
    std::snprintf(text, sizeof(text), "%.1f", std::floor(2e4 / of["decode_tokens_per_second"].get<double>()) / 10);
    return std::string(text);
  };
  for (const auto &[name, of] :
       {std::pair("as it is ", asIs), std::pair("weights q8 ", q8), std::pair("weights q4 ", q4)})
    EXPECT_THAT(reason.substr(reason.find(". Encodings that are allowed, the best of each")), HasSubstr(name + ms(of)));
  EXPECT_THAT(allowed["command"].get<std::string>(), HasSubstr(" --weight-encoding q4 "));
  EXPECT_THAT(allowed["command"].get<std::string>(), Not(HasSubstr("allow-quantized")));
}

// On CUDA too: two rows are unpacked on the way, and memory brings 0.28 of the bytes.
TEST_F(AllowQuantized, CudaTakesPackedWeights) {
  const nlohmann::json cuda = json({"compile", "tinyllama-1.1b", "--hardware", "a10", "--batch", "2", "--context", "16",
                                    "--allow-quantized", "weights", "--dry-run"});
  EXPECT_EQ(cuda["model"]["weight_encoding"], "q4");
  EXPECT_THAT(cuda["reason"].get<std::string>(), HasSubstr("weights q8 "));
  EXPECT_THAT(cuda["reason"].get<std::string>(), Not(HasSubstr("refused")));
}

TEST_F(AllowQuantized, IsAKeyOfAJob) {
  const std::string job = path("job.toml");
  writeText(job, R"([model]
shape = "tinyllama-1.1b"
[hardware]
file = "host"
h2d_bandwidth = "1GB/s"
[goal]
batch = 2
context = 2048
device_memory = "500MiB"
allow_quantized = "both"
)");
  const nlohmann::json plan = json({"compile", job, "--dry-run"});
  EXPECT_EQ(plan["model"]["weight_encoding"], "q4");
  EXPECT_EQ(plan["kv_dtype"], "q4");
  // A flag wins over the file.
  EXPECT_TRUE(json({"compile", job, "--allow-quantized", "kv", "--dry-run"})["model"]["weight_encoding"].is_null());
  refused({"compile", job, "--kv-dtype", "q8", "--dry-run"}, 2,
          "goal.allow_quantized = \"both\": expected no kv_dtype beside it, which is q8");
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
  EXPECT_THAT(plan["reason"].get<std::string>(), HasSubstr("as it is does not fit, "));
}

TEST_F(AllowQuantized, RefusesByName) {
  const std::vector<std::string> base = {"compile", "tinyllama-1.1b", "--hardware", "host",     "--batch",
                                         "1",       "--context",      "16",         "--dry-run"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), base.begin(), base.end());
    return more;
  };
  refused(with({"--allow-quantized", "q4"}), 2, "--allow-quantized = \"q4\": expected nothing, weights, kv or both");
  refused(with({"--allow-quantized", "weights", "--weight-encoding", "q8"}), 2,
          "--allow-quantized = \"weights\": expected no weight_encoding beside it, which is q8");
  refused(with({"--allow-quantized", "both", "-ctk", "q8"}), 2,
          "--allow-quantized = \"both\": expected no kv_dtype beside it, which is q8");
  refused({"compile", golden("llama-7-gqa-llama3-f32"), "--hardware", "host", "--batch", "1", "--context", "16",
           "--dry-run", "--allow-quantized", "weights"},
          2, "expected a model with an operand whose input features groups of 32, 64 or 128 divide");
}

} // namespace
} // namespace headrace::tools
