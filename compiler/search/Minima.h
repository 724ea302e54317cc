// SPDX-License-Identifier: Apache-2.0
//
// What would do where memory holds nothing of a space.
#pragma once

#include <cstdint>
#include <optional>

#include "compiler/search/Space.h"

namespace headrace::compiler {

struct LeastChoice {
  Coordinates at;
  Candidate candidate;
  uint64_t deviceBytes = 0, hostBytes = 0;
};

// Of all choices the one that takes the least device memory, laid out, with as few KV blocks on the device as the host
// allows; whatever device memory there is. None: the host holds none. `onCpu`: of those in which the CPU attends, or in
// which the device does; none: of both.
std::optional<LeastChoice> leastDevice(Space &space, std::optional<bool> onCpu = std::nullopt);

// Of all that this device memory holds, laid out, the choice that takes the least host memory, whatever the host has;
// none: the device holds none.
std::optional<LeastChoice> leastHost(Space &space);

} // namespace headrace::compiler
