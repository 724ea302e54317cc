// SPDX-License-Identifier: Apache-2.0
//
// The static libstdc++ of Debian 12 asks glibc 2.36 for arc4random (std::random_device). Defined here, it makes
// programs start on older systems too: glibc 2.35 and later. Nothing of ours draws numbers from it.
#include <cstdint>
#include <cstdlib>

#include <sys/random.h>

extern "C" uint32_t arc4random() noexcept {
  uint32_t value = 0;
  if (getrandom(&value, sizeof(value), 0) != sizeof(value))
    std::abort();
  return value;
}
