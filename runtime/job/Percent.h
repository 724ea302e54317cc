// SPDX-License-Identifier: Apache-2.0
//
// FlexGen's `--percent`: how much of weights, KV cache and hidden states is on the device and in host memory.
//
//   55 45 0 100 0 100        wg wc cg cc hg hc: weights 55% device 45% host, KV all host, hidden states all host
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace headrace::model {

// In percent. FlexGen has the rest on disk; there is none here, so each pair makes 100.
struct Percent {
  double wg = 0, wc = 100; // weights of the layers
  double cg = 0, cc = 100; // KV cache
  double hg = 0, hc = 100; // hidden states between layers

  friend bool operator==(const Percent &, const Percent &) = default;
};

// Six numbers with spaces or commas between them; none: `expected` has what would do.
std::optional<Percent> percentFromText(std::string_view text, std::string &expected);
// What would do in place of a negative share, of a pair that does not make 100 within 1e-6, and of hidden states of
// which a part is on the device: they are one buffer. Empty: nothing is wrong.
std::string percentRefusal(const Percent &percent);
// InvalidArgument with that, `what` first.
absl::Status checkPercent(const Percent &percent, std::string_view what);
std::string percentText(const Percent &percent); // "55 45 0 100 0 100"

} // namespace headrace::model
