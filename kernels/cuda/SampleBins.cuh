// SPDX-License-Identifier: Apache-2.0
//
// What sampling reads a row with, and the histograms that it makes of one.
#pragma once

#include "kernels/CudaGrid.h"
#include "kernels/Ranking.h"
#include "kernels/cuda/CudaElems.cuh"

namespace headrace::kernels {

struct SampleBins {
  static constexpr int kThreads = kSampleThreads, kWarps = kThreads / 32;
  static constexpr uint32_t kBins = 2 * kThreads;
  static_assert(kWarps == 32); // one lane a warp in the last step of reductions
  static_assert(kBins <= SampleShared::kBins && 2 * kBins <= SampleShared::kListed);

  SampleShared &shared;
  int32_t vocab; // at most 2^18
  const float *logits = nullptr;
  int32_t shift = 0; // ids that lie between a multiple of 16 bytes and the first
  float largest = 0, temperature = 1;
  int32_t listed = -1; // keys in shared.keys that stand for the row; -1: the row itself

  HEADRACE_DEVICE static uint64_t unitsOf(float weight) { return static_cast<uint64_t>(weight * 0x1p44f); }
  HEADRACE_DEVICE static uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }
  // What rankingKey makes this of, but for NaN and -0.
  HEADRACE_DEVICE static float logitOf(uint32_t key) {
    const uint32_t bits = (key & 0x80000000u) != 0 ? key & 0x7fffffffu : ~key;
    float logit;
    __builtin_memcpy(&logit, &bits, sizeof logit);
    return logit;
  }

  HEADRACE_DEVICE void readFrom(const float *row) {
    logits = row;
    shift = static_cast<int32_t>(reinterpret_cast<uintptr_t>(row) / sizeof(float) % 4);
  }
  // The row, or the list, in groups of four.
  HEADRACE_DEVICE int32_t fours() const { return ((listed < 0 ? vocab + shift : listed) + 3) / 4; }
  HEADRACE_DEVICE int32_t idOf(int32_t four, int j) const { return four * 4 + j - shift; }
  // Those of a group, and a bit for each that there is.
  HEADRACE_DEVICE uint32_t fetch(int32_t four, float (&v)[4]) const {
    uint32_t valid = 0;
    if (listed >= 0) {
      HEADRACE_LOOP
      for (int j = 0; j < 4; ++j) {
        const bool here = four * 4 + j < listed;
        v[j] = here ? logitOf(shared.keys[four * 4 + j]) : kMinusInfinity;
        valid |= here ? 1u << j : 0u;
      }
      return valid;
    }
    const int32_t first = idOf(four, 0);
    if (first >= 0 && first + 4 <= vocab) {
      const float4 p = loadGlobal(reinterpret_cast<const float4 *>(logits + first));
      v[0] = p.x, v[1] = p.y, v[2] = p.z, v[3] = p.w;
      return 0xf;
    }
    HEADRACE_LOOP
    for (int j = 0; j < 4; ++j) {
      const bool here = first + j >= 0 && first + j < vocab;
      v[j] = here ? loadGlobal(logits + first + j) : kMinusInfinity;
      valid |= here ? 1u << j : 0u;
    }
    return valid;
  }
  // f(logit, whether there is one) for all of them, by whole warps.
  template <typename F> HEADRACE_DEVICE void each(const F &f) const {
    for (int32_t at = warpIndex() * 32; at < fours(); at += kThreads) {
      float v[4];
      const uint32_t valid = fetch(at + laneIndex(), v);
      HEADRACE_LOOP_BY(1)
      for (int j = 0; j < 4; ++j)
        f(j == 0 ? v[0] : j == 1 ? v[1] : j == 2 ? v[2] : v[3], (valid >> j & 1) != 0);
    }
  }

  // An infinite largest logit leaves weight to its equals only.
  HEADRACE_DEVICE float weightOf(float logit) const {
    if (largest - largest != 0.0f)
      return logit == largest ? 1.0f : 0.0f;
    return fmaxf(expf((logit - largest) / temperature), 0.0f); // zero where NaN
  }

  HEADRACE_DEVICE static uint32_t smaller(uint32_t a, uint32_t b) { return a < b ? a : b; }
  template <typename T, typename Join> HEADRACE_DEVICE static T overWarp(T value, const Join &join) {
    HEADRACE_LOOP_BY(1)
    for (int mask = 16; mask > 0; mask /= 2)
      value = join(value, shuffleXor(value, mask));
    return value;
  }
  // What lower lanes have, in sum.
  template <typename T> HEADRACE_DEVICE static T sumBefore(T value) {
    T running = value;
    HEADRACE_LOOP
    for (int distance = 1; distance < 32; distance *= 2) {
      const T other = shuffle(running, laneIndex() >= distance ? laneIndex() - distance : laneIndex());
      running += laneIndex() >= distance ? other : 0;
    }
    return running - value;
  }

  // The block's sum of each of `values`, on every thread.
  HEADRACE_DEVICE void sumOver(uint64_t (&values)[3]) {
    HEADRACE_LOOP
    for (int i = 0; i < 3; ++i) {
      for (int mask = 16; mask > 0; mask /= 2)
        values[i] += shuffleXor(values[i], mask);
      if (laneIndex() == 0)
        shared.scratch[i * kWarps + warpIndex()] = values[i];
    }
    syncBlock();
    HEADRACE_LOOP
    for (int i = 0; i < 3; ++i) {
      values[i] = shared.scratch[i * kWarps + laneIndex()];
      for (int mask = 16; mask > 0; mask /= 2)
        values[i] += shuffleXor(values[i], mask);
    }
    syncBlock();
  }

  // ---- bins: whatever they are of, a lower one has higher keys

  // The lowest and the highest key of each stand where the list does, until there is one.
  HEADRACE_DEVICE uint32_t *lowestKeys() const { return shared.keys; }
  HEADRACE_DEVICE uint32_t *highestKeys() const { return shared.keys + kBins; }

  HEADRACE_DEVICE void clear() {
    for (uint32_t bin = threadIdx.x; bin < kBins; bin += kThreads) {
      shared.low[bin] = shared.high[bin] = shared.count[bin] = 0;
      if (listed < 0)
        lowestKeys()[bin] = UINT32_MAX, highestKeys()[bin] = 0;
    }
    syncBlock();
  }
  HEADRACE_DEVICE void add(uint32_t bin, uint64_t units, uint32_t tokens) {
    const auto low = static_cast<uint32_t>(units);
    const bool carry = low != 0 && atomicAddTo(&shared.low[bin], low) + low < low;
    const uint32_t high = static_cast<uint32_t>(units >> 32) + (carry ? 1 : 0);
    if (high != 0)
      atomicAddTo(&shared.high[bin], high);
    atomicAddTo(&shared.count[bin], tokens);
  }
  HEADRACE_DEVICE void reachTo(uint32_t bin, uint32_t key) {
    if (key < lowestKeys()[bin])
      atomicMinTo(&lowestKeys()[bin], key);
    if (key > highestKeys()[bin])
      atomicMaxTo(&highestKeys()[bin], key);
  }
  // A token of each lane that has one. Lanes of one bin add up first: equal logits would queue for its words.
  HEADRACE_DEVICE void tally(bool has, uint32_t bin, uint32_t key, uint64_t units) {
    constexpr int kTogether = 4;
    if (has && listed < 0)
      reachTo(bin, key);
    uint32_t left = ballot(has);
    HEADRACE_LOOP_BY(1)
    for (int round = 0; round < 2 && left != 0; ++round) {
      const int leader = firstBit(left);
      const uint32_t theirs = shuffle(bin, leader); // on all lanes
      const bool alike = has && bin == theirs;
      const uint32_t same = ballot(alike);
      if (countBits(same) >= kTogether) {
        const uint64_t sum = overWarp(alike ? units : 0, [](uint64_t a, uint64_t b) { return a + b; });
        if (laneIndex() == leader)
          add(bin, sum, static_cast<uint32_t>(countBits(same)));
        has = has && !alike;
      }
      left &= ~same;
    }
    if (has)
      add(bin, units, 1);
  }

  // A bin, and what those before it have.
  struct Found {
    uint32_t bin = kBins; // none
    uint64_t units = 0;
    uint32_t tokens = 0;
  };
  // The first bins with which `reached` is so: asked of a search, a bin, and the units and tokens up to it.
  template <int kSearches, typename Reached> HEADRACE_DEVICE void find(const Reached &reached) {
    const uint32_t first = 2 * threadIdx.x;
    uint64_t units = shared.units(first) + shared.units(first + 1);
    uint32_t tokens = shared.count[first] + shared.count[first + 1];
    const uint64_t unitsBefore = sumBefore(units);
    const uint32_t tokensBefore = sumBefore(tokens);
    if (laneIndex() == 31) {
      shared.scratch[warpIndex()] = unitsBefore + units;
      shared.scratch[kWarps + warpIndex()] = tokensBefore + tokens;
    }
    if (threadIdx.x < kSearches)
      shared.found[threadIdx.x][0] = kBins;
    syncBlock();
    units = unitsBefore + shuffle(sumBefore(shared.scratch[laneIndex()]), warpIndex());
    tokens =
        tokensBefore + shuffle(sumBefore(static_cast<uint32_t>(shared.scratch[kWarps + laneIndex()])), warpIndex());
    HEADRACE_LOOP_BY(1)
    for (uint32_t bin = first; bin < first + 2; ++bin) {
      const uint64_t unitsUpTo = units + shared.units(bin);
      const uint32_t tokensUpTo = tokens + shared.count[bin];
      HEADRACE_LOOP
      for (int i = 0; i < kSearches; ++i)
        if ((bin == 0 || !reached(i, bin - 1, units, tokens)) && reached(i, bin, unitsUpTo, tokensUpTo))
          shared.found[i][0] = bin, shared.found[i][1] = units, shared.found[i][2] = tokens;
      units = unitsUpTo, tokens = tokensUpTo;
    }
    syncBlock();
  }
  HEADRACE_DEVICE Found found(int search) const {
    return {static_cast<uint32_t>(shared.found[search][0]), shared.found[search][1],
            static_cast<uint32_t>(shared.found[search][2])};
  }
};

} // namespace headrace::kernels
