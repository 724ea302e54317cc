// SPDX-License-Identifier: Apache-2.0
//
// Op::RopeAppend on the host. The angle is position * inverse frequency in F32, and its cosine and sine are taken in
// F32, as Hugging Face's reference does.
#pragma once

#include <cstring>

#include "kernels/host/HostEntry.h"
#include "kernels/host/NormHost.h"
#include "kernels/host/PackKvHost.h"
#include "kernels/host/Rows.h"
#include "kernels/host/VecMath.h"

namespace headrace::kernels {

// A token's k and v in blocks of a cache: 2 kvHeads planes of headDim, each in row `line` of its plane.
template <typename V> struct KvRows {
  int64_t planes, headDim, blockTokens;
  Elem elem;
  Packing packing;

  // From x on, to the block that begins at `start`.
  HEADRACE_INLINE void append(const float *x, void *kv, int64_t start, int64_t line) const {
    for (int64_t plane = 0; plane < planes; ++plane, x += headDim)
      appendPart(x, kv, start, plane * blockTokens + line, 0, headDim);
  }
  // The same from element `at` of rows of `of` on, a few of a head's at a time: whole groups.
  HEADRACE_INLINE void appendFrom(const void *rows, int64_t at, Elem of, void *kv, int64_t start, int64_t line) const {
    constexpr int64_t kPart = 4 * kMostKvGroup;
    float x[kPart];
    for (int64_t plane = 0; plane < planes; ++plane)
      for (int64_t d = 0; d < headDim; d += kPart) {
        const int64_t n = headDim - d < kPart ? headDim - d : kPart;
        loadRow<V>(rows, at + plane * headDim + d, n, of, x);
        appendPart(x, kv, start, plane * blockTokens + line, d, n);
      }
  }
  // From one block to another, as they are.
  void copy(void *to, int64_t toStart, const void *from, int64_t fromStart, int64_t line) const {
    for (int64_t plane = 0; plane < planes; ++plane) {
      const int64_t row = plane * blockTokens + line;
      if (packing.codeBits == 0) {
        copyElems(to, toStart + row * headDim, from, fromStart + row * headDim, headDim, elem);
        continue;
      }
      auto *out = static_cast<uint8_t *>(to) + toStart;
      const auto *in = static_cast<const uint8_t *>(from) + fromStart;
      const PackedKvBlock of = packed();
      std::memcpy(out + of.codes(row), in + of.codes(row), static_cast<size_t>(of.codeBytes()));
      std::memcpy(out + of.scales(row), in + of.scales(row), static_cast<size_t>(of.scaleBytes()));
    }
  }

private:
  // Dimensions [d, d + n) of a row.
  HEADRACE_INLINE void appendPart(const float *x, void *kv, int64_t start, int64_t row, int64_t d, int64_t n) const {
    if (packing.codeBits == 0)
      return storeRow<V>(x, kv, start + row * headDim + d, n, elem);
    auto *block = static_cast<uint8_t *>(kv) + start;
    PackKv<V>::pack(packing, x, n, block + packed().codes(row) + d * packing.codeBits / 8,
                    block + packed().scales(row) + d / packing.group * kPackedKvHeader);
  }
  HEADRACE_INLINE PackedKvBlock packed() const { return {packing, planes / 2, blockTokens, headDim}; }
};

// Rotates pairs (j, j + half) of the `vectors` vectors of 2 * half elements from x on.
template <typename V>
void rotate(float *x, int64_t vectors, int64_t half, const float *inverseFrequencies, float position) {
  constexpr int64_t kChunk = 128; // pairs whose cosines are kept at a time
  float cosine[kChunk], sine[kChunk];
  for (int64_t first = 0; first < half; first += kChunk) {
    const int64_t n = half - first < kChunk ? half - first : kChunk;
    for (int64_t j = 0; j < n; ++j) {
      const float angle = position * inverseFrequencies[first + j];
      cosine[j] = __builtin_cosf(angle);
      sine[j] = __builtin_sinf(angle);
    }
    for (int64_t v = 0; v < vectors; ++v) {
      float *low = x + v * 2 * half + first, *high = low + half;
      for (int64_t j = 0; j < n; j += V::kLanes) {
        const int64_t rest = n - j < V::kLanes ? n - j : V::kLanes;
        V a = V::loadPartial(low + j, rest), b = V::loadPartial(high + j, rest);
        V c = V::loadPartial(cosine + j, rest), s = V::loadPartial(sine + j, rest);
        (a * c - b * s).storePartial(low + j, rest);
        (b * c + a * s).storePartial(high + j, rest);
      }
    }
  }
}

// RMSNorm of `vectors` vectors of n elements from x on, each by itself, with the same weight.
template <typename V> void normHeads(float *x, int64_t vectors, int64_t n, const float *weight, float eps) {
  for (int64_t v = 0; v < vectors; ++v, x += n) {
    const float meanSquare = sumOfRow<V, true>(x, n, 0.0f) / static_cast<float>(n);
    const V factor = V::set(1.0f / __builtin_sqrtf(meanSquare + eps));
    for (int64_t i = 0; i < n; i += V::kLanes) {
      const int64_t rest = n - i < V::kLanes ? n - i : V::kLanes;
      (V::loadPartial(x + i, rest) * factor * V::loadPartial(weight + i, rest)).storePartial(x + i, rest);
    }
  }
}

// `heads` vectors of headDim elements from x on: each normalised with `weight`, where that is not null, then rotated,
// where inverseFrequencies is not null.
template <typename V>
HEADRACE_INLINE void rotateHeads(float *x, int64_t heads, int64_t headDim, const float *weight, float eps,
                                 const float *inverseFrequencies, int32_t position) {
  if (weight != nullptr)
    normHeads<V>(x, heads, headDim, weight, eps);
  if (inverseFrequencies != nullptr)
    rotate<V>(x, heads, headDim / 2, inverseFrequencies, static_cast<float>(position));
}

// q and k of a row: of RopeAppendArgs or RotateArgs.
template <typename V, typename Args> HEADRACE_INLINE void rotateRow(const Args &args, float *row, int32_t position) {
  const int64_t headDim = args.headDim;
  if (args.headNorms != nullptr) {
    normHeads<V>(row, args.heads, headDim, args.headNorms, args.eps);
    normHeads<V>(row + args.heads * headDim, args.kvHeads, headDim, args.headNorms + headDim, args.eps);
  }
  if (args.inverseFrequencies != nullptr)
    rotate<V>(row, args.heads + args.kvHeads, headDim / 2, args.inverseFrequencies, static_cast<float>(position));
}

// By rows.
template <typename V> struct RopeAppend {
  static HostWork work(const void *opaque, const HostTeam &team) {
    const auto &args = *static_cast<const RopeAppendArgs *>(opaque);
    const int64_t angles = args.inverseFrequencies == nullptr ? 0 : args.headDim * 10; // cosines and sines of a row
    return HostUnits::of(args.meta->numTokens, angles + (args.heads + 2 * args.kvHeads) * args.headDim / 2, team);
  }
  static void run(const void *opaque, const HostWork &work, int64_t, int64_t unit, float *) {
    const auto &args = *static_cast<const RopeAppendArgs *>(opaque);
    const int32_t *positions = args.meta->array<int32_t>(args.meta->positions);
    const int32_t *slots = args.meta->array<int32_t>(args.meta->kvSlot);
    const int64_t headDim = args.headDim;
    const int64_t rowLength = (args.heads + 2 * args.kvHeads) * headDim;
    const KvRows<V> kept = {2 * args.kvHeads, headDim, args.blockTokens, args.kvElem, args.kvPacking};
    const HostUnits::Run rows = HostUnits::run(work, unit, args.meta->numTokens);
    for (int64_t t = rows.first; t < rows.end; ++t) {
      float *row = static_cast<float *>(args.qkv) + t * rowLength;
      rotateRow<V>(args, row, positions[t]);
      const int64_t block = slots[t] / args.blockTokens, line = slots[t] % args.blockTokens;
      kept.append(row + args.heads * headDim, args.kv, args.segments.of(block), line);
      if (args.home != nullptr && block >= args.homeFirst && block < args.homeEnd)
        kept.copy(args.home, (block - args.homeFirst) * args.homeStride, args.kv, args.segments.of(block), line);
    }
  }
};

template <typename V> struct HostEntry<V, RopeAppendArgs> {
  static constexpr HostKernel kKernel = {RopeAppend<V>::work, sameUnits, RopeAppend<V>::run};
};

} // namespace headrace::kernels
