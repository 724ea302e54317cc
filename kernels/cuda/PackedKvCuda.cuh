// SPDX-License-Identifier: Apache-2.0
//
// Rows of packed caches on CUDA, from F32 and to F32, in the bits of docs/encodings.md and of the host.
#pragma once

#include "kernels/cuda/CodesCuda.cuh"

namespace headrace::kernels {

// Eight values of a group to eight codes of eight bits, by the lanes of a warp: group / 8 lanes beside each other hold
// one group. All 32 lanes call it.
struct PackedEight {
  uint32_t codes[2]; // a byte each, the first lowest
  uint32_t header;   // the group's scale, above it its minimum

  HEADRACE_DEVICE PackedEight(const Packing &of, const float (&x)[8]) {
    constexpr uint32_t kNoNumber = 0x7e00; // F16's NaN, of a group that has no codes
    float lo = x[0] + 0.0f, hi = lo;       // + 0: of -0.0
    bool wrong = false;
    HEADRACE_LOOP
    for (int e = 0; e < 8; ++e) {
      const float value = x[e] + 0.0f;
      lo = value < lo ? value : lo;
      hi = value > hi ? value : hi;
      wrong = wrong || !(fabsf(value) <= kMostPacked);
    }
    uint32_t anyWrong = wrong ? 1 : 0;
    for (int mask = of.group / 16; mask > 0; mask /= 2) {
      const float low = shuffleXor(lo, mask), high = shuffleXor(hi, mask);
      lo = low < lo ? low : lo;
      hi = high > hi ? high : hi;
      anyWrong |= shuffleXor(anyWrong, mask);
    }
    const auto most = static_cast<float>((1 << of.codeBits) - 1);
    const uint16_t scaleBits = anyWrong != 0 ? 0 : narrow<Elem::F16>((hi - lo) / most);
    const float scale = widen<Elem::F16>(scaleBits), min = widen<Elem::F16>(narrow<Elem::F16>(lo));
    header = anyWrong != 0 ? kNoNumber << 16 : scaleBits | static_cast<uint32_t>(narrow<Elem::F16>(lo)) << 16;
    codes[0] = codes[1] = 0;
    if (scaleBits == 0)
      return;
    HEADRACE_LOOP
    for (int e = 0; e < 8; ++e) {
      float code = (x[e] - min) / scale;
      code = code > 0.0f ? code : 0.0f;
      code = code < most ? code : most;
      codes[e / 4] |= (bitsOfFloat(code + 0x1.8p23f) & 0xffu) << e % 4 * 8; // the nearest whole number, ties to even
    }
  }
};

// A token's head of a cache in the block that begins at `start`, by its row of the block.
struct PackedRow {
  Packing of;
  int64_t codes, scales; // bytes, of its first

  HEADRACE_DEVICE PackedRow(const Packing &packing, const PackedKvBlock &block, int64_t start, int64_t row)
      : of(packing), codes(start + block.codes(row)), scales(start + block.scales(row)) {}

  HEADRACE_DEVICE float value(const void *cache, int64_t d) const {
    const auto *bytes = static_cast<const uint8_t *>(cache);
    const uint32_t header = loadGlobal(reinterpret_cast<const uint32_t *>(bytes + scales) + d / of.group);
    const uint32_t byte = loadGlobal(bytes + codes + (of.codeBits == 8 ? d : d / 16 * 8 + d % 8));
    const uint32_t code = of.codeBits == 8 ? byte : d % 16 < 8 ? byte & 15u : byte >> 4;
    return GroupValues(header).of(code);
  }
  // Eight from dimension d on, whose lanes packed them; each lane its own. All 32 lanes call it, those that have none
  // with `stores` false.
  HEADRACE_DEVICE void store(void *cache, int64_t d, const PackedEight &eight, bool stores) const {
    auto *bytes = static_cast<uint8_t *>(cache);
    const uint32_t other[2] = {shuffleXor(eight.codes[0], 1), shuffleXor(eight.codes[1], 1)};
    if (!stores)
      return;
    if (of.codeBits == 8) {
      auto *words = reinterpret_cast<uint32_t *>(bytes + codes + d);
      storeGlobal(words, eight.codes[0]);
      storeGlobal(words + 1, eight.codes[1]);
    } else { // of sixteen the first eight are the lower halves: one lane stores the first four bytes, one the others
      const bool upper = d % 16 != 0;
      auto *words = reinterpret_cast<uint32_t *>(bytes + codes + d / 16 * 8);
      storeGlobal(words + (upper ? 1 : 0), upper ? other[1] | eight.codes[1] << 4 : eight.codes[0] | other[0] << 4);
    }
    if (d % of.group == 0)
      storeGlobal(reinterpret_cast<uint32_t *>(bytes + scales) + d / of.group, eight.header);
  }
};

} // namespace headrace::kernels
