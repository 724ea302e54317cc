// SPDX-License-Identifier: Apache-2.0
//
// Which decoder layers have their weights in host memory.
//
//   interval 3 of 8 layers   . . X . . X . .     of every 3 the last; the 2 that are left over stay (Select-N,
//                                                section 4.1)
//   spread   3 of 8 layers   . X . . X . . X     every group as long as the others, give or take one
//   even     3 of 8 layers   . . X . . X . X     as layers go by: the nth where n eighths of 3 are reached
#pragma once

#include <cstdint>
#include <vector>

namespace headrace::algorithms {

// Layers interval - 1, 2 * interval - 1, ... below `layers`, counting from 0: floor(layers / interval) of them,
// ascending. interval >= 1; none if it exceeds `layers`.
std::vector<int64_t> intervalLayers(int64_t layers, int64_t interval);

// `count` layers, ascending: the layers are cut into `count` groups whose lengths differ by at most one, longer ones
// spread among shorter ones, and of each group the last layer is taken. 0 <= count <= layers. The same as
// intervalLayers(layers, layers / count) where count divides layers.
std::vector<int64_t> spreadLayers(int64_t layers, int64_t count);

// `count` layers, ascending: each at which floor((layer + 1) count / layers) grows. 0 <= count <= layers.
std::vector<int32_t> evenLayers(int64_t layers, int64_t count);

} // namespace headrace::algorithms
