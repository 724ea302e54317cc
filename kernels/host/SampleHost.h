// SPDX-License-Identifier: Apache-2.0
//
// Op::Sample on the host.
//
// A row with a logit that is not finite has no token to publish (kNotFinite). What it leaves in `sampled` is an id all
// the same, so what follows is defined for any row.
//
// What is sampled from: SampleArgs in Kernels.h. A NaN logit counts as minus infinity. The token is the first
// candidate, in order of ids, at which the running sum of weights exceeds uniformAt(seed, position) of the candidates'
// sum. Sums are F64, in order of ids. No sort: a last candidate is found by radix selection over the logits' bits, so
// the time does not depend on topP or topK.
//
// The workspace is one row: of weights; or, under penalties, of the logits that they leave, whose weights are then made
// anew in each pass.
#pragma once

#include "kernels/Penalties.h"
#include "kernels/Ranking.h"
#include "kernels/host/HostEntry.h"
#include "kernels/host/VecMath.h"

namespace headrace::kernels {

// One reading of a row.
struct Scan {
  float largest = kMinusInfinity; // logit that is not NaN; minus infinity where there is none
  bool finite = true;             // every logit
};

template <typename V> Scan scanLogits(const float *logits, int64_t vocab) {
  V best = V::set(kMinusInfinity), zeros = V::zero(); // zero times a number that is not finite is NaN, and stays it
  int64_t i = 0;
  for (; i + V::kLanes <= vocab; i += V::kLanes) {
    const V next = V::load(logits + i);
    best = V::max(next, best); // the second operand where the first is NaN
    zeros = V::fma(next, V::zero(), zeros);
  }
  Scan scan{best.maxLane(), zeros.sum() == 0.0f};
  for (; i < vocab; ++i) {
    scan.largest = logits[i] > scan.largest ? logits[i] : scan.largest;
    scan.finite &= logits[i] - logits[i] == 0.0f;
  }
  return scan;
}

static inline int32_t firstEqual(const float *logits, int64_t vocab, float value) {
  for (int64_t i = 0; i < vocab; ++i)
    if (logits[i] == value)
      return static_cast<int32_t>(i);
  return 0; // every logit is NaN
}

template <typename V>
void weightsOf(const float *logits, int64_t vocab, float largest, float temperature, float *weights) {
  if (largest - largest != 0.0f) { // infinite: only the largest have weight
    for (int64_t i = 0; i < vocab; ++i)
      weights[i] = logits[i] == largest ? 1.0f : 0.0f;
    return;
  }
  const V shift = V::set(largest), divisor = V::set(temperature);
  for (int64_t i = 0; i < vocab; i += V::kLanes) {
    const int64_t rest = vocab - i < V::kLanes ? vocab - i : V::kLanes;
    V weight = exp((V::loadPartial(logits + i, rest) - shift) / divisor);
    V::max(weight, V::zero()).storePartial(weights + i, rest); // zero where NaN
  }
}

// The weights of a row, all of them made before they are read.
template <typename V> struct StoredWeights {
  const float *all;
  float at(int64_t id) const { return all[id]; }
};

// The same, made a window at a time: to be read in order of ids, pass after pass.
template <typename V> struct WindowWeights {
  static constexpr int64_t kSize = 256;
  const float *logits;
  int64_t vocab;
  float largest, temperature;
  int64_t first = 0, end = 0;
  float window[kSize];

  float at(int64_t id) {
    if (id < first || id >= end) {
      first = id;
      end = id + kSize < vocab ? id + kSize : vocab;
      weightsOf<V>(logits + first, end - first, largest, temperature, window);
    }
    return window[id - first];
  }
};

// A prefix of the ranking: tokens with a key above `key`, and of those with this key the first `ties` ids.
struct Cut {
  uint32_t key = 0; // of no logit
  int64_t ties = INT64_MAX;
  bool all() const { return key == 0; }
};
static inline Cut shorter(const Cut &a, const Cut &b) {
  if (a.key != b.key)
    return a.key > b.key ? a : b;
  return {a.key, a.ties < b.ties ? a.ties : b.ties};
}

// The shortest prefix whose `amounts` reach `target`: amountOf(id), asked in order of ids, the same for equal logits.
template <typename AmountOf>
Cut prefixReaching(const float *logits, int64_t vocab, double target, const AmountOf &amountOf) {
  constexpr int kDigitShift[3] = {21, 10, 0}, kDigitBits[3] = {11, 11, 10};
  double above = 0; // amount of the tokens ranked before those under consideration
  uint32_t prefix = 0;
  double sums[2048];
  int64_t counts[2048];
  for (int level = 0; level < 3; ++level) {
    const int shift = kDigitShift[level], bits = kDigitBits[level];
    const uint32_t digits = 1u << bits;
    for (uint32_t d = 0; d < digits; ++d)
      sums[d] = 0, counts[d] = 0;
    for (int64_t i = 0; i < vocab; ++i) {
      const uint32_t key = rankingKey(logits[i]);
      if (level > 0 && (key >> (shift + bits)) != prefix)
        continue;
      const uint32_t digit = (key >> shift) & (digits - 1);
      sums[digit] += static_cast<double>(amountOf(i));
      ++counts[digit];
    }
    // The highest digit at which the target is reached; where rounding keeps it from being reached, the lowest in use.
    uint32_t chosen = 0;
    for (uint32_t d = digits; d-- > 0;) {
      if (counts[d] == 0)
        continue;
      chosen = d;
      if (above + sums[d] >= target)
        break;
      above += sums[d];
    }
    if (above + sums[chosen] < target)
      above -= sums[chosen]; // it was the lowest: the search goes on inside it
    prefix = prefix << bits | chosen;
    if (level == 2) {
      const double each = sums[chosen] / static_cast<double>(counts[chosen]);
      Cut cut{prefix, 1};
      while (cut.ties < counts[chosen] && above + each * static_cast<double>(cut.ties) < target)
        ++cut.ties;
      return cut;
    }
  }
  return {};
}

// Calls f(id, weight) for the tokens of a prefix that have weight, in order of ids, until it returns true.
template <typename Weights, typename F>
void eachOf(const Cut &cut, const float *logits, Weights &weights, int64_t vocab, F f) {
  const bool all = cut.all();
  int64_t ties = 0;
  for (int64_t i = 0; i < vocab; ++i) {
    if (!all) {
      const uint32_t key = rankingKey(logits[i]);
      if (key < cut.key || (key == cut.key && ties++ >= cut.ties))
        continue;
    }
    if (const float weight = weights.at(i); weight > 0.0f && f(i, weight))
      return;
  }
}
template <typename Weights> double weightOf(const Cut &cut, const float *logits, Weights &weights, int64_t vocab) {
  double sum = 0;
  if (cut.all()) {
    for (int64_t i = 0; i < vocab; ++i)
      sum += static_cast<double>(weights.at(i));
    return sum;
  }
  eachOf(cut, logits, weights, vocab, [&sum](int64_t, float weight) {
    sum += static_cast<double>(weight);
    return false;
  });
  return sum;
}

// What of the ranking a token is drawn from.
struct Filters {
  int64_t topK;
  float minP, topP;
};

template <typename Weights>
Cut candidatesOf(const Filters &filters, const float *logits, Weights &weights, int64_t vocab) {
  Cut cut;
  if (filters.minP > 0.0f) {
    uint32_t lowest = UINT32_MAX;
    for (int64_t i = 0; i < vocab; ++i)
      if (const uint32_t key = rankingKey(logits[i]); key < lowest && weights.at(i) >= filters.minP)
        lowest = key;
    cut.key = lowest;
  }
  if (filters.topK > 0 && filters.topK < vocab)
    cut = shorter(cut, prefixReaching(logits, vocab, static_cast<double>(filters.topK), [](int64_t) { return 1.0; }));
  if (filters.topP < 1.0f) {
    const double target = weightOf(cut, logits, weights, vocab) * static_cast<double>(filters.topP);
    cut = shorter(cut, prefixReaching(logits, vocab, target, [&weights](int64_t i) { return weights.at(i); }));
  }
  return cut;
}

template <typename Weights>
int32_t drawToken(const Filters &filters, const float *logits, Weights weights, int64_t vocab, double uniform) {
  const Cut cut = candidatesOf(filters, logits, weights, vocab);
  const double limit = uniform * weightOf(cut, logits, weights, vocab);
  double sum = 0;
  int64_t last = 0;
  eachOf(cut, logits, weights, vocab, [&](int64_t id, float weight) {
    sum += static_cast<double>(weight);
    last = id;
    return sum > limit;
  });
  return static_cast<int32_t>(last);
}

// The row's logits under penalties, to `out`; until then that holds the words of what the sequence has had.
static inline void penaliseRow(const float *logits, int64_t vocab, const Penalties &penalties, const History &history,
                               float *out) {
  static_assert(sizeof(uint32_t) == sizeof(float));
  const auto word = [out](int64_t id) {
    uint32_t had;
    __builtin_memcpy(&had, out + id, sizeof had);
    return had;
  };
  __builtin_memset(out, 0, static_cast<size_t>(vocab) * sizeof(float));
  for (int64_t position = 0; position < history.tokens; ++position) {
    const int64_t id = idAt(history, position);
    if (id < 0 || id >= vocab)
      continue;
    const uint32_t had = position < history.promptTokens ? word(id) | kInPrompt : word(id) + 1;
    __builtin_memcpy(out + id, &had, sizeof had);
  }
  for (int64_t i = 0; i < vocab; ++i)
    out[i] = penalised(penalties, logits[i], word(i));
}

// By rows.
template <typename V> struct Sample {
  static HostWork work(const void *opaque, const HostTeam &team) {
    const auto &args = *static_cast<const SampleArgs *>(opaque);
    return HostUnits::of(args.meta->numSampled, args.vocab / 2, team);
  }
  static void run(const void *opaque, const HostWork &work, int64_t, int64_t unit, float *scratch) {
    const auto &args = *static_cast<const SampleArgs *>(opaque);
    const IterationMeta &meta = *args.meta;
    float *room = scratch != nullptr ? scratch : static_cast<float *>(args.workspace);
    const HostUnits::Run rows = HostUnits::run(work, unit, meta.numSampled);
    for (int64_t s = rows.first; s < rows.end; ++s) {
      const float *logits = args.logits + s * args.vocab;
      const float temperature = meta.array<float>(meta.temperature)[s];
      Scan scan = scanLogits<V>(logits, args.vocab);
      const Penalties penalties = penaltiesOf(meta, s);
      const bool penalise = penalises(penalties);
      if (penalise) {
        penaliseRow(logits, args.vocab, penalties, historyOf(meta, args.history, args.blockTokens, s), room);
        logits = room;
        scan.largest = scanLogits<V>(logits, args.vocab).largest;
      }
      int32_t token;
      if (!(temperature > 0.0f)) {
        token = firstEqual(logits, args.vocab, scan.largest);
      } else {
        const Filters filters{meta.array<int32_t>(meta.topK)[s], meta.array<float>(meta.minP)[s],
                              meta.array<float>(meta.topP)[s]};
        const double uniform = uniformAt(meta.array<uint64_t>(meta.seed)[s],
                                         static_cast<uint64_t>(meta.array<int32_t>(meta.samplePosition)[s]));
        if (penalise) {
          const WindowWeights<V> weights{logits, args.vocab, scan.largest, temperature};
          token = drawToken(filters, logits, weights, args.vocab, uniform);
        } else {
          weightsOf<V>(logits, args.vocab, scan.largest, temperature, room);
          token = drawToken(filters, logits, StoredWeights<V>{room}, args.vocab, uniform);
        }
      }
      args.output[args.meta->firstOutput + s] = scan.finite ? token : kNotFinite;
      args.sampled[meta.array<int32_t>(meta.requestSlot)[s]] = token;
    }
  }
};

template <typename V> struct HostEntry<V, SampleArgs> {
  static constexpr HostKernel kKernel = {Sample<V>::work, sameUnits, Sample<V>::run};
};

} // namespace headrace::kernels
