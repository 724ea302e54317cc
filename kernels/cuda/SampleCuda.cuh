// SPDX-License-Identifier: Apache-2.0
//
// Op::Sample on CUDA: a block a sequence. The same definition as on the host (SampleHost.h), with other arithmetic: a
// token's weight exp((logit - largest) / temperature) is counted in units of 2^-44 and sums are integers, so that no
// order of summation can change a token. (2^18 tokens of weight one fit 62 bits; the units lose less than the F32
// weights have lost already.) What a sequence has had is counted in integers, too.
//
// A row's workspace has its weights; or, under penalties, the logits that they leave, whose weights are then made anew
// wherever they are read.
//
// A last candidate's key is found by halving the range of keys twice a pass; only logits inside the range have their
// weights read. The token is found by narrowing the range of ids: the warps sum a part each, the part in which the
// running sum passes the limit is divided again, until one warp walks it.
#pragma once

#include "kernels/CudaGrid.h"
#include "kernels/Penalties.h"
#include "kernels/Philox.h"
#include "kernels/Ranking.h"
#include "kernels/cuda/CudaElems.cuh"

namespace headrace::kernels {

struct SampleBlock {
  static constexpr int kThreads = kSampleThreads, kWarps = kThreads / 32;
  static_assert(kWarps == 32); // one lane a warp in the last step of reductions

  const float *logits;
  float *room;       // vocab of them
  int32_t vocab;     // at most 2^18
  uint64_t *scratch; // 3 * kWarps words of shared memory
  bool penalised = false;
  float largest = 0, temperature = 1;

  HEADRACE_DEVICE static uint64_t unitsOf(float weight) { return static_cast<uint64_t>(weight * 0x1p44f); }
  HEADRACE_DEVICE static uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }

  // The block's sum of each of `values`, on every thread.
  template <int kCount> HEADRACE_DEVICE void sumOver(uint64_t (&values)[kCount]) {
    HEADRACE_LOOP
    for (int i = 0; i < kCount; ++i) {
      for (int mask = 16; mask > 0; mask /= 2)
        values[i] += shuffleXor(values[i], mask);
      if (laneIndex() == 0)
        scratch[i * kWarps + warpIndex()] = values[i];
    }
    syncBlock();
    HEADRACE_LOOP
    for (int i = 0; i < kCount; ++i) {
      values[i] = scratch[i * kWarps + laneIndex()];
      for (int mask = 16; mask > 0; mask /= 2)
        values[i] += shuffleXor(values[i], mask);
    }
    syncBlock();
  }

  // The greedy token, and whether every logit is finite; the same on every thread.
  struct Scan {
    int32_t token;
    bool finite;
  };
  HEADRACE_DEVICE Scan scan() {
    uint64_t best = 0;
    bool finite = true;
    for (int32_t i = static_cast<int32_t>(threadIdx.x); i < vocab; i += kThreads) {
      best = larger(best, greedyWord(logits[i], static_cast<uint32_t>(i)));
      finite = finite && logits[i] - logits[i] == 0.0f;
    }
    for (int mask = 16; mask > 0; mask /= 2)
      best = larger(best, shuffleXor(best, mask));
    const uint32_t wrong = ballot(!finite);
    if (laneIndex() == 0) {
      scratch[warpIndex()] = best;
      scratch[kWarps + warpIndex()] = wrong;
    }
    syncBlock();
    best = scratch[laneIndex()];
    for (int mask = 16; mask > 0; mask /= 2)
      best = larger(best, shuffleXor(best, mask));
    finite = ballot(scratch[kWarps + laneIndex()] != 0) == 0;
    syncBlock();
    return {static_cast<int32_t>(greedyId(best)), finite};
  }

  // From here on `logits` are those under penalties, in the workspace; until then it has the words of what the sequence
  // has had.
  HEADRACE_DEVICE void penalise(const Penalties &penalties, const History &history) {
    static_assert(sizeof(uint32_t) == sizeof(float));
    uint32_t *words = reinterpret_cast<uint32_t *>(room);
    for (int32_t i = static_cast<int32_t>(threadIdx.x); i < vocab; i += kThreads)
      words[i] = 0;
    syncBlock();
    for (int64_t position = threadIdx.x; position < history.tokens; position += kThreads) {
      const int32_t id = idAt(history, position);
      if (id < 0 || id >= vocab)
        continue;
      if (position < history.promptTokens)
        atomicOrTo(&words[id], kInPrompt);
      else
        atomicAddTo(&words[id], 1);
    }
    syncBlock();
    for (int32_t i = static_cast<int32_t>(threadIdx.x); i < vocab; i += kThreads) {
      uint32_t had;
      __builtin_memcpy(&had, room + i, sizeof had);
      room[i] = kernels::penalised(penalties, logits[i], had);
    }
    syncBlock();
    logits = room;
    penalised = true;
  }

  // An infinite largest logit leaves weight to its equals only.
  HEADRACE_DEVICE float weightOf(float logit) const {
    if (largest - largest != 0.0f)
      return logit == largest ? 1.0f : 0.0f;
    return fmaxf(expf((logit - largest) / temperature), 0.0f); // zero where NaN
  }
  HEADRACE_DEVICE float weightAt(int32_t id) const { return penalised ? weightOf(logits[id]) : room[id]; }

  // Makes weights ready to be read.
  HEADRACE_DEVICE void weigh() {
    for (int32_t i = static_cast<int32_t>(threadIdx.x); i < vocab && !penalised; i += kThreads)
      room[i] = weightOf(logits[i]);
    syncBlock();
  }

  // A prefix of the ranking: tokens with a key above `key`, and of those with this key the first `ties` ids.
  struct Cut {
    uint32_t key = 0;
    uint64_t ties = UINT64_MAX;
  };
  HEADRACE_DEVICE static Cut shorter(const Cut &a, const Cut &b) {
    if (a.key != b.key)
      return a.key > b.key ? a : b;
    return {a.key, a.ties < b.ties ? a.ties : b.ties};
  }

  // Up to the last token whose weight reaches `least`: at least one does.
  HEADRACE_DEVICE Cut cutAtWeight(float least) {
    uint32_t lowest = UINT32_MAX;
    for (int32_t i = static_cast<int32_t>(threadIdx.x); i < vocab; i += kThreads)
      if (const uint32_t key = rankingKey(logits[i]); key < lowest && weightAt(i) >= least)
        lowest = key;
    for (int mask = 16; mask > 0; mask /= 2) {
      const uint32_t other = shuffleXor(lowest, mask);
      lowest = other < lowest ? other : lowest;
    }
    if (laneIndex() == 0)
      scratch[warpIndex()] = lowest;
    syncBlock();
    HEADRACE_LOOP_BY(1)
    for (int w = 0; w < kWarps; ++w)
      lowest = scratch[w] < lowest ? static_cast<uint32_t>(scratch[w]) : lowest;
    syncBlock();
    return {lowest, UINT64_MAX};
  }

  // The weight of a prefix.
  HEADRACE_DEVICE uint64_t weightUpTo(const Cut &cut) {
    uint64_t sums[3] = {0, 0, 0}; // above the key; tokens with the key, and their weight
    for (int32_t i = static_cast<int32_t>(threadIdx.x); i < vocab; i += kThreads) {
      const uint32_t key = rankingKey(logits[i]);
      if (key < cut.key)
        continue;
      const uint64_t units = unitsOf(weightAt(i));
      sums[0] += key > cut.key ? units : 0;
      if (key == cut.key)
        ++sums[1], sums[2] += units;
    }
    sumOver(sums);
    return sums[0] + (sums[1] <= cut.ties ? sums[2] : sums[2] / sums[1] * cut.ties); // equal logits, equal weights
  }

  // A token's share of what a prefix is to reach: its weight, or 1. The same for equal logits.
  HEADRACE_DEVICE uint64_t amountOf(int32_t id, bool weighed) const { return weighed ? unitsOf(weightAt(id)) : 1; }

  // The shortest prefix whose amounts reach `target`, which is at least one and at most all of them.
  HEADRACE_DEVICE Cut cutAt(double target, bool weighed) {
    // Amounts of keys >= high are `above`, less than the target; those of keys >= low reach it.
    uint64_t low = 0, high = uint64_t{rankingKey(largest)} + 1, above = 0;
    while (high - low > 1) {
      const uint64_t step = (high - low + 3) / 4;
      uint64_t sums[3] = {0, 0, 0}; // of keys in [low + (j + 1) step, high)
      for (int32_t i = static_cast<int32_t>(threadIdx.x); i < vocab; i += kThreads) {
        const uint64_t key = rankingKey(logits[i]);
        if (key < low + step || key >= high)
          continue;
        const uint64_t units = amountOf(i, weighed);
        HEADRACE_LOOP
        for (int j = 0; j < 3; ++j)
          sums[j] += key >= low + static_cast<uint64_t>(j + 1) * step ? units : 0;
      }
      sumOver(sums);
      uint64_t newLow = low, newHigh = high, newAbove = above;
      HEADRACE_LOOP
      for (int j = 0; j < 3; ++j) { // thresholds rise: the last that still reaches the target is the new low end
        const uint64_t threshold = low + static_cast<uint64_t>(j + 1) * step;
        if (threshold >= high)
          continue;
        if (static_cast<double>(above + sums[j]) >= target)
          newLow = threshold;
        else if (newHigh == high)
          newHigh = threshold, newAbove = above + sums[j];
      }
      low = newLow, high = newHigh, above = newAbove;
    }
    uint64_t count[2] = {0, 0}; // tokens with the last key, and their amounts
    for (int32_t i = static_cast<int32_t>(threadIdx.x); i < vocab; i += kThreads)
      if (rankingKey(logits[i]) == low)
        ++count[0], count[1] += amountOf(i, weighed);
    sumOver(count);
    Cut cut{static_cast<uint32_t>(low), count[0]};
    const uint64_t each = count[0] > 0 ? count[1] / count[0] : 0;
    if (each > 0) {
      const double missing = target - static_cast<double>(above);
      uint64_t ties = static_cast<uint64_t>(missing / static_cast<double>(each));
      ties = ties > 0 ? ties - 1 : 0; // the quotient may be off by one either way
      while (ties < count[0] && static_cast<double>(above + ties * each) < target)
        ++ties;
      cut.ties = ties > 0 ? ties : 1;
    }
    return cut;
  }

  // What a token of the s-th row is drawn from. Parameters are read where they are needed, and the search stands once
  // in the kernel: registers are what it has least of.
  HEADRACE_DEVICE Cut candidates(const IterationMeta &meta, int64_t s) {
    Cut cut;
    if (const float minP = meta.array<float>(meta.minP)[s]; minP > 0.0f)
      cut = cutAtWeight(minP);
    HEADRACE_LOOP_BY(1)
    for (int filter = 0; filter < 2; ++filter) {
      double target;
      if (filter == 0) {
        const int32_t topK = meta.array<int32_t>(meta.topK)[s];
        if (topK <= 0 || topK >= vocab)
          continue;
        target = static_cast<double>(topK);
      } else {
        const float topP = meta.array<float>(meta.topP)[s];
        if (!(topP < 1.0f))
          continue;
        target = static_cast<double>(weightUpTo(cut)) * static_cast<double>(topP);
      }
      cut = shorter(cut, cutAt(target > 1.0 ? target : 1.0, filter == 1));
    }
    return cut;
  }

  // Sums of the ids in [begin, end) that one warp takes, the same on its lanes: weights above the cut; tokens at the
  // cut, and the weight of each.
  struct Part {
    uint64_t sure = 0, ties = 0, tieUnits = 0;
  };
  HEADRACE_DEVICE Part partOf(int32_t begin, int32_t end, const Cut &cut) const {
    Part part;
    for (int32_t i = begin + laneIndex(); i < end; i += 32) {
      const uint32_t key = rankingKey(logits[i]);
      const uint64_t units = unitsOf(weightAt(i));
      if (key > cut.key)
        part.sure += units;
      else if (key == cut.key)
        ++part.ties, part.tieUnits = units;
    }
    for (int mask = 16; mask > 0; mask /= 2) {
      part.sure += shuffleXor(part.sure, mask);
      part.ties += shuffleXor(part.ties, mask);
      part.tieUnits = larger(part.tieUnits, shuffleXor(part.tieUnits, mask));
    }
    return part;
  }
  // Weight of a part's candidates where `before` tokens at the cut have lower ids.
  HEADRACE_DEVICE static uint64_t unitsIn(uint64_t sure, uint64_t ties, uint64_t tieUnits, uint64_t before,
                                          const Cut &cut) {
    const uint64_t left = cut.ties > before ? cut.ties - before : 0;
    return sure + (ties < left ? ties : left) * tieUnits;
  }

  // The first candidate, in order of ids, at which the running sum exceeds uniform times the candidates' sum.
  HEADRACE_DEVICE int32_t draw(const Cut &cut, double uniform) {
    int32_t begin = 0, end = vocab;
    uint64_t limit = 0, sum = 0, tiesBefore = 0; // of ids below `begin`: sum, tokens at the cut
    for (bool first = true; first || end - begin > 4 * 32; first = false) {
      const int32_t length = (end - begin + kWarps - 1) / kWarps;
      const int32_t from = begin + warpIndex() * length, to = from + length < end ? from + length : end;
      const Part part = partOf(from, to, cut);
      if (laneIndex() == 0) {
        scratch[warpIndex()] = part.sure;
        scratch[kWarps + warpIndex()] = part.ties;
        scratch[2 * kWarps + warpIndex()] = part.tieUnits;
      }
      syncBlock();
      if (first) {
        uint64_t all = 0, ties = 0;
        for (int w = 0; w < kWarps; ++w) {
          all += unitsIn(scratch[w], scratch[kWarps + w], scratch[2 * kWarps + w], ties, cut);
          ties += scratch[kWarps + w];
        }
        if (all == 0)
          return 0; // the same on every thread
        limit = static_cast<uint64_t>(uniform * static_cast<double>(all));
        limit = limit < all ? limit : all - 1;
      }
      int chosen = -1;
      for (int w = 0; w < kWarps && chosen < 0; ++w) {
        const uint64_t units = unitsIn(scratch[w], scratch[kWarps + w], scratch[2 * kWarps + w], tiesBefore, cut);
        if (sum + units > limit) {
          chosen = w;
        } else {
          sum += units;
          tiesBefore += scratch[kWarps + w];
        }
      }
      syncBlock(); // the scratch may be used again
      begin += chosen * length;
      end = begin + length < end ? begin + length : end;
    }
    // At most 128 ids: every warp walks them alike, 32 at a time.
    for (; begin < end; begin += 32) {
      const int32_t i = begin + laneIndex();
      const uint32_t key = i < end ? rankingKey(logits[i]) : 0;
      const bool tie = i < end && key == cut.key;
      const uint32_t ties = ballot(tie);
      const uint64_t rank = tiesBefore + static_cast<uint64_t>(countBits(ties & ((1u << laneIndex()) - 1u)));
      const bool candidate = (i < end && key > cut.key) || (tie && rank < cut.ties);
      uint64_t running = candidate ? unitsOf(weightAt(i)) : 0;
      for (int distance = 1; distance < 32; distance *= 2) {
        const uint64_t other = shuffle(running, laneIndex() >= distance ? laneIndex() - distance : laneIndex());
        running += laneIndex() >= distance ? other : 0;
      }
      const uint32_t past = ballot(sum + running > limit);
      if (past != 0)
        return begin + firstBit(past);
      sum += shuffle(running, 31);
      tiesBefore += static_cast<uint64_t>(countBits(ties));
    }
    return 0; // not reached: the sum passes the limit inside the part
  }
};

__global__ void __launch_bounds__(kSampleThreads) sampleKernel(const SampleArgs args) {
  const IterationMeta &meta = *args.meta;
  const int64_t s = blockIdx.x;
  if (s >= meta.numSampled)
    return;
  SampleBlock block{args.logits + s * args.vocab, static_cast<float *>(args.workspace) + s * args.vocab,
                    static_cast<int32_t>(args.vocab), reinterpret_cast<uint64_t *>(sharedMemory())};
  SampleBlock::Scan scan = block.scan();
  if (const Penalties penalties = penaltiesOf(meta, s); penalises(penalties)) {
    block.penalise(penalties, historyOf(meta, args.history, args.blockTokens, s));
    scan.token = block.scan().token;
  }
  int32_t token = scan.token;
  const float temperature = meta.array<float>(meta.temperature)[s];
  if (temperature > 0.0f) {
    block.temperature = temperature;
    block.largest = block.logits[token] == block.logits[token] ? block.logits[token] : kMinusInfinity;
    block.weigh();
    const SampleBlock::Cut cut = block.candidates(meta, s);
    const uint64_t position = static_cast<uint64_t>(meta.array<int32_t>(meta.samplePosition)[s]);
    token = block.draw(cut, philoxUniform(meta.array<uint64_t>(meta.seed)[s], position));
  }
  if (threadIdx.x == 0) {
    args.output[args.meta->firstOutput + s] = scan.finite ? token : kNotFinite;
    args.sampled[meta.array<int32_t>(meta.requestSlot)[s]] = token;
  }
}

} // namespace headrace::kernels
