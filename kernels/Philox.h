// SPDX-License-Identifier: Apache-2.0
//
// The uniform number that sampling draws, for every device: Philox4x32-10 (Salmon et al. 2011), key = seed, counter =
// position; the first 53 bits of the output as a number in [0, 1).
#pragma once

#include <cstdint>

#include "kernels/HostDevice.h"

namespace headrace::kernels {

HEADRACE_HD static inline double philoxUniform(uint64_t seed, uint64_t position) {
  uint32_t key[2] = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
  uint32_t c[4] = {static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), 0, 0};
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53u} * c[0], b = uint64_t{0xCD9E8D57u} * c[2];
    const uint32_t next[4] = {static_cast<uint32_t>(b >> 32) ^ c[1] ^ key[0], static_cast<uint32_t>(b),
                              static_cast<uint32_t>(a >> 32) ^ c[3] ^ key[1], static_cast<uint32_t>(a)};
    for (int i = 0; i < 4; ++i)
      c[i] = next[i];
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  const uint64_t bits = (uint64_t{c[0]} << 32 | c[1]) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

} // namespace headrace::kernels
