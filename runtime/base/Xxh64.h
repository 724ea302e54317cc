// SPDX-License-Identifier: Apache-2.0
//
// XXH64 (Yann Collet), by its specification: a fast hash of 64 bits, against mix-ups and damage, not against forgery.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"

namespace headrace::model {

class Xxh64 {
public:
  explicit Xxh64(uint64_t seed);
  void add(absl::Span<const std::byte> bytes);
  uint64_t value() const; // of all bytes so far

private:
  uint64_t seed_, total_ = 0; // bytes so far
  std::array<uint64_t, 4> lanes_;
  std::array<std::byte, 32> rest_; // the last total_ % 32 of them
};
uint64_t xxh64(absl::Span<const std::byte> bytes, uint64_t seed);

} // namespace headrace::model
