// SPDX-License-Identifier: Apache-2.0
//
// Amounts as reasons and refusals have them: always in the same unit's digits, so that they compare at a glance.
#pragma once

#include <cstdint>
#include <string>

namespace headrace::compiler {

std::string bytesText(uint64_t bytes);      // "8.00 GiB", "12.50 MiB"
std::string leastBytesText(uint64_t bytes); // rounded up: who states it has so many
std::string msText(uint64_t ns);            // "2.500 ms"

} // namespace headrace::compiler
