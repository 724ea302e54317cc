// SPDX-License-Identifier: Apache-2.0
//
// HybridServe's times and bytes on plain values (HybridServe, sections 4.2 and 4.3): what a mini-batch's context takes
// of the link and of compute when some of its blocks hold K and V and others the layer's input activations.
//
//   KV block    K and V of some tokens, in host memory: copied each iteration, then attended
//   ACT block   the layer's input of as many tokens: copied if in host memory, then K and V are computed from it
//   T_pcie      one layer's time on the link, T_compute the same layer's on the device; they run side by side, so a
//               layer takes the larger of the two
//
//      pcie    [ weights ][ ACT ][        KV        ]          4.3: the larger the part of ACT blocks, the shorter the
//      compute             [  KV Gen of ACT  ][ forward ]           first line and the longer the second
//
// Two forms of everything that the paper writes down. Printed: Eq. 9, 10, 12, 13 as they stand. Corrected: the load of
// ACT blocks in host memory, which Eq. 9 leaves out though section 4.2.1 has it, and the forward pass, which Eq. 10
// leaves out though Figure 8 has it.
//
// Times in ns, of one layer; bytes of one layer where not said otherwise; counts in tokens or blocks.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace headrace::cost {

// ---- Section 4.3, sampling-based linear regression (Figure 11) ----

struct TokenSample {
  int64_t tokens = 0; // at least 0
  double ns = 0;      // at least 0, finite
};

// ns = interceptNs + slopeNsPerToken * tokens.
struct Line {
  double interceptNs = 0, slopeNsPerToken = 0;
  double r2 = 1; // 1 - residual / total sum of squares of the fit

  double predictNs(double tokens) const { return interceptNs + slopeNsPerToken * tokens; }
};

// The paper has 0.99 for both of its lines. What is less linear is not planned with.
inline constexpr double kLeastR2 = 0.98;

// Least squares. Samples that all took the same time are a line of slope 0 with r2 = 1. `what` begins messages.
// kInvalidArgument: fewer than 3 samples; a negative number of tokens; a time that is negative or not finite; the same
// number of tokens in all; a slope below 0; r2 below kLeastR2.
absl::StatusOr<Line> fitLine(absl::Span<const TokenSample> samples, std::string_view what);

// What a lane spends on `tokens`: 0 for none (nothing is copied or launched), else the line, with an intercept below 0
// taken as 0: never below the fit, and never falling as tokens are added.
double lineNs(const Line &line, int64_t tokens);

// ---- Eq. 9 and 10 ----

// The functions of Table 3, of one layer, in tokens.
struct HybridTimes {
  double loadWeightsNs = 0; // T_load_w: the layer's weights, once for all mini-batches (section 4.2.2)
  Line loadKv;              // T_load_kv
  Line loadAct;             // T_load_act; not in the paper's table
  Line kvGen;               // T_kv_gen: K and V computed from ACT blocks
  // T_forward, in tokens attended; not in the paper's table. The intercept is what does not depend on the context (the
  // linear ops of the new tokens) and is spent also where there is none.
  Line forward;
  int64_t blockTokens = 16; // tokens of a block of either kind
};

// kInvalidArgument for a time or slope that is negative or not finite, an intercept that is not finite, blockTokens
// outside [1, 2^16].
absl::Status checkTimes(const HybridTimes &times);

// The same for a batch that runs as `miniBatches` (>= 1) mini-batches: every lane starts as often, so that intercepts
// count once a mini-batch. Weights are loaded once.
HybridTimes overMiniBatches(const HybridTimes &times, int64_t miniBatches);
// The same for one of `miniBatches` (>= 1): its share of the weights' load.
HybridTimes oneMiniBatch(const HybridTimes &times, int64_t miniBatches);

// Blocks of a request, a mini-batch or a batch, by what they hold and where. All at least 0.
struct HybridBlocks {
  int64_t kvHost = 0, actHost = 0, actDevice = 0, kvDevice = 0;

  int64_t act() const { return actHost + actDevice; }
  int64_t total() const { return kvHost + actHost + actDevice + kvDevice; }
  HybridBlocks &operator+=(const HybridBlocks &other);
  friend bool operator==(const HybridBlocks &a, const HybridBlocks &b) {
    return a.kvHost == b.kvHost && a.actHost == b.actHost && a.actDevice == b.actDevice && a.kvDevice == b.kvDevice;
  }
};

struct LaneTimes {
  double pcieNs = 0, computeNs = 0;

  double layerNs() const { return pcieNs > computeNs ? pcieNs : computeNs; }
  double gapNs() const { return computeNs - pcieNs; } // Eq. 8 asks for 0; above 0 the link idles
};

// Eq. 9, 10: pcie = T_load_w + T_load_kv(KV host), compute = T_kv_gen(ACT host + ACT device).
LaneTimes printedLanes(const HybridTimes &times, const HybridBlocks &blocks);
// pcie = T_load_w + T_load_kv(KV host) + T_load_act(ACT host), compute = T_kv_gen(ACT) + T_forward(all).
LaneTimes correctedLanes(const HybridTimes &times, const HybridBlocks &blocks);

// KV blocks for one ACT block that keep both lanes equally long as host memory grows: step 2 of Algorithm 1, slopes
// alone. With g, v, a, f the slopes of kvGen, loadKv, loadAct, forward:
//   printed    g ACT = v KV                            KV : ACT = g / v
//   corrected  g ACT + f (ACT + KV) = v KV + a ACT     KV : ACT = (g + f - a) / (v - f)
// Not a number of blocks but a direction: 0 where the corrected one is negative (ACT alone does not keep compute busy),
// infinite where KV does not keep the link busy (v <= f, or v = 0).
double printedKvPerAct(const HybridTimes &times);
double correctedKvPerAct(const HybridTimes &times);

// ---- Eq. 12 and 13 ----

// T_kv_gen(ACT) / T_load_kv(KV host). Infinite without KV in host memory, 0 without ACT, NaN without either.
double printedBalance(const HybridTimes &times, const HybridBlocks &blocks);
// T_compute / T_pcie of correctedLanes(): `times` with the mini-batch's share of the weights (oneMiniBatch). Finite and
// above 0 for any blocks where loadWeightsNs and the forward pass's intercept are; 1 where both lanes take 0.
double correctedBalance(const HybridTimes &times, const HybridBlocks &blocks);
// F_b = max(balance, 1 / balance): at least 1, infinite for 0 and for infinity, NaN for NaN.
double imbalance(double balance);

// ---- Bytes (section 4.2.1) ----

// Of one layer. The paper's S_ACT = S_KV / 2 holds for multi-head attention with activations of K's and V's type.
struct BlockBytes {
  int64_t kv = 0, act = 0;
};

// ---- Why a split is what it is ----

// What keeps both lanes from being equally long.
enum class Binding {
  kBalanced,        // nothing: they are, within kBalancedWithin of the longer one
  kAllKv,           // compute is longer, and there is no ACT block left to turn into a KV block
  kAllAct,          // the link is longer, and all in host memory are ACT blocks already
  kHostMemory,      // what would make them equal does not fit into host memory
  kDeviceMemory,    // ... into device memory
  kActLoadsMore,    // the link is longer, and one more ACT block (with its start) takes no less of it than a KV block
  kOnlyWeights,     // the link is longer, and loads nothing but weights
  kBlocksTooCoarse, // one block more or less, or one step of the share, tips it to the other side
  kWaits,           // what would make them more equal takes longer: steps wait for each other
  kNothing,         // there are no blocks, or there is no room for one
};
inline constexpr double kBalancedWithin = 0.05;

std::string_view bindingName(Binding binding);
bool balanced(const LaneTimes &lanes); // |T_pcie - T_compute| <= kBalancedWithin x the larger

} // namespace headrace::cost
