// SPDX-License-Identifier: Apache-2.0
//
// Where what is at home on the host lies in the host slab: one map by movable and mini-batch, the same for all
// placements of a plan. Of a cache it is where its mirror begins, or its tail where there is none.
//
// As text (what the pass that places takes as its option), ascending: "weight:3@4096 kv:0.1@8192", the second being
// layer 0's cache of mini-batch 1.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>

#include "passes/algorithms/Residency.h"

namespace headrace::algorithms {

struct SlabKey {
  Movable of;
  int32_t miniBatch = 0;
  bool operator<(const SlabKey &other) const { return std::tie(of, miniBatch) < std::tie(other.of, other.miniBatch); }
  bool operator==(const SlabKey &) const = default;
};
using SlabAddresses = std::map<SlabKey, uint64_t>;

std::string toText(const SlabAddresses &addresses);
// None: `error` says what is no entry, or stands twice.
std::optional<SlabAddresses> slabAddressesFromText(std::string_view text, std::string &error);

} // namespace headrace::algorithms
