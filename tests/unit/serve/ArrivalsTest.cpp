// SPDX-License-Identifier: Apache-2.0
#include "runtime/serve/traffic/Arrivals.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "runtime/serve/traffic/Random.h"

namespace headrace::serve {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr double kInf = std::numeric_limits<double>::infinity();

struct Moments {
  double mean = 0, variance = 0;
  static Moments of(int64_t count, const std::function<double()> &draw) {
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < count; ++i) {
      const double x = draw();
      sum += x;
      squares += x * x;
    }
    const auto n = static_cast<double>(count);
    return {sum / n, squares / n - sum / n * sum / n};
  }
};

TEST(PortableMath, IsThatOfTheCLibraryToAFewUlp) {
  Random random(1, Stream::Arrivals);
  for (int i = 0; i < 100000; ++i) {
    const double x = std::ldexp(random.uniform(), static_cast<int>(random.between(-1000, 1000)));
    ASSERT_NEAR(portableLog(x), std::log(x), 4 * std::abs(std::log(x)) * 0x1p-53) << x;
    const double y = 1400 * random.uniform() - 700;
    ASSERT_NEAR(portableExp(y), std::exp(y), 4 * std::exp(y) * 0x1p-53) << y;
    const double near = 1 + (random.uniform() - 0.5) / 1024; // where the logarithm is near zero
    ASSERT_NEAR(portableLog(near), std::log(near), 4 * std::abs(std::log(near)) * 0x1p-53) << near;
  }
  EXPECT_EQ(portableLog(1), 0);
  EXPECT_EQ(portableExp(0), 1);
}

// To the bit: the same on every machine.
TEST(Random, GivesTheseNumbers) {
  Random uniform(1, Stream::Arrivals), exponential(1, Stream::Arrivals), normal(1, Stream::Arrivals),
      bursts(1, Stream::Arrivals), regular(1, Stream::Arrivals), other(1, Stream::PromptLengths);
  EXPECT_EQ(uniform.uniform(), 0x1.c7d00ce1ca142p-1);
  EXPECT_EQ(exponential.exponential(), 0x1.dc21419481feap-4);
  EXPECT_EQ(normal.normal(), 0x1.75b0193673c17p-1);
  EXPECT_EQ(bursts.gamma(0.5), 0x1.c76d3979be647p+0);
  EXPECT_EQ(regular.gamma(4), 0x1.4ff4f2371a28dp+2);
  EXPECT_EQ(other.uniform(), 0x1.120c47066ef24p-1);
}

TEST(Random, StreamsDifferAndSubstreamsToo) {
  Random a(1, Stream::Arrivals), b(1, Stream::PromptLengths), c(1, Stream::Arrivals, 1), d(2, Stream::Arrivals);
  const double first = a.uniform();
  EXPECT_NE(first, b.uniform());
  EXPECT_NE(first, c.uniform());
  EXPECT_NE(first, d.uniform());
}

// Of a million: the error of a mean is deviation / 1000, of a variance at most 5 / 1000 of its own here; 4 of those.
TEST(Random, DistributionsHaveTheirMeansAndVariances) {
  constexpr int64_t kCount = 1'000'000;
  Random random(7, Stream::Arrivals);
  const Moments uniform = Moments::of(kCount, [&] { return random.uniform(); });
  EXPECT_NEAR(uniform.mean, 0.5, 0.0012);
  EXPECT_NEAR(uniform.variance, 1.0 / 12, 0.0004);
  const Moments normal = Moments::of(kCount, [&] { return random.normal(); });
  EXPECT_NEAR(normal.mean, 0, 0.004);
  EXPECT_NEAR(normal.variance, 1, 0.006);
  const Moments exponential = Moments::of(kCount, [&] { return random.exponential(); });
  EXPECT_NEAR(exponential.mean, 1, 0.004);
  EXPECT_NEAR(exponential.variance, 1, 0.012);
  for (const double shape : {0.1, 0.5, 1.0, 2.0, 10.0}) { // mean and variance are the shape
    const Moments gamma = Moments::of(kCount, [&] { return random.gamma(shape); });
    EXPECT_NEAR(gamma.mean, shape, 0.004 * std::sqrt(shape)) << shape;
    EXPECT_NEAR(gamma.variance, shape, 0.02 * std::max(shape, std::sqrt(shape))) << shape;
  }
}

// Below 0.1 of the gamma distributions: P(1/2, 0.1) = erf(sqrt(0.1)) = 0.3453, P(2, 1) = 1 - 2 / e = 0.2642.
TEST(Random, GammaHasItsDistribution) {
  Random random(3, Stream::Arrivals);
  EXPECT_NEAR(Moments::of(1'000'000, [&] { return random.gamma(0.5) < 0.1 ? 1.0 : 0.0; }).mean, 0.3453, 0.002);
  EXPECT_NEAR(Moments::of(1'000'000, [&] { return random.gamma(2) < 1 ? 1.0 : 0.0; }).mean, 0.2642, 0.002);
}

TEST(Random, BetweenGivesBothEndsAndAllAlike) {
  Random random(1, Stream::PromptLengths);
  std::vector<int> seen(5, 0);
  for (int i = 0; i < 50000; ++i)
    ++seen[static_cast<size_t>(random.between(10, 14) - 10)];
  EXPECT_THAT(seen, Each(testing::AllOf(testing::Gt(9600), testing::Lt(10400)))); // 10,000 +- 4 x 89
  EXPECT_EQ(random.between(3, 3), 3);
}

TEST(Arrivals, AnInfiniteRateIsAllAtOnce) {
  EXPECT_THAT(*arrivalTimes({.requestRate = kInf}, 3, 1), ElementsAre(0, 0, 0));
}

TEST(Arrivals, InfiniteBurstinessIsAClock) {
  EXPECT_THAT(*arrivalTimes({.requestRate = 10, .burstiness = kInf}, 3, 1),
              ElementsAre(100'000'000, 200'000'000, 300'000'000));
}

// 100,000 requests at 10/s take 10,000 s +- deviation of a gap / sqrt(100,000) x 100,000; a gap's is 0.1 s / sqrt(b).
TEST(Arrivals, GapsHaveTheirMeanAndDeviation) {
  constexpr int64_t kCount = 100'000;
  for (const double burstiness : {0.25, 1.0, 4.0}) {
    const std::vector<int64_t> times = *arrivalTimes({.requestRate = 10, .burstiness = burstiness}, kCount, 5);
    EXPECT_TRUE(std::is_sorted(times.begin(), times.end()));
    const double deviation = 0.1 / std::sqrt(burstiness);
    EXPECT_NEAR(static_cast<double>(times.back()) * 1e-9, 10'000, 4 * deviation * std::sqrt(kCount)) << burstiness;
    size_t i = 0;
    const Moments gaps = Moments::of(kCount - 1, [&] {
      ++i;
      return static_cast<double>(times[i] - times[i - 1]) * 1e-9;
    });
    EXPECT_NEAR(std::sqrt(gaps.variance), deviation, 0.02 * deviation) << burstiness;
  }
}

TEST(Arrivals, ASeedIsAStreamAndMoreRequestsBeginAlike) {
  const std::vector<int64_t> few = *arrivalTimes({.requestRate = 2}, 10, 1),
                             many = *arrivalTimes({.requestRate = 2}, 20, 1);
  EXPECT_TRUE(std::equal(few.begin(), few.end(), many.begin()));
  EXPECT_NE(few, *arrivalTimes({.requestRate = 2}, 10, 2));
}

TEST(Arrivals, RefusesByName) {
  const auto refusal = [](double rate, double burstiness, int64_t count) {
    const auto times = arrivalTimes({.requestRate = rate, .burstiness = burstiness}, count, 1);
    EXPECT_EQ(times.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(times.status().message());
  };
  EXPECT_EQ(refusal(0, 1, 1), "request rate = 0, expected requests per second above zero, or inf");
  EXPECT_THAT(refusal(-2, 1, 1), HasSubstr("request rate = -2"));
  EXPECT_THAT(refusal(std::nan(""), 1, 1), HasSubstr("request rate = nan"));
  EXPECT_EQ(refusal(1, 0, 1), "burstiness = 0, expected a number above zero");
  EXPECT_THAT(refusal(1, std::nan(""), 1), HasSubstr("burstiness = nan"));
  EXPECT_EQ(refusal(1, 1, 0), "number of requests = 0, expected at least 1");
  EXPECT_THAT(refusal(1e-300, 1, 1), HasSubstr("the last of 1 requests would come after"));
}

} // namespace
} // namespace headrace::serve
