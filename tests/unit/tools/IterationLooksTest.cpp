// SPDX-License-Identifier: Apache-2.0
#include "tools/report/IterationLooks.h"

#include <gtest/gtest.h>

namespace headrace::tools {
namespace {

TEST(LookStride, LooksAtAllThenAtEverySecond) {
  LookStride stride;
  std::vector<uint64_t> kept;
  for (uint64_t iteration = 1; iteration <= 1000; ++iteration) {
    if (!stride.wants(iteration))
      continue;
    kept.push_back(iteration);
    if (stride.keeps(kept.size()))
      std::erase_if(kept, [&](uint64_t one) { return !stride.wants(one); });
    EXPECT_LE(kept.size(), LookStride::kLooks);
    if (iteration <= LookStride::kLooks) {
      EXPECT_EQ(kept.size(), iteration);
    }
  }
  EXPECT_GE(kept.size(), LookStride::kLooks / 2);
  for (size_t i = 0; i < kept.size(); ++i)
    EXPECT_EQ(kept[i], kept[0] * (i + 1)); // evenly spread
}

class Representative : public testing::Test {
protected:
  // Iterations of variant 7 take 10, 30, 20, 90 and 40; those of variant 2, between them, 5 and 6. These have prompts.
  Representative() {
    for (const auto &[variant, ns] :
         std::vector<std::pair<uint32_t, int64_t>>{{7, 10}, {2, 5}, {7, 30}, {7, 20}, {7, 90}, {2, 6}, {7, 40}})
      times.add(variant, ns, variant == 2);
  }
  std::vector<Look> looked(const std::vector<uint64_t> &iterations) const {
    std::vector<Look> looks;
    for (const uint64_t i : iterations)
      looks.push_back({i, times.variantOf(i), {}});
    return looks;
  }
  static constexpr IterationPhase all = IterationPhase::Any;
  IterationTimes times;
};

TEST_F(Representative, IsTheMedianOfTheVariantThatRanMost) {
  const auto looks = looked({1, 2, 3, 4, 5, 6, 7});
  const auto found = times.representative(looks, all);
  ASSERT_NE(found.look, nullptr);
  EXPECT_EQ(found.look->iteration, 3u); // 30 of 10, 20, 30, 40, 90
  EXPECT_EQ(found.about, "iteration 3 of 7, the median of 5 of its variant");
}

TEST_F(Representative, OrWhatOfItWasLookedAtNearestToThat) {
  const auto looks = looked({1, 2, 5, 7});
  EXPECT_EQ(times.representative(looks, all).about, "iteration 7 of 7, near the median of 5 of its variant"); // 40
}

TEST_F(Representative, OfAnotherPhaseItIsOneOfThat) {
  const auto looks = looked({1, 2, 3, 4, 5, 6, 7});
  const auto found = times.representative(looks, IterationPhase::Prefill);
  EXPECT_EQ(found.about, "iteration 2 of 7, the median of 2 of its variant"); // the lower of two
  EXPECT_EQ(times.mostOften(IterationPhase::Prefill), 2u);
  EXPECT_EQ(times.mostOften(IterationPhase::Decode), 7u);
  EXPECT_EQ(times.mostOften(all), 7u);
}

// Whatever a variant was made for.
TEST(RepresentativeOfAPhase, GoesByWhatRan) {
  IterationTimes times;
  for (const auto &[ns, prefill] : std::vector<std::pair<int64_t, bool>>{{90, true}, {10, false}, {20, false}})
    times.add(4, ns, prefill);
  times.add(5, 80, true);
  times.add(5, 70, true);
  const std::vector<Look> looks = {{1, 4, {}}, {2, 4, {}}, {3, 4, {}}};
  EXPECT_EQ(times.mostOften(IterationPhase::Any), 4u);
  EXPECT_EQ(times.mostOften(IterationPhase::Prefill), 5u);
  EXPECT_EQ(times.mostOften(IterationPhase::Decode), 4u);
  // None of variant 5 was looked at: the last with prompts.
  EXPECT_EQ(times.representative(looks, IterationPhase::Prefill).about, "iteration 1 of 5");
  EXPECT_EQ(times.representative(looks, IterationPhase::Decode).about,
            "iteration 2 of 5, the median of 2 of its variant");
  EXPECT_EQ(IterationTimes().mostOften(IterationPhase::Any), plan::kNone);
}

TEST_F(Representative, WithoutALookAtThatVariantTheLastOfAny) {
  const auto looks = looked({2, 6});
  EXPECT_EQ(times.representative(looks, all).about, "iteration 6 of 7");
  EXPECT_EQ(times.representative({}, all).look, nullptr);
}

TEST(RepresentativeOfOne, IsIt) {
  IterationTimes times;
  times.add(0, 5, false);
  const std::vector<Look> looks = {{1, 0, {}}};
  EXPECT_EQ(times.representative(looks, IterationPhase::Any).about, "iteration 1 of 1");
}

} // namespace
} // namespace headrace::tools
