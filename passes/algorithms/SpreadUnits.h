// SPDX-License-Identifier: Apache-2.0
//
// Sets with so many units of each kind, each kind spread evenly over its layers:
//
//   kind a, 3 of 8      . . a . . a . a
//   kind b, 2 of 8      . . . b . . . b      at the same phase, or each kind shifted by some of a gap against the
//   others
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "passes/algorithms/UnitKinds.h"

namespace headrace::algorithms {

// Counts by kind.
using KindCounts = std::vector<size_t>;

// Every combination of `steps` + 1 counts of all kinds but one, and of that one as many as `linkNs` leaves time to copy
// and one less; for each kind being that one.
void forEachCounts(const std::vector<UnitKind> &kinds, size_t steps, uint64_t linkNs,
                   const std::function<void(const KindCounts &)> &visit);

// The units, ascending. Kind k is shifted by k x `shift` / 8 of a gap; a shift of 0 takes the last of each group, as
// spreadLayers() does.
std::vector<uint32_t> spreadUnits(const std::vector<UnitKind> &kinds, const KindCounts &counts, size_t shift);

} // namespace headrace::algorithms
