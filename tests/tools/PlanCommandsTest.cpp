// SPDX-License-Identifier: Apache-2.0
//
// inspect and timeline, and plans that are damaged.
#include <gmock/gmock.h>

#include "tests/support/Process.h"

namespace headrace::tools {
namespace {

using testing::HasSubstr;

class PlanCommands : public CommandLine {
protected:
  PlanCommands() {
    EXPECT_EQ(headrace({"compile", golden("qwen2-7-tied-f32"), "--hardware", "host", "--batch", "2", "--context", "64",
                        "--interval", "2", "-o", file})
                  .status,
              0);
  }
  const std::string file = path("out.plan");
};

TEST_F(PlanCommands, InspectShowsWhereEverythingIsAndWhy) {
  const Outcome o = headrace({"inspect", file});
  EXPECT_EQ(o.status, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("3 layers (interval 2)"));
  EXPECT_THAT(o.out, HasSubstr("reason"));
  EXPECT_THAT(o.out, HasSubstr("h2d/iter"));
}

TEST_F(PlanCommands, LongTablesAreFoldedAndAllShowsThem) {
  ASSERT_EQ(headrace({"compile", golden("qwen2-7-tied-f32"), "--hardware", "host", "--batch", "8", "--context", "64",
                      "--interval", "2", "--new-tokens", "8,16,32", "--sequences", "1,2,4,8", "--contexts", "16,32,64",
                      "-o", file})
                .status,
            0);
  const size_t variants = json({"inspect", file})["variants"].size();
  ASSERT_GT(variants, 24u);
  const Outcome folded = headrace({"inspect", file}), whole = headrace({"inspect", file, "--all"});
  EXPECT_THAT(folded.out, HasSubstr("\n... " + std::to_string(variants - 16) + " more variants: --all shows them\n"));
  EXPECT_THAT(whole.out, testing::Not(HasSubstr("--all")));
  const auto lines = [](const std::string &text) { return std::count(text.begin(), text.end(), '\n'); };
  EXPECT_EQ(lines(whole.out) - lines(folded.out), static_cast<int64_t>(variants) - 17);
}

TEST_F(PlanCommands, InspectAsJson) {
  const nlohmann::json j = json({"inspect", file});
  ASSERT_FALSE(j["variants"].empty());
  for (const auto &v : j["variants"]) {
    EXPECT_EQ(v["interval"], 2);
    EXPECT_EQ(v["offloaded_layers"], 3);
    for (const char *kind : {"weights", "slots", "kv", "activations", "workspace"})
      EXPECT_GT(v["device_bytes"][kind].get<int64_t>(), 0) << kind;
    EXPECT_GT(v["host_bytes"], 0);
    EXPECT_EQ(v["h2d_bytes"], v["host_bytes"]); // every offloaded byte once an iteration
    EXPECT_EQ(v["d2h_bytes"], 0);
    EXPECT_GT(v["predicted_iteration_ms"].get<double>(), 0);
    EXPECT_GE(v["max_tokens"], 2 * 64);
    EXPECT_THAT(v["limiting_resource"].get<std::string>(), testing::AnyOf("compute", "link h2d"));
  }
}

TEST_F(PlanCommands, TimelineInThreeFormats) {
  const Outcome text = headrace({"timeline", file, "--width", "100"});
  EXPECT_EQ(text.status, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("\ncompute  "));
  EXPECT_THAT(text.out, HasSubstr("\nh2d      "));
  const Outcome asJson = headrace({"timeline", file, "--format", "json"});
  EXPECT_TRUE(nlohmann::json::accept(asJson.out));
  const Outcome svg = headrace({"timeline", file, "--format", "svg", "-o", path("t.svg")});
  EXPECT_EQ(svg.status, 0) << svg.err;
  EXPECT_EQ(svg.out, "");
  EXPECT_THAT(readFile(path("t.svg")), HasSubstr("</svg>"));
}

TEST_F(PlanCommands, ATimelinesNameSaysItsFormat) {
  for (const std::string name : {"t.svg", "t.json", "t.txt", "t"})
    ASSERT_EQ(headrace({"timeline", file, "-o", path(name)}).status, 0);
  EXPECT_THAT(readFile(path("t.svg")), HasSubstr("</svg>"));
  EXPECT_TRUE(nlohmann::json::accept(readFile(path("t.json"))));
  EXPECT_THAT(readFile(path("t.txt")), HasSubstr("\ncompute  "));
  EXPECT_EQ(readFile(path("t")), readFile(path("t.txt")));
  refused({"timeline", file, "--format", "json", "-o", path("u.svg")}, 2,
          "--format asks for another format than the name says: expected a name that ends in .json, or no --format");
}

TEST_F(PlanCommands, BadUsageIsRefusedByName) {
  refused({"timeline", file, "--variant", "9999"}, 2, "--variant = 9999: expected one of the ");
  refused({"timeline", file, "--format", "png"}, 2, "--format = \"png\": expected text, json or svg");
  refused({"timeline", file, "-o", path("no/such/folder/t.svg")}, 2, "cannot write");
  refused({"timeline", file, "--measured", path("missing.json")}, 2, path("missing.json"));
  writeText(path("bad.json"), "{}");
  refused({"timeline", file, "--measured", path("bad.json")}, 2,
          "expected a timeline written by headrace run, with --trace or as --timeline FILE.json");
  refused({"timeline", file, "--width", "3"}, 2, "--width = \"3\": expected an integer from 40 to 2000");
  refused({"inspect"}, 2, "plan");
  refused({"inspect", path("missing.plan")}, 2, path("missing.plan"));
}

TEST_F(PlanCommands, DamagedPlansAreRefusedByEveryCommandThatReadsThem) {
  const std::string good = readFile(file);
  const std::string bad = path("bad.plan");
  const auto refusedByAll = [&](const std::string &bytes, const std::string &what) {
    SCOPED_TRACE(what);
    writeText(bad, bytes);
    refused({"inspect", bad}, 2, bad);
    refused({"timeline", bad}, 2, bad);
    refused({"run", bad, "--prompt-ids", "1"}, 2, bad);
  };
  refusedByAll("", "empty");
  refusedByAll("not a plan", "text");
  refusedByAll(good.substr(0, 4), "four bytes");
  refusedByAll(good.substr(0, good.size() / 2), "half");
  refusedByAll(good.substr(0, good.size() - 256), "256 bytes short");
  refusedByAll(good.substr(0, good.size() - 1), "a byte short");
  refusedByAll(good + std::string(100, '\0'), "100 bytes longer");
  std::string other = good;
  other[4] = 'X'; // the file identifier
  refusedByAll(other, "identifier");
}

TEST_F(PlanCommands, FlippedBytesAreRefused) {
  const std::string good = readFile(file);
  uint64_t state = 1;
  for (int i = 0; i < 60; ++i) {
    std::string flipped = good;
    state = state * 6364136223846793005u + 1442695040888963407u;
    flipped[(state >> 20) % flipped.size()] ^= static_cast<char>(1 << (state >> 60) % 8);
    writeText(path("flip.plan"), flipped);
    const Outcome o = headrace({"inspect", path("flip.plan")});
    EXPECT_EQ(o.status, 2) << o.err;
  }
}

TEST_F(PlanCommands, APlanIsNoModelAndAModelIsNoPlan) {
  refused({"inspect", golden("qwen2-7-tied-f32")}, 2, golden("qwen2-7-tied-f32"));
  refused({"compile", file, "--dry-run"}, 2, file);
}

} // namespace
} // namespace headrace::tools
