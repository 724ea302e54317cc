// SPDX-License-Identifier: Apache-2.0
#include "compiler/choose/BestActShare.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "absl/strings/str_cat.h"
#include "compiler/choose/Explain.h"
#include "runtime/model/ModelSpec.h"
#include "tests/unit/compiler/Requests.h"

namespace headrace::compiler {
namespace {

using cost::Binding;

// Both lanes are lines in the share, and hide each other whole.
struct Lanes {
  double link0, linkSlope, compute0, computeSlope; // at part p: x0 + slope p
  int64_t least = 0, most = kActShareParts;        // parts that memory holds
  int asked = 0;
  bool stated = false; // what KV may take of the device, which is too little for fewer parts

  ShareTimes at(int64_t part) const {
    const auto p = static_cast<double>(part);
    ShareTimes times{0, static_cast<uint64_t>(compute0 + computeSlope * p),
                     static_cast<uint64_t>(link0 + linkSlope * p)};
    times.iterationNs = std::max(times.computeNs, times.linkNs);
    return times;
  }
  absl::StatusOr<ActShareChoice> search(std::optional<int64_t> start = std::nullopt) {
    return bestActShare(
        [this](int64_t part) -> absl::StatusOr<ShareTimes> {
          ++asked;
          if (stated && part < least)
            return absl::InvalidArgumentError(absl::StrCat("too little for ", part));
          if (part < least || part > most)
            return absl::ResourceExhaustedError(absl::StrCat("no room for ", part));
          return at(part);
        },
        [start] { return start; });
  }
};

// 6000 - 30 p of the link and 500 + 125 p of compute meet at p = 35.5: at 35 it takes 4950, at 36 5000.
// 6000 - 30 p of the link and 500 + 125 p of compute meet at p = 35.5: at 35 it takes 4950, at 36 5000.
TEST(BestActShare, IsWhereBothLanesTakeTheSame) {
  // 0, what it starts from, and what the two lines leave open: 36 and 35; from 35 only 36.
  for (const auto &[start, asked] : {std::pair(20, 4), std::pair(35, 3), std::pair(36, 3), std::pair(64, 4)}) {
    SCOPED_TRACE(start);
    Lanes lanes{6000, -30, 500, 125};
    const absl::StatusOr<ActShareChoice> choice = lanes.search(start);
    ASSERT_TRUE(choice.ok()) << choice.status();
    EXPECT_EQ(choice->part, 35);
    EXPECT_EQ(choice->tried.at(35)->iterationNs, 4950);
    EXPECT_EQ(choice->binding, Binding::kBalanced);
    EXPECT_EQ(lanes.asked, asked);
  }
}

// Without a start the first step is a quarter, which makes the lines: 0, 16, 36, 35.
TEST(BestActShare, FindsItWithoutAStart) {
  Lanes lanes{6000, -30, 500, 125};
  const absl::StatusOr<ActShareChoice> choice = lanes.search();
  ASSERT_TRUE(choice.ok()) << choice.status();
  EXPECT_EQ(choice->part, 35);
  EXPECT_EQ(lanes.asked, 4);
}

// Keys and values alone compute longer: nothing else can be shorter, and one plan is enough.
TEST(BestActShare, WhereTheLinkIsTheShorterAnywayOneIsEnough) {
  Lanes lanes{100, -1, 500, 10};
  ASSERT_TRUE(lanes.search().ok());
  EXPECT_EQ(lanes.asked, 1);
}

// What is stated for KV holds a block of each cache and slots only where activations are in place of many others.
TEST(BestActShare, LooksAtMoreActivationsWhereKvMayNotHaveAsMuch) {
  Lanes lanes{.link0 = 6000, .linkSlope = -30, .compute0 = 500, .computeSlope = 125, .least = 40, .stated = true};
  const absl::StatusOr<ActShareChoice> choice = lanes.search();
  ASSERT_TRUE(choice.ok()) << choice.status();
  EXPECT_EQ(choice->part, 40);
  EXPECT_EQ(choice->binding, Binding::kDeviceMemory);
  lanes.least = kActShareParts + 1;
  const absl::Status refused = lanes.search().status();
  EXPECT_EQ(refused, absl::InvalidArgumentError("too little for 64")); // which asks for the least
}

TEST(BestActShare, NamesWhatKeepsTheLanesFromBeingEqual) {
  struct {
    Lanes lanes;
    int64_t part;
    Binding binding;
  } const cases[] = {
      {{100, -1, 500, 10}, 0, Binding::kAllKv},
      {{6000, -30, 500, 10}, 64, Binding::kAllAct},
      {{6000, -30, 500, 125, 0, 20}, 20, Binding::kHostMemory},
      {{6000, -30, 500, 125, 50, 64}, 50, Binding::kHostMemory},
      {{6000, 30, 500, 10}, 0, Binding::kActLoadsMore},
      {{1000, -10, 0, 600}, 1, Binding::kBlocksTooCoarse},
  };
  for (const std::optional<int64_t> start : {std::optional<int64_t>(), std::optional<int64_t>(40)})
    for (auto c : cases) {
      SCOPED_TRACE(cost::bindingName(c.binding));
      const absl::StatusOr<ActShareChoice> choice = c.lanes.search(start);
      ASSERT_TRUE(choice.ok()) << choice.status();
      EXPECT_EQ(choice->part, c.part);
      EXPECT_EQ(choice->binding, c.binding);
      EXPECT_LE(c.lanes.asked, 12);
    }
}

TEST(BestActShare, TellsDeviceMemoryFromTheHosts) {
  const absl::StatusOr<ActShareChoice> choice = bestActShare(
      [](int64_t part) -> absl::StatusOr<ShareTimes> {
        if (part <= 20)
          return Lanes{6000, -30, 500, 125}.at(part);
        CompileRequest small = request(tinyOpt(2));
        small.goal.deviceMemory = 1;
        small.goal.kvDeviceMemory = 0;
        small.policy.interval = 1;
        return compile(small).status(); // as it is refused
      },
      [] { return std::optional<int64_t>(20); });
  ASSERT_TRUE(choice.ok()) << choice.status();
  EXPECT_EQ(choice->part, 20);
  EXPECT_EQ(choice->binding, Binding::kDeviceMemory);
}

// A share that overlaps less takes longer though its lanes are nearer to each other: above a half 1000 longer. At 61,
// where the lines cross, it is 4170 + 1000; at 32, which the quarters find, 5040.
TEST(BestActShare, WhereStepsWaitTheQuartersAreTriedToo) {
  const absl::StatusOr<ActShareChoice> choice = bestActShare(
      [](int64_t part) -> absl::StatusOr<ShareTimes> {
        const Lanes lanes{6000, -30, 500, 60};
        ShareTimes times = lanes.at(part);
        times.iterationNs += part > 32 ? 1000 : 0;
        return times;
      },
      [] { return std::optional<int64_t>(61); });
  ASSERT_TRUE(choice.ok()) << choice.status();
  EXPECT_EQ(choice->part, 32);
  EXPECT_EQ(choice->binding, Binding::kWaits);
}

// 16 blocks a sequence: four parts each round to as many of ACT. 9 of 16 are the best, 33 to 36.
TEST(BestActShare, PartsThatRoundToTheSameAreSteppedOver) {
  for (const int64_t start : {0, 30, 36, 50}) {
    SCOPED_TRACE(start);
    Lanes lanes{6000, -30, 500, 125};
    const absl::StatusOr<ActShareChoice> choice = bestActShare(
        [&](int64_t part) -> absl::StatusOr<ShareTimes> {
          ++lanes.asked;
          return lanes.at((part + 3) / 4 * 4);
        },
        [start] { return std::optional(start); });
    ASSERT_TRUE(choice.ok()) << choice.status();
    EXPECT_EQ((choice->part + 3) / 4, 9); // at 36: 5000; at 32: 5040
    EXPECT_LE(lanes.asked, 12);
  }
}

TEST(BestActShare, OfEqualOnesTheSmallest) {
  Lanes lanes{1000, 0, 100, 0};
  const absl::StatusOr<ActShareChoice> choice = lanes.search();
  ASSERT_TRUE(choice.ok()) << choice.status();
  EXPECT_EQ(choice->part, 0);
}

TEST(BestActShare, WhereMemoryHoldsNoneTheFirstRefusalStands) {
  Lanes none{6000, -30, 500, 125, 65, 65};
  EXPECT_EQ(none.search(40).status(), absl::ResourceExhaustedError("no room for 0"));
  const absl::Status wrong = absl::InvalidArgumentError("wrong");
  EXPECT_EQ(bestActShare([&](int64_t) -> absl::StatusOr<ShareTimes> { return wrong; },
                         [] { return std::optional<int64_t>(); })
                .status(),
            wrong);
}

// Of none it takes 1000, and 5 less with each part.
TEST(BestActShare, RefusesWithTheLeastMemoryThatWouldDo) {
  const auto refused = [](int64_t part) -> absl::StatusOr<ShareTimes> {
    return hostExhausted(tinyOpt(3), roundHardware(), static_cast<uint64_t>(1000 - 5 * part));
  };
  const absl::Status status = bestActShare(refused, [] { return std::nullopt; }).status();
  const std::optional<LeastMemory> least = leastMemory(status);
  ASSERT_TRUE(least) << status;
  EXPECT_EQ(least->of, LeastMemory::Of::Host);
  EXPECT_EQ(least->bytes, 1000 - 5 * 64);
}

// Against all 65: the best, where both lanes are lines and no memory is short, whatever it starts from.
TEST(BestActShare, IsTheBestOfAllShares) {
  std::mt19937 random(7);
  const auto draw = [&](double low, double high) { return std::uniform_real_distribution<double>(low, high)(random); };
  for (int turn = 0; turn < 2000; ++turn) {
    Lanes lanes{draw(0, 1e6), draw(-2e4, 2e3), draw(0, 1e6), draw(0, 3e4)};
    lanes.link0 = std::max(lanes.link0, -lanes.linkSlope * kActShareParts);
    uint64_t least = UINT64_MAX;
    for (int64_t part = 0; part <= kActShareParts; ++part)
      least = std::min(least, lanes.at(part).iterationNs);
    const std::optional<int64_t> start =
        turn % 4 == 0 ? std::nullopt : std::optional(std::uniform_int_distribution<int64_t>(0, 64)(random));
    const absl::StatusOr<ActShareChoice> choice = lanes.search(start);
    ASSERT_TRUE(choice.ok()) << choice.status();
    EXPECT_EQ(lanes.at(choice->part).iterationNs, least) << "turn " << turn;
    EXPECT_LE(lanes.asked, 8) << "turn " << turn;
  }
}

} // namespace
} // namespace headrace::compiler
