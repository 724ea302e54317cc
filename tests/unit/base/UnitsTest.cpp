// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/Units.h"

#include <cmath>
#include <random>
#include <string>

#include "tests/support/TestFiles.h"

namespace headrace::model {
namespace {

TEST(ParseBytes, ReadsDecimalAndBinaryUnits) {
  const std::pair<const char *, uint64_t> cases[] = {
      {"0B", 0},
      {"4096B", 4096},
      {"7B", 7},
      {"2KB", 2000},
      {"3MB", 3'000'000},
      {"24GB", 24'000'000'000},
      {"1TB", 1'000'000'000'000},
      {"1KiB", 1024},
      {"512 MiB", 512ull << 20},
      {"8GiB", 8ull << 30},
      {"1TiB", 1ull << 40},
      {"1.5GiB", 3ull << 29},
      {"8G", 8ull << 30},
      {"1.5 K", 1536},
      {"0.5KiB", 512},
      {" 8GiB ", 8ull << 30},
      {"0.3KB", 300},
      {"1.0009KB", 1000}, // 1000.9: fractions of a byte are dropped
      {"9223372036854775807B", 9223372036854775807ull},
  };
  for (const auto &[text, expected] : cases) {
    const auto parsed = parseBytes(text, "x");
    ASSERT_TRUE(parsed.ok()) << text << ": " << messageOf(parsed);
    EXPECT_EQ(*parsed, expected) << text;
  }
}

TEST(ParseBytes, RefusesJunkNegativesAndOverflowNamingTheKey) {
  for (const char *text : {"",           "GiB",
                           "-1",         "-8GiB",
                           "+8GiB",      "8g",
                           "8gib",       "8 Gi B",
                           "1e9",        "0x10",
                           "1.2.3GiB",   ".5GiB",
                           "5.GiB",      "8GiB/s",
                           "nan",        "inf",
                           "4096", // without a unit
                           "0",          "9223372036854775808B",
                           "8388608TiB", "99999999999999999999999999999999999999999999",
                           "8GiB\n"}) {
    EXPECT_REFUSED(parseBytes(text, "goal.device_memory"), absl::StatusCode::kInvalidArgument,
                   std::string("goal.device_memory = \"") + (std::string(text) == "8GiB\n" ? "8GiB\\n" : text) +
                       "\": expected " + std::string(kBytesExpected));
  }
}

TEST(ParseBytes, DoesNotRepeatAnEndlessValue) {
  const auto refused = parseBytes(std::string(100000, 'x'), "key");
  EXPECT_LT(messageOf(refused).size(), 300u);
}

TEST(ParseBandwidth, ReadsUnitsPerSecond) {
  const std::pair<const char *, double> cases[] = {
      {"24GB/s", 24e9}, {"800MB/s", 800e6}, {"1.5GiB/s", 1.5 * (1 << 30)}, {"100 KB/s", 1e5},
      {"1B/s", 1},      {"4TB/s", 4e12},    {"2MiB/s", 2.0 * (1 << 20)}};
  for (const auto &[text, expected] : cases) {
    const auto parsed = parseBandwidth(text, "x");
    ASSERT_TRUE(parsed.ok()) << text;
    EXPECT_DOUBLE_EQ(*parsed, expected) << text;
  }
}

TEST(ParseBandwidth, RefusesZeroJunkAndOverflow) {
  for (const std::string text : {"0", "24", "1e9", "0GB/s", "-1GB/s", "24GB", "24GBps", "", "inf", "GB/s"})
    EXPECT_REFUSED(parseBandwidth(text, "--link-bandwidth"), absl::StatusCode::kInvalidArgument,
                   "--link-bandwidth = \"" + text +
                       "\": expected a positive bandwidth with its unit, such as \"24GB/s\", \"800MB/s\" or "
                       "\"1.5GiB/s\"");
  EXPECT_FALSE(parseBandwidth(std::string(400, '9') + "GB/s", "x").ok());
}

TEST(ParseFlops, ReadsRates) {
  EXPECT_DOUBLE_EQ(parseFlops("31.2 TFLOP/s", "x").value(), 31.2e12);
  EXPECT_DOUBLE_EQ(parseFlops("800GFLOP/s", "x").value(), 800e9);
  for (const std::string text : {"31.2 TFLOPS", "31.2"})
    EXPECT_REFUSED(parseFlops(text, "flops_f32"), absl::StatusCode::kInvalidArgument,
                   "flops_f32 = \"" + text +
                       "\": expected a positive rate with its unit, such as \"31.2TFLOP/s\" or \"800GFLOP/s\"");
}

TEST(ParseSeconds, ReadsTimesAndAllowsZero) {
  EXPECT_DOUBLE_EQ(parseSeconds("5us", "x").value(), 5e-6);
  EXPECT_DOUBLE_EQ(parseSeconds("1.5 ms", "x").value(), 1.5e-3);
  EXPECT_DOUBLE_EQ(parseSeconds("300ns", "x").value(), 300e-9);
  EXPECT_DOUBLE_EQ(parseSeconds("0s", "x").value(), 0);
  for (const std::string text : {"-5us", "0.5", "0", "5m", "5 min"})
    EXPECT_REFUSED(parseSeconds(text, "copy_latency"), absl::StatusCode::kInvalidArgument,
                   "copy_latency = \"" + text +
                       "\": expected a time with its unit (ns, us, ms or s), such as \"5us\", \"1.5ms\" or \"2s\"");
}

TEST(SecondsText, IsReadBackAsItWas) {
  for (const char *text : {"0s", "5us", "2.5us", "1.5ms", "2s", "300ns", "1000000s"})
    EXPECT_EQ(secondsText(parseSeconds(text, "x").value()), text);
  std::mt19937_64 random(7);
  for (int i = 0; i < 1000; ++i) {
    const double seconds = std::exp(std::uniform_real_distribution<double>(-25, 10)(random));
    EXPECT_EQ(parseSeconds(secondsText(seconds), "x").value(), seconds) << secondsText(seconds);
  }
}

// As vLLM's human_readable_int has them.
TEST(ParseCount, SmallSuffixesAreDecimalAndLargeOnesBinary) {
  const std::pair<const char *, int64_t> cases[] = {
      {"8k", 8000},    {"8K", 8192},          {"25.6k", 25'600},        {"2m", 2'000'000},
      {"1M", 1 << 20}, {"1g", 1'000'000'000}, {"1G", int64_t{1} << 30}, {"1.0005k", 1000},
      {"0K", 0}};
  for (const auto &[text, expected] : cases)
    EXPECT_EQ(parseCount(text), expected) << text;
  for (const char *text : {"8", "", "k", "8.5K", "8kk", "8kB", "-8k", "1e3k", "8 thousand", "99999999999T"})
    EXPECT_EQ(parseCount(text), std::nullopt) << text;
}

TEST(AmountText, IsTheLargestUnitThatSaysItExactlyAndBriefly) {
  const std::pair<uint64_t, const char *> bytes[] = {{0, "0B"},
                                                     {1, "1B"},
                                                     {1000, "1KB"},
                                                     {1024, "1KiB"},
                                                     {713031680, "680MiB"},
                                                     {664250112, "664250112B"},
                                                     {24'000'000'000, "24GB"},
                                                     {1 << 30, "1GiB"},
                                                     {512'000, "500KiB"}};
  for (const auto &[value, text] : bytes)
    EXPECT_EQ(bytesText(value), text);
  const std::pair<double, const char *> rates[] = {{1, "1B/s"},
                                                   {4e9, "4GB/s"},
                                                   {1.5e9, "1.5GB/s"},
                                                   {890e6, "890MB/s"},
                                                   {0.5, "0.5B/s"},
                                                   {24e9 / 7, "3428571428.571429B/s"},
                                                   {1e22, "10000000000000000000000B/s"}};
  for (const auto &[value, text] : rates)
    EXPECT_EQ(bandwidthText(value), text);
  EXPECT_EQ(flopsText(31.2e12), "31.2TFLOP/s");
  EXPECT_EQ(flopsText(1e9), "1GFLOP/s");
}

TEST(AmountText, ReadsBackExactly) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 20'000; ++i) {
    const uint64_t bytes = random() >> (1 + random() % 63);
    EXPECT_EQ(parseBytes(bytesText(bytes), "x").value(), bytes);
    const double rate =
        std::ldexp(static_cast<double>(random() >> 11), static_cast<int>(random() % 120) - 80) + 0x1p-90;
    EXPECT_EQ(parseBandwidth(bandwidthText(rate), "x").value(), rate) << bandwidthText(rate);
    EXPECT_EQ(parseFlops(flopsText(rate), "x").value(), rate);
    const double round = static_cast<double>(random() % 1000) * 1e8 + 1e8;
    EXPECT_EQ(parseBandwidth(bandwidthText(round), "x").value(), round);
    EXPECT_LE(bandwidthText(round).size(), 9u) << bandwidthText(round);
  }
}

} // namespace
} // namespace headrace::model
