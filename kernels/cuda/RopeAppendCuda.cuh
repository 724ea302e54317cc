// SPDX-License-Identifier: Apache-2.0
//
// Op::RopeAppend on CUDA; Op::Rotate, the same without a cache; and the last part of Op::RebuildKv, the same for k
// and v of other rows. A block takes its share of a row's vectors (heads of q, k or v); the row's cosines and sines are
// made once a block, and a warp a vector finds what its norm divides by, in an order of additions that depends on
// headDim only. Norm and rotation are of F32 values. k and v go to the cache, and to its home, from their F32 values,
// so each element is rounded once. The angle is position * inverse frequency in F32, as Hugging Face's reference has
// it. To a packed cache F32 values go by way of shared memory, where eight of a group are a thread's.
#pragma once

#include "kernels/CudaGrid.h"
#include "kernels/CudaKernels.h"
#include "kernels/cuda/PackedKvCuda.cuh"

namespace headrace::kernels {

// What the norm of each of `planes` vectors multiplies by, the first of them at element `at` of qkv: a warp a vector.
template <Elem kElem>
HEADRACE_DEVICE void findNorms(const RopeAppendArgs &args, int64_t at, int64_t planes, float *factors) {
  syncBlock(); // the row before has been normalised
  for (int64_t i = warpIndex(); i < planes; i += blockDim.x / 32) {
    float squares = 0.0f;
    for (int64_t j = laneIndex(); j < args.headDim; j += 32) {
      const float value = loadOne<kElem>(args.qkv, at + i * args.headDim + j);
      squares += value * value;
    }
    HEADRACE_LOOP
    for (int mask = 16; mask > 0; mask /= 2)
      squares += shuffleXor(squares, mask);
    if (laneIndex() == 0)
      factors[i] = 1.0f / sqrtf(squares / static_cast<float>(args.headDim) + args.eps);
  }
  syncBlock();
}

// The iteration's rows.
struct TokenRows {
  int64_t count, stride, lead = 0;
  const int32_t *positions, *slots;

  HEADRACE_DEVICE explicit TokenRows(const RopeAppendArgs &args)
      : count(args.meta->numTokens), stride((args.heads + 2 * args.kvHeads) * args.headDim),
        positions(args.meta->array<int32_t>(args.meta->positions)),
        slots(args.meta->array<int32_t>(args.meta->kvSlot)) {}
  HEADRACE_DEVICE int32_t slot(int64_t t) const { return slots[t]; }
  HEADRACE_DEVICE float position(int64_t t) const { return static_cast<float>(positions[t]); }
};

// The same where no cache is written to.
struct RotatedRows {
  int64_t count, stride, lead = 0;
  const int32_t *positions;

  HEADRACE_DEVICE explicit RotatedRows(const RotateArgs &args)
      : count(args.meta->numTokens), stride((args.heads + 2 * args.kvHeads) * args.headDim),
        positions(args.meta->array<int32_t>(args.meta->positions)) {}
  HEADRACE_DEVICE int32_t slot(int64_t) const { return 0; }
  HEADRACE_DEVICE float position(int64_t t) const { return static_cast<float>(positions[t]); }
};

// Rows of listed activation blocks; slots are those of the blocks' own range.
struct ActRows {
  int64_t count, stride, lead, first, blockTokens;
  const int32_t *blocks, *positions, *tokens;

  HEADRACE_DEVICE explicit ActRows(const AppendActArgs &args)
      : stride(args.lead + 2 * args.rope.kvHeads * args.rope.headDim), lead(args.lead), first(args.firstRow),
        blockTokens(args.rope.blockTokens), blocks(args.rope.meta->array<int32_t>(args.rope.meta->actBlock)),
        positions(args.rope.meta->array<int32_t>(args.rope.meta->actPosition)),
        tokens(args.rope.meta->array<int32_t>(args.rope.meta->actTokens)) {
    const int64_t left = args.rope.meta->numActRows - first;
    count = left < args.rows ? left : args.rows;
  }
  // Below 0: none, the block has fewer tokens of earlier iterations.
  HEADRACE_DEVICE int64_t slot(int64_t r) const {
    const int64_t entry = (first + r) / blockTokens, line = (first + r) % blockTokens;
    return line < tokens[entry] ? blocks[entry] * blockTokens + line : -1;
  }
  HEADRACE_DEVICE float position(int64_t r) const {
    return static_cast<float>(positions[(first + r) / blockTokens] + static_cast<int32_t>((first + r) % blockTokens));
  }
};

// What a kernel's cache holds.
template <Elem kOf> struct ElementCache {
  static constexpr Elem kElem = kOf;
  static constexpr bool kKept = true, kPacked = false;
};
struct PackedCache {
  static constexpr Elem kElem = Elem::F32; // until they are packed
  static constexpr bool kKept = true, kPacked = true;
};
struct NoCache {
  static constexpr Elem kElem = Elem::F32;
  static constexpr bool kKept = false, kPacked = false;
};

// Heads [first, first + planes) of k and v, F32 one behind the other, to the row `line` of a packed cache's block, and
// to its home's where that is not null.
HEADRACE_DEVICE void packPlanes(const RopeAppendArgs &args, const float *values, int64_t first, int64_t planes,
                                int64_t start, int64_t line, void *home, int64_t homeStart) {
  const PackedKvBlock of(args.kvPacking, args.kvHeads, args.blockTokens, args.headDim);
  const auto perPlane = static_cast<uint32_t>(args.headDim / 8), eights = static_cast<uint32_t>(planes) * perPlane;
  for (uint32_t ofWarp = threadIdx.x / 32 * 32; ofWarp < eights; ofWarp += blockDim.x) {
    const uint32_t i = ofWarp + threadIdx.x % 32, own = i < eights ? i : 0;
    float x[8];
    HEADRACE_LOOP
    for (int e = 0; e < 8; ++e)
      x[e] = values[own * 8 + e];
    const PackedEight packed(args.kvPacking, x);
    const int64_t row = (first + own / perPlane) * args.blockTokens + line, d = own % perPlane * 8;
    PackedRow(args.kvPacking, of, start, row).store(args.kv, d, packed, i < eights);
    if (home != nullptr)
      PackedRow(args.kvPacking, of, homeStart, row).store(home, d, packed, i < eights);
  }
}

template <Elem kElem, typename Cache, typename Rows>
HEADRACE_DEVICE void ropeAppendRows(const RopeAppendArgs &args, const Rows &source, const RopePlanes &all) {
  constexpr Elem kKvElem = Cache::kElem;
  const int64_t headDim = args.headDim, half = headDim / 2;
  const auto blockTokens = static_cast<int32_t>(args.blockTokens);
  // F32 of the block's vectors on the way to a packed cache.
  float *staged = reinterpret_cast<float *>(sharedMemory());
  float *cosine = staged + (Cache::kPacked ? all.perBlock(gridDim.y) * headDim : 0), *sine = cosine + half;
  float *factors = sine + half; // one a vector, with norms
  const int64_t rows = source.count;
  const int64_t queriesAndKeys = args.heads + args.kvHeads;
  const int64_t rotated = args.inverseFrequencies != nullptr ? queriesAndKeys : 0;
  const int64_t normed = args.headNorms != nullptr ? queriesAndKeys : 0;
  const int64_t most = all.perBlock(gridDim.y), before = blockIdx.y * most;
  if (before >= all.count)
    return;
  const int64_t firstPlane = all.first + before, planes = all.count - before < most ? all.count - before : most;
  const bool vectors = half % 8 == 0 && headDim % 2 == 0 && aligned16(args.qkv) &&
                       (Cache::kPacked || (aligned16(args.kv) && args.segments.multipleOf(8) && aligned16(args.home) &&
                                           args.homeStride % 8 == 0)) &&
                       source.lead % 8 == 0 && source.stride % 8 == 0;
  for (int64_t t = blockIdx.x; t < rows; t += gridDim.x) {
    const auto slot = source.slot(t);
    const int64_t rowStart = t * source.stride + source.lead; // the same on every thread
    if (slot < 0)
      continue;
    if (firstPlane < rotated) {
      const float position = source.position(t);
      syncBlock(); // the row before has been rotated
      for (int64_t j = threadIdx.x; j < half; j += blockDim.x)
        sincosf(position * args.inverseFrequencies[j], &sine[j], &cosine[j]);
      syncBlock();
    }
    if (firstPlane < normed)
      findNorms<kElem>(args, rowStart + firstPlane * headDim,
                       planes < normed - firstPlane ? planes : normed - firstPlane, factors);
    const int64_t block = slot / blockTokens, line = slot % blockTokens;
    const int64_t planeLength = args.blockTokens * headDim;
    const int64_t cacheStart = Cache::kPacked ? 0 : args.segments.of(block) + line * headDim;
    const bool mirrored = args.home != nullptr && block >= args.homeFirst && block < args.homeEnd; // on every thread
    // From an element of the cache to that of the home.
    const int64_t toHome = Cache::kPacked ? 0 : (block - args.homeFirst) * args.homeStride - args.segments.of(block);
    if (Cache::kPacked)
      syncBlock(); // the row before has been packed
    // Pairs (j, j + half) of each vector, eight or one at a time; the last element of an odd headDim is a pair of one.
    const uint32_t width = vectors ? 8 : 1, pairs = static_cast<uint32_t>(vectors ? half / 8 : headDim - half);
    for (uint32_t i = threadIdx.x; i < static_cast<uint32_t>(planes) * pairs; i += blockDim.x) {
      const int64_t plane = firstPlane + i / pairs, j = i % pairs * width;
      const int64_t at = rowStart + plane * headDim + j;
      const int64_t cache =
          Cache::kPacked ? i / pairs * headDim + j : cacheStart + (plane - args.heads) * planeLength + j;
      const float factor = plane < normed ? factors[i / pairs] : 1.0f;
      const float *weight = plane < normed ? args.headNorms + (plane < args.heads ? 0 : headDim) + j : nullptr;
      if (vectors) {
        float low[8], high[8];
        loadEight<kElem>(args.qkv, at, low);
        loadEight<kElem>(args.qkv, at + half, high);
        if (weight != nullptr) {
          HEADRACE_LOOP
          for (int e = 0; e < 8; ++e) {
            low[e] = low[e] * factor * weight[e];
            high[e] = high[e] * factor * weight[half + e];
          }
        }
        if (plane < rotated) {
          HEADRACE_LOOP
          for (int e = 0; e < 8; ++e) {
            const float a = low[e], b = high[e], c = cosine[j + e], s = sine[j + e];
            low[e] = a * c - b * s;
            high[e] = b * c + a * s;
          }
        }
        if (plane < rotated || plane < normed) {
          storeEight<kElem>(args.qkv, at, low);
          storeEight<kElem>(args.qkv, at + half, high);
        }
        if (Cache::kPacked) {
          HEADRACE_LOOP
          for (int e = 0; e < 8; ++e)
            staged[cache + e] = low[e], staged[cache + half + e] = high[e];
        } else if (Cache::kKept && plane >= args.heads) {
          storeEight<kKvElem>(args.kv, cache, low);
          storeEight<kKvElem>(args.kv, cache + half, high);
          if (mirrored) {
            storeEight<kKvElem>(args.home, cache + toHome, low);
            storeEight<kKvElem>(args.home, cache + toHome + half, high);
          }
        }
        continue;
      }
      const bool paired = j < half;
      float a = loadOne<kElem>(args.qkv, paired ? at : at + half);
      float b = paired ? loadOne<kElem>(args.qkv, at + half) : 0.0f;
      if (weight != nullptr) {
        a = a * factor * weight[paired ? 0 : half];
        b = paired ? b * factor * weight[half] : 0.0f;
      }
      if (plane < rotated && paired) {
        const float low = a * cosine[j] - b * sine[j];
        b = b * cosine[j] + a * sine[j];
        a = low;
      }
      if ((plane < rotated && paired) || plane < normed) {
        storeOne<kElem>(args.qkv, paired ? at : at + half, a);
        if (paired)
          storeOne<kElem>(args.qkv, at + half, b);
      }
      if (Cache::kPacked) { // heads are whole groups: no element is without a pair
        staged[cache] = a, staged[cache + half] = b;
      } else if (Cache::kKept && plane >= args.heads) {
        storeOne<kKvElem>(args.kv, paired ? cache : cache + half, a);
        if (paired)
          storeOne<kKvElem>(args.kv, cache + half, b);
        if (mirrored) {
          storeOne<kKvElem>(args.home, (paired ? cache : cache + half) + toHome, a);
          if (paired)
            storeOne<kKvElem>(args.home, cache + toHome + half, b);
        }
      }
    }
    if (Cache::kPacked && firstPlane + planes > args.heads) {
      syncBlock();                                                                   // all values are there
      const int64_t queries = firstPlane < args.heads ? args.heads - firstPlane : 0; // vectors of q in front
      packPlanes(args, staged + queries * headDim, firstPlane + queries - args.heads, planes - queries,
                 args.segments.of(block), line, mirrored ? args.home : nullptr,
                 (block - args.homeFirst) * args.homeStride);
    }
  }
}

template <Elem kElem, typename Cache> __global__ void ropeAppendKernel(const RopeAppendArgs args) {
  ropeAppendRows<kElem, Cache>(args, TokenRows(args), ropePlanes(args));
}
template <Elem kElem> __global__ void rotateKernel(const RotateArgs args) {
  RopeAppendArgs rope{};
  rope.meta = args.meta, rope.qkv = args.qkv, rope.inverseFrequencies = args.inverseFrequencies;
  rope.headNorms = args.headNorms, rope.eps = args.eps;
  rope.heads = args.heads, rope.kvHeads = args.kvHeads, rope.headDim = args.headDim, rope.blockTokens = 1;
  ropeAppendRows<kElem, NoCache>(rope, RotatedRows(args), ropePlanes(args));
}
template <Elem kElem, typename Cache> __global__ void appendActKernel(const AppendActArgs args) {
  ropeAppendRows<kElem, Cache>(args.rope, ActRows(args), ropePlanes(args.rope));
}

} // namespace headrace::kernels
