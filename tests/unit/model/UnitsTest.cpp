// SPDX-License-Identifier: Apache-2.0
#include "runtime/model/Units.h"

#include <string>

#include "tests/unit/model/TestFiles.h"

namespace headrace::model {
namespace {

TEST(ParseBytes, ReadsDecimalAndBinaryUnits) {
  const std::pair<const char *, uint64_t> cases[] = {
      {"0", 0},
      {"4096", 4096},
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
      {"0.5KiB", 512},
      {" 8GiB ", 8ull << 30},
      {"0.3KB", 300},
      {"1.0009KB", 1000}, // 1000.9: fractions of a byte are dropped
      {"9223372036854775807", 9223372036854775807ull},
  };
  for (const auto &[text, expected] : cases) {
    const auto parsed = parseBytes(text, "x");
    ASSERT_TRUE(parsed.ok()) << text << ": " << messageOf(parsed);
    EXPECT_EQ(*parsed, expected) << text;
  }
}

TEST(ParseBytes, RefusesJunkNegativesAndOverflowNamingTheKey) {
  for (const char *text : {"",
                           "GiB",
                           "-1",
                           "-8GiB",
                           "+8GiB",
                           "8G",
                           "8gib",
                           "8 Gi B",
                           "1e9",
                           "0x10",
                           "1.2.3GiB",
                           ".5GiB",
                           "5.GiB",
                           "8GiB/s",
                           "nan",
                           "inf",
                           "9223372036854775808",
                           "8388608TiB",
                           "99999999999999999999999999999999999999999999",
                           "8GiB\n"}) {
    EXPECT_REFUSED(parseBytes(text, "goal.device_memory"), absl::StatusCode::kInvalidArgument,
                   std::string("goal.device_memory = \"") + (std::string(text) == "8GiB\n" ? "8GiB\\n" : text) +
                       "\": expected bytes such as \"8GiB\", \"512MiB\", \"24GB\" or \"4096\", below 2^63");
  }
}

TEST(ParseBytes, DoesNotRepeatAnEndlessValue) {
  const auto refused = parseBytes(std::string(100000, 'x'), "key");
  EXPECT_LT(messageOf(refused).size(), 300u);
}

TEST(ParseBandwidth, ReadsUnitsPerSecond) {
  const std::pair<const char *, double> cases[] = {
      {"24GB/s", 24e9}, {"800MB/s", 800e6}, {"1.5GiB/s", 1.5 * (1 << 30)}, {"100 KB/s", 1e5},
      {"1", 1},         {"4TB/s", 4e12},    {"2MiB/s", 2.0 * (1 << 20)}};
  for (const auto &[text, expected] : cases) {
    const auto parsed = parseBandwidth(text, "x");
    ASSERT_TRUE(parsed.ok()) << text;
    EXPECT_DOUBLE_EQ(*parsed, expected) << text;
  }
}

TEST(ParseBandwidth, RefusesZeroJunkAndOverflow) {
  for (const std::string text : {"0", "0GB/s", "-1GB/s", "24GB", "24GBps", "", "inf", "GB/s"})
    EXPECT_REFUSED(parseBandwidth(text, "--link-bandwidth"), absl::StatusCode::kInvalidArgument,
                   "--link-bandwidth = \"" + text +
                       "\": expected a positive bandwidth such as \"24GB/s\", \"800MB/s\" or \"1.5GiB/s\"");
  EXPECT_FALSE(parseBandwidth(std::string(400, '9') + "GB/s", "x").ok());
}

TEST(ParseFlops, ReadsRates) {
  EXPECT_DOUBLE_EQ(parseFlops("31.2 TFLOP/s", "x").value(), 31.2e12);
  EXPECT_DOUBLE_EQ(parseFlops("800GFLOP/s", "x").value(), 800e9);
  EXPECT_REFUSED(parseFlops("31.2 TFLOPS", "flops_f32"), absl::StatusCode::kInvalidArgument,
                 "flops_f32 = \"31.2 TFLOPS\": expected a positive rate such as \"31.2TFLOP/s\" or \"800GFLOP/s\"");
}

TEST(ParseSeconds, ReadsTimesAndAllowsZero) {
  EXPECT_DOUBLE_EQ(parseSeconds("5us", "x").value(), 5e-6);
  EXPECT_DOUBLE_EQ(parseSeconds("1.5 ms", "x").value(), 1.5e-3);
  EXPECT_DOUBLE_EQ(parseSeconds("300ns", "x").value(), 300e-9);
  EXPECT_DOUBLE_EQ(parseSeconds("0s", "x").value(), 0);
  EXPECT_REFUSED(parseSeconds("-5us", "copy_latency"), absl::StatusCode::kInvalidArgument,
                 "copy_latency = \"-5us\": expected a time such as \"5us\", \"1.5ms\" or \"2s\"");
}

} // namespace
} // namespace headrace::model
