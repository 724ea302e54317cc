// SPDX-License-Identifier: Apache-2.0
//
// Layers that take turns in a few places, so that one goes out while another comes in; all other layers stay in places
// of their own. For swaps that take longer than the layers between them compute.
//
// A place is either left or entered: through one place caches go one after the other, and each direction of the link
// rests while the other is at work, which costs nothing where both share the link. Two places are enough for both to be
// at work at once. Of eight layers in six places two turn, so four stay (1, 3, 5 and 7) and four take turns, a swap
// takes three layers' compute:
//
//   time      0 1 2 3 4 5 6 7 8 9 0 1
//   computes  0 1   2 3   4 5   6 7
//   out       0---- 2---- 4---- 6----     the layer that computes, once it has written its rows
//   in        2---- 4---- 6---- 0----     the next of them: 4 into 0's place, once that is home
//
// Of n layers in P places n - P + turning take turns, spread evenly over the layers: each goes and comes once an
// iteration. With two places a layer goes once it has come and has written its rows: the link rests for some of that.
// With three it need not, for one more swap.
#pragma once

#include <cstdint>

#include "passes/algorithms/CyclePlaces.h"

namespace headrace::algorithms {

// layers > places >= turning >= 1.
Cycle takeTurns(int32_t layers, int32_t places, int32_t turning);

} // namespace headrace::algorithms
