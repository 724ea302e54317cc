// SPDX-License-Identifier: Apache-2.0
//
// XXH64 (Yann Collet), by its specification: a fast hash of 64 bits, against mix-ups and damage, not against forgery.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"

namespace headrace::model {

uint64_t xxh64(absl::Span<const std::byte> bytes, uint64_t seed);

} // namespace headrace::model
