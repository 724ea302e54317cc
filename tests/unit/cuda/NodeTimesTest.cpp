// SPDX-License-Identifier: Apache-2.0
//
// Made-up records of nodes, joined to steps.
#include "runtime/cuda/NodeTimes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace headrace::cuda {
namespace {

using testing::HasSubstr;
using testing::SizeIs;
using Times = std::vector<core::StepTime>;

// Three steps: a kernel (id 100), a library call (101, 102), a copy (103). Instantiation cloned each to id + 100.
StepNodes threeSteps() {
  StepNodes nodes(3);
  nodes.add(100, 0);
  nodes.add(101, 1);
  nodes.add(102, 1);
  nodes.add(103, 2);
  for (uint64_t id = 100; id < 104; ++id)
    nodes.addClone(id, id + 100);
  return nodes;
}

const ClockPair kSameClock{};
std::string text(const Times &times) {
  std::string out;
  for (const core::StepTime &time : times)
    out += "[" + std::to_string(time.startNs) + "," + std::to_string(time.endNs) + "]";
  return out;
}

// All records through the buffer, then joined: the text of the times, and how many steps are missing.
struct Joined {
  std::string times;
  uint32_t missing = 0;
};
Joined join(const StepNodes &nodes, const std::vector<NodeRecord> &list, uint64_t launchedAt = 0,
            const ClockPair &clocks = kSameClock) {
  LaunchRecords records;
  records.watch(nodes);
  for (const NodeRecord &record : list)
    records.add(record);
  Times times;
  const uint32_t missing = joinSteps(nodes, records.records(), launchedAt, clocks, times);
  return {text(times), missing};
}

NodeRecord at(uint64_t node, uint32_t launch, uint64_t start, uint64_t end) {
  return {.node = node, .launch = launch, .start = start, .end = end};
}

TEST(StepNodes, ClonesOfClonesAreTheSameNode) {
  StepNodes nodes(2);
  nodes.add(5, 1);
  nodes.addClone(5, 6);
  nodes.addClone(6, 7);
  nodes.addClone(8, 9); // of another graph
  EXPECT_EQ(nodes.nodes(), 1u);
  for (uint64_t id : {5, 6, 7})
    EXPECT_EQ(nodes.find(id), 0u) << id;
  for (uint64_t id : {0, 8, 9})
    EXPECT_EQ(nodes.find(id), nodes.nodes()) << id;
  EXPECT_EQ(nodes.step(0), 1u);
}

TEST(JoinSteps, AStepIsFromItsFirstNodesStartToItsLastNodesEnd) {
  const Joined joined =
      join(threeSteps(), {at(200, 7, 10, 20), at(201, 7, 21, 30), at(202, 7, 34, 50), at(203, 7, 12, 45)});
  EXPECT_EQ(joined.times, "[10,20][21,50][12,45]");
  EXPECT_EQ(joined.missing, 0u);
}

TEST(JoinSteps, TheOrderOfRecordsDoesNotMatter) {
  std::vector<NodeRecord> list = {at(200, 7, 10, 20), at(201, 7, 21, 30), at(202, 7, 34, 50), at(203, 7, 12, 45),
                                  at(200, 6, 1, 2),   at(201, 6, 2, 3),   at(202, 6, 3, 4),   at(203, 6, 1, 5)};
  const auto less = [](const NodeRecord &a, const NodeRecord &b) { return a.end < b.end; };
  std::sort(list.begin(), list.end(), less);
  do
    ASSERT_EQ(join(threeSteps(), list).times, "[10,20][21,50][12,45]");
  while (std::next_permutation(list.begin(), list.end(), less));
}

TEST(JoinSteps, IdsOfNodesAsTheyWereMadeAreKnownToo) {
  EXPECT_EQ(join(threeSteps(), {at(100, 1, 1, 2), at(201, 1, 2, 3), at(102, 1, 3, 4), at(203, 1, 4, 5)}).missing, 0u);
}

TEST(JoinSteps, ANodeRecordedInPartsIsOneRange) {
  const Joined joined =
      join(threeSteps(), {at(200, 1, 1, 2), at(201, 1, 2, 3), at(202, 1, 3, 4), at(203, 1, 9, 12), at(203, 1, 4, 8)});
  EXPECT_EQ(joined.times, "[1,2][2,4][4,12]");
}

TEST(JoinSteps, AStepIsMissingIfOneOfItsNodesIs) {
  const Joined joined = join(threeSteps(), {at(200, 7, 10, 20), at(201, 7, 21, 30), at(203, 7, 12, 45)});
  EXPECT_EQ(joined.times, "[10,20][0,0][12,45]");
  EXPECT_EQ(joined.missing, 1u);
  // Without a time a record is none.
  EXPECT_EQ(join(threeSteps(), {at(200, 7, 0, 0), at(201, 7, 1, 2), at(202, 7, 2, 3), at(203, 7, 3, 4)}).missing, 1u);
  EXPECT_EQ(join(threeSteps(), {}).missing, 3u);
  // Neither is a step of which no node is known.
  EXPECT_EQ(join(StepNodes(2), {}).missing, 2u);
}

TEST(JoinSteps, AnEarlierLaunchsRecordsDoNotStandInForMissingOnes) {
  const std::vector<NodeRecord> earlier = {at(200, 6, 1, 2), at(201, 6, 2, 3), at(202, 6, 3, 4), at(203, 6, 1, 5)};
  std::vector<NodeRecord> list = earlier;
  list.push_back(at(200, 7, 10, 20)); // all that came of the last launch
  const Joined joined = join(threeSteps(), list);
  EXPECT_EQ(joined.times, "[10,20][0,0][0,0]");
  EXPECT_EQ(joined.missing, 2u);
  // Nothing came of it: what there is ended before it was called.
  EXPECT_EQ(join(threeSteps(), earlier, 6).missing, 3u);
  EXPECT_EQ(join(threeSteps(), earlier, 5).missing, 0u);
}

TEST(JoinSteps, CorrelationIdsComeRound) {
  const Joined joined = join(threeSteps(), {at(200, 3, 10, 20), at(201, 3, 21, 30), at(200, 0xfffffff0, 1, 2),
                                            at(202, 3, 34, 50), at(203, 3, 12, 45)});
  EXPECT_EQ(joined.times, "[10,20][21,50][12,45]");
}

TEST(JoinSteps, AnotherGraphsLaunchIsNotTheLast) {
  StepNodes other(1);
  other.add(900, 0);
  LaunchRecords records;
  records.watch(threeSteps());
  records.watch(other);
  for (uint64_t node : {200, 201, 202, 203})
    records.add(at(node, 1, 1, 2));
  records.add(at(900, 2, 3, 4));
  Times times;
  EXPECT_EQ(joinSteps(other, records.records(), 0, kSameClock, times), 0u);
  EXPECT_EQ(text(times), "[3,4]");
  EXPECT_EQ(joinSteps(threeSteps(), records.records(), 0, kSameClock, times), 3u);
}

TEST(JoinSteps, TimesAreBroughtToTheHostsClock) {
  // The records' clock is ahead by 10^18 ns, and stood at that + 500 when the host's was 2500.
  const uint64_t ahead = 1'000'000'000'000'000'000;
  StepNodes nodes(1);
  nodes.add(1, 0);
  const Joined joined =
      join(nodes, {at(1, 1, ahead + 400, ahead + 700)}, ahead, {.recorded = ahead + 500, .host = 2500});
  EXPECT_EQ(joined.times, "[2400,2700]");
}

TEST(LaunchRecords, UnknownIdsAndWhatIsNotOfAGraphAreNotKept) {
  LaunchRecords records;
  records.watch(threeSteps());
  records.add(at(0, 9, 1, 2));    // a copy in front of the graph
  records.add(at(5555, 9, 1, 2)); // a node of another device's graph, launched later
  records.add(at(200, 8, 1, 2));
  EXPECT_THAT(records.records(), SizeIs(1));
  EXPECT_EQ(records.unknown(), 1u);
  EXPECT_EQ(records.dropped(), 0u);
}

TEST(LaunchRecords, TheBufferDoesNotGrow) {
  LaunchRecords records;
  records.watch(threeSteps());
  records.add(at(200, 1, 1, 2));
  const NodeRecord *first = records.records().data();
  for (uint32_t launch = 2; launch < 50; ++launch)
    for (int i = 0; i < 20; ++i)
      records.add(at(203, launch, 1, 2));
  EXPECT_EQ(records.records().data(), first);
  EXPECT_THAT(records.records(), SizeIs(8)); // two a node
  EXPECT_EQ(records.dropped(), 48u * 12);
}

TEST(LaunchRecords, MissingRecordsAreReportedWithNumbersAndWhatToDo) {
  LaunchRecords records;
  const StepNodes nodes = threeSteps();
  records.watch(nodes);
  records.add(at(5555, 1, 1, 2));
  records.addDropped(4);
  const absl::Status status = recordsMissing("variant 12", 2, nodes, records);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("variant 12: CUPTI has no complete record of 2 of 3 steps"),
                    HasSubstr("4 records were dropped, 1 are of unknown graph nodes"), HasSubstr("--trace-by stamps")));
}

TEST(ChannelsOf, CopiesHaveTheirStepAndQueue) {
  NodeRecord copy = at(203, 1, 1, 2);
  copy.copyBytes = 1 << 20;
  copy.channelType = 2;
  copy.channel = 11;
  NodeRecord earlier = copy;
  earlier.node = 200;
  earlier.channelType = 1;
  const std::vector<CopyChannel> channels = channelsOf(threeSteps(), {{copy, at(201, 1, 1, 2), earlier}});
  ASSERT_THAT(channels, SizeIs(2)); // the kernel has none
  EXPECT_EQ(channels[0].step, 0u);
  EXPECT_EQ(channels[0].type, ChannelType::Compute);
  EXPECT_EQ(channels[1].step, 2u);
  EXPECT_EQ(channels[1].bytes, uint64_t{1} << 20);
  EXPECT_EQ(channels[1].type, ChannelType::AsyncCopy);
  EXPECT_EQ(channels[1].channel, 11u);
}

} // namespace
} // namespace headrace::cuda
