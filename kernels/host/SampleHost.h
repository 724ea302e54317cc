// SPDX-License-Identifier: Apache-2.0
//
// Op::Sample on the host.
//
// A row with a logit that is not finite has no token to publish (kNotFinite). What it leaves in `sampled` is an id all
// the same, so what follows is defined for any row.
//
// A token's weight is exp((logit - largest logit) / temperature); a NaN logit counts as minus infinity. Tokens are
// ranked by logit, lower ids first among equals. The candidates are the shortest prefix of that ranking, one token at
// least, whose weights reach topP of all weights; topP >= 1 takes all. The token is the first candidate, in order of
// ids, at which the running sum of weights exceeds uniformAt(seed, position) of the candidates' sum. Sums are F64, in
// order of ids. No sort: the last candidate is found by radix selection over the logits' bits, so the time does not
// depend on topP.
#pragma once

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

// The key of the last candidate, and how many tokens with that key, lowest ids first, are candidates.
struct Cut {
  uint32_t key = 0;
  int64_t ties = INT64_MAX;
};

static inline Cut lastCandidate(const float *logits, const float *weights, int64_t vocab, double target) {
  constexpr int kDigitShift[3] = {21, 10, 0}, kDigitBits[3] = {11, 11, 10};
  double above = 0; // weight of the tokens ranked before those under consideration
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
      sums[digit] += weights[i];
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

static inline int32_t drawToken(const float *logits, const float *weights, int64_t vocab, float topP, double uniform) {
  double total = 0;
  for (int64_t i = 0; i < vocab; ++i)
    total += weights[i];
  const bool all = !(topP < 1.0f);
  const Cut cut = all ? Cut{} : lastCandidate(logits, weights, vocab, total * static_cast<double>(topP));
  double candidates = all ? total : 0;
  for (int pass = all ? 1 : 0; pass < 2; ++pass) {
    const double limit = uniform * candidates;
    double sum = 0;
    int64_t ties = 0;
    int32_t last = 0;
    for (int64_t i = 0; i < vocab; ++i) {
      if (!all) {
        const uint32_t key = rankingKey(logits[i]);
        if (key < cut.key || (key == cut.key && ties++ >= cut.ties))
          continue;
      }
      if (weights[i] <= 0.0f)
        continue;
      sum += weights[i];
      last = static_cast<int32_t>(i);
      if (pass == 1 && sum > limit)
        return last;
    }
    if (pass == 1)
      return last;
    candidates = sum;
  }
  return 0;
}

template <typename V> void sample(const void *opaque) {
  const auto &args = *static_cast<const SampleArgs *>(opaque);
  const IterationMeta &meta = *args.meta;
  for (int64_t s = 0; s < meta.numSampled; ++s) {
    const float *logits = args.logits + s * args.vocab;
    const float temperature = meta.array<float>(meta.temperature)[s];
    const Scan scan = scanLogits<V>(logits, args.vocab);
    const float largest = scan.largest;
    int32_t token;
    if (!(temperature > 0.0f)) {
      token = firstEqual(logits, args.vocab, largest);
    } else {
      float *weights = static_cast<float *>(args.workspace);
      weightsOf<V>(logits, args.vocab, largest, temperature, weights);
      const uint64_t position = static_cast<uint64_t>(meta.array<int32_t>(meta.samplePosition)[s]);
      token = drawToken(logits, weights, args.vocab, meta.array<float>(meta.topP)[s],
                        uniformAt(meta.array<uint64_t>(meta.seed)[s], position));
    }
    args.output[s] = scan.finite ? token : kNotFinite;
    args.sampled[meta.array<int32_t>(meta.requestSlot)[s]] = token;
  }
}

template <typename V> struct HostEntry<V, SampleArgs> { static constexpr HostKernel kRun = sample<V>; };

} // namespace headrace::kernels
