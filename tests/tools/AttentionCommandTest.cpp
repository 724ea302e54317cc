// SPDX-License-Identifier: Apache-2.0
//
// Attention on the CPU (--attention cpu), as a user of the command line asks for it and hears of it.
//
// The model's cache: a row is 2 x 24 x 4 = 192 bytes a layer; q, k and v of a row 96 x 4 = 384, of q alone 192.
#include <gmock/gmock.h>

#include "tests/support/Process.h"

namespace headrace::tools {
namespace {

using testing::HasSubstr;

constexpr const char *kModel = "llama-7-gqa-llama3-f32";

class AttentionCommand : public CommandLine {
protected:
  static std::vector<std::string> arguments(const char *command, const std::vector<std::string> &more) {
    std::vector<std::string> all = {command, golden(kModel), "--hardware", "host", "--batch", "4", "--context", "64"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  static std::vector<std::string> onCpu(const char *command, std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"--kv-device-memory", "0B", "--attention", "cpu"});
    return arguments(command, more);
  }
};

// Fewer bytes come in than the caches have, and the tokens are those of the device.
TEST_F(AttentionCommand, TokensAreThoseOfTheDevice) {
  const std::vector<std::string> prompts = {"--prompt-ids", "1,2,3;4,5,6,7,8;6;7,8,9,10", "--max-new-tokens", "20",
                                            "--json"};
  const auto ran = [&](std::vector<std::string> more) {
    more.insert(more.end(), prompts.begin(), prompts.end());
    return json(arguments("run", more));
  };
  const nlohmann::json device = ran({"--kv-device-memory", "0B"});
  for (const char *miniBatches : {"1", "2", "4"}) {
    const nlohmann::json cpu =
        ran({"--kv-device-memory", "0B", "--attention", "cpu", "--mini-batches", miniBatches, "--threads", "2"});
    EXPECT_EQ(cpu["tokens"], device["tokens"]) << miniBatches;
    EXPECT_LT(cpu["h2d_bytes"], device["h2d_bytes"]);
    EXPECT_GT(cpu["d2h_bytes"], device["d2h_bytes"]);
  }
  EXPECT_EQ(ran({"--kv-device-memory", "0B", "--attention", "cpu", "--interval", "2"})["tokens"], device["tokens"]);
}

TEST_F(AttentionCommand, TheReportTheTimelineAndTheFlagsSayIt) {
  const std::string plan = path("cpu.plan");
  const Outcome o = headrace(onCpu("compile", {"-o", plan}));
  ASSERT_EQ(o.status, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr(" --attention cpu "));
  EXPECT_THAT(o.out, HasSubstr("offloaded      all KV blocks, which the CPU attends to"));
  EXPECT_THAT(o.out, HasSubstr("at home on the host (")); // and of it:
  EXPECT_THAT(o.out, HasSubstr("brought for prompts alone through slots of "));
  // Of 4 rows in 7 layers: 4 x 7 x 192 = 5376 bytes come in, and no cache does.
  EXPECT_THAT(o.out, HasSubstr("(5.25 KiB h2d, "));
  const Outcome timeline = headrace({"timeline", plan});
  EXPECT_EQ(timeline.status, 0) << timeline.err;
  EXPECT_THAT(timeline.out, HasSubstr("\ncpu "));
  EXPECT_EQ(headrace({"inspect", plan}).status, 0);
  // As a job file.
  writeText(path("job.toml"), "[model]\npath = \"" + golden(kModel) +
                                  "\"\n[hardware]\nfile = \"host\"\n[goal]\nbatch = 4\ncontext = 64\n"
                                  "kv_device_memory = \"0B\"\n[policy]\nattention = \"cpu\"\n");
  EXPECT_EQ(json({"compile", path("job.toml"), "--dry-run", "--json"})["plan_hash"],
            json(onCpu("compile", {"--dry-run", "--json"}))["plan_hash"]);
}

TEST_F(AttentionCommand, WhatItDoesNotStandBesideIsRefused) {
  const auto notBeside = [&](const std::vector<std::string> &more, const std::string &expected) {
    std::vector<std::string> asked = more;
    asked.push_back("--dry-run");
    refused(arguments("compile", asked), 2, expected);
  };
  const std::string zero = "--kv-device-memory";
  notBeside({"--attention", "gpu"}, "--attention = \"gpu\": expected device, cpu or auto");
  notBeside({"--attention", "cpu"}, "--attention = \"cpu\": expected --kv-device-memory = \"0B\" beside it: the CPU "
                                    "attends to caches that are wholly at home on the host");
  notBeside({"--attention", "cpu", zero, "345KiB"}, "--attention = \"cpu\": expected --kv-device-memory = \"0B\"");
  notBeside({"--attention", "cpu", zero, "0B", "--residuals", "host"},
            "--attention = \"cpu\" beside --residuals = \"host\": expected one of them: residual streams stay");
  notBeside({"--attention", "cpu", zero, "0B", "--act-ratio", "1/2"},
            "--attention = \"cpu\" beside --act-ratio = 1/2: expected one of them: the CPU has no keys and values");
  notBeside({"--attention", "cpu", zero, "0B", "--expansion", "2"}, "--attention = \"cpu\" beside --expansion = 2");
  notBeside({"--attention", "cpu", zero, "0B", "--policy", "pie"}, "--attention = \"cpu\" beside --policy = \"pie\"");
  refused({"compile", golden(kModel), "--hardware", "a10", "--attention", "cpu", zero, "0B", "--dry-run"}, 2,
          "--attention = \"cpu\": expected --cpu-cores, --cpu-flops, --cpu-memory-bandwidth and --cpu-core-bandwidth "
          "beside it: a10 says nothing of its CPU (headrace profile --cpu measures it)");
  refused({"compile", golden(kModel), "--hardware", "a10", "--cpu-cores", "8", "--dry-run"}, 2,
          "--cpu-flops is missing: expected a positive finite rate such as \"125TFLOP/s\", as other keys of the CPU");
  notBeside({"--attention", "auto", zero, "345KiB"}, "--attention = \"auto\": expected --kv-device-memory = \"0B\" or "
                                                     "none beside it");
  notBeside({"--attention", "auto", "--slo-factor", "2"}, "--attention = \"auto\": expected \"device\" or \"cpu\" "
                                                          "beside --slo-factor");
  notBeside({"--attention", "auto", "--policy", "interval"}, "policy \"interval\" does not weigh it");
  notBeside({"--attention", "auto", "--residuals", "host"}, "--attention = \"auto\" beside --residuals = ");
  writeText(path("job.toml"), "[model]\npath = \"" + golden(kModel) +
                                  "\"\n[goal]\nbatch = 8\nkv_device_memory = \"0B\"\n[policy]\nattention = \"gpu\"\n");
  refused({"compile", path("job.toml"), "--dry-run"}, 2,
          "job.toml:7: policy.attention = \"gpu\": expected device, cpu or auto");
  const Outcome small = headrace(onCpu("compile", {"--device-memory", "64KiB", "--dry-run"}));
  EXPECT_EQ(small.status, 1);
  EXPECT_THAT(small.err, HasSubstr("the minimum is "));
}

TEST_F(AttentionCommand, CardsOfAFleetShareOneCpu) {
  writeText(path("job.toml"), "[model]\npath = \"" + golden(kModel) +
                                  "\"\n[hardware]\nfile = \"a100-40\"\n[goal]\nbatch = 2\ncontext = 32\n"
                                  "kv_device_memory = \"0B\"\ntpot = \"1s\"\n[policy]\nname = \"joint\"\n"
                                  "attention = \"cpu\"\n");
  const std::string device = "[[device]]\nname = \"a\"\njob = \"job.toml\"\n";
  const std::string requests = "[[requests]]\nmodel = \"llama-7-gqa-llama3-f32\"\ncount = 1\nevery = \"1ms\"\n"
                               "batch = [1, 2]\ninput_len = 8\noutput_len = 6\nttft = \"30s\"\ntpot = \"1s\"\n";
  writeText(path("fleet.toml"),
            "[bus]\nbandwidth = \"2GB/s\"\n" + device + "[[device]]\nname = \"b\"\njob = \"job.toml\"\n" + requests);
  refused({"fleet", path("fleet.toml")}, 2,
          "its plan attends on the CPU, expected attention = \"device\": devices of a fleet share one CPU");
}

} // namespace
} // namespace headrace::tools
