// SPDX-License-Identifier: Apache-2.0
//
// Amounts as people write them. Decimal prefixes are powers of 1000 (KB, MB, GB, TB), binary ones powers of 1024 (KiB,
// MiB, GiB, TiB); a space may stand before the unit. Bytes and rates have a unit, always: 24 is nobody's bandwidth. A
// time without one is in seconds. `what` (a flag, or a file's key) begins every message.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace headrace::model {

// "8GiB", "512 MiB", "24GB", "1.5GiB", "4096B": bytes, at most 2^63 - 1, fractions of a byte dropped; refuses
// negatives, junk and overflow, naming `what`.
absl::StatusOr<uint64_t> parseBytes(std::string_view text, std::string_view what);
// "24GB/s", "800MB/s", "1.5GiB/s", "4096B/s". Positive and finite.
absl::StatusOr<double> parseBandwidth(std::string_view text, std::string_view what);
// "31.2 TFLOP/s", "800 GFLOP/s". Positive and finite.
absl::StatusOr<double> parseFlops(std::string_view text, std::string_view what);
// "5us", "1.5 ms", "300ns", "2s", plain seconds. Finite, zero or more.
absl::StatusOr<double> parseSeconds(std::string_view text, std::string_view what);
// "52.125ms": milliseconds, exact to the nanosecond, as parseSeconds reads them.
std::string durationText(uint64_t ns);
std::string durationText(std::chrono::nanoseconds time); // 0 or more

// What the parsers expect, as messages say it.
inline constexpr std::string_view kBytesExpected =
    "bytes with their unit, such as \"8GiB\", \"512MiB\", \"24GB\" or \"4096B\", below 2^63";
inline constexpr std::string_view kBandwidthExpected =
    "a positive bandwidth with its unit, such as \"24GB/s\", \"800MB/s\" or \"1.5GiB/s\"";
inline constexpr std::string_view kFlopsExpected =
    "a positive rate with its unit, such as \"31.2TFLOP/s\" or \"800GFLOP/s\"";
inline constexpr std::string_view kSecondsExpected = "a time such as \"5us\", \"1.5ms\" or \"2s\"";

// The other way round: in the largest unit that says it exactly and briefly, "680MiB", "24GB/s", "31.2TFLOP/s".
std::string bytesText(uint64_t bytes);
std::string bandwidthText(double bytesPerSecond);
std::string flopsText(double flopsPerSecond);

} // namespace headrace::model
