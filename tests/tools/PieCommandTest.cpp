// SPDX-License-Identifier: Apache-2.0
//
// Pie as a user of the command line asks for it: layers' KV caches swapped whole. Seven layers; a layer's cache is 33
// blocks of 3 KiB, 101376 bytes.
#include <gmock/gmock.h>

#include "tests/support/Process.h"

namespace headrace::tools {
namespace {

using testing::HasSubstr;
using testing::Not;

class Pie : public CommandLine {
protected:
  static std::vector<std::string> arguments(const std::string &command, const std::vector<std::string> &more) {
    std::vector<std::string> all = {command,       golden("llama-7-gqa-llama3-f32"),
                                    "--hardware",  "host",
                                    "--batch",     "8",
                                    "--context",   "64",
                                    "--sequences", "8",
                                    "--contexts",  "64"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
};

TEST_F(Pie, TheMappingIsPrinted) {
  const std::string plan = path("pie.plan");
  const Outcome o = headrace(arguments("compile", {"--policy", "pie", "--kv-device-memory", "500KB", "-o", plan}));
  ASSERT_EQ(o.status, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("Caches of 3 of 7 layers are away at a time, 4 places of 99.00 KiB on the device"));
  EXPECT_THAT(o.out, HasSubstr(" --policy pie"));
  const Outcome mapping = headrace({"inspect", plan, "--mapping"});
  EXPECT_EQ(mapping.status, 0) << mapping.err;
  EXPECT_THAT(mapping.out, HasSubstr("Caches of 7 layers in 4 places, decode of 8 sequences at context 64"));
  EXPECT_THAT(mapping.out, HasSubstr("\nat        layer  0 1 2 3 4 5 6   swaps that begin\n"));
  EXPECT_THAT(mapping.out, HasSubstr("phase 0, as each layer starts"));
  EXPECT_THAT(mapping.out, Not(HasSubstr("phase 1, as each")));
  const nlohmann::json report = json({"inspect", plan, "--mapping", "--json"});
  EXPECT_EQ(report["places"].size(), 4u);
  EXPECT_EQ(report["homes"].size(), 7u);
  // What a phase swaps makes its entry the next one's.
  const size_t period = report["phases"].size();
  for (size_t phase = 0; phase < period; ++phase) {
    nlohmann::json places = report["phases"][phase]["entry"];
    for (const nlohmann::json &swap : report["phases"][phase]["swaps"]) {
      nlohmann::json &place = places[swap["place"].get<size_t>()];
      EXPECT_EQ(place.is_null(), swap["direction"] == "h2d") << phase << " " << swap;
      place = swap["direction"] == "h2d" ? swap["layer"] : nlohmann::json();
    }
    EXPECT_EQ(places, report["phases"][(phase + 1) % period]["entry"]) << phase;
  }
}

TEST_F(Pie, TokensAreThoseOfTheResidentRun) {
  const std::vector<std::string> run = {"--prompt-ids", "5,6,7,8;9,10;11", "--max-new-tokens", "40"};
  const auto tokens = [&](const std::vector<std::string> &more) {
    std::vector<std::string> all = run;
    all.insert(all.end(), more.begin(), more.end());
    return json(arguments("run", all))["tokens"];
  };
  const nlohmann::json resident = tokens({});
  ASSERT_EQ(resident.size(), 3u);
  for (const char *places : {"2", "4", "6"})
    EXPECT_EQ(tokens({"--policy", "pie", "--kv-places", places}), resident) << places;
}

TEST_F(Pie, WhatCannotBeIsRefusedByFlag) {
  const Outcome small = headrace(arguments("compile", {"--policy", "pie", "--kv-device-memory", "200KB", "--dry-run"}));
  EXPECT_EQ(small.status, 2);
  EXPECT_THAT(small.err, HasSubstr("--kv-device-memory"));
  EXPECT_THAT(small.err, HasSubstr("at least 202752 bytes, two places of a layer's cache"));
  const Outcome all = headrace(arguments("compile", {"--policy", "pie", "--kv-places", "7", "--dry-run"}));
  EXPECT_EQ(all.status, 2);
  EXPECT_THAT(all.err, HasSubstr("less than the 7 layers of "));
  const Outcome host =
      headrace(arguments("compile", {"--policy", "pie", "--kv-places", "4", "--kv-host-memory", "1KiB", "--dry-run"}));
  EXPECT_EQ(host.status, 1);
  EXPECT_THAT(host.err, HasSubstr("cannot hold the KV blocks that are not on the device: the minimum is "));
  const Outcome none = headrace(arguments("compile", {"--policy", "pies", "--dry-run"}));
  EXPECT_EQ(none.status, 2);
  EXPECT_THAT(none.err, HasSubstr("pie"));
}

// A plan without it has nothing to print.
TEST_F(Pie, NoMappingWhereNoCacheMoves) {
  const std::string plan = path("still.plan");
  ASSERT_EQ(headrace(arguments("compile", {"-o", plan})).status, 0);
  const Outcome o = headrace({"inspect", plan, "--mapping"});
  EXPECT_EQ(o.status, 0);
  EXPECT_THAT(o.out, HasSubstr("all caches stay on the device"));
}

} // namespace
} // namespace headrace::tools
