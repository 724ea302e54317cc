// SPDX-License-Identifier: Apache-2.0
//
// headrace fleet: several devices, requests, one coordinator.
#include <gmock/gmock.h>

#include "tests/tools/Process.h"

namespace headrace::tools {
namespace {

using testing::HasSubstr;

const std::string kExample = std::string(HEADRACE_SOURCE_DIR) + "/examples/fleets/two-on-one-bus.toml";

class FleetCommand : public CommandLine {
protected:
  // Two devices that serve a tiny model of seven layers.
  std::string fleetOf(const std::string &more) const {
    writeText(path("job.toml"), "[model]\npath = \"" + golden("opt-7-tied-f32") +
                                    "\"\n[hardware]\nfile = \"host\"\nh2d_bandwidth = \"2GB/s\"\n"
                                    "[goal]\nbatch = 2\ncontext = 32\nslo_factor = 4\n[policy]\nplacements = 4\n");
    writeText(path("fleet.toml"), "[bus]\nbandwidth = \"2GB/s\"\n[[device]]\nname = \"a\"\njob = \"job.toml\"\n"
                                  "[[device]]\nname = \"b\"\njob = \"job.toml\"\n" +
                                      more);
    return path("fleet.toml");
  }
  std::string requests(const std::string &model, const std::string &tpot) const {
    return "[[requests]]\nmodel = \"" + model +
           "\"\ncount = 6\nevery = \"1ms\"\nbatch = [1, 2]\ninput_len = 8\noutput_len = 6\nttft = \"30s\"\ntpot = \"" +
           tpot + "\"\n";
  }
};

TEST_F(FleetCommand, TheExampleHoldsEveryAdmittedObjectiveButWhileTheBusIsLost) {
  const nlohmann::json j = json({"fleet", kExample, "--json"});
  EXPECT_EQ(j["requests"].size(), 40U);
  EXPECT_GT(j["admitted"], 30);
  EXPECT_EQ(j["late_by_cause"]["other"], 0);
  EXPECT_EQ(j["late_by_cause"]["kv_blocks"], 0);
  EXPECT_GT(j["changes"], 0);
  EXPECT_GE(j["bandwidth_losses"], 1);
  EXPECT_GT(j["freed_bytes"], 1e9);
  // The same input, the same run.
  EXPECT_EQ(json({"fleet", kExample, "--json"}), j);
}

TEST_F(FleetCommand, RunsRealDataOnTheHost) {
  const Outcome o = headrace({"fleet", fleetOf(requests("opt-7-tied-f32", "10s")), "--device", "host", "--each"});
  EXPECT_EQ(o.status, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("request 5"));
  EXPECT_THAT(o.out, HasSubstr("6: 6 admitted, 0 refused"));
}

TEST_F(FleetCommand, ARefusalSaysWhatWouldDo) {
  const Outcome o = headrace({"fleet", fleetOf(requests("opt-7-tied-f32", "1ns")), "--each"});
  EXPECT_EQ(o.status, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("refused: "));
  EXPECT_THAT(o.out, HasSubstr("0 admitted, 6 refused"));
}

TEST_F(FleetCommand, WithoutACoordinatorNothingIsRefusedAndEverythingIsMeasured) {
  const nlohmann::json j = json({"fleet", fleetOf(requests("opt-7-tied-f32", "1ns")), "--json", "--policy", "deepspeed",
                                 "--placements", "1", "--no-coordinator"});
  EXPECT_EQ(j["admitted"], 6);
  EXPECT_EQ(j["held"], 0);
  EXPECT_EQ(j["changes"], 0);
  for (const auto &request : j["requests"])
    EXPECT_GT(request["late"], 0);
}

TEST_F(FleetCommand, RefusesBadInput) {
  const std::string whole = fleetOf(requests("opt-7-tied-f32", "1s"));
  refused({"fleet", path("none.toml")}, 2, "none.toml");
  refused({"fleet", whole, "--device", "tpu"}, 2, "--device tpu");
  refused({"fleet", whole, "--policy", "fastest"}, 2, "\"fastest\"");
  refused({"fleet", whole, "--no-coordinator"}, 2, "--no-coordinator: the plan of a has");
  const std::string other = fleetOf(requests("gpt-2", "1s"));
  refused({"fleet", other}, 2, "requests.model = \"gpt-2\"");
  const std::string none = fleetOf("");
  refused({"fleet", none}, 2, "at least one [[requests]]");
}

} // namespace
} // namespace headrace::tools
