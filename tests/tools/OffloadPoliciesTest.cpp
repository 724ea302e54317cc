// SPDX-License-Identifier: Apache-2.0
//
// compile with policies flexgen-throughput and lm-offload, what allowance would bring, and --explain.
#include <gmock/gmock.h>

#include "tests/support/Process.h"

namespace headrace::tools {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Words = std::vector<std::string>;

class OffloadPolicies : public CommandLine {
protected:
  static Words with(Words words, const Words &more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
};

const Words kOpt = {"compile",   "opt-30b", "--hardware",  "a100-40", "--batch",      "64",
                    "--context", "192",     "--input-len", "64",      "--output-len", "128"};
const Words kTiny = {"compile",         "tinyllama-1.1b", "--hardware", "host", "--h2d-bandwidth", "4GB/s",
                     "--device-memory", "680MiB",         "--batch",    "2",    "--context",       "16",
                     "--dry-run"};

TEST_F(OffloadPolicies, RefusePercentsByWhatIsWrong) {
  const Words words = {"compile", "opt-6.7b", "--hardware", "a10", "--dry-run", "--policy", "flexgen-throughput"};
  const auto refusedAs = [&](const std::string &percent, const std::string &expected) {
    refused(with(words, {"--percent", percent}), 2,
            "command line: --percent = \"" + percent + "\": expected " + expected);
  };
  refusedAs("55 45 0 100 0", "six numbers, wg wc cg cc hg hc, such as \"55 45 0 100 0 100\", not 5");
  refusedAs("50 40 0 100 0 100", "wg + wc = 100, not 90: nothing is kept on disk");
  refusedAs("-5 105 0 100 0 100", "wg from 0 to 100, not -5");
  refusedAs("55 45 0 100 30 70", "hg = 0 or 100, not 30: hidden states are one buffer");
  refused({"compile", "opt-6.7b", "--hardware", "a10", "--dry-run", "--percent", "55 45 0 100 0 100"}, 2,
          "expected --policy \"flexgen-throughput\" beside it");
  writeText(path("job.toml"), "[model]\nshape = \"opt-6.7b\"\n[hardware]\nfile = \"a10\"\n[policy]\nname = "
                              "\"flexgen-throughput\"\npercent = [55, 40, 0, 100, 0, 100]\n");
  refused({"compile", path("job.toml"), "--dry-run"}, 2,
          "policy.percent = [55, 40, 0, 100, 0, 100]: expected wg + wc = 100, not 95: nothing is kept on disk");
}

// Stated in a job file, as a list or as a text, and by a flag; found, and stated as it was found.
TEST_F(OffloadPolicies, MakeTheSamePlanFromAJobAndFromFlags) {
  const auto hash = [](const Words &words) { return json(with(words, {"--json", "--dry-run"})); };
  const std::string of = "[model]\nshape = \"opt-30b\"\n[hardware]\nfile = \"a100-40\"\n[goal]\nbatch = 64\ncontext = "
                         "192\ninput_len = 64\noutput_len = 128\n[policy]\nname = \"flexgen-throughput\"\npercent = ";
  writeText(path("list.toml"), of + "[45, 55, 0, 100, 100, 0]\n");
  writeText(path("text.toml"), of + "\"45 55 0 100 100 0\"\n");
  const std::string stated =
      hash(with(kOpt, {"--policy", "flexgen-throughput", "--percent", "45,55,0,100,100,0"}))["plan_hash"];
  EXPECT_EQ(hash({"compile", path("list.toml")})["plan_hash"], stated);
  EXPECT_EQ(hash({"compile", path("text.toml")})["plan_hash"], stated);
  for (const char *policy : {"flexgen-throughput", "lm-offload"}) {
    SCOPED_TRACE(policy);
    const nlohmann::json found = hash(with(kOpt, {"--policy", policy}));
    const std::string command = found["command"], name = "headrace ";
    const Outcome again = shell("\"$HEADRACE\" " + command.substr(name.size()) + " --dry-run --json");
    ASSERT_EQ(again.status, 0) << again.err;
    EXPECT_EQ(nlohmann::json::parse(again.out)["plan_hash"], found["plan_hash"]) << command;
  }
}

TEST_F(OffloadPolicies, SayWhatAllowanceWouldBring) {
  const std::string line = "packed weights would take ";
  const Outcome text = headrace(kTiny);
  ASSERT_EQ(text.status, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("\nif allowed     " + line));
  EXPECT_THAT(text.out, HasSubstr(" ms an iteration instead of 357.990 ms: --allow-quantized weights\n"));
  EXPECT_THAT(json(with(kTiny, {"--json"}))["if_allowed"].get<std::string>(), HasSubstr(line));
  EXPECT_FALSE(json(with(kTiny, {"--json", "--allow-quantized", "both"})).contains("if_allowed"));
}

// The tasks of a layer, T of them, both decisions; what it says as text it says as JSON.
TEST_F(OffloadPolicies, ExplainByTheClosedForm) {
  const Outcome text = headrace(with(kOpt, {"--policy", "lm-offload", "--dry-run", "--explain"}));
  ASSERT_EQ(text.status, 0) << text.err;
  for (const char *part : {"closed form    64 sequences in 1 mini-batch, 64 + 128 tokens; on the device ",
                           "\nload weights", "\nload KV", "\nload hidden states", "\nstore KV", "\nstore hidden states",
                           "\ncompute", "\n  of it linear ops", "\nlongest", "\nT              ", " x T_pf ",
                           " x T_gen ", "; T_init is not measured", "\nplayed         decode at context 192 in ",
                           "\npack weights   yes, ", "\npack KV        ", "\nattend on CPU  yes, "})
    EXPECT_THAT(text.out, HasSubstr(part));
  const nlohmann::json report = json(with(kOpt, {"--policy", "lm-offload", "--dry-run", "--explain", "--json"}));
  const nlohmann::json &form = report["closed_form"];
  EXPECT_EQ(form["block"], 64);
  EXPECT_EQ(form["prompt"], 64);
  EXPECT_EQ(form["output"], 128);
  const double layer = form["t_gen_s"], prompts = form["t_pf_s"];
  EXPECT_GT(layer, 0);
  EXPECT_NEAR(form["t_s"].get<double>(), 48 * prompts + 48 * 127 * layer, 1e-9 * form["t_s"].get<double>());
  EXPECT_NEAR(form["tokens_per_second"].get<double>(), 64 * 128 / form["t_s"].get<double>(), 1e-6);
  EXPECT_GE(form["t_gen_s"].get<double>() * (1 + 1e-9), form["decode_layer"]["load_weights_s"].get<double>());
  EXPECT_EQ(form["t_init_s"], nullptr);
  EXPECT_TRUE(form["decisions"]["pack_weights"]["decided"]);
  EXPECT_GT(form["decisions"]["pack_weights"]["yes"]["tokens_per_second"],
            form["decisions"]["pack_weights"]["no"]["tokens_per_second"]);
  EXPECT_TRUE(form["decisions"]["attend_on_cpu"]["decided"]);
  // Nothing is known of the CPU beside an A10.
  EXPECT_THAT(
      headrace({"compile", "opt-30b", "--hardware", "a10", "--policy", "lm-offload", "--dry-run", "--explain"}).out,
      HasSubstr("\nattend on CPU  not weighed: the profile has no rate for it"));
  const double played = form["decode"]["played_s"], closed = form["decode"]["closed_form_s"];
  EXPECT_NEAR(closed, played, 0.12 * played);
  EXPECT_THAT(headrace(with(kOpt, {"--policy", "lm-offload", "--dry-run"})).out, Not(HasSubstr("closed form")));
}

} // namespace
} // namespace headrace::tools
