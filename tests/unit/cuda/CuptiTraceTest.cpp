// SPDX-License-Identifier: Apache-2.0
//
// The session with CUPTI against a made-up libcupti that hands out the real one's records.
#include "runtime/cuda/CuptiTrace.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "runtime/base/StatusMacros.h"
#include "tests/unit/cuda/FakeCupti.h"

namespace headrace::cuda {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

class CuptiTraceTest : public testing::Test {
protected:
  void SetUp() override {
    const auto library = DynamicLibrary::open({"libcupti.so.13"}, {HEADRACE_FAKE_CUPTI});
    ASSERT_TRUE(library.ok()) << library.status();
    decltype(&::headraceFakeCupti) state = nullptr;
    ASSERT_TRUE(library->find("headraceFakeCupti", state).ok());
    ASSERT_TRUE(library->find("headraceFakeCuptiClone", clone).ok());
    ASSERT_TRUE(library->find("headraceFakeCuptiRecord", record).ok());
    fake = state();
    *fake = {};
  }
  absl::StatusOr<std::unique_ptr<CuptiTrace>> start() { return CuptiTrace::start({HEADRACE_FAKE_CUPTI}); }

  // Two steps with one node and two; instantiated, so that node n runs as n + 100.
  StepNodes graph(CuptiTrace &trace, uint64_t first) {
    StepNodes nodes(2);
    for (uint64_t n = first; n < first + 3; ++n) {
      const auto id = trace.nodeId("building a graph", reinterpret_cast<CUgraphNode>(n));
      EXPECT_TRUE(id.ok()) << id.status();
      nodes.add(*id, n == first ? 0 : 1);
    }
    {
      const FollowClones follow(&trace, nodes);
      for (uint64_t n = first; n < first + 3; ++n)
        clone(n, n + 100);
    }
    clone(first, first + 200); // of another graph's making
    trace.watch(nodes);
    return nodes;
  }
  void launch(uint64_t first, uint32_t launch, uint64_t at) {
    record(false, first + 100, launch, at + 1, at + 2);
    record(false, first + 101, launch, at + 2, at + 3);
    record(true, first + 102, launch, at + 4, at + 9);
  }

  FakeCupti *fake = nullptr;
  decltype(&::headraceFakeCuptiClone) clone = nullptr;
  decltype(&::headraceFakeCuptiRecord) record = nullptr;
};

TEST_F(CuptiTraceTest, TheLastLaunchOfSeveralIsMeasured) {
  auto trace = start();
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_THAT(fake->enabledKinds, SizeIs(3));
  const StepNodes a = graph(**trace, 1000), b = graph(**trace, 2000);
  EXPECT_EQ(a.find(1200), a.nodes()); // no longer followed then
  for (uint32_t i = 0; i < 20; ++i)
    launch(i % 2 == 0 ? 1000 : 2000, 10 + i, 1000 * i);
  std::vector<core::StepTime> times;
  ASSERT_TRUE((*trace)->collect("b", b, 19000, times).ok());
  ASSERT_THAT(times, SizeIs(2));
  // The fake's clock stands at 0, the host's does not: what is between two times stays.
  EXPECT_EQ(times[0].endNs - times[0].startNs, 1);
  EXPECT_EQ(times[1].startNs - times[0].startNs, 1);
  EXPECT_EQ(times[1].endNs - times[0].startNs, 8);
  EXPECT_GT(times[0].startNs, 0);
  const std::vector<CopyChannel> channels = (*trace)->channels(b);
  ASSERT_THAT(channels, SizeIs(1));
  EXPECT_EQ(channels[0].step, 1u);
  EXPECT_EQ(channels[0].bytes, 4096u);
  EXPECT_EQ(channels[0].type, ChannelType::AsyncCopy);
  EXPECT_EQ(fake->buffersHeld, 1); // given back, and given again
  ASSERT_TRUE((*trace)->collect("b", b, 19000, times).ok()) << "a second time";
}

TEST_F(CuptiTraceTest, MissingRecordsAreNamed) {
  auto trace = start();
  ASSERT_TRUE(trace.ok()) << trace.status();
  const StepNodes nodes = graph(**trace, 1000);
  record(false, 1100, 5, 1, 2);
  record(false, 7777, 5, 1, 2);
  fake->dropped = 2;
  std::vector<core::StepTime> times(2);
  const absl::Status status = (*trace)->collect("variant 3", nodes, 0, times);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("variant 3: CUPTI has no complete record of 1 of 2 steps (2 "
                                                       "records were dropped, 1 are of unknown graph nodes)"));
  EXPECT_TRUE(times.empty());
}

TEST_F(CuptiTraceTest, IncompleteBuffersAreForced) {
  auto trace = start();
  ASSERT_TRUE(trace.ok()) << trace.status();
  const StepNodes nodes = graph(**trace, 1000);
  launch(1000, 5, 0);
  fake->onlyForced = true;
  std::vector<core::StepTime> times;
  EXPECT_TRUE((*trace)->collect("a", nodes, 0, times).ok());
}

TEST_F(CuptiTraceTest, OneAtATimeAndAllIsGivenBack) {
  {
    auto trace = start();
    ASSERT_TRUE(trace.ok()) << trace.status();
    const auto second = start();
    EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(second.status().message()), HasSubstr("one at a time"));
    EXPECT_EQ(fake->subscribers, 1); // the refusal took nothing from the first
  }
  EXPECT_EQ(fake->subscribers, 0);
  EXPECT_THAT(fake->enabledKinds, SizeIs(0));
  EXPECT_TRUE(start().ok());
}

TEST_F(CuptiTraceTest, AnotherToolIsNamed) {
  fake->otherSubscriber = true;
  const auto trace = start();
  EXPECT_EQ(trace.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(trace.status().message()),
              HasSubstr("cuptiSubscribe: A_NAMED_ERROR (39): another tool measures this process"));
  fake->otherSubscriber = false;
  EXPECT_TRUE(start().ok());
}

TEST_F(CuptiTraceTest, OtherSeriesAreRefused) {
  fake->version = 28; // of CUDA 12.9
  const auto trace = start();
  EXPECT_EQ(trace.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(trace.status().message()), HasSubstr("libcupti.so.13 is version 28: expected CUDA 13's"));
  fake->version = 130300;
  EXPECT_TRUE(start().ok());
}

TEST_F(CuptiTraceTest, WithoutTheLibraryItIsSaidWhereItWasSought) {
  const auto trace = CuptiTrace::start({"/nonexistent"});
  EXPECT_EQ(trace.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(trace.status().message()), HasSubstr("libcupti.so.13 not found in /nonexistent"));
}

// Every call fails, each time that it is made: what fails is named or can be done without, nothing stays behind, and
// what is measured next is whole.
TEST_F(CuptiTraceTest, FaultsOfEveryCallAreNamedAndLeaveNothing) {
  // They give something back, look for more, say what an error is, or say no more than that records are missing.
  const std::set<std::string> doneWithout = {"cuptiActivityDisable", "cuptiUnsubscribe", "cuptiGetResultString",
                                             "cuptiActivityGetNumDroppedRecords"};
  const auto run = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(trace, start());
    StepNodes nodes(2);
    for (uint64_t n = 1000; n < 1003; ++n) {
      ASSIGN_OR_RETURN(id, trace->nodeId("building a graph", reinterpret_cast<CUgraphNode>(n)));
      nodes.add(id, n == 1000 ? 0 : 1);
    }
    {
      const FollowClones follow(trace.get(), nodes);
      for (uint64_t n = 1000; n < 1003; ++n)
        clone(n, n + 100);
    }
    trace->watch(nodes);
    launch(1000, 5, 100);
    std::vector<core::StepTime> times;
    RETURN_IF_ERROR(trace->collect("variant 3", nodes, trace->now(), times));
    return times.size() == 2 ? absl::OkStatus() : absl::InternalError("times are missing");
  };
  ASSERT_TRUE(run().ok());
  std::map<std::string, uint64_t> calls = fake->calls;
  EXPECT_THAT(calls, SizeIs(12)); // all but the one that names errors
  for (const auto &[call, count] : calls)
    for (uint64_t nth = 1; nth <= count; ++nth) {
      *fake = {};
      fake->failing = call;
      fake->nth = nth;
      const std::string which = call + " " + std::to_string(nth);
      const absl::Status status = run();
      EXPECT_GE(fake->calls[call], nth) << which;
      // The last of these calls are made while it ends.
      const bool ending = call == "cuptiActivityFlushAll" && nth == count;
      // The time of the launch, which is the first that is asked for, is not needed where nothing ran before.
      const bool launchTime = call == "cuptiGetTimestamp" && nth == 1;
      // Behind the last record there is none.
      const bool end = call == "cuptiActivityGetNextRecord" && nth == count;
      if (doneWithout.contains(call) || ending || launchTime || end) {
        EXPECT_TRUE(status.ok()) << which << ": " << status;
      } else {
        EXPECT_THAT(std::string(status.message()),
                    testing::AnyOf(HasSubstr(call + ": "), HasSubstr("no complete record"),
                                   HasSubstr("libcupti.so.13 is version 0")))
            << which;
      }
      EXPECT_EQ(fake->subscribers, 0) << which;
      EXPECT_THAT(fake->enabledKinds, SizeIs(0)) << which;
      *fake = {};
      EXPECT_TRUE(run().ok()) << which << ", and then without";
    }
  // An error without a name is one all the same.
  *fake = {};
  fake->failing = "cuptiGetResultString";
  fake->otherSubscriber = true;
  EXPECT_THAT(std::string(run().message()), HasSubstr("cuptiSubscribe: unknown error (39)"));
}

} // namespace
} // namespace headrace::cuda
