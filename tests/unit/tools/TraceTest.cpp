// SPDX-License-Identifier: Apache-2.0
#include "tools/Trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/tools/TestPlan.h"

namespace headrace::tools {
namespace {

using testing::HasSubstr;

Trace made() {
  std::vector<core::StepTime> times;
  for (int64_t i = 0; i < 8; ++i)
    times.push_back({1000 + 10 * i, 1005 + 10 * i});
  return makeTrace(testPlan(), "host", 0, times);
}

std::string message(const std::string &text) {
  const absl::Status status = parseTrace(text, "t.json", testPlan()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
  return std::string(status.message());
}

std::string with(const std::string &from, const std::string &to) {
  std::string text = traceJson(made());
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(Trace, CountsFromTheFirstStart) {
  EXPECT_EQ(made().steps[0], (std::pair<int64_t, int64_t>{0, 5}));
  EXPECT_EQ(made().steps[7], (std::pair<int64_t, int64_t>{70, 75}));
}

TEST(Trace, ReadsWhatItWrote) {
  const auto read = parseTrace(traceJson(made()), "t.json", testPlan());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->device, "host");
  EXPECT_EQ(read->modelHash, "00ff");
  EXPECT_EQ(read->steps, made().steps);
}

TEST(Trace, RefusesWhatIsNoTrace) {
  for (const char *text : {"", "{", "[]", "null", "{\"format\":1}", "{\"format\":\"other\"}"})
    EXPECT_EQ(message(text), "t.json: expected a trace written by headrace run --trace");
  EXPECT_EQ(message("{\"format\":\"headrace-trace\"}"), "t.json: version is missing");
  EXPECT_THAT(message(with("\"version\":1", "\"version\":2")), HasSubstr("version = 2: expected 1"));
  EXPECT_THAT(message(with("\"variant\":0", "\"variant\":-1")), HasSubstr("expected two texts, a number and a list"));
}

TEST(Trace, RefusesATraceOfAnotherPlan) {
  EXPECT_THAT(message(with("00ff", "aabb")), HasSubstr("model_hash = aabb: expected the plan's, 00ff"));
  EXPECT_THAT(message(with("\"variant\":0", "\"variant\":1")), HasSubstr("variant = 1: expected one of the plan's 1"));
  EXPECT_THAT(message(with("[[0,5],", "[")), HasSubstr("7 steps: expected the 8 of variant 0"));
}

TEST(Trace, RefusesTimesThatAreNone) {
  EXPECT_THAT(message(with("[0,5]", "[5,0]")), HasSubstr("[5, 0]: expected 0 <= start_ns <= end_ns"));
  EXPECT_THAT(message(with("[0,5]", "[-1,5]")), HasSubstr("[-1, 5]"));
  EXPECT_THAT(message(with("[0,5]", "[0]")), HasSubstr("steps: [0]: expected [start_ns, end_ns]"));
  EXPECT_THAT(message(with("[0,5]", "[0.5,5]")), HasSubstr("expected [start_ns, end_ns]"));
  EXPECT_THAT(message(with("[0,5]", "[0,18446744073709551615]")), HasSubstr("expected 0 <= start_ns <= end_ns"));
}

} // namespace
} // namespace headrace::tools
