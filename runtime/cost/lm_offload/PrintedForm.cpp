// SPDX-License-Identifier: Apache-2.0
#include "runtime/cost/lm_offload/PrintedForm.h"

#include <algorithm>

namespace headrace::cost {
namespace {

double denormalisingRate(const PrintedMachine &machine, Denormalising which) {
  switch (which) {
  case Denormalising::kCpuFlops:
    return machine.cpuFlops;
  case Denormalising::kGpuFlops:
    return machine.gpuFlops;
  case Denormalising::kGpuFrequency:
    return machine.gpuFrequency;
  }
  return 0;
}

} // namespace

PrintedForm printedForm(const PrintedMachine &m, const PrintedSetting &p) {
  PrintedForm f;
  const double h1 = static_cast<double>(p.h1), h2 = static_cast<double>(p.h2), bls = static_cast<double>(p.bls);
  const double s = static_cast<double>(p.s), n = static_cast<double>(p.n), times = p.perToken ? 1 : n;
  f.numWeights = 4 * h1 * h1 + 2 * h1 * h2;
  f.minmax = f.numWeights * p.wc / m.cpuFrequency;
  f.normWgt = f.numWeights * p.wc * 3 / m.cpuFlops;
  f.postprocessWgt = f.numWeights * p.wc / m.cpuMemoryBandwidth;
  f.quanPfWgt = f.minmax + f.normWgt + f.postprocessWgt;
  f.deNormWgt = f.numWeights * p.wc * 3 / denormalisingRate(m, p.denormalising);
  f.dePostprocessWgt = f.numWeights * p.wc / m.gpuMemoryBandwidth;
  f.dequanWgt = f.deNormWgt + f.dePostprocessWgt;

  f.pfKvCache = 2 * (s + 1) * h1 * bls;
  f.oldKvCache = 2 * (s + n / 2) * h1 * bls * times;
  f.newKvCache = 2 * h1 * bls * times;
  const auto pack = [&](double elements) {
    return elements / m.gpuFrequency + elements * 3 / m.gpuFlops + elements / m.gpuMemoryBandwidth;
  };
  f.quanPfCache = pack(f.pfKvCache);
  f.quanNewCache = pack(f.newKvCache);
  f.dequanCache = f.oldKvCache * 3 / m.gpuFlops + f.oldKvCache / m.gpuMemoryBandwidth;

  const auto copied = [&](double elements, bool packed) {
    return elements * p.elementBytes * (packed ? p.packedShare : 1) / m.linkBandwidth;
  };
  f.loadWeight = (copied(f.numWeights * p.wc, p.packWeights) + (p.packWeights ? f.dequanWgt : 0)) * p.r;
  f.loadActivation = f.storeActivation = copied(h1 * bls, false);
  if (!p.attentionOnCpu) {
    f.loadCache = (copied(f.oldKvCache, p.packKv) + (p.packKv ? f.dequanCache : 0)) * p.r;
    f.storeCache = (copied(f.newKvCache, p.packKv) + (p.packKv ? f.quanNewCache : 0)) * p.r;
  }
  f.compute = p.computeSeconds;
  f.tGen = std::max({f.loadWeight, f.loadCache, f.loadActivation, f.storeCache, f.storeActivation, f.compute});
  f.tInit = p.packWeights ? f.quanPfWgt : 0;
  f.tPrefillExtra = p.packKv && !p.attentionOnCpu ? f.quanPfCache : 0;
  return f;
}

PrintedDecisions printedDecisions(const PrintedMachine &machine, PrintedSetting setting) {
  const auto form = [&](bool packed) {
    setting.packWeights = setting.packKv = packed;
    return printedForm(machine, setting);
  };
  const PrintedForm plain = form(false), packed = form(true);
  return {.packWeights = packed.loadWeight < plain.loadWeight,
          .packKv = packed.loadCache + packed.storeCache < plain.loadCache + plain.storeCache};
}

} // namespace headrace::cost
