// SPDX-License-Identifier: Apache-2.0
//
// Amounts as people write them. Decimal prefixes are powers of 1000 (KB, MB, GB, TB), binary ones powers of 1024 (KiB,
// MiB, GiB, TiB); a space may stand before the unit. `what` (a flag, or a file's key) begins every message.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace headrace::model {

// "8GiB", "512 MiB", "24GB", "1.5GiB", "4096": bytes, at most 2^63 - 1, fractions of a byte dropped; refuses negatives,
// junk and overflow, naming `what`.
absl::StatusOr<uint64_t> parseBytes(std::string_view text, std::string_view what);
// "24GB/s", "800MB/s", "1.5GiB/s", plain bytes per second. Positive and finite.
absl::StatusOr<double> parseBandwidth(std::string_view text, std::string_view what);
// "31.2 TFLOP/s", "800 GFLOP/s", plain FLOP/s. Positive and finite.
absl::StatusOr<double> parseFlops(std::string_view text, std::string_view what);
// "5us", "1.5 ms", "300ns", "2s", plain seconds. Finite, zero or more.
absl::StatusOr<double> parseSeconds(std::string_view text, std::string_view what);
// "52.125ms": milliseconds, exact to the nanosecond, as parseSeconds reads them.
std::string durationText(uint64_t ns);

} // namespace headrace::model
