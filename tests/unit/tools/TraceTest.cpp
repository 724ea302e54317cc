// SPDX-License-Identifier: Apache-2.0
#include "tools/timeline/Trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/Kernels.h"
#include "runtime/model/ModelSpec.h"
#include "tests/unit/tools/SplitTestPlan.h"
#include "tools/timeline/Timeline.h"

namespace headrace::tools {
namespace {

using testing::HasSubstr;

// Step i from 10 i to 10 i + 5.
Trace made() {
  std::vector<core::StepTime> times;
  for (int64_t i = 0; i < 8; ++i)
    times.push_back({1000 + 10 * i, 1005 + 10 * i});
  Trace trace = makeTrace(testPlan(), "host", 0, times);
  trace.iteration = 5;
  trace.about = "iteration 5 of 8";
  return trace;
}
std::string written() {
  const Trace trace = made();
  return timelineJson(makeChart(testPlan(), 0, &trace));
}

std::string message(const std::string &text) {
  const absl::Status status = parseTrace(text, "t.json", testPlan()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
  return std::string(status.message());
}

std::string with(const std::string &from, const std::string &to) {
  std::string text = written();
  const size_t at = text.rfind(from); // measured lanes stand behind planned ones
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(Trace, CountsFromTheFirstStart) {
  EXPECT_EQ(made().steps[0], (std::pair<int64_t, int64_t>{0, 5}));
  EXPECT_EQ(made().steps[7], (std::pair<int64_t, int64_t>{70, 75}));
}

TEST(Trace, IsReadFromWhatPerfettoOpens) {
  const auto read = parseTrace(written(), "t.json", testPlan());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->device, "host");
  EXPECT_EQ(read->modelHash, "00ff");
  EXPECT_EQ(read->iteration, 5u);
  EXPECT_EQ(read->about, "iteration 5 of 8");
  EXPECT_EQ(read->steps, made().steps);
}

// One of two tokens ran, of a cache of 8: planned lanes are of that.
TEST(Trace, KeepsWhatRan) {
  Trace trace = made();
  trace.rows = {{.tokens = 1, .sampled = 1, .contexts = 8, .pairs = 8}};
  const Chart chart = makeChart(testPlan(), 0, &trace);
  EXPECT_NE(chart.subtitle.find("; of these 1 token ran, of caches of 8 in sum"), std::string::npos) << chart.subtitle;
  const std::string text = timelineJson(chart);
  const std::string key = R"("rows":[{"tokens":1,"sampled":1,"contexts":8,"pairs":8,"home":0,"kept":0,"rebuilt":0}])";
  const size_t at = text.find(key);
  ASSERT_NE(at, std::string::npos) << text;
  const auto read = parseTrace(text, "t.json", testPlan());
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->rows.size(), 1u);
  EXPECT_EQ(read->rows[0].contexts, 8u);
  // As files had it before.
  std::string former = key;
  former.replace(former.find("rebuilt"), 7, "recomputed");
  const auto renamed = parseTrace(std::string(text).replace(at, key.size(), former), "t.json", testPlan());
  ASSERT_TRUE(renamed.ok()) << renamed.status();
  EXPECT_EQ(renamed->rows.size(), 1u);
  for (const auto &[good, bad] :
       {std::pair("\"tokens\":1", "\"tokens\":3"), std::pair("\"tokens\":1", "\"tokens\":-1"),
        std::pair("\"tokens\":1", "\"tokens\":1.5"), std::pair("\"tokens\":1,", ""),
        std::pair("\"sampled\":1", "\"sampled\":2"), std::pair("\"contexts\":8", "\"contexts\":33"),
        std::pair("\"pairs\":8", "\"pairs\":33"), std::pair("\"home\":0", "\"home\":3"),
        std::pair("\"kept\":0", "\"kept\":3"), std::pair("\"rebuilt\":0", "\"rebuilt\":9"), std::pair("[{", "[{},{"),
        std::pair("[{", "{\"a\":[{"), std::pair("[{", "[[{")}) {
    std::string one = key;
    one.replace(one.find(good), std::string(good).size(), bad);
    if (one.starts_with("\"rows\":{"))
      one += "}";
    else if (one.starts_with("\"rows\":[["))
      one.insert(one.size() - 1, "]");
    const absl::Status status =
        parseTrace(std::string(text).replace(at, key.size(), one), "t.json", testPlan()).status();
    EXPECT_EQ(std::string(status.message()), "t.json: otherData.measured.rows: expected a list with an object for each "
                                             "of 1 mini-batches, of counts within variant 0")
        << one;
  }
  EXPECT_EQ(written().find("\"rows\""), std::string::npos); // where it is not known
  EXPECT_TRUE(parseTrace(written(), "t.json", testPlan())->rows.empty());
}

TEST(Trace, KeepsWhatWasInUseOfKv) {
  Trace trace = made();
  trace.variant = kTails;
  trace.inUse[0].kvBlocks = 2;
  const std::string text = timelineJson(makeChart(splitTestPlan(), kTails, &trace));
  const auto read = parseTrace(text, "t.json", splitTestPlan());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->inUse[0].kvBlocks, 2);
  const std::string key = "\"kv_blocks_in_use\":2";
  const size_t at = text.find(key);
  ASSERT_NE(at, std::string::npos) << text;
  for (const char *bad : {"0", "6", "-1", "1.5", "\"2\"", "null"}) {
    const absl::Status status =
        parseTrace(std::string(text).replace(at, key.size(), std::string("\"kv_blocks_in_use\":") + bad), "t.json",
                   splitTestPlan())
            .status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << bad;
    EXPECT_EQ(std::string(status.message()), std::string("t.json: otherData.measured.kv_blocks_in_use = ") + bad +
                                                 ": expected 1 to 5, the plan's KV blocks");
  }
  // Where no copy has a size of its own nothing is said, and all counts as in use.
  EXPECT_EQ(written().find("kv_blocks_in_use"), std::string::npos);
  EXPECT_EQ(parseTrace(written(), "t.json", testPlan())->inUse[0].kvBlocks, core::InUse{}.kvBlocks);
}

TEST(Trace, KeepsWhatWasWrittenOfKv) {
  plan::Plan plan = splitTestPlan();
  plan.schedules[plan.variants[kTails].schedule].steps[0].dirtyOnly = true;
  Trace trace = made();
  trace.variant = kTails;
  trace.inUse[0] = {.kvBlocks = 5, .writtenBegin = 2, .writtenEnd = 4};
  const std::string text = timelineJson(makeChart(plan, kTails, &trace)), key = "\"kv_blocks_written\":[2,4]";
  const auto read = parseTrace(text, "t.json", plan);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->inUse[0].writtenBegin, 2);
  EXPECT_EQ(read->inUse[0].writtenEnd, 4);
  const size_t at = text.find(key);
  ASSERT_NE(at, std::string::npos) << text;
  for (const char *bad : {"[3,2]", "[2,6]", "[-1,2]", "[2]", "[2,3,4]", "2", "[2,\"3\"]"}) {
    const absl::Status status =
        parseTrace(std::string(text).replace(at, key.size(), std::string("\"kv_blocks_written\":") + bad), "t.json",
                   plan)
            .status();
    EXPECT_EQ(std::string(status.message()),
              std::string("t.json: otherData.measured.kv_blocks_written = ") + bad +
                  ": expected [first, end] with first <= end <= 5, the plan's KV blocks");
  }
  EXPECT_EQ(timelineJson(makeChart(splitTestPlan(), kTails, &trace)).find("kv_blocks_written"), std::string::npos);
}

// Of several mini-batches a list with one for each; nothing shorter, nothing else.
TEST(Trace, KeepsWhatEachMiniBatchHadInUse) {
  plan::Plan plan = splitTestPlan();
  plan.miniBatches = 2;
  plan.schedules[plan.variants[kTails].schedule].steps[0].dirtyOnly = true;
  Trace trace = made();
  trace.variant = kTails;
  trace.inUse = {{.kvBlocks = 5, .writtenBegin = 2, .writtenEnd = 4}, {.kvBlocks = 2, .writtenEnd = 0}};
  const Chart chart = makeChart(plan, kTails, &trace);
  EXPECT_NE(
      chart.subtitle.find("of blocks below 5, 2 of 5, by mini-batch; those to the host are of blocks 2 to 3, none, "
                          "by mini-batch, which were written"),
      std::string::npos)
      << chart.subtitle;
  const std::string text = timelineJson(chart);
  const auto read = parseTrace(text, "t.json", plan);
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->inUse.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(read->inUse[i].kvBlocks, trace.inUse[i].kvBlocks);
    EXPECT_EQ(read->inUse[i].writtenBegin, trace.inUse[i].writtenBegin);
    EXPECT_EQ(read->inUse[i].writtenEnd, trace.inUse[i].writtenEnd);
  }
  for (const auto &[good, bad] : {std::pair("\"kv_blocks_in_use\":[5,2]", "\"kv_blocks_in_use\":5"),
                                  std::pair("\"kv_blocks_in_use\":[5,2]", "\"kv_blocks_in_use\":[5]"),
                                  std::pair("\"kv_blocks_in_use\":[5,2]", "\"kv_blocks_in_use\":[5,0]"),
                                  std::pair("\"kv_blocks_in_use\":[5,2]", "\"kv_blocks_in_use\":[5,2,1]"),
                                  std::pair("[[2,4],[0,0]]", "[2,4]"), std::pair("[[2,4],[0,0]]", "[[2,4],[0,6]]")}) {
    const size_t at = text.find(good);
    ASSERT_NE(at, std::string::npos) << text;
    const absl::Status status =
        parseTrace(std::string(text).replace(at, std::string(good).size(), bad), "t.json", plan).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << bad;
    EXPECT_NE(std::string(status.message()).find("in a list of one for each of 2 mini-batches"), std::string::npos)
        << status;
  }
}

// Microseconds are a fraction's worth of nanoseconds: each comes back, up to days.
TEST(Trace, NoNanosecondIsLost) {
  Trace trace = made();
  int64_t at = 1;
  for (auto &[start, end] : trace.steps) {
    start = at;
    end = at + 333;
    at = at * 73 + 7; // the last ends after 3 hours
  }
  const auto read = parseTrace(timelineJson(makeChart(testPlan(), 0, &trace)), "t.json", testPlan());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->steps, trace.steps);
}

TEST(Trace, RefusesWhatIsNoTrace) {
  for (const char *text : {"", "{", "[]", "null", "{\"otherData\":1}", "{\"otherData\":{\"format\":\"other\"}}",
                           "{\"otherData\":{\"format\":\"headrace-timeline\"},\"traceEvents\":1}"})
    EXPECT_EQ(message(text),
              "t.json: expected a timeline written by headrace run, with --trace or as --timeline FILE.json");
  EXPECT_EQ(message(timelineJson(makeChart(testPlan(), 0, nullptr))),
            "t.json: otherData.measured is missing: it has planned lanes only");
  EXPECT_EQ(message(with("\"version\":1", "\"verse\":1")), "t.json: otherData.version is missing");
  EXPECT_THAT(message(with("\"version\":1", "\"version\":2")), HasSubstr("otherData.version = 2: expected 1"));
  EXPECT_THAT(message(with("\"variant\":0", "\"variant\":-1")), HasSubstr("expected a text, a number, a text"));
  EXPECT_THAT(message(with("\"device\":\"host\"", "\"device\":1")), HasSubstr("expected a text, a number, a text"));
}

TEST(Trace, RefusesATraceOfAnotherPlan) {
  EXPECT_THAT(message(with("00ff", "aabb")), HasSubstr("model_hash = aabb: expected the plan's, 00ff"));
  EXPECT_THAT(message(with("\"variant\":0", "\"variant\":1")), HasSubstr("variant = 1: expected one of the plan's 1"));
  EXPECT_THAT(message(with("\"step\":7,", "")), HasSubstr("7 steps: expected the 8 of variant 0"));
  EXPECT_THAT(message(with("\"step\":7,", "\"step\":8,")),
              HasSubstr("step 8: expected each of the 8 of variant 0 once"));
  EXPECT_THAT(message(with("\"step\":7,", "\"step\":6,")), HasSubstr("step 6: expected each of the 8"));
}

TEST(Trace, RefusesTimesThatAreNone) {
  const std::string expected = "the event of step 7: expected ts and dur, times in us from 0 on";
  for (const char *ts : {"-0.07", "\"0.07\"", "1e13", "null"})
    EXPECT_THAT(message(with("\"ts\":0.07,", std::string("\"ts\":") + ts + ",")), HasSubstr(expected)) << ts;
  EXPECT_THAT(message(with("\"ts\":0.07,", "")), HasSubstr(expected));
}

} // namespace
} // namespace headrace::tools
