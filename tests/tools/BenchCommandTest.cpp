// SPDX-License-Identifier: Apache-2.0
//
// headrace bench: several policies in one run.
#include <gmock/gmock.h>

#include "tests/tools/Process.h"

namespace headrace::tools {
namespace {

using testing::HasSubstr;

class BenchCommand : public CommandLine {};

TEST_F(BenchCommand, ComparesOnTheSimDevice) {
  const nlohmann::json j =
      json({"bench", "opt-6.7b", "--hardware", "a10", "--device", "sim", "--policies", "none,deepspeed", "--batches",
            "1,4", "--input-len", "64", "--output-len", "4", "--json", "--svg", path("b.svg")});
  ASSERT_EQ(j["rows"].size(), 4U); // 2 policies x 2 batches
  EXPECT_EQ(j["rows"][0]["policy"], "none");
  EXPECT_EQ(j["rows"][0]["host_bytes"], 0);
  EXPECT_EQ(j["rows"][0]["moved_bytes"], 0);
  EXPECT_EQ(j["rows"][1]["decode_offloaded_layers"], 32);
  // All layers over the link in each iteration: 24 GB/s.
  const double moved = j["rows"][1]["moved_bytes"];
  EXPECT_GE(j["rows"][1]["tpot"]["p50_ms"].get<double>(), moved / 24e9 * 1e3 * 0.999);
  EXPECT_GT(j["rows"][1]["link_busy"].get<double>(), 0.9);
  EXPECT_GT(j["rows"][1]["max_tokens"], j["rows"][0]["max_tokens"]);
  EXPECT_THAT(readFile(path("b.svg")), HasSubstr("</svg>"));
}

TEST_F(BenchCommand, RunsRealDataOnTheHost) {
  const Outcome o = headrace({"bench", golden("opt-7-tied-f32"), "--policies", "none,interval", "--batches", "2",
                              "--input-len", "8", "--output-len", "4", "--rounds", "1"});
  EXPECT_EQ(o.status, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("device host"));
  EXPECT_THAT(o.out, HasSubstr("\ninterval "));
}

TEST_F(BenchCommand, APolicyThatCannotRunIsARowThatSaysWhy) {
  const nlohmann::json j = json({"bench", "opt-30b", "--hardware", "a10", "--device", "sim", "--policies",
                                 "none,interval", "--batches", "1", "--output-len", "4", "--json"});
  EXPECT_THAT(j["rows"][0]["refused"].get<std::string>(), HasSubstr("minimum"));
  EXPECT_TRUE(j["rows"][1]["refused"].is_null());
}

TEST_F(BenchCommand, RefusesBadFlags) {
  refused({"bench", "opt-6.7b", "--hardware", "a10", "--policies", "fastest"}, 2, "\"fastest\"");
  refused({"bench", "opt-6.7b", "--hardware", "a10", "--policies", ""}, 2, "--policies");
  refused({"bench", "opt-6.7b", "--hardware", "a10", "--batches", "0"}, 2, "--batches 0");
  refused({"bench", "opt-6.7b", "--hardware", "a10", "--batches", "4,x"}, 2, "--batches 4,x");
  refused({"bench", "opt-6.7b", "--hardware", "a10", "--output-len", "1"}, 2, "--output-len 1");
  refused({"bench", "opt-6.7b", "--hardware", "a10", "--rounds", "0"}, 2, "--rounds 0");
  refused({"bench", "opt-6.7b", "--hardware", "a10", "--device", "tpu"}, 2, "--device tpu");
  refused({"bench", "opt-6.7b", "--hardware", "a10", "--svg", path("no/such/folder.svg")}, 2, "folder.svg");
}

} // namespace
} // namespace headrace::tools
