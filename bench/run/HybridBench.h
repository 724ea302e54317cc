// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>

#include "runtime/host/HostDevice.h"

namespace headrace::bench {

// Prints a line a case, and what they measured.
nlohmann::json benchHybrid(const host::HostOptions &device, int iterations);

} // namespace headrace::bench
