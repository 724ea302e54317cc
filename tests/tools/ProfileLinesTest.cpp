// SPDX-License-Identifier: Apache-2.0
//
// headrace profile --activations: lines of what activation blocks take, and what is priced by them.
#include <gmock/gmock.h>

#include "runtime/cost/RecordFile.h"
#include "tests/support/Process.h"

namespace headrace::tools {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class ProfileLines : public CommandLine {
protected:
  std::vector<std::string> simulated(std::vector<std::string> more = {}) const {
    std::vector<std::string> words = {"profile",   "opt-6.7b", "--hardware",  "a10",       "--device", "sim",
                                      "--batches", "1,2",      "--sequences", "1024,2048", "-o",       record};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  // The lines' tables in the record, and what is around them.
  static std::pair<std::string, std::string> apart(const std::string &text) {
    const size_t from = text.find("[regression."), to = text.find("[[cell]]");
    return {text.substr(from, to - from), text.substr(0, from) + text.substr(to)};
  }
  const std::string record = path("record.toml");
};

TEST_F(ProfileLines, InVirtualTimeTheyAreLines) {
  const nlohmann::json j = json(simulated({"--activations"}));
  EXPECT_EQ(j["complete"], true);
  for (const char *name : {"rebuild_kv", "load_kv", "load_act"}) {
    const nlohmann::json &line = j["lines"][name];
    EXPECT_GT(line["r2"], 0.999) << name;
    ASSERT_EQ(line["samples"].size(), 7u) << name;
    EXPECT_EQ(line["samples"][6]["tokens"], 2 * 2048) << name; // what the grid holds
    for (size_t i = 0; i < 7; ++i) {
      const nlohmann::json &sample = line["samples"][i];
      EXPECT_EQ(sample["held_out"], i % 2 == 1) << name;
      EXPECT_NEAR(sample["predicted_ns"], sample["median_ns"].get<double>(), 0.02 * sample["median_ns"].get<double>());
    }
  }
  // 16-bit keys and values of 4096 columns each are 16 KiB a token, activations 8: at 24 GB/s and the profile's
  // efficiency twice as long.
  EXPECT_NEAR(j["lines"]["load_kv"]["slope_ns"], 2 * j["lines"]["load_act"]["slope_ns"].get<double>(), 0.01);
  const Outcome text = headrace({"record", "show", record});
  EXPECT_EQ(text.status, 0) << text.err;
  EXPECT_THAT(text.out, AllOf(HasSubstr("Of a layer, by tokens; lines fitted to every other count:\n"),
                              HasSubstr("held out, tokens  predicted  measured"), HasSubstr("rebuild_kv  "),
                              HasSubstr("load_kv  "), HasSubstr("load_act  ")));
  refused(simulated({"--activations"}), 2, "is a complete record of this already; --force measures anew");
}

TEST_F(ProfileLines, AreOffByDefaultAndAddedToARecordThatStands) {
  const Outcome plain = headrace(simulated());
  ASSERT_EQ(plain.status, 0) << plain.err;
  EXPECT_THAT(plain.out, Not(HasSubstr("every other count")));
  const std::string before = readFile(record);
  EXPECT_THAT(before, Not(HasSubstr("regression")));
  ASSERT_EQ(headrace(simulated({"--activations"})).status, 0);
  const auto [lines, rest] = apart(readFile(record));
  EXPECT_EQ(rest, before);
  EXPECT_THAT(lines, AllOf(HasSubstr("[regression.rebuild_kv] # ns of a layer = "), HasSubstr(", R^2 1.0000"),
                           HasSubstr("[regression.load_kv]"), HasSubstr("[regression.load_act]")));
  // And all at once are the same; what is there stays where they are not asked for again.
  const std::string whole = readFile(record);
  ASSERT_EQ(headrace(simulated({"--activations", "--force"})).status, 0);
  EXPECT_EQ(readFile(record), whole);
  refused(simulated(), 2, "is a complete record of this already");
  EXPECT_THAT(headrace({"profile", "--help"}).out, HasSubstr("--activations"));
}

// Lines by hand: 1000 ns and 10 ns a token; then ten times the slope.
TEST_F(ProfileLines, PlansArePricedByThem) {
  ASSERT_EQ(headrace(simulated({"--activations"})).status, 0);
  const auto [lines, rest] = apart(readFile(record));
  const size_t cells = rest.find("[[cell]]");
  const std::string loads = lines.substr(lines.find("[regression.load_kv]"));
  const auto computeMs = [&](const std::string &medians) {
    const std::string samples =
        "tokens = [100, 200, 300, 400, 500]\nmedian = " + medians + "\np10 = " + medians + "\np90 = " + medians + "\n";
    writeText(record,
              rest.substr(0, cells) + "[regression.rebuild_kv]\n" + samples + "\n" + loads + rest.substr(cells));
    const std::string plan = path("half.plan");
    const Outcome compiled =
        headrace({"compile", "opt-6.7b", "--hardware", "a10", "--record", record, "--batch", "2", "--context", "2048",
                  "--policy", "none", "--act-ratio", "1/2", "-o", plan, "--overwrite"});
    EXPECT_EQ(compiled.status, 0) << compiled.err;
    const nlohmann::json inspected = json({"inspect", plan, "--json"});
    for (const nlohmann::json &variant : inspected["variants"])
      if (const auto &key = variant["key"]; key["new_tokens"] == 2 && key["context"] == 2048)
        return variant["compute_alone_ms"].get<double>();
    ADD_FAILURE() << "no variant of decode";
    return 0.0;
  };
  const double slow = computeMs("[11000, 21000, 31000, 41000, 51000]"); // 1000 + 100 x tokens
  const double fast = computeMs("[2000, 3000, 4000, 5000, 6000]");      // 1000 + 10 x tokens
  // Half of 2 x 2048 tokens in 32 layers, 90 ns each: 5.89824 ms.
  EXPECT_NEAR(slow - fast, 32 * 2048 * 90 * 1e-6, 0.001);
}

TEST_F(ProfileLines, ARecordWhoseTimesAreNoLineIsRefusedByKey) {
  ASSERT_EQ(headrace(simulated({"--activations"})).status, 0);
  const auto [lines, rest] = apart(readFile(record));
  const size_t cells = rest.find("[[cell]]");
  // 0.75, as unit tests work it out (RecordLinesTest.cpp).
  writeText(record, rest.substr(0, cells) +
                        "[regression.rebuild_kv]\ntokens = [100, 200, 300, 400, 500]\n"
                        "median = [2000, 2000, 2000, 3000, 5000]\np10 = [0, 0, 0, 0, 0]\n"
                        "p90 = [9000, 9000, 9000, 9000, 9000]\n\n" +
                        lines.substr(lines.find("[regression.load_kv]")) + rest.substr(cells));
  const std::string expected =
      record + ": regression.rebuild_kv: R^2 = 0.75 of 3 samples: expected at least 0.98, times that are linear";
  refused({"record", "show", record}, 2, expected);
  refused({"compile", "opt-6.7b", "--hardware", "a10", "--record", record, "--batch", "2", "--context", "2048",
           "--dry-run"},
          2, expected);
  refused(simulated({"--activations"}), 2, expected);
}

TEST_F(ProfileLines, AGridOfTooFewBlocksIsRefusedBeforeAnythingIsMeasured) {
  refused({"profile", "opt-6.7b", "--hardware", "a10", "--device", "sim", "--batches", "1", "--sequences", "64", "-o",
           record, "--activations"},
          2,
          "--activations: up to 1 sequences of up to 64 tokens make 4 counts of whole blocks of 16 tokens: expected at "
          "least 5, of longer --sequences or more --batches");
  EXPECT_EQ(readFile(record), "");
}

// In wall time, beside whatever else this machine does: lines, or a refusal that says which are none. The record stands
// either way.
TEST_F(ProfileLines, OnThisMachineTheyAreLinesOrRefused) {
  writeText(path("model.toml"), "family = \"opt\"\nlayers = 2\nhidden = 256\nheads = 4\nintermediate = 512\n"
                                "vocab = 512\nmax_positions = 128\ndtype = \"f32\"\n");
  const std::vector<std::string> words = {"profile",
                                          path("model.toml"),
                                          "--hardware",
                                          "host",
                                          "-o",
                                          record,
                                          "--batches",
                                          "1,2",
                                          "--sequences",
                                          "64,128",
                                          "--device-memory",
                                          "64MiB",
                                          "--activations",
                                          "--seconds-per-pair",
                                          "0.05"};
  const Outcome o = headrace(words);
  const nlohmann::json shown = json({"record", "show", record});
  EXPECT_EQ(shown["complete"], true);
  if (o.status == 0) {
    for (const char *name : {"rebuild_kv", "load_kv", "load_act"})
      EXPECT_GE(shown["lines"][name]["r2"], 0.98) << name;
    EXPECT_THAT(o.out, HasSubstr("rebuild_kv"));
    return;
  }
  EXPECT_EQ(o.status, 1) << o.err;
  EXPECT_EQ(o.out, "");
  EXPECT_THAT(o.err,
              AllOf(HasSubstr("regression."), HasSubstr("expected at least 0"), HasSubstr("after 3 looks of 5 turns")));
  EXPECT_FALSE(shown.contains("lines"));
}

} // namespace
} // namespace headrace::tools
