// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace headrace::core {

// Device::waitUntil() of devices whose clock is std::chrono::steady_clock's: sleeps, and spins for the last of it,
// since the system wakes a sleeper some ten microseconds late.
void sleepUntil(int64_t ns);

} // namespace headrace::core
