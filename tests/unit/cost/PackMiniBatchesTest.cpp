// SPDX-License-Identifier: Apache-2.0
//
// HybridServe's mini-batches, printed and corrected, with round numbers and against the fewest that are possible.
#include "runtime/cost/PackMiniBatches.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/cost/HybridTimes.h"

namespace headrace::cost {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

using Requests = std::vector<HybridBlocks>;

Packing packedBy(decltype(packMiniBatches) pack, const HybridTimes &times, const Requests &requests,
                 const MiniBatchSlots &slots) {
  const auto got = pack(times, requests, slots);
  EXPECT_TRUE(got.ok()) << got.status();
  return got.value_or(Packing());
}

// Loads of 10 a KV and 5 an ACT block, 15 for an ACT block's K and V, nothing else: 4 KV and 4 ACT blocks take 60 each.
HybridTimes evenTimes() {
  HybridTimes t = roundTimes();
  t.loadWeightsNs = t.forward.interceptNs = 0;
  t.kvGen.slopeNsPerToken = 15;
  return t;
}

TEST(PackPrinted, GivesEqualRequestsAMiniBatchEach) {
  const Requests requests(128, HybridBlocks{6, 3, 0, 0});
  const MiniBatchSlots slots = {48, 24}; // of eight requests
  EXPECT_EQ(packedBy(packPrinted, roundTimes(), requests, slots).miniBatches.size(), 128U);
  const Packing got = packedBy(packMiniBatches, roundTimes(), requests, slots);
  EXPECT_EQ(got.miniBatches.size(), 16U);
  for (const std::vector<size_t> &miniBatch : got.miniBatches)
    EXPECT_EQ(miniBatch.size(), 8U);
  // A 16th of the weights, 62.5, with 10 x 48 + 5 x 24 is the longer lane in each.
  EXPECT_DOUBLE_EQ(got.layerNs, 1000 + 16 * 600);
}

TEST(PackPrinted, LetsJoinWhatLowersTheImbalance) {
  // 10 x 2 of ACT against 10 x 4 of KV, F_b 2. Request 1 would make it 20 / 80; request 2 makes it 50 / 40, request 3
  // then 60 / 60, which request 4 would leave as it is. It joins request 1 instead: 0 / 40 becomes 10 / 50.
  const Requests requests = {{4, 2, 0, 0}, {4, 0, 0, 0}, {0, 3, 0, 0}, {2, 1, 0, 0}, {1, 1, 0, 0}};
  const Packing got = packedBy(packPrinted, roundTimes(), requests, {100, 100});
  EXPECT_THAT(got.miniBatches, ElementsAre(ElementsAre(0, 2, 3), ElementsAre(1, 4)));
}

TEST(PackPrinted, ScansAgainAsLongAsAnyJoins) {
  // 40 / 10: request 1 would make it 100 / 10, 2 makes it 40 / 90; then 1 makes it 100 / 90.
  const Packing got = packedBy(packPrinted, roundTimes(), {{1, 4, 0, 0}, {0, 6, 0, 0}, {8, 0, 0, 0}}, {100, 100});
  EXPECT_THAT(got.miniBatches, ElementsAre(ElementsAre(0, 1, 2)));
}

TEST(PackPrinted, NeverAddsToNothing) {
  // A request without blocks in host memory or ACT is 0 / 0, which nothing is below; KV alone is infinite.
  const Packing got =
      packedBy(packPrinted, roundTimes(), {{0, 0, 0, 2}, {1, 0, 0, 0}, {1, 0, 0, 0}, {0, 1, 0, 0}}, {100, 100});
  EXPECT_THAT(got.miniBatches, ElementsAre(ElementsAre(0), ElementsAre(1, 3), ElementsAre(2)));
}

TEST(PackMiniBatches, KeepsBothLanesBusy) {
  // Four of 4 KV blocks, four of 4 ACT blocks; K and V of 8 blocks fit. First-fit takes all KV blocks first:
  // 10 x 16 + 5 x 8 = 200 and 15 x 8 = 120. Two of each are 10 x 8 + 5 x 8 = 15 x 8.
  Requests requests(4, {4, 0, 0, 0});
  requests.resize(8, {0, 4, 0, 0});
  const Packing got = packedBy(packMiniBatches, evenTimes(), requests, {16, 8, 8});
  EXPECT_EQ(got.miniBatches.size(), 2U);
  EXPECT_EQ(got.layerNs, 240);
  for (const std::vector<size_t> &miniBatch : got.miniBatches)
    EXPECT_EQ(std::count_if(miniBatch.begin(), miniBatch.end(), [](size_t r) { return r < 4; }), 2);
}

TEST(PackMiniBatches, PrefersOneFewerToBalance) {
  // Request 0 is balanced and each of the others alone would end that; all three fit.
  const Packing got = packedBy(packMiniBatches, evenTimes(), {{4, 4, 0, 0}, {4, 0, 0, 0}, {0, 4, 0, 0}}, {8, 8});
  EXPECT_THAT(got.miniBatches, ElementsAre(ElementsAre(0, 1, 2)));
  // 16 KV blocks need two mini-batches of 8, and the first two requests then share one.
  const Packing two = packedBy(packMiniBatches, evenTimes(), {{4, 4, 0, 0}, {4, 0, 0, 0}, {8, 0, 0, 0}}, {8, 8});
  EXPECT_THAT(two.miniBatches, ElementsAre(ElementsAre(0, 1), ElementsAre(2)));
}

// Request 0 has 10 x 3 + 5 against 15, and any other would raise F_b. KV alone is infinite and stays so with more of
// it: request 2 joins request 1. All of them are 7 KV blocks, one more than there is room for.
TEST(PackMiniBatches, KvAloneJoinsKvAlone) {
  const Packing got = packedBy(packMiniBatches, evenTimes(), {{3, 1, 0, 0}, {1, 0, 0, 0}, {3, 0, 0, 0}}, {6, 6, 5});
  EXPECT_THAT(got.miniBatches, ElementsAre(ElementsAre(0), ElementsAre(1, 2)));
  EXPECT_EQ(got.layerNs, 35 + 40);
}

// 1 KV, 3 ACT, 2 KV and 3 ACT, 4 KV, 3 ACT blocks. Each merge is into the one with which the lanes are nearest to each
// other: 10 x 3 + 5 x 3 = 15 x 3 in one, 10 x 4 + 5 x 6 = 70 against 15 x 6 = 90 in the other.
TEST(PackMiniBatches, MergesIntoTheOneThatIsMostEven) {
  const Packing got = packedBy(packMiniBatches, evenTimes(),
                               {{1, 0, 0, 0}, {0, 3, 0, 0}, {2, 3, 0, 0}, {4, 0, 0, 0}, {0, 3, 0, 0}}, {8, 6, 8});
  EXPECT_THAT(got.miniBatches, ElementsAre(ElementsAre(0, 2), ElementsAre(1, 3, 4)));
  EXPECT_EQ(got.layerNs, 45 + 90);
}

TEST(PackMiniBatches, AreNoMoreThanOfFirstFitDecreasing) {
  // In order, 3 and 6 of 10 would share one, and 4 and 7 have one each.
  const Packing got =
      packedBy(packMiniBatches, evenTimes(), {{3, 0, 0, 0}, {6, 0, 0, 0}, {4, 0, 0, 0}, {7, 0, 0, 0}}, {10, 0});
  EXPECT_THAT(got.miniBatches, ElementsAre(ElementsAre(0, 3), ElementsAre(1, 2)));
  // The same of K and V that are computed from ACT blocks, of those on the device too.
  const Packing computed =
      packedBy(packMiniBatches, evenTimes(), {{0, 0, 3, 0}, {0, 0, 6, 0}, {0, 0, 4, 0}, {0, 0, 7, 0}}, {0, 0, 10});
  EXPECT_THAT(computed.miniBatches, ElementsAre(ElementsAre(0, 3), ElementsAre(1, 2)));
}

TEST(PackMiniBatches, CountsWhatIsLoadedAndWhatIsComputed) {
  // KV blocks on the device need no slot, ACT blocks there need room for their K and V.
  const Requests onDevice(4, HybridBlocks{0, 0, 2, 5});
  EXPECT_EQ(packedBy(packMiniBatches, evenTimes(), onDevice, {0, 0}).miniBatches.size(), 1U);
  EXPECT_EQ(packedBy(packMiniBatches, evenTimes(), onDevice, {0, 0, 4}).miniBatches.size(), 2U);
  EXPECT_TRUE(packedBy(packMiniBatches, evenTimes(), {}, {0, 0}).miniBatches.empty());
  EXPECT_TRUE(packedBy(packPrinted, evenTimes(), {}, {0, 0}).miniBatches.empty());
}

bool holds(const Requests &requests, const std::vector<size_t> &miniBatch, const MiniBatchSlots &slots) {
  int64_t kv = 0, act = 0, generated = 0;
  for (size_t r : miniBatch) {
    kv += requests[r].kvHost;
    act += requests[r].actHost;
    generated += requests[r].actHost + requests[r].actDevice;
  }
  return kv <= slots.kv && act <= slots.act && generated <= slots.generated;
}

void expectEveryRequestOnce(const Packing &packing, const Requests &requests, const MiniBatchSlots &slots) {
  std::vector<size_t> all;
  for (const std::vector<size_t> &miniBatch : packing.miniBatches) {
    EXPECT_TRUE(holds(requests, miniBatch, slots));
    EXPECT_FALSE(miniBatch.empty());
    EXPECT_TRUE(std::is_sorted(miniBatch.begin(), miniBatch.end()));
    all.insert(all.end(), miniBatch.begin(), miniBatch.end());
  }
  std::sort(all.begin(), all.end());
  ASSERT_EQ(all.size(), requests.size());
  for (size_t r = 0; r < all.size(); ++r)
    EXPECT_EQ(all[r], r);
}

Requests someRequests(Random &random, int64_t count, int64_t kv, int64_t act) {
  Requests requests;
  for (int64_t r = 0; r < count; ++r)
    requests.push_back({random.in(0, kv), random.in(0, act), random.in(0, 1) * random.in(0, act), random.in(0, 3)});
  return requests;
}

TEST(PackMiniBatches, HasEveryRequestOnceWithinTheSlots) {
  Random random(19);
  size_t printedCount = 0, correctedCount = 0;
  for (int i = 0; i < 100; ++i) {
    SCOPED_TRACE(i);
    const Requests requests = someRequests(random, random.in(1, 60), 10, 8);
    const MiniBatchSlots slots = {random.in(10, 60), random.in(8, 40), random.in(16, 60)};
    HybridTimes times = random.times({2, 1}, true);
    times.loadWeightsNs = static_cast<double>(random.in(0, 1) * random.in(0, 9000));
    const Packing printed = packedBy(packPrinted, times, requests, slots);
    const Packing corrected = packedBy(packMiniBatches, times, requests, slots);
    expectEveryRequestOnce(printed, requests, slots);
    expectEveryRequestOnce(corrected, requests, slots);
    EXPECT_EQ(corrected.miniBatches, packedBy(packMiniBatches, times, requests, slots).miniBatches);
    // Its time, recomputed; never longer than with a mini-batch a request.
    const auto layerNs = [&](const std::vector<std::vector<size_t>> &miniBatches) {
      HybridTimes share = times;
      share.loadWeightsNs /= static_cast<double>(miniBatches.size());
      double sum = 0;
      for (const std::vector<size_t> &miniBatch : miniBatches) {
        HybridBlocks blocks;
        for (size_t r : miniBatch)
          blocks += requests[r];
        sum += correctedLanes(share, blocks).layerNs();
      }
      return sum;
    };
    EXPECT_DOUBLE_EQ(layerNs(corrected.miniBatches), corrected.layerNs);
    EXPECT_DOUBLE_EQ(layerNs(printed.miniBatches), printed.layerNs);
    printedCount += printed.miniBatches.size();
    correctedCount += corrected.miniBatches.size();
  }
  EXPECT_LT(10 * correctedCount, 9 * printedCount); // 0.8 of them
}

// The fewest mini-batches, over all subsets.
size_t fewest(const Requests &requests, const MiniBatchSlots &slots) {
  const size_t sets = size_t{1} << requests.size();
  std::vector<bool> fit(sets);
  for (size_t set = 0; set < sets; ++set) {
    std::vector<size_t> members;
    for (size_t r = 0; r < requests.size(); ++r) {
      if ((set >> r & 1) != 0)
        members.push_back(r);
    }
    fit[set] = holds(requests, members, slots);
  }
  std::vector<size_t> least(sets, requests.size());
  least[0] = 0;
  for (size_t set = 1; set < sets; ++set) {
    for (size_t part = set; part != 0; part = (part - 1) & set) {
      if (fit[part])
        least[set] = std::min(least[set], least[set ^ part] + 1);
    }
  }
  return least[sets - 1];
}

TEST(PackMiniBatches, AreTheFewestOrOneMore) {
  Random random(23);
  int equal = 0;
  constexpr int kCases = 200;
  for (int i = 0; i < kCases; ++i) {
    SCOPED_TRACE(i);
    const Requests requests = someRequests(random, random.in(4, 8), 10, 8);
    const MiniBatchSlots slots = {random.in(10, 24), random.in(8, 16), random.in(16, 30)};
    const HybridTimes times = random.times({2, 1}, true);
    const size_t count = packedBy(packMiniBatches, times, requests, slots).miniBatches.size();
    const size_t least = fewest(requests, slots);
    EXPECT_GE(count, least);
    EXPECT_LE(count, least + 1);
    equal += count == least ? 1 : 0;
  }
  EXPECT_GE(equal, kCases * 95 / 100);
}

TEST(PackMiniBatches, RefusesWhatFitsNowhere) {
  const auto refused = [](const Requests &requests, const MiniBatchSlots &slots, absl::StatusCode code) {
    const auto got = packMiniBatches(evenTimes(), requests, slots);
    EXPECT_EQ(got.status().code(), code);
    EXPECT_EQ(packPrinted(evenTimes(), requests, slots).status(), got.status());
    return std::string(got.status().message());
  };
  const MiniBatchSlots slots = {8, 4, 6, {2048, 1024}};
  const auto tooLarge = absl::StatusCode::kResourceExhausted, invalid = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(refused({{8, 4, 2, 0}, {9, 0, 0, 0}}, slots, tooLarge),
            "request 1: 9 KV blocks in host memory of 2048 bytes, 18432 in all: expected at most the 8 that a "
            "mini-batch has room for");
  EXPECT_THAT(refused({{0, 5, 0, 0}}, slots, tooLarge),
              HasSubstr("5 ACT blocks in host memory of 1024 bytes, 5120 in all: expected at most the 4"));
  EXPECT_THAT(refused({{0, 4, 3, 0}}, slots, tooLarge),
              HasSubstr("7 KV blocks computed from ACT blocks of 2048 bytes, 14336 in all: expected at most the 6"));
  EXPECT_THAT(refused({{16, 0, 0, 0}}, {0, 0, 0, {262144, 0}}, tooLarge),
              HasSubstr("16 KV blocks in host memory of 262144 bytes, 4194304 in all: expected at most the 0"));
  EXPECT_THAT(refused({{-1, 0, 0, 0}}, slots, invalid), HasSubstr("request 0: -1 blocks: expected 0 to"));
  EXPECT_THAT(refused({}, {-1, 0, 0}, invalid), HasSubstr("slots of -1 KV"));
  EXPECT_THAT(refused(Requests(65537), slots, invalid), HasSubstr("65537 requests: expected at most 65536"));
  HybridTimes times = evenTimes();
  times.blockTokens = -1;
  EXPECT_THAT(std::string(packMiniBatches(times, {}, slots).status().message()), HasSubstr("blockTokens"));
}

} // namespace
} // namespace headrace::cost
