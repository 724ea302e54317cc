// SPDX-License-Identifier: Apache-2.0
//
// Homes for the placements of one plan, each of which has been placed as if there were no other: what is at home on the
// device in several of them gets one address (algorithms::packHomes).
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace headrace::compiler {

// Of a placement: the arena as it is alone, and the weights at home at its end.
struct DeviceHomes {
  uint64_t arenaBytes = 0;
  std::vector<std::pair<size_t, uint64_t>> units; // and their bytes, multiples of 256
};

struct HomesTogether {
  std::vector<uint64_t> address;    // by unit; of units that are at home on the device somewhere
  std::vector<uint64_t> arenaBytes; // by placement
  uint64_t largest = 0;             // of these
};

// Of two placements and more.
HomesTogether placeTogether(const std::vector<DeviceHomes> &placements);

} // namespace headrace::compiler
