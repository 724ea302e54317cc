// SPDX-License-Identifier: Apache-2.0
//
// The search for what a token is drawn from: the prefix of the ranking that min-p, top-k and top-p leave.
//
// The first histogram has 2,048 bins by the distance from the largest logit, 64 an octave, so that the weights which
// matter are spread over many of them whatever the logits' scale, each with its lowest and highest key. Where the bin
// of a border has more than one key its tokens are listed, and of these the border's key is found by histograms of
// 2,048 equal ranges of keys. Where they are too many for the list (5,632), the row itself is read in its place: once
// where a range has one key, else once more for eleven bits of it.
#pragma once

#include "kernels/cuda/SampleBins.cuh"

namespace headrace::kernels {

struct SampleSearch : SampleBins {
  int32_t firstBits = 0; // of the distances in bin 0, and below: see binOf

  // A prefix of the ranking: tokens with a key above `key`, and of those with this key the first `ties` ids.
  struct Cut {
    uint32_t key = 0;
    uint32_t ties = UINT32_MAX;
  };
  HEADRACE_DEVICE static Cut shorter(const Cut &a, const Cut &b) {
    if (a.key != b.key)
      return a.key > b.key ? a : b;
    return {a.key, a.ties < b.ties ? a.ties : b.ties};
  }

  // ---- by distance from the largest logit

  // Distances of 64 in an octave; `most`, and all beyond it, are in the last bin.
  HEADRACE_DEVICE void setBins(float most) { firstBits = distanceBits(most) - static_cast<int32_t>(kBins - 1); }
  HEADRACE_DEVICE static int32_t distanceBits(float distance) {
    uint32_t bits;
    __builtin_memcpy(&bits, &distance, sizeof bits);
    return static_cast<int32_t>(bits >> 17);
  }
  HEADRACE_DEVICE uint32_t binOf(float logit) const {
    logit = logit != logit ? kMinusInfinity : logit;
    if (logit == largest)
      return 0;
    const int32_t bin = distanceBits(largest - logit) - firstBits;
    return bin < 0 ? 0 : bin < static_cast<int32_t>(kBins) ? static_cast<uint32_t>(bin) : kBins - 1;
  }
  // The histogram; and the lowest key whose weight reaches `least`, which at least one does where it is above zero.
  // Most tokens are in the last bin: each thread counts its own.
  HEADRACE_DEVICE uint32_t measure(float least, bool all, bool weighed) {
    clear();
    uint32_t lowest = UINT32_MAX, tokens = 0;
    uint64_t unitsFar = 0;
    each([&](float logit, bool here) {
      const uint32_t key = rankingKey(logit), bin = binOf(logit);
      const float weight = here ? weightOf(logit) : 0.0f;
      const uint64_t units = unitsOf(weight);
      if (here && weight >= least && key < lowest)
        lowest = key;
      const bool has = here && (all || (weighed && units > 0)), far = bin == kBins - 1;
      if (has && far) {
        ++tokens, unitsFar += units;
        reachTo(bin, key);
      }
      tally(has && !far, bin, key, units);
    });
    tokens = overWarp(tokens, [](uint32_t a, uint32_t b) { return a + b; });
    unitsFar = overWarp(unitsFar, [](uint64_t a, uint64_t b) { return a + b; });
    lowest = overWarp(lowest, smaller);
    if (laneIndex() == 0) {
      shared.scratch[warpIndex()] = lowest;
      add(kBins - 1, unitsFar, tokens);
    }
    syncBlock();
    lowest = overWarp(static_cast<uint32_t>(shared.scratch[laneIndex()]), smaller);
    syncBlock();
    return lowest;
  }

  // Has the list stand for the row: the tokens that measure() counted in spans[0], spans[1] or both, a bit each.
  HEADRACE_DEVICE void list(uint32_t which, bool all) {
    uint32_t *end = shared.low; // the bins' sums have been read
    if (threadIdx.x == 0)
      *end = 0;
    syncBlock();
    each([&](float logit, bool here) {
      const uint32_t key = rankingKey(logit);
      here = here && (((which & 1) != 0 && shared.spans[0].has(key)) || ((which & 2) != 0 && shared.spans[1].has(key)));
      here = here && (all || unitsOf(weightOf(logit)) > 0);
      const uint32_t those = ballot(here);
      if (those == 0)
        return;
      uint32_t at = laneIndex() == 0 ? atomicAddTo(end, static_cast<uint32_t>(countBits(those))) : 0;
      at = shuffle(at, 0) + static_cast<uint32_t>(countBits(those & ((1u << laneIndex()) - 1u)));
      if (here)
        shared.keys[at] = key;
    });
    syncBlock();
    listed = static_cast<int32_t>(*end);
    syncBlock();
  }

  // ---- by keys

  // Of the bins from one that was found to another, whose keys' extremes are known.
  HEADRACE_DEVICE SampleSpan spanOf(const Found &first, const Found &last) const {
    return {lowestKeys()[last.bin],
            highestKeys()[first.bin],
            first.tokens,
            last.tokens + shared.count[last.bin] - first.tokens,
            first.units,
            last.units + shared.units(last.bin) - first.units};
  }

  // The shortest prefix whose units, or tokens, reach `target`; its last token is in this span. What is left of it, one
  // key, is spans[kLeft] then. (In shared memory: registers are what the kernel has least of.)
  static constexpr int kLeft = 2;
  HEADRACE_DEVICE Cut cutIn(int which, double target, bool weighed) {
    const SampleSpan &span = shared.spans[kLeft];
    if (threadIdx.x == 0)
      shared.spans[kLeft] = shared.spans[which];
    syncBlock();
    HEADRACE_LOOP_BY(1)
    while (span.low < span.high) {
      int bits = 0; // of the keys of a bin
      while ((span.high - span.low) >> bits >= kBins)
        ++bits;
      clear();
      each([&](float logit, bool here) {
        const uint32_t key = rankingKey(logit);
        here = here && span.has(key);
        tally(here, here ? (span.high - key) >> bits : 0, key, here ? unitsOf(weightOf(logit)) : 0);
      });
      syncBlock();
      find<1>([&](int, uint32_t, uint64_t units, uint32_t tokens) {
        return static_cast<double>(weighed ? span.unitsAbove + units : span.tokensAbove + tokens) >= target;
      });
      const Found border = found(0);
      if (border.bin >= kBins)
        return {}; // nothing weighs anything
      if (threadIdx.x == 0) {
        SampleSpan left = {span.low,
                           span.high - (border.bin << bits),
                           span.tokensAbove + border.tokens,
                           shared.count[border.bin],
                           span.unitsAbove + border.units,
                           shared.units(border.bin)};
        if (left.high - left.low >= 1u << bits)
          left.low = left.high - (1u << bits) + 1;
        if (listed < 0) // most often one key
          left.low = lowestKeys()[border.bin], left.high = highestKeys()[border.bin];
        shared.spans[kLeft] = left;
      }
      syncBlock();
    }
    const uint64_t above = weighed ? span.unitsAbove : span.tokensAbove;
    Cut cut{span.low, span.tokens};
    const uint64_t one = span.tokens > 0 ? (weighed ? span.units : span.tokens) / span.tokens : 0;
    if (one > 0) {
      uint64_t ties = static_cast<uint64_t>((target - static_cast<double>(above)) / static_cast<double>(one));
      ties = ties > 0 ? ties - 1 : 0; // the quotient may be off by one either way
      while (ties < span.tokens && static_cast<double>(above + ties * one) < target)
        ++ties;
      cut.ties = ties > 0 ? static_cast<uint32_t>(ties) : 1;
    }
    return cut;
  }

  // The weight of a prefix whose last token is in this span; of all of it where that is no cut.
  HEADRACE_DEVICE uint64_t weightUpTo(const Cut &cut, const SampleSpan &span) {
    uint64_t sums[3] = {0, span.tokens, span.units}; // above the key; tokens with the key, and their weight
    if (cut.key > 0 && span.low < span.high) {
      sums[1] = sums[2] = 0;
      each([&](float logit, bool here) {
        const uint32_t key = rankingKey(logit);
        if (!here || key < cut.key || key > span.high)
          return;
        const uint64_t units = unitsOf(weightOf(logit));
        sums[0] += key > cut.key ? units : 0;
        if (key == cut.key)
          ++sums[1], sums[2] += units;
      });
      sumOver(sums);
    }
    return span.unitsAbove + sums[0] + (sums[1] <= cut.ties ? sums[2] : sums[2] / sums[1] * cut.ties);
  }
  HEADRACE_DEVICE static double targetOf(uint64_t weight, float topP) {
    const double target = static_cast<double>(weight) * static_cast<double>(topP);
    return target > 1.0 ? target : 1.0;
  }

  // What min-p (0: none), top-k (0: none) and top-p (1: none) leave; top-p is of the weight that the others do.
  HEADRACE_DEVICE Cut candidatesOf(float minP, int32_t topK, float topP) {
    const bool counts = topK > 0, weighed = topP<1.0f, least = minP> 0.0f;
    Cut cut;
    if (!counts && !weighed && !least)
      return cut;
    // Beyond 16 x temperature 2^18 tokens weigh at most 0.03 of the largest; top-k may look further.
    setBins(counts ? fmaxf(16.0f * temperature, 16.0f) : 16.0f * temperature);
    const uint32_t lowest = measure(least ? minP : INFINITY, counts, weighed);
    if (least)
      cut = {lowest, UINT32_MAX};
    if (!counts && !weighed)
      return cut;
    // The bin with the border of min-p or of top-k, whichever comes first; without both the last one.
    const uint32_t lastBin = least ? binOf(logitOf(lowest)) : kBins - 1;
    find<1>([=](int, uint32_t bin, uint64_t, uint32_t tokens) {
      return bin >= lastBin || (counts && tokens >= static_cast<uint32_t>(topK));
    });
    const Found border = found(0);
    const uint64_t upTo = border.units + shared.units(border.bin);
    const bool some = counts || least;
    const bool searched = counts && border.tokens + shared.count[border.bin] >= static_cast<uint32_t>(topK);
    uint32_t tokens = 0, lists = 0; // of which spans, and how many
    if (threadIdx.x == 0)
      shared.spans[0] = spanOf(border, border);
    if ((searched || (some && weighed)) && lowestKeys()[border.bin] < highestKeys()[border.bin])
      lists = 1, tokens = shared.count[border.bin];
    syncBlock();
    if (weighed) { // top-p's is between those that it would have were all, or none, of that bin left
      find<2>([=](int search, uint32_t, uint64_t units, uint32_t) {
        return static_cast<double>(units) >= targetOf(search == 0 && some ? border.units : upTo, topP);
      });
      if (found(1).bin >= kBins)
        return cut; // nothing weighs anything
      const SampleSpan span = spanOf(found(0), found(1));
      if (span.low < span.high)
        lists |= 2, tokens += span.tokens;
      if (threadIdx.x == 0)
        shared.spans[1] = span;
      syncBlock();
    }
    if (tokens > 0 && tokens <= SampleShared::kListed)
      list(lists, counts);
    HEADRACE_LOOP_BY(1)
    for (int filter = searched ? 0 : 1; filter < (weighed ? 2 : 1); ++filter) {
      double target = static_cast<double>(topK);
      if (filter == 1) {
        const bool left = searched && cut.key == shared.spans[kLeft].low;
        target = targetOf(weightUpTo(cut, shared.spans[left ? kLeft : 0]), topP);
        syncBlock();
      }
      cut = shorter(cut, cutIn(filter, target, filter == 1));
    }
    listed = -1;
    return cut;
  }
};

} // namespace headrace::kernels
