// SPDX-License-Identifier: Apache-2.0
//
// Amounts as people write them. Decimal prefixes are powers of 1000 (KB, MB, GB, TB), binary ones powers of 1024 (KiB,
// MiB, GiB, TiB, and of bytes K, M, G, T); a space may stand before the unit. Bytes, rates and times have a unit,
// always: 24 is nobody's bandwidth, and 50 may be seconds or milliseconds. `what` (a flag, or a file's key) begins
// every message.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace headrace::model {

// "8GiB", "8G" (the same), "512 MiB", "24GB", "1.5GiB", "4096B": bytes, at most 2^63 - 1, fractions of a byte dropped;
// refuses negatives, junk and overflow, naming `what`.
absl::StatusOr<uint64_t> parseBytes(std::string_view text, std::string_view what);
// "24GB/s", "800MB/s", "1.5GiB/s", "4096B/s". Positive and finite.
absl::StatusOr<double> parseBandwidth(std::string_view text, std::string_view what);
// "31.2 TFLOP/s", "800 GFLOP/s". Positive and finite.
absl::StatusOr<double> parseFlops(std::string_view text, std::string_view what);
// "5us", "1.5 ms", "300ns", "2s". Finite, zero or more.
absl::StatusOr<double> parseSeconds(std::string_view text, std::string_view what);
// "8k", "25.6k", "2M": how many, as vLLM reads it: k, m, g, t are powers of 1000, K, M, G, T powers of 1024, which take
// no point. A fraction of one is dropped. None for anything else, a number without a suffix included.
std::optional<int64_t> parseCount(std::string_view text);
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
inline constexpr std::string_view kSecondsExpected =
    "a time with its unit (ns, us, ms or s), such as \"5us\", \"1.5ms\" or \"2s\"";

// The other way round: in the largest unit that says it exactly and briefly, "680MiB", "24GB/s", "31.2TFLOP/s".
std::string bytesText(uint64_t bytes);
std::string bandwidthText(double bytesPerSecond);
std::string flopsText(double flopsPerSecond);
std::string secondsText(double seconds); // "5us"; read back it is the same to the last bit

} // namespace headrace::model
