// SPDX-License-Identifier: Apache-2.0
//
// What is busy the longest in an iteration, were it alone.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/plan/value/Plan.h"

namespace headrace::plan {

// The sum of the cpu lane beside a device; 0 where the CPU is the device.
uint64_t cpuAloneNs(const Plan &plan, const Variant &variant);
// "compute", "cpu", or "link h2d", which stands for the busier direction.
std::string limitedBy(const Plan &plan, const Variant &variant);

} // namespace headrace::plan
