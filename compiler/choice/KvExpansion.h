// SPDX-License-Identifier: Apache-2.0
//
// Pie's expansion: the bytes of all KV by those that KV takes of the device (section 3.1, n / (n - m) for whole
// layers). Here a cache is split by block number (KvOnDevice.h).
//
//   40 caches, 2 slots, 4,000 blocks on the device, expansion 2:
//   T = 2 x 4,000 / 40 = 200,   R = (4,000 - 2 x 200) / (40 - 2) = 94,   40 x 94 + 2 x 106 = 3,972 of the 4,000
#pragma once

#include <cstdint>

namespace headrace::compiler {

// With nothing at home on the device but slots: caches / slots. At least 1.
double mostExpansion(int64_t caches, int64_t slots);
// What a plan has room for where the engine finds how much of it serves: at most 4, of which slots take a fifth of the
// device's KV at 40 layers; half of the way to mostExpansion() where that is less.
double mostAutoExpansion(int64_t caches, int64_t slots);
// Of an iteration: what the link brings while weights and the KV on the device are read once, three times as much (it
// computes longer than that, with prompts and many sequences), beside that KV. 26 GB of weights and 3 GB of KV at 3.2
// TB/s are read in 9.1 ms, 3.8 GB at 419 GB/s: 1 + 3 x 3.8 / 3 = 4.8.
double linkExpansion(double weightBytes, double kvBytes, double memoryBandwidth, double linkBandwidth);

} // namespace headrace::compiler
