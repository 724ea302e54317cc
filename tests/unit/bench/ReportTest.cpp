// SPDX-License-Identifier: Apache-2.0
#include "bench/figures/Report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

namespace headrace::bench {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Outcome = Report::Outcome;

class Figures : public testing::Test {
protected:
  void SetUp() override { std::filesystem::remove(file); }
  void TearDown() override { std::filesystem::remove(file); }
  Budget budget(double seconds) {
    return {.seconds = seconds, .startedAt = 0, .now = [this] { return clock; }};
  }
  Report open(double seconds = 100) {
    Report report(file, budget(seconds));
    report.part("link", "by events");
    return report;
  }
  Json onDisk() const { return Json::parse(std::ifstream(file)); }
  // Measures names in order, `f` says what comes of each.
  template <typename F> void measure(Report &report, std::vector<std::string> names, F f) {
    for (const std::string &name : report.inOrder(std::move(names)))
      report.attempt(name, 10, [&] {
        asked.push_back(name);
        return f(name);
      });
  }
  static Json one(const std::string &) { return {{"GB/s", 50.0}}; }

  const std::string file = testing::TempDir() + "/bench-report-" + std::to_string(::getpid()) + ".json";
  double clock = 0;
  std::vector<std::string> asked;
};

TEST_F(Figures, AreOnDiskAsSoonAsTheyAreMeasured) {
  Report report = open();
  EXPECT_EQ(report.attempt("a", 1, [] { return Json{{"GB/s", 50.0}}; }), Outcome::Measured);
  EXPECT_EQ(onDisk()["parts"]["link"]["figures"], Json::parse(R"([{"name": "a", "GB/s": 50.0}])"));
  EXPECT_FALSE(std::filesystem::exists(file + ".part"));
  EXPECT_EQ(report.exitStatus(), 0);
}

TEST_F(Figures, WhatIsMeasuredIsSkippedByTheNextRun) {
  Report first = open();
  measure(first, {"a", "b"}, one);
  asked.clear();
  Report second = open();
  measure(second, {"a", "b", "c"}, one);
  EXPECT_THAT(asked, ElementsAre("c"));
  EXPECT_EQ(onDisk()["parts"]["link"]["figures"].size(), 3u);
}

TEST_F(Figures, OfAnotherMethodGo) {
  Report first = open();
  measure(first, {"a"}, one);
  Report second(file, budget(100));
  second.part("link", "by CUPTI");
  EXPECT_FALSE(second.settled("a"));
  second.part("graphs", "by events");
  EXPECT_EQ(onDisk()["parts"].size(), 2u);
}

// 25 s of 10 s each: a, b; the third needs 10 and has 5.
TEST_F(Figures, WhatHasNoTimeLeftIsLeftForTheNextRun) {
  Report first = open(25);
  measure(first, {"a", "b", "c"}, [&](const std::string &name) {
    clock += 10;
    return one(name);
  });
  EXPECT_THAT(asked, ElementsAre("a", "b"));
  EXPECT_EQ(first.exitStatus(), 75);
  asked.clear();
  clock = 0;
  Report second = open(25);
  measure(second, {"a", "b", "c"}, one);
  EXPECT_THAT(asked, ElementsAre("c"));
  EXPECT_EQ(second.exitStatus(), 0);
}

TEST_F(Figures, AFailedOneHidesNoOtherAndIsTriedAgainLast) {
  const auto aFails = [](const std::string &name) {
    if (name == "a")
      fail("out of memory");
    return one(name);
  };
  Report first = open();
  measure(first, {"a", "b"}, aFails);
  EXPECT_THAT(asked, ElementsAre("a", "b"));
  EXPECT_EQ(first.exitStatus(), 1);
  EXPECT_EQ(onDisk()["parts"]["link"]["figures"][0]["failed"], "out of memory");
  asked.clear();
  Report second = open();
  measure(second, {"a", "b", "c"}, one);
  EXPECT_THAT(asked, ElementsAre("c", "a"));
  EXPECT_EQ(second.exitStatus(), 0);
  EXPECT_EQ(onDisk()["parts"]["link"]["figures"][0], Json::parse(R"({"name": "a", "GB/s": 50.0})"));
}

// A figure that takes the program with it leaves only that it was tried.
TEST_F(Figures, OneThatEndedTheProgramComesLast) {
  {
    Report first = open();
    EXPECT_THROW(first.attempt("a", 1, []() -> Json { throw std::logic_error("a signal"); }), std::logic_error);
  }
  Report second = open();
  EXPECT_FALSE(second.settled("a"));
  EXPECT_THAT(second.inOrder({"a", "b", "c"}), ElementsAre("b", "c", "a"));
}

// a and b both lose the device: a run for each, then nothing is left that had no turn.
TEST_F(Figures, ALostDeviceEndsTheRunAndEveryFigureHasItsTurn) {
  const auto run = [&] {
    Report report = open();
    report.checkDevice = [] { throw DeviceLost("the context is gone"); };
    try {
      measure(report, {"a", "b"}, [](const std::string &) -> Json { fail("an illegal address"); });
    } catch (const DeviceLost &lost) {
      report.lost(lost.what());
    }
    return report.exitStatus();
  };
  EXPECT_EQ(run(), 75);
  EXPECT_EQ(run(), 75);
  EXPECT_THAT(asked, ElementsAre("a", "b"));
  EXPECT_EQ(run(), 1);
}

TEST_F(Figures, WhatNeedsSomethingThatIsNotThereIsAskedForAgain) {
  const auto missing = [](const std::string &) { return Json{{"unavailable", "no libcupti"}}; };
  Report first = open();
  measure(first, {"a"}, missing);
  EXPECT_EQ(first.exitStatus(), 77);
  Report second = open();
  measure(second, {"a"}, one);
  EXPECT_EQ(second.exitStatus(), 0);
  EXPECT_TRUE(second.settled("a"));
  second.forget("a");
  EXPECT_FALSE(second.settled("a"));
}

TEST_F(Figures, OneThatNeedsAnotherSaysSo) {
  Report report = open();
  report.attempt({{"a", 1,
                   [] {
                     return Json{{"ms", 2.0}};
                   }},
                  {"b", 1,
                   [&] {
                     return Json{{"ms", report.number("a", "ms") * 2}};
                   }},
                  {"c", 1, [&] {
                     return Json{{"ms", report.number("d", "ms")}};
                   }}});
  EXPECT_EQ(report.number("b", "ms"), 4);
  EXPECT_EQ((*report.find("c"))["failed"], "needs 'd', which was not measured");
}

TEST_F(Figures, OfAnotherDeviceAreRefused) {
  Report first = open();
  first.sameFact("device", "NVIDIA H100");
  Report second = open();
  second.sameFact("device", "NVIDIA H100");
  EXPECT_THROW(second.sameFact("device", "NVIDIA H200"), Failure);
}

TEST_F(Figures, AFileThatHoldsSomethingElseIsRefused) {
  for (const char *text : {"", "[]", "{\"parts\": 3}", "{\"facts\": []}"}) {
    std::ofstream(file) << text;
    EXPECT_THROW(Report(file, budget(1)), Failure) << text;
  }
}

TEST_F(Figures, AsATable) {
  Report report = open();
  report.fact("device", "NVIDIA H100");
  report.figure("a", {{"GB/s", 50.0}});
  report.figure("b", {{"failed", "no"}});
  report.figure("a", {{"GB/s", 51.5}});
  EXPECT_EQ(Report::table(file), "| device | |\n|---|---|\n| device | NVIDIA H100 |\n\n## link\n\nby events\n\n"
                                 "| name | GB/s | failed |\n|---|---|---|\n| a | 51.5 |  |\n| b |  | no |\n");
}

TEST(Quantiles, AreNearestRanks) {
  EXPECT_EQ(median({30, 10, 20}), 20);
  EXPECT_EQ(median({10, 20, 30, 40}), 20);
  EXPECT_EQ(quantile({10, 20, 30, 40}, 0.99), 40);
  EXPECT_EQ(quantile({10, 20, 30, 40}, 0), 10);
  EXPECT_EQ(median({}), 0);
}

} // namespace
} // namespace headrace::bench
