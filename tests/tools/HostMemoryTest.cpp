// SPDX-License-Identifier: Apache-2.0
//
// The host's memory bounds what may be offloaded, whichever policy chooses it; the minima that are named do.
#include <gmock/gmock.h>

#include "tests/support/Process.h"

namespace headrace::tools {
namespace {

using testing::HasSubstr;

class HostMemory : public CommandLine {
protected:
  static std::vector<std::string> opt(std::vector<std::string> more) {
    std::vector<std::string> words = {"compile", "opt-6.7b",  "--hardware", "a10",      "--batch",
                                      "16",      "--context", "64",         "--dry-run"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  static uint64_t hostBytes(std::vector<std::string> more) {
    return json(opt(std::move(more)))["host_bytes"].get<uint64_t>();
  }
};

// A looser objective frees more, up to what the host holds.
TEST_F(HostMemory, ALooseObjectiveIsMetAsWellAsATightOne) {
  for (const char *policy : {"headrace", "select-n", "flexgen"}) {
    SCOPED_TRACE(policy);
    uint64_t before = 0;
    for (const char *tpot : {"60ms", "100ms", "500ms", "5s"}) {
      const uint64_t bytes = hostBytes({"--tpot", tpot, "--host-memory", "3GiB", "--policy", policy});
      EXPECT_LE(bytes, 3u << 30);
      EXPECT_GE(bytes, before);
      before = bytes;
    }
    EXPECT_GT(before, 1u << 30);
  }
  // Next to none: everything stays, which keeps any objective.
  EXPECT_EQ(hostBytes({"--slo-factor", "1.5", "--host-memory", "1MiB"}), 0u);
  EXPECT_LE(hostBytes({"--slo-factor", "3", "--placements", "4", "--host-memory", "1GiB"}), 1u << 30);
}

TEST_F(HostMemory, WhatBindsIsNamed) {
  const Outcome o = headrace(opt({"--tpot", "500ms", "--host-memory", "3GiB", "--policy", "headrace"}));
  EXPECT_THAT(o.out, HasSubstr("the host memory holds no more"));
  const Outcome little =
      headrace(opt({"--tpot", "500ms", "--host-memory", "1GiB", "--device-memory", "8GiB", "--policy", "headrace"}));
  EXPECT_EQ(little.status, 1);
  EXPECT_THAT(little.err, HasSubstr("; all with at most the host memory of 1073741824 bytes (1.00 GiB) offloaded"));
}

// Both memories are named, the host's first: it is what the device's would have to make up for; more than there is of
// the device is said to be that.
TEST_F(HostMemory, ARefusalNamesBothMemories) {
  const Outcome both = headrace({"compile", "opt-6.7b", "--hardware", "a10", "--memory", "4GiB", "--host-memory",
                                 "1GiB", "--batch", "2", "--context", "64", "--dry-run"});
  EXPECT_EQ(both.status, 1);
  EXPECT_THAT(both.err, HasSubstr("host memory of 1073741824 bytes (1.00 GiB) and device memory of 4294967296 bytes "
                                  "(4.00 GiB) together cannot hold opt-6.7b at batch 2 and context 64: "));
  EXPECT_THAT(both.err, HasSubstr("; there are 1.00 GiB by --host-memory or the profile a10), or a device memory of "));
  EXPECT_THAT(both.err,
              HasSubstr(", more than the 4.00 GiB of a10, or a smaller KV cache (a shorter context, a smaller "
                        "batch, fewer kv_tokens)"));
  const Outcome nowhere = headrace(
      {"compile", "opt-6.7b", "--hardware", "a10", "--kv-device-memory", "0B", "--kv-host-memory", "0B", "--dry-run"});
  EXPECT_EQ(nowhere.status, 2);
  EXPECT_THAT(nowhere.err, HasSubstr("--kv-host-memory = 0B: expected more than 0B where kv_device_memory is 0B"));
}

TEST_F(HostMemory, ARefusalNamesTheMinimum) {
  const std::vector<std::string> asked = {"--device-memory", "8GiB", "--host-memory"};
  const auto with = [&](const std::string &memory) {
    std::vector<std::string> words = asked;
    words.push_back(memory);
    return headrace(opt(words));
  };
  const Outcome refused = with("1GiB");
  EXPECT_EQ(refused.status, 1);
  const std::string before = "a host memory of ";
  const uint64_t least = std::stoull(refused.err.substr(refused.err.find(before) + before.size()));
  EXPECT_EQ(with(std::to_string(least) + "B").status, 0);
  EXPECT_EQ(with(std::to_string(least - 1) + "B").status, 1);
  EXPECT_THAT(headrace(opt({"--policy", "deepspeed", "--host-memory", "8GiB"})).err,
              HasSubstr("cannot hold what is offloaded of opt-6.7b: the minimum is 12889882624 bytes"));
}

} // namespace
} // namespace headrace::tools
