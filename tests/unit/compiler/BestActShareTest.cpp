// SPDX-License-Identifier: Apache-2.0
#include "compiler/choose/BestActShare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "absl/strings/str_cat.h"

namespace headrace::compiler {
namespace {

using testing::HasSubstr;

// Both lanes are lines in the share, and hide each other whole.
struct Lanes {
  double link0, linkSlope, compute0, computeSlope; // at part p: x0 + slope p
  int64_t least = 0, most = kActShareParts;        // parts that memory holds
  int asked = 0;

  ShareTimes at(int64_t part) const {
    const auto p = static_cast<double>(part);
    ShareTimes times{0, static_cast<uint64_t>(compute0 + computeSlope * p),
                     static_cast<uint64_t>(link0 + linkSlope * p)};
    times.iterationNs = std::max(times.computeNs, times.linkNs);
    return times;
  }
  absl::StatusOr<ActShareChoice> search() {
    return bestActShare([this](int64_t part) -> absl::StatusOr<ShareTimes> {
      ++asked;
      if (part < least || part > most)
        return absl::ResourceExhaustedError(absl::StrCat("no room for ", part));
      return at(part);
    });
  }
};

// 6000 - 30 p of the link and 500 + 125 p of compute meet at p = 35.5: at 35 it takes 4950, at 36 5000.
TEST(BestActShare, IsWhereBothLanesTakeTheSame) {
  Lanes lanes{6000, -30, 500, 125};
  const absl::StatusOr<ActShareChoice> choice = lanes.search();
  ASSERT_TRUE(choice.ok()) << choice.status();
  EXPECT_EQ(choice->part, 35);
  EXPECT_EQ(choice->tried.at(35)->iterationNs, 4950);
  EXPECT_EQ(choice->binding, "both within 5% of each other");
  EXPECT_LE(lanes.asked, 12);
}

TEST(BestActShare, NamesWhatKeepsTheLanesFromBeingEqual) {
  struct {
    Lanes lanes;
    int64_t part;
    const char *binding;
  } const cases[] = {
      {{100, -1, 500, 10}, 0, "computing is the longer with keys and values alone"},
      {{6000, -30, 500, 10}, 64, "the link is the longer with activations alone"},
      {{6000, -30, 500, 125, 0, 20}, 20, "memory holds no share"},
      {{6000, -30, 500, 125, 50, 64}, 50, "memory holds no share"},
      {{6000, 30, 500, 10}, 0, "no less to bring"},
      {{1000, -10, 0, 600}, 1, "one 64th more or less"},
  };
  for (auto c : cases) {
    SCOPED_TRACE(c.binding);
    const absl::StatusOr<ActShareChoice> choice = c.lanes.search();
    ASSERT_TRUE(choice.ok()) << choice.status();
    EXPECT_EQ(choice->part, c.part);
    EXPECT_THAT(choice->binding, HasSubstr(c.binding));
  }
}

// A share that overlaps less takes longer though its lanes are nearer to each other.
TEST(BestActShare, LanesThatWaitForEachOtherAreSaidToWait) {
  const absl::StatusOr<ActShareChoice> choice = bestActShare([](int64_t part) -> absl::StatusOr<ShareTimes> {
    const Lanes lanes{6000, -30, 500, 60};
    ShareTimes times = lanes.at(part);
    times.iterationNs += part > 32 ? 1000 : 0;
    return times;
  });
  ASSERT_TRUE(choice.ok()) << choice.status();
  EXPECT_EQ(choice->part, 32);
  EXPECT_THAT(choice->binding, HasSubstr("waits for elsewhere"));
}

TEST(BestActShare, OfEqualOnesTheSmallest) {
  Lanes lanes{1000, 0, 100, 0};
  const absl::StatusOr<ActShareChoice> choice = lanes.search();
  ASSERT_TRUE(choice.ok()) << choice.status();
  EXPECT_EQ(choice->part, 0);
}

TEST(BestActShare, WhereMemoryHoldsNoneTheFirstRefusalStands) {
  Lanes none{6000, -30, 500, 125, 65, 65};
  EXPECT_EQ(none.search().status(), absl::ResourceExhaustedError("no room for 0"));
  const absl::Status wrong = absl::InvalidArgumentError("wrong");
  EXPECT_EQ(bestActShare([&](int64_t) -> absl::StatusOr<ShareTimes> { return wrong; }).status(), wrong);
}

// Against all 65: the best, where both lanes are lines and no memory is short.
TEST(BestActShare, IsTheBestOfAllShares) {
  std::mt19937 random(7);
  const auto draw = [&](double low, double high) { return std::uniform_real_distribution<double>(low, high)(random); };
  for (int turn = 0; turn < 2000; ++turn) {
    Lanes lanes{draw(0, 1e6), draw(-2e4, 2e3), draw(0, 1e6), draw(0, 3e4)};
    lanes.link0 = std::max(lanes.link0, -lanes.linkSlope * kActShareParts);
    uint64_t least = UINT64_MAX;
    for (int64_t part = 0; part <= kActShareParts; ++part)
      least = std::min(least, lanes.at(part).iterationNs);
    const absl::StatusOr<ActShareChoice> choice = lanes.search();
    ASSERT_TRUE(choice.ok()) << choice.status();
    EXPECT_EQ(lanes.at(choice->part).iterationNs, least) << "turn " << turn;
  }
}

} // namespace
} // namespace headrace::compiler
