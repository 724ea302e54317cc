// SPDX-License-Identifier: Apache-2.0
//
// Op::Sample on CUDA: a block a sequence. The same definition as on the host (SampleHost.h), with other arithmetic: a
// token's weight exp((logit - largest) / temperature) is counted in units of 2^-44 and sums are integers, so that no
// order of summation can change a token. (2^18 tokens of weight one fit 62 bits; the units lose less than the F32
// weights have lost already.) What a sequence has had is counted in integers, too.
//
// A row is read once for the largest logit, once for a histogram by distance from it (SampleSearch.cuh has the search
// for the borders of top-k and top-p), once for the tokens of the bins that a border is in, and once to draw: sums of
// 128 ids each, of which one warp finds the part, and in it the token, at which the running sum passes the limit.
// Weights are made where they are read. Under penalties the row is copied to the workspace with them, once.
#pragma once

#include "kernels/Penalties.h"
#include "kernels/Philox.h"
#include "kernels/cuda/SampleSearch.cuh"

namespace headrace::kernels {

struct SampleBlock : SampleSearch {
  float *room; // vocab of them

  // The greedy token, and whether every logit is finite; the same on every thread.
  struct Scan {
    int32_t token;
    bool finite;
  };
  // `change` makes of a token's logit the one that is sampled from.
  template <typename Change> HEADRACE_DEVICE Scan scan(const Change &change) {
    uint32_t bestKey = 0, bestId = UINT32_MAX; // ids of a thread rise: the first of its largest
    bool finite = true;
    for (int32_t at = static_cast<int32_t>(threadIdx.x); at < fours(); at += kThreads) {
      float v[4];
      const uint32_t valid = fetch(at, v);
      HEADRACE_LOOP
      for (int j = 0; j < 4; ++j) {
        if ((valid >> j & 1) == 0)
          continue;
        const int32_t id = idOf(at, j);
        finite = finite && v[j] - v[j] == 0.0f;
        const float logit = change(id, v[j]);
        const uint32_t key = logit != logit ? 0 : rankingKey(logit); // greedyWord's
        if (key > bestKey || bestId == UINT32_MAX)
          bestKey = key, bestId = static_cast<uint32_t>(id);
      }
    }
    uint64_t best = bestId != UINT32_MAX ? uint64_t{bestKey} << 32 | (0xffffffffu - bestId) : 0;
    for (int mask = 16; mask > 0; mask /= 2)
      best = larger(best, shuffleXor(best, mask));
    const uint32_t wrong = ballot(!finite);
    if (laneIndex() == 0) {
      shared.scratch[warpIndex()] = best;
      shared.scratch[kWarps + warpIndex()] = wrong;
    }
    syncBlock();
    best = shared.scratch[laneIndex()];
    for (int mask = 16; mask > 0; mask /= 2)
      best = larger(best, shuffleXor(best, mask));
    finite = ballot(shared.scratch[kWarps + laneIndex()] != 0) == 0;
    syncBlock();
    return {static_cast<int32_t>(greedyId(best)), finite};
  }
  HEADRACE_DEVICE Scan scan() {
    return scan([](int32_t, float logit) { return logit; });
  }

  // Scans the logits under penalties and has them in the workspace; until then it has the words of what the sequence
  // has had. From here on `logits` are those.
  HEADRACE_DEVICE Scan penalise(const Penalties &penalties, const History &history) {
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
    const Scan found = scan([&](int32_t id, float logit) {
      uint32_t had;
      __builtin_memcpy(&had, room + id, sizeof had);
      return room[id] = kernels::penalised(penalties, logit, had);
    });
    readFrom(room);
    return found;
  }

  // What a token of the s-th row is drawn from.
  HEADRACE_DEVICE Cut candidates(const IterationMeta &meta, int32_t s) {
    const int32_t topK = meta.array<int32_t>(meta.topK)[s];
    return candidatesOf(meta.array<float>(meta.minP)[s], topK > 0 && topK < vocab ? topK : 0,
                        meta.array<float>(meta.topP)[s]);
  }

  // The first candidate, in order of ids, at which the running sum exceeds uniform times the candidates' sum; on the
  // first warp.
  HEADRACE_DEVICE int32_t draw(const Cut &cut, double uniform) {
    const uint64_t tieUnits = cut.key > 0 ? unitsOf(weightOf(logitOf(cut.key))) : 0; // equal logits, equal weights
    const int32_t parts = (fours() + 31) / 32;
    static_assert((int64_t{1} << 18) / 128 + 1 <= SampleShared::kBins);
    for (int32_t part = warpIndex(); part < parts; part += kWarps) {
      float v[4];
      const uint32_t valid = fetch(part * 32 + laneIndex(), v);
      uint64_t sure = 0;
      int ties = 0;
      HEADRACE_LOOP
      for (int j = 0; j < 4; ++j) {
        const uint32_t key = rankingKey(v[j]);
        const bool here = (valid >> j & 1) != 0;
        if (here && key > cut.key)
          sure += unitsOf(weightOf(v[j]));
        ties += countBits(ballot(here && key == cut.key));
      }
      for (int mask = 16; mask > 0; mask /= 2)
        sure += shuffleXor(sure, mask);
      if (laneIndex() == 0)
        shared.setUnits(static_cast<uint32_t>(part), sure), shared.count[part] = static_cast<uint32_t>(ties);
    }
    syncBlock();
    if (warpIndex() != 0)
      return 0;
    // A lane takes so many parts, an odd number: the lanes' words are in different banks.
    const int32_t each = ((parts + 31) / 32) | 1, first = laneIndex() * each;
    const int32_t end = first + each < parts ? first + each : parts;
    uint64_t sure = 0;
    uint32_t ties = 0;
    for (int32_t part = first; part < end; ++part)
      sure += shared.units(static_cast<uint32_t>(part)), ties += shared.count[part];
    uint32_t tiesBefore = sumBefore(ties);
    const uint64_t mine = sure + tiesIn(ties, tiesBefore, cut) * tieUnits;
    uint64_t sum = sumBefore(mine);
    const uint64_t all = shuffle(sum + mine, 31);
    if (all == 0)
      return 0;
    uint64_t limit = static_cast<uint64_t>(uniform * static_cast<double>(all));
    limit = limit < all ? limit : all - 1;
    const int chosen = firstBit(ballot(sum + mine > limit));
    int32_t part = first;
    for (; laneIndex() == chosen && part < end; ++part) {
      const uint64_t units =
          shared.units(static_cast<uint32_t>(part)) + tiesIn(shared.count[part], tiesBefore, cut) * tieUnits;
      if (sum + units > limit)
        break;
      sum += units, tiesBefore += shared.count[part];
    }
    part = shuffle(part, chosen), sum = shuffle(sum, chosen), tiesBefore = shuffle(tiesBefore, chosen);
    return walk(idOf(part * 32, 0), cut, tieUnits, limit, sum, tiesBefore);
  }

private:
  // Of so many tokens at the cut with `before` of lower ids, those that are candidates.
  HEADRACE_DEVICE static uint64_t tiesIn(uint32_t ties, uint32_t before, const Cut &cut) {
    const uint32_t left = cut.ties > before ? cut.ties - before : 0;
    return ties < left ? ties : left;
  }

  // 128 ids from `begin` on, 32 at a time; `sum` and `tiesBefore` are those of lower ids.
  HEADRACE_DEVICE int32_t walk(int32_t begin, const Cut &cut, uint64_t tieUnits, uint64_t limit, uint64_t sum,
                               uint32_t tiesBefore) const {
    for (int32_t step = 0; step < 4; ++step, begin += 32) {
      const int32_t i = begin + laneIndex();
      const bool here = i >= 0 && i < vocab;
      const float logit = here ? loadGlobal(logits + i) : 0.0f;
      const uint32_t key = rankingKey(logit), ties = ballot(here && key == cut.key);
      uint64_t running = here && key > cut.key ? unitsOf(weightOf(logit)) : 0;
      const uint32_t rank = tiesBefore + static_cast<uint32_t>(countBits(ties & ((1u << laneIndex()) - 1u)));
      if (here && key == cut.key && rank < cut.ties)
        running = tieUnits;
      running += sumBefore(running);
      const uint32_t past = ballot(sum + running > limit);
      if (past != 0)
        return begin + firstBit(past);
      sum += shuffle(running, 31);
      tiesBefore += static_cast<uint32_t>(countBits(ties));
    }
    return 0; // not reached: the sum passes the limit inside the part
  }
};

__global__ void __launch_bounds__(kSampleThreads) sampleKernel(const SampleArgs args) {
  const IterationMeta &meta = *args.meta;
  const auto s = static_cast<int32_t>(blockIdx.x);
  if (s >= meta.numSampled)
    return;
  SampleBlock block{{{*reinterpret_cast<SampleShared *>(sharedMemory()), static_cast<int32_t>(args.vocab)}},
                    static_cast<float *>(args.workspace) + s * args.vocab};
  block.readFrom(args.logits + s * args.vocab);
  const Penalties penalties = penaltiesOf(meta, s);
  const SampleBlock::Scan scan = penalises(penalties)
                                     ? block.penalise(penalties, historyOf(meta, args.history, args.blockTokens, s))
                                     : block.scan();
  int32_t token = scan.token;
  const float temperature = meta.array<float>(meta.temperature)[s];
  if (temperature > 0.0f) {
    block.temperature = temperature;
    block.largest = block.logits[token] == block.logits[token] ? block.logits[token] : kMinusInfinity;
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
