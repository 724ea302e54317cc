// SPDX-License-Identifier: Apache-2.0
//
// Eq. 2-24 of LM-Offload as they are printed (section 3.2), beside ClosedForm.h, which has what they mean. One layer,
// seconds, rates a second; symbols as in the paper's Table 2.
//
// What does not fit together, and how it stands here:
//   Eq. 14   de-normalisation is to have gpu_freq for its cpu_freq, but it has cpu_flops: `Denormalising` names the
//            three readings; OPT-30B's weights take 44 s a token by one core of 2 GFLOP/s, milliseconds by a GPU
//   15, 23   a number of elements by bytes/s: as it stands
//   18, 19   x n, although Eq. 2 is of one token: `perToken` leaves it out
//   8, 9     "times become smaller" by r, which is 38.88 / 16.32 > 1 in their Table 1
//   12-16    of one layer, while T_init is of the model
#pragma once

#include <cstdint>

namespace headrace::cost {

struct PrintedMachine {
  double cpuFlops = 0, cpuFrequency = 0, cpuMemoryBandwidth = 0;
  double gpuFlops = 0, gpuFrequency = 0, gpuMemoryBandwidth = 0;
  double linkBandwidth = 0; // loads and stores are "offloaded tensor size divided by the interconnect bandwidth"
};

// What a weight's three operations are divided by where it is unpacked.
enum class Denormalising : uint8_t { kCpuFlops, kGpuFlops, kGpuFrequency };

struct PrintedSetting {
  int64_t h1 = 0, h2 = 0, s = 0, n = 0, bls = 0;
  double wc = 0; // share of weights on the CPU, 0 to 1
  double r = 1;  // Eq. 8, 9; 1: they are left out
  bool packWeights = false, packKv = false, attentionOnCpu = false;
  double elementBytes = 2;
  double packedShare = 0.25; // b bits of 16; their groups' scales are not in the equations
  double computeSeconds = 0; // compute, of which the equations say nothing; "the most time-consuming"
  Denormalising denormalising = Denormalising::kCpuFlops;
  bool perToken = false;
};

struct PrintedForm {
  double numWeights = 0;
  double minmax = 0, normWgt = 0, postprocessWgt = 0, quanPfWgt = 0; // 13, 14, 15, 12
  double deNormWgt = 0, dePostprocessWgt = 0, dequanWgt = 0;         // 16
  double pfKvCache = 0, oldKvCache = 0, newKvCache = 0;              // 17, 18, 19: elements
  double quanPfCache = 0, quanNewCache = 0, dequanCache = 0;         // 20, 7, 24
  double loadWeight = 0, loadCache = 0, loadActivation = 0;          // 4, 6
  double storeCache = 0, storeActivation = 0, compute = 0;           // 7
  double tGen = 0;                                                   // 2
  double tInit = 0, tPrefillExtra = 0;                               // 3, 5: what packing adds
};

PrintedForm printedForm(const PrintedMachine &machine, const PrintedSetting &setting);

// "How to use the models": load_weight without packing against Eq. 4; load_cache + store_cache against Eq. 6 + Eq. 7.
struct PrintedDecisions {
  bool packWeights = false, packKv = false;
};
PrintedDecisions printedDecisions(const PrintedMachine &machine, PrintedSetting setting);

} // namespace headrace::cost
