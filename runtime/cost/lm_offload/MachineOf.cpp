// SPDX-License-Identifier: Apache-2.0
#include "runtime/cost/lm_offload/MachineOf.h"

#include <algorithm>
#include <utility>

#include "kernels/CudaWorkspace.h"
#include "runtime/cost/CostModel.h"

namespace headrace::cost {
namespace {

constexpr double kUnpackFlops = 2; // of a code

constexpr double kOps = 8; // of a layer's pass beside attention: two norms, four products, the append, the activation

// What a card takes to start unpacking a layer's weights, of which the first start of each matrix is the product's.
double unpackStarts(const model::ModelSpec &spec) {
  using kernels::CudaWorkspace;
  const auto element = static_cast<int64_t>(model::dtypeBytes(spec.dtype));
  double starts = 0;
  for (const auto &[rows, cols] : {std::pair{spec.qkvRows(), spec.hidden},
                                   {spec.hidden, spec.qRows()},
                                   {spec.upRows(), spec.hidden},
                                   {spec.hidden, spec.intermediate}}) {
    const int64_t ofPart = CudaWorkspace::unpackedRows(rows, cols, element), parts = (rows + ofPart - 1) / ofPart;
    starts += 2 * static_cast<double>(parts) - 1;
  }
  return starts;
}

double orAll(double ofClass, double ofAll) { return ofClass > 0 ? ofClass : ofAll; }

// Bytes of elements a second: of host memory, or of two flops an element and query that attends to it, and two more
// where it is unpacked. Two steps of a mini-batch are posted.
void attendOnCpu(const model::Hardware &hardware, const model::ModelSpec &spec,
                 const std::optional<model::Encoding> &kv, OffloadMachine &machine) {
  if (!hardware.cpu.known())
    return;
  const auto element = static_cast<double>(model::dtypeBytes(spec.dtype));
  const double flops = 2 * static_cast<double>(spec.qRows()) / static_cast<double>(spec.kvRows());
  machine.cpuAttention = std::min(hardware.cpu.bandwidth(), hardware.cpu.flops / flops * element);
  machine.cpuOverhead = 2 * kHostNodeSeconds;
  if (!kv || !kv->packed())
    return;
  const double share = static_cast<double>(kv->groupBytes()) / (static_cast<double>(kv->group) * element);
  machine.cpuPackedAttention =
      std::min(hardware.cpu.bandwidth() / share, hardware.cpu.flops / (flops + kUnpackFlops) * element);
}

} // namespace

OffloadModel plannedModel(const model::ModelSpec &spec, const model::Hardware &hardware) {
  OffloadModel m = offloadModel(spec);
  m.hiddenBytes = sizeof(float);
  if (hardware.kind == model::DeviceKind::Host)
    m.kvBytes = sizeof(float);
  return m;
}

OffloadSetting plannedSetting(const model::ModelSpec &spec, const model::Encoding &kv, int64_t block,
                              int64_t miniBatches) {
  OffloadSetting setting;
  setting.block = block;
  setting.miniBatches = miniBatches;
  setting.weights = spec.encodings[model::UnitRole::Up];
  if (kv.packed())
    setting.kv = kv;
  setting.output = 2;
  setting.percent.hg = 100;
  setting.percent.hc = 0;
  return setting;
}

OffloadMachine offloadMachine(const model::Hardware &hardware, const model::ModelSpec &spec,
                              const std::optional<model::Encoding> &weights, const std::optional<model::Encoding> &kv,
                              uint64_t deviceBytes) {
  const bool host = hardware.kind == model::DeviceKind::Host;
  const auto element = static_cast<double>(model::dtypeBytes(spec.dtype));
  const model::OpClasses &classes = hardware.classes;
  OffloadMachine machine;
  machine.h2dBandwidth = hardware.h2dBandwidth * hardware.linkEfficiency;
  machine.d2hBandwidth = hardware.d2hBandwidth * hardware.linkEfficiency;
  machine.duplexBandwidth = hardware.duplexBandwidth * hardware.linkEfficiency;
  const double peak = hardware.flops(/*f32=*/host || spec.dtype == model::DType::F32);
  machine.deviceFlops = peak * orAll(classes.productFlopsEfficiency, hardware.flopsEfficiency);
  machine.deviceBandwidth = hardware.bandwidth() * orAll(classes.productMemoryEfficiency, hardware.memoryEfficiency);
  const double unpacked = // bytes of elements a second, of two flops a code
      peak * orAll(classes.unpackFlopsEfficiency, hardware.flopsEfficiency) / kUnpackFlops * element;
  machine.passOverhead = kOps * hardware.launchOverhead + orAll(classes.attentionOverhead, hardware.launchOverhead);
  machine.attendsPacked = true;
  machine.cachePacking = unpacked;
  machine.devicePacking = unpacked;
  if (!host) {
    const double share = weights && weights->packed() ? static_cast<double>(weights->groupBytes()) /
                                                            (static_cast<double>(weights->group) * element)
                                                      : 1;
    machine.devicePacking = machine.deviceBandwidth / (1 + share);
    if (weights && weights->packed())
      machine.unpackOverhead = unpackStarts(spec) * hardware.launchOverhead;
    attendOnCpu(hardware, spec, kv, machine);
    machine.packedProductRows = spec.dtype == model::DType::F32 ? 0 : kernels::CudaWorkspace::kPackedProductRows;
  }
  machine.deviceBytes = deviceBytes;
  machine.hostBytes = hardware.hostLimit();
  return machine;
}

} // namespace headrace::cost
