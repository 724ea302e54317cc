// SPDX-License-Identifier: Apache-2.0
//
// LM-Offload's times on plain values (LM-Offload, section 3.2, Eq. 1-11), corrected: what prompts and generated tokens
// of a block of sequences take when weights, KV cache and hidden states are partly in host memory, each perhaps packed,
// and attention is on the device or on the CPU. Eq. 3-24 as they are printed stand in PrintedForm.h.
//
//   block        sequences that pass a layer together, as `miniBatches` parts: a layer's weights are brought once
//   T_pf, T_gen  one layer's time with a prompt's tokens, and with one token a sequence
//   T            T_init + layers T_pf + layers (n - 1) T_gen                                                     Eq. 1
//
//      h2d       [ weights ][ KV ][ hidden ]       corrected: T_gen is the longest of these, and of both directions
//      d2h       [ new KV ][ hidden ]              together by what the link carries at once; printed (Eq. 2): of
//      device    [ unpack ][ linear ][ attention ] the six tasks, though three of them share a direction
//      cpu       [ attention ]
//
// Also corrected: unpacking is the device's work, not the link's (Eq. 4, 6 add it to loads); the linear ops are in
// (the paper's compute task is attention alone); T_gen is a mean over the contexts n - 1 tokens are decoded with, not
// the time at the mean context; with attention on the CPU the new K and V go to the host, and q and the result pass.
// What is packed is so everywhere, on the device too: all of it is unpacked where it is used.
//
// Times in seconds, rates a second, bytes of one layer where not said otherwise. Embedding and head are on the device
// and take no time.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/Encoding.h"
#include "runtime/job/Percent.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::cost {

// What the formulas need of a model. Weights in elements.
struct OffloadModel {
  int64_t layers = 0, hidden = 0;
  int64_t qRows = 0, kvRows = 0;
  int64_t layerWeights = 0;   // of the layer's matrices: 4 h1^2 + 2 h1 h2 of OPT, more of gated MLPs
  int64_t outsideWeights = 0; // embedding, positions, head
  int64_t longestContext = 0;
  int64_t elementBytes = 2;             // of weights, K and V, and what is passed on
  int64_t kvBytes = 0, hiddenBytes = 0; // of K, V and q, and of hidden states, where that differs; 0: as elementBytes
};
OffloadModel offloadModel(const model::ModelSpec &spec);

// What a machine reaches, not its peaks.
struct OffloadMachine {
  double h2dBandwidth = 0, d2hBandwidth = 0; // bytes/s
  double duplexBandwidth = 0;                // both directions at once
  double deviceFlops = 0;                    // of matrix products
  double deviceBandwidth = 0;                // bytes/s of device memory
  double devicePacking = 0;                  // bytes/s of elements that the device packs or unpacks
  double cachePacking = 0;                   // the same of K and V; 0: as devicePacking
  bool attendsPacked = false;                // attention reads packed K and V as they are; else elements made of them
  int64_t packedProductRows = 0;             // products of up to so many rows read packed weights as they are
  // Seconds of each pass of a layer, of a mini-batch, that go into starting its ops; and more where it unpacks weights.
  double passOverhead = 0, unpackOverhead = 0;
  double cpuAttention = 0;       // bytes/s of K and V that attention on the CPU reads; 0: it cannot
  double cpuPackedAttention = 0; // the same of packed ones, in bytes of elements; 0: it cannot
  double cpuOverhead = 0;        // seconds of a mini-batch that go into posting it
  double load = 0;               // bytes/s of weights as they are packed, from files into memory; 0: not measured
  uint64_t deviceBytes = 0, hostBytes = 0;
};

// FlexGen's runtime, where it is not the hardware.
struct FlexGenRuntime {
  // Pageable copies: a layer computes when all that it loads is there, unpacking too, and the CPU waits as well. Stores
  // run beside. No plan does this.
  bool serial = false;
  // Each mini-batch unpacks the layer's weights anew, as products of plans do (docs/encodings.md).
  bool unpackPerMiniBatch = false;
};

enum class AttentionPlace : uint8_t { kDevice, kCpu };     // kCpu: of what is in host memory; the rest on the device
std::string_view attentionPlaceName(AttentionPlace place); // "device", "cpu"

struct OffloadSetting {
  int64_t block = 0, miniBatches = 1;         // sequences, and in how many parts
  int64_t prompt = 0, output = 0;             // s, n: tokens a sequence
  std::optional<model::Encoding> weights, kv; // none: elements
  AttentionPlace attention = AttentionPlace::kDevice;
  model::Percent percent;
};

// What a layer takes of each lane: the six tasks, loads and stores as the link sees them and compute in its parts.
struct LayerTasks {
  double loadWeights = 0, loadCache = 0, loadHidden = 0; // h2d
  double storeCache = 0, storeHidden = 0;                // d2h
  double unpackWeights = 0, unpackCache = 0, packCache = 0, linear = 0, deviceAttention = 0, overhead = 0;
  double cpuAttention = 0;

  double h2d() const { return loadWeights + loadCache + loadHidden; }
  double d2h() const { return storeCache + storeHidden; }
  double packing() const { return unpackWeights + unpackCache + packCache; }
  double device() const { return packing() + linear + deviceAttention + overhead; }
  double cpu() const { return cpuAttention; }
};

enum class LimitingLane : uint8_t { kH2d, kD2h, kDuplex, kDevice, kCpu, kSerial };
std::string_view limitingLaneName(LimitingLane lane); // "h2d", "d2h", "both directions", "device", "cpu", ...

struct LayerTime {
  double seconds = 0;
  LimitingLane limit = LimitingLane::kH2d;
};
// The longest lane; in a serial runtime of loads, device and CPU one after the other, and d2h.
LayerTime layerTime(const LayerTasks &tasks, const OffloadMachine &machine, const FlexGenRuntime &runtime);

struct ClosedForm {
  LayerTasks prefill, decode; // decode: means over its contexts
  LayerTime prefillLayer;     // T_pf
  LayerTime decodeLayer;      // T_gen; `limit` as at the last context
  std::optional<double> init; // T_init: weights loaded; none where that is not measured
  double generate = 0;        // layers T_pf + layers (n - 1) T_gen
  double tokensPerSecond = 0; // block x n / generate: the papers' throughput, loading left out
  double iteration = 0;       // layers T_gen
  double total() const { return init.value_or(0) + generate; } // T
};

// kInvalidArgument: a rate that is not positive and finite, a setting below 1, more mini-batches than sequences, an
// output of 1 (nothing is decoded), a context beyond the model's, checkPercent(); packed K and V for a CPU that does
// not attend to them.
absl::StatusOr<ClosedForm> closedForm(const OffloadModel &model, const OffloadMachine &machine,
                                      const FlexGenRuntime &runtime, const OffloadSetting &setting);

// Bytes of all layers at the longest context. Device: weights and KV that are there, embedding and head, two slots of
// what a layer brings and room for what it unpacks, hidden states of a block's prompts; not what kernels need.
struct OffloadBytes {
  uint64_t device = 0, host = 0;
};
OffloadBytes offloadBytes(const OffloadModel &model, const OffloadSetting &setting);
// kResourceExhausted with bytes where either memory is too small.
absl::Status checkFits(const OffloadModel &model, const OffloadMachine &machine, const OffloadSetting &setting);

} // namespace headrace::cost
