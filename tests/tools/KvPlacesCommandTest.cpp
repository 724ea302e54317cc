// SPDX-License-Identifier: Apache-2.0
//
// Places that tails of KV caches cycle through, as a user of the command line asks for them and hears of them: 7
// layers in 3 places are a cycle of 15 iterations (SplitKvCommandTest.cpp has the model's cache).
#include <gmock/gmock.h>

#include "tests/support/Process.h"

namespace headrace::tools {
namespace {

using testing::HasSubstr;

constexpr const char *kModel = "llama-7-gqa-llama3-f32";

class KvPlaces : public CommandLine {
protected:
  static std::vector<std::string> arguments(const std::vector<std::string> &more) {
    std::vector<std::string> all = {"compile",   golden(kModel), "--hardware",  "host", "--batch",    "8",
                                    "--context", "64",           "--sequences", "8",    "--contexts", "64"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
};

TEST_F(KvPlaces, ThePlanGoesRoundAndSaysSo) {
  const std::string plan = path("round.plan");
  const Outcome o = headrace(
      arguments({"--kv-device-memory", "345KiB", "--kv-places", "3", "--kv-write-back", "mirror", "-o", plan}));
  ASSERT_EQ(o.status, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("Tails of 7 layers cycle through 3 places in 15 iterations: "));
  const Outcome inspected = headrace({"inspect", plan, "--all"});
  EXPECT_EQ(inspected.status, 0) << inspected.err;
  EXPECT_THAT(inspected.out, HasSubstr("KV cycle         of 15 iterations; decode moves up to "));
  EXPECT_THAT(inspected.out, HasSubstr(", phase 14 of 15 "));
  // 29 blocks of a layer are 89088 bytes; 7 x 4 / 5 of them an iteration.
  uint64_t bytes = 0;
  const nlohmann::json report = json({"inspect", plan, "--json"});
  for (const nlohmann::json &variant : report["variants"])
    if (variant["key"]["period"] == 15 && variant["key"]["new_tokens"] == 8)
      bytes += variant["h2d_bytes"].get<uint64_t>();
  EXPECT_EQ(bytes, 15 * 7 * 4 / 5 * 89088);
  for (const char *phase : {"0", "14"}) {
    const Outcome drawn = headrace({"timeline", plan, "--phase", phase});
    EXPECT_EQ(drawn.status, 0) << drawn.err;
    EXPECT_THAT(drawn.out, HasSubstr(std::string(", phase ") + phase + " of 15"));
  }
  const Outcome beyond = headrace({"timeline", plan, "--phase", "15"});
  EXPECT_EQ(beyond.status, 2);
  EXPECT_THAT(beyond.err, HasSubstr("one of the 15 phases of variant "));
}

TEST_F(KvPlaces, ItIsAskedForInAJobFileAsWell) {
  writeText(path("job.toml"), "[model]\npath = \"" + golden(kModel) +
                                  "\"\n[goal]\nbatch = 8\ncontext = 64\nkv_device_memory = \"345KiB\"\n"
                                  "[policy]\nkv_places = 3\nkv_write_back = \"mirror\"\n"
                                  "[buckets]\nsequences = [8]\ncontexts = [64]\n");
  const nlohmann::json file = json({"compile", path("job.toml"), "--hardware", "host", "--dry-run"});
  const nlohmann::json flags =
      json(arguments({"--kv-device-memory", "345KiB", "--kv-places", "3", "--kv-write-back", "mirror", "--dry-run"}));
  EXPECT_EQ(file["variants"], flags["variants"]);
  EXPECT_THAT(flags["command"].get<std::string>(), HasSubstr(" --kv-places 3 "));
}

TEST_F(KvPlaces, WhatDoesNotCycleIsRefused) {
  for (const auto &[places, why] :
       {std::pair("1", "expected an integer from 2 to "), std::pair("7", "less than the 7 layers of "),
        std::pair("x", "expected an integer from 2 to ")}) {
    const Outcome o = headrace(arguments({"--kv-device-memory", "345KiB", "--kv-places", places, "--dry-run"}));
    EXPECT_EQ(o.status, 2) << places;
    EXPECT_THAT(o.err, HasSubstr("--kv-places")) << places;
    EXPECT_THAT(o.err, HasSubstr(why)) << places;
  }
  const Outcome whole = headrace(arguments({"--kv-places", "3", "--dry-run"}));
  EXPECT_EQ(whole.status, 2);
  EXPECT_THAT(whole.err, HasSubstr("all of them fit, and nothing cycles"));
}

} // namespace
} // namespace headrace::tools
