// SPDX-License-Identifier: Apache-2.0
#include "runtime/cost/lm_offload/Parallelism.h"

#include <algorithm>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace headrace::cost {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kAll = std::numeric_limits<int64_t>::max();

//   a
//   b --> c --> d
//          +--> e
std::vector<GraphOp> fork() { return {{"a", {}, {}}, {"b", {}, {}}, {"c", {1}, {}}, {"d", {2}, {}}, {"e", {2}, {}}}; }

// So many ops side by side, between one before and one behind; each takes 1200 ns on a thread, less with more up to 8.
std::vector<GraphOp> sideBySide(size_t width) {
  std::vector<ThreadTime> record;
  for (const int64_t threads : {1, 2, 4, 8, 12, 15, 16, 56, 107})
    record.push_back({threads, 1200.0 / static_cast<double>(std::min<int64_t>(threads, 8))});
  std::vector<GraphOp> ops = {{"first", {}, record}};
  GraphOp last{"last", {}, record};
  for (size_t i = 1; i <= width; ++i) {
    ops.push_back({"op" + std::to_string(i), {0}, record});
    last.after.push_back(i);
  }
  ops.push_back(last);
  return ops;
}

TransferTasks transfersOf(std::array<double, kTransferTasks> bytes) {
  return {.bytes = bytes, .h2dBandwidth = 1e9, .d2hBandwidth = 2e9}; // a byte a ns, two
}

TEST(KahnOrder, HasEachOpAfterWhatItWaitsFor) {
  EXPECT_THAT(*kahnOrder(fork()), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(*kahnOrder(std::vector<GraphOp>{{"z", {1}, {}}, {"y", {2}, {}}, {"x", {}, {}}}), ElementsAre(2, 1, 0));
}

TEST(KahnOrder, RefusesCyclesAndWhatIsNotThere) {
  const auto message = [](const std::vector<GraphOp> &ops) {
    const auto order = kahnOrder(ops);
    EXPECT_EQ(order.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(order.status().message());
  };
  // s is outside of the cycle, t waits for it.
  EXPECT_EQ(message({{"s", {}, {}}, {"t", {2}, {}}, {"u", {3}, {}}, {"v", {2}, {}}}),
            "op v waits for itself: expected a graph without cycles");
  EXPECT_THAT(message({{"self", {0}, {}}}), HasSubstr("op self waits for itself"));
  EXPECT_EQ(message({}), "a graph without ops");
  EXPECT_EQ(message({{"a", {7}, {}}}), "a: after op 7: expected below 1");
}

TEST(RunGraph, StartsOpsWhenThoseBeforeHaveEnded) {
  const std::vector<double> ns = {5, 1, 1, 4, 3};
  EXPECT_EQ(runGraph(fork(), ns, kAll).ns, 6); // b, c, then d until 6; a until 5
  EXPECT_EQ(runGraph(fork(), ns, kAll).concurrency, 3);
  EXPECT_EQ(runGraph(fork(), ns, 1).ns, 14); // one after the other
  EXPECT_EQ(runGraph(fork(), ns, 1).concurrency, 1);
  EXPECT_EQ(runGraph(fork(), ns, 2).ns, 8); // a | b c d: a ends at 5, then e until 8
}

TEST(GraphWidths, HaveThreeMeanings) {
  const auto shortA = graphWidths(fork(), std::vector<double>{1, 1, 1, 4, 3});
  ASSERT_TRUE(shortA.ok()) << shortA.status();
  EXPECT_EQ(shortA->levels, 2);
  EXPECT_EQ(shortA->concurrency, 2);
  EXPECT_EQ(shortA->antichain, 3); // a, d, e
  const auto longA = graphWidths(fork(), std::vector<double>{5, 1, 1, 4, 3});
  EXPECT_EQ(longA->levels, 2);
  EXPECT_EQ(longA->concurrency, 3);
  EXPECT_EQ(longA->antichain, 3);
}

// Against all sets of ops of random graphs; concurrency and levels are antichains, so never wider.
TEST(GraphWidths, AreThoseOfAllSets) {
  std::mt19937 random(3);
  for (int i = 0; i < 100; ++i) {
    const size_t n = 1 + random() % 9;
    std::vector<GraphOp> ops(n);
    std::vector<double> ns(n);
    std::vector<unsigned> needs(n, 0); // as bits, all that an op needs
    for (size_t op = 0; op < n; ++op) {
      ns[op] = 1 + random() % 5;
      for (size_t before = 0; before < op; ++before) {
        if (random() % 4 == 0) {
          ops[op].after.push_back(before);
          needs[op] |= needs[before] | 1u << before;
        }
      }
    }
    int64_t widest = 0;
    for (unsigned set = 1; set < 1u << n; ++set) {
      bool apart = true;
      for (size_t op = 0; op < n; ++op)
        apart = apart && !((set >> op & 1) && (needs[op] & set));
      if (apart)
        widest = std::max<int64_t>(widest, __builtin_popcount(set));
    }
    const auto widths = graphWidths(ops, ns);
    ASSERT_TRUE(widths.ok()) << widths.status();
    EXPECT_EQ(widths->antichain, widest) << i;
    EXPECT_LE(widths->concurrency, widest) << i;
    EXPECT_LE(widths->levels, widest) << i;
  }
}

TEST(Parallelism, IsTheFastestThatSparesFive) {
  // 3 x 8 = 24 of 32 threads compute, 8 load and store; 3 x 12 leave no five. 150 + 150 + 150 ns.
  const auto found = findParallelism(sideBySide(3), transfersOf({100, 300, 0, 10, 0}), 32);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->intraOp, 8);
  EXPECT_EQ(found->interOpCompute, 3);
  EXPECT_EQ(found->interOp, 8);
  EXPECT_EQ(found->computeNs, 450);
  EXPECT_EQ(found->transferNs, 300);
  // One each; the three that are left go to load_cache: 300, then 150 and 100, where load_weight has 100 as well but
  // comes first.
  EXPECT_THAT(found->transferThreads, ElementsAre(2, 3, 1, 1, 1));
  EXPECT_EQ(found->givenUp, "");
}

// Twelve inter-op threads would be seven ops at once beside five tasks: with 16 threads each they take 112 of 112.
TEST(Parallelism, CannotBeTwelveAndSixteenOfAHundredAndTwelve) {
  const auto found = findParallelism(sideBySide(7), transfersOf({0, 0, 0, 0, 0}), 112);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->interOp, 12);
  EXPECT_EQ(found->intraOp, 8); // the fewest of equally fast ones; 15 x 7 = 105 is the most
  const auto wide = findParallelism(sideBySide(7), transfersOf({0, 0, 0, 0, 0}), 7 * 16 + 5);
  EXPECT_EQ(wide->intraOp, 8);
  std::vector<GraphOp> growing = sideBySide(7); // more threads are always faster
  for (GraphOp &op : growing)
    for (ThreadTime &time : op.record)
      time.ns = 1200.0 / static_cast<double>(time.threads);
  EXPECT_EQ(findParallelism(growing, transfersOf({0, 0, 0, 0, 0}), 112)->intraOp, 15);
  EXPECT_EQ(findParallelism(growing, transfersOf({0, 0, 0, 0, 0}), 116)->intraOp, 15);
  EXPECT_EQ(findParallelism(growing, transfersOf({0, 0, 0, 0, 0}), 117)->intraOp, 16);
}

TEST(Parallelism, DoesNotHurryComputeThatTransfersOutlast) {
  const auto found = findParallelism(sideBySide(2), transfersOf({0, 0, 0, 7200, 0}), 64); // 7200 / 2 ns
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->transferNs, 3600);
  EXPECT_EQ(found->intraOp, 1); // 3 x 1200 ns
}

TEST(Parallelism, SaysWhatItGivesUp) {
  auto found = findParallelism(sideBySide(3), transfersOf({1, 1, 1, 1, 1}), 5);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->interOpCompute, 1);
  EXPECT_EQ(found->intraOp, 1);
  EXPECT_EQ(found->computeNs, 5 * 1200); // one op after the other
  EXPECT_EQ(found->givenUp, "5 threads: the five load and store tasks have no threads of their own, they share those "
                            "of compute");
  found = findParallelism(sideBySide(3), transfersOf({1, 1, 1, 1, 1}), 7);
  EXPECT_EQ(found->interOpCompute, 2);
  EXPECT_EQ(found->computeNs, 4 * 1200); // first, two, one, last
  EXPECT_EQ(found->givenUp, "7 threads: 2 of 3 ops that could run at once do, so that five threads are left to load "
                            "and store");
  EXPECT_EQ(findParallelism(sideBySide(3), transfersOf({1, 1, 1, 1, 1}), 8)->givenUp, "");
}

TEST(Parallelism, RefusesWhatIsNoRecord) {
  const auto message = [](const std::vector<GraphOp> &ops, const TransferTasks &transfers, int64_t threads) {
    const auto found = findParallelism(ops, transfers, threads);
    EXPECT_EQ(found.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(found.status().message());
  };
  const TransferTasks none = transfersOf({0, 0, 0, 0, 0});
  std::vector<GraphOp> ops = sideBySide(1);
  EXPECT_EQ(message(ops, none, 0), "0 threads: expected at least 1");
  EXPECT_EQ(message(ops, transfersOf({-1, 0, 0, 0, 0}), 8), "a transfer of -1 bytes: expected at least 0");
  EXPECT_EQ(message(ops, {.bytes = {}, .h2dBandwidth = 0, .d2hBandwidth = 1}, 8),
            "a link of 0 bytes/s: expected a positive bandwidth");
  ops[1].record[2].ns = 0;
  EXPECT_EQ(message(ops, none, 8), "op1: 0 ns: expected a positive time");
  ops[1].record.pop_back();
  ops[1].record[2].ns = 1;
  EXPECT_EQ(message(ops, none, 8), "op1: other numbers of threads than first's");
  ops[1].record[2].threads = 2;
  EXPECT_EQ(message(ops, none, 8), "op1: a record of 2 threads: expected ascending numbers");
  ops[1].record.clear();
  EXPECT_EQ(message(ops, none, 8), "op1: no record: expected times by threads");
  EXPECT_THAT(message({{"self", {0}, {{1, 1}}}}, none, 8), HasSubstr("without cycles"));
}

} // namespace
} // namespace headrace::cost
