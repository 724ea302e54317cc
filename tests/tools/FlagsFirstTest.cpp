// SPDX-License-Identifier: Apache-2.0
//
// Flags are checked before work starts. The jobs here cannot be met: who compiles them first, or reads a model's
// weights, says that in place of what is wrong with a flag.

#include <gmock/gmock.h>

#include "tests/support/Process.h"

namespace headrace::tools {
namespace {

using testing::HasSubstr;

class FlagsFirst : public CommandLine {
protected:
  using Words = std::vector<std::string>;
  static Words joined(Words words, const Words &more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  // Refused for the flags: status 2 but where said otherwise.
  void eachRefused(const Words &command, const std::vector<std::pair<Words, std::string>> &cases,
                   int status = 2) const {
    for (const auto &[flags, message] : cases)
      refused(joined(command, flags), status, message);
  }
  const Words impossible = {"opt-6.7b", "--hardware", "a10", "--device-memory", "1MiB"};
};

TEST_F(FlagsFirst, TheJobsOfTheseTestsCannotBeMet) {
  const Words prompt = {"--random-input-len", "8"};
  refused(joined(joined({"simulate"}, impossible), prompt), 1, "device memory of 1048576 bytes");
  refused(joined(joined({"compile"}, impossible), {"--dry-run"}), 1, "cannot hold");
}

TEST_F(FlagsFirst, OfRun) {
  const Words command = joined(joined({"run"}, impossible), {"--random-input-len", "8"});
  const Words host = joined(command, {"--device", "host"});
  eachRefused(command, {{{"--device", "tpu"}, "--device = \"tpu\""},
                        {{"--graph-seconds", "-1"}, "--graph-seconds = \"-1\""},
                        {{"--graph-memory", "much"}, "--graph-memory = \"much\""},
                        {{"--graph-build", "x"}, "--graph-build = \"x\": expected explicit or capture"},
                        {{"--trace-by", "x"}, "--trace-by = \"x\": expected auto, cupti or stamps"},
                        {{"--link-bandwidth", "3"}, "--link-bandwidth = \"3\""},
                        {{"--temperature", "-1"}, "--temperature = \"-1\""},
                        {{"--top-p", "0.5"}, "--top-p = 0.5: expected --temperature above 0 beside it"},
                        {{"--top-k", "40"}, "--top-k = 40: expected --temperature above 0 beside it"},
                        {{"--min-p", "0.1"}, "--min-p = 0.1: expected --temperature above 0 beside it"},
                        {{"--top-k", "-2"}, "--top-k = \"-2\": expected an integer from -1 to"},
                        {{"--min-p", "1.5"}, "--min-p = \"1.5\": expected 0 to 1"},
                        {{"--repetition-penalty", "0"}, "--repetition-penalty = \"0\": expected 1e-6 to 1e6"},
                        {{"--repeat-penalty", "x"}, "--repeat-penalty = \"x\": expected 1e-6 to 1e6"},
                        {{"--presence-penalty", "2.5"}, "--presence-penalty = \"2.5\": expected -2 to 2"},
                        {{"--frequency-penalty", "-3"}, "--frequency-penalty = \"-3\": expected -2 to 2"},
                        {{"--device", "sim", "--low-latency"}, "--low-latency: expected the host device"},
                        {{"--timeline", path("t.bmp")}, "--timeline = "}});
  eachRefused(host, {{{"--top-p", "1"}, "--top-p = 1: expected --temperature above 0"},
                     {{"--graph-memory", "1GiB"}, "--graph-memory: expected a cuda device"},
                     {{"--stop-ids", "9999999"}, "--stop-ids = 9999999: expected token ids from 0 to"},
                     {{"--stop-ids", "x"}, "--stop-ids"},
                     {{"--placement", "4"}, "--placement = 4: expected less than 4"},
                     {{"--placements", "9", "--slo-factor", "2", "--placement", "9"}, "--placement = 9: expected less"},
                     {{"--num-prompts", "1e9"}, "at most 2^31 tokens"},
                     {{}, "expected --synthetic-weights SEED"},
                     {{"--weights", path("missing")}, "--weights = "},
                     {{"--weights", golden("opt-7-tied-f32")}, "expected the plan's model"},
                     {{"--weights", folder, "--synthetic-weights", "1"}, "--weights beside --synthetic-weights"},
                     {{"--verify-weights", "--synthetic-weights", "1"}, "--verify-weights beside --synthetic-weights"},
                     {{"--batch", "2", "--max-num-seqs", "3"}, "--max-num-seqs = 3: expected 1 to 2, the plan's batch"},
                     {{"--batch", "2", "--max-num-batched-tokens", "1"}, "--max-num-batched-tokens = 1: expected at"},
                     {{"--context", "16", "--max-new-tokens", "9"}, "more than the plan's context of 16"}});
  refused(joined(command, {"--device", "sim", "--logits", path("l.safetensors")}), 1, "holds no data");
  const Words ids = joined(joined({"run"}, impossible), {"--device", "sim"});
  eachRefused(ids, {{{"--prompt-ids", "1,9999999"}, "token id 9999999 at position 1 is outside the vocabulary"},
                    {{"--prompt-ids", "1,a"}, "expected a token id"},
                    {{"--prompt-ids", "1", "--num-prompts", "2"}, "--num-prompts = 2: expected --random-input-len"},
                    {{}, "expected one of --prompt, --prompt-file, --prompts and --messages, or --prompt-ids"}});
  refused({"run"}, 2, "no model: expected a folder, a shape, or a job file");
  refused({"run", golden("opt-7-tied-f32"), "--hardware", "host", "--device-memory", "1KiB", "--prompt-ids", "1",
           "--verify-weights"},
          2, "the plan has no hash of its weights");
}

TEST_F(FlagsFirst, OfCompile) {
  eachRefused(joined({"compile"}, impossible),
              {{{}, "no --output FILE"},
               {{"--dry-run", "--dump-each-pass"}, "--dump-each-pass: expected --dump-ir"},
               {{"--dry-run", "--verify-weights"}, "has no weights: expected a model folder"},
               {{"--dry-run", "--kv-tokens", "1099511627776"}, "--kv-tokens = 1099511627776: expected at most"},
               {{"-o", folder}, "--output"}});
}

TEST_F(FlagsFirst, OfBench) {
  const Words command = joined({"bench", "--input-len", "8", "--output-len", "4", "--rounds", "1"}, impossible);
  eachRefused(command, {{{"--device", "sim", "--policies", "none,fastest"}, "--policies \"fastest\": policy.name = "},
                        {{"--device", "sim", "--policies", "none,interval=x"}, "--policies \"interval=x\""},
                        {{"--device", "sim", "--policies", "none,interval=99"}, "at most the 32 layers"},
                        {{"--device", "sim", "--policies", ","}, "--policies = \",\""},
                        {{"--device", "sim", "--batches", "8,x"}, "--batches = \"8,x\""},
                        {{"--device", "sim", "--low-latency"}, "--low-latency: expected the host device"},
                        {{"--instances", "x"}, "--instances = \"x\": expected apart or together"},
                        {{"--phase", "x"}, "--phase = \"x\": expected both, prefill or decode"},
                        {{"--instances", "together", "--phase", "decode"}, "--phase = \"decode\": expected both"},
                        {{"--device", "host"}, "expected --synthetic-weights SEED"},
                        {{"--device", "host", "--weights", path("missing")}, "--weights = "},
                        {{"--device", "sim", "--svg", folder}, "--svg"}});
}

TEST_F(FlagsFirst, OfBenchServe) {
  const Words command = joined({"bench", "serve", "--num-prompts", "4"}, impossible), sim = {"--device", "sim"};
  refused(joined(command, sim), 1, "device memory of 1048576 bytes");
  eachRefused(joined(command, sim), {{{"--request-rate", "0"}, "--request-rate = \"0\""},
                                     {{"--dataset-name", "trace", "--dataset-path", path("missing")}, "missing"},
                                     {{"--goodput", "speed:3"}, "--goodput"},
                                     {{"--random-input-len", "4096"}, "more than the context of 2048"},
                                     {{"--max-num-seqs", "3", "--batch", "2"}, "--max-num-seqs = 3: expected 1 to 2"},
                                     {{"--placement", "4"}, "--placement = 4: expected less than 4"},
                                     {{"--low-latency"}, "--low-latency: expected the host device"},
                                     {{"--svg", folder}, "--svg"}});
  eachRefused(joined(command, {"--device", "host"}),
              {{{"--max-num-seqs", "3", "--batch", "2"}, "--max-num-seqs = 3: expected 1 to 2"},
               {{"--placement", "4"}, "--placement = 4: expected less than 4"},
               {{}, "expected --synthetic-weights SEED"}});
}

TEST_F(FlagsFirst, OfProfile) {
  eachRefused(joined({"profile"}, impossible),
              {{{"--device", "sim"}, "no --output FILE"},
               {{"--device", "sim", "-o", path("r.toml"), "--batches", "3"}, "--batches = \"3\""},
               {{"--device", "sim", "-o", path("r.toml"), "--low-latency"}, "--low-latency: expected the host device"},
               {{"--device", "sim", "-o", path("r.toml"), "--trace-by", "x"}, "--trace-by = \"x\""}});
}

// The first device's job cannot be met; what is wrong is said of the second one, of the requests or of the weights.
TEST_F(FlagsFirst, OfFleet) {
  const std::string model = "[model]\nshape = \"opt-6.7b\"\n[hardware]\nfile = \"host\"\n";
  writeText(path("job.toml"), model + "[goal]\ndevice_memory = \"1MiB\"\n");
  writeText(path("bad.toml"), model + "[goal]\nbatch = 0\n");
  const auto fleet = [&](const std::string &second, const std::string &asked) {
    writeText(path("fleet.toml"),
              "[bus]\nbandwidth = \"2GB/s\"\n[[device]]\nname = \"a\"\njob = \"job.toml\"\n[[device]]\nname = "
              "\"b\"\njob = \"" +
                  second + "\"\n[[requests]]\nmodel = \"" + asked +
                  "\"\ncount = 1\nevery = \"1ms\"\nbatch = 1\ninput_len = 8\noutput_len = 6\nttft = \"30s\"\ntpot = "
                  "\"1s\"\n");
    return path("fleet.toml");
  };
  refused({"fleet", fleet("job.toml", "opt-6.7b")}, 1, "cannot hold");
  refused({"fleet", fleet("bad.toml", "opt-6.7b")}, 2, "goal.batch = 0");
  refused({"fleet", fleet("job.toml", "gpt-2")}, 2, "requests.model = \"gpt-2\"");
  const std::string whole = fleet("job.toml", "opt-6.7b");
  refused({"fleet", whole, "--device", "tpu"}, 2, "--device = \"tpu\"");
  refused({"fleet", whole, "--policy", "fastest"}, 2, "\"fastest\"");
  refused({"fleet", whole, "--placements", "0"}, 2, "--placements = 0");
  refused({"fleet", whole, "--device", "host"}, 2, "expected --synthetic-weights SEED");
}

} // namespace
} // namespace headrace::tools
