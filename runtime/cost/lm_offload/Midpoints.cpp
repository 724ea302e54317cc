// SPDX-License-Identifier: Apache-2.0
#include "runtime/cost/lm_offload/Midpoints.h"

#include <numeric>
#include <vector>

namespace headrace::cost {
namespace {

// Whether each of some tensors is on the device.
std::vector<bool> onDeviceByMidpoints(absl::Span<const int64_t> tensors, double onDevice) {
  const double all = static_cast<double>(std::accumulate(tensors.begin(), tensors.end(), int64_t{0}));
  int64_t before = 0;
  std::vector<bool> device;
  for (const int64_t elements : tensors) {
    const double middle = static_cast<double>(before) + static_cast<double>(elements) / 2;
    device.push_back(middle / all * 100 >= 100 - onDevice);
    before += elements;
  }
  return device;
}

struct Tensors {
  std::vector<int64_t> elements;
  std::vector<int> units; // of each, from qkv on; a norm's is that of what it stands in front of

  void add(int unit, int64_t rows, int64_t columns, bool bias) {
    elements.push_back(rows * columns);
    units.push_back(unit);
    if (bias) {
      elements.push_back(rows);
      units.push_back(unit);
    }
  }
  void addNorm(int unit, const model::ModelSpec &spec) { // norms stand last
    const size_t parts = spec.norm == model::NormKind::LayerNorm ? 2 : 1;
    elements.insert(elements.end(), parts, spec.hidden);
    units.insert(units.end(), parts, unit);
  }
};

} // namespace

int64_t elementsByMidpoints(absl::Span<const int64_t> tensors, double onDevice) {
  const std::vector<bool> device = onDeviceByMidpoints(tensors, onDevice);
  int64_t elements = 0;
  for (size_t i = 0; i < tensors.size(); ++i)
    elements += device[i] ? tensors[i] : 0;
  return elements;
}

MidpointShares sharesByMidpoints(const model::ModelSpec &spec, double wg) {
  const int64_t hidden = spec.hidden, up = spec.intermediate;
  constexpr int kQkv = 0, kOut = 1, kUp = 2, kDown = 3;
  Tensors attention, mlp;
  attention.add(kQkv, spec.qRows(), hidden, spec.qkvBias);
  attention.add(kQkv, spec.kvRows(), hidden, spec.qkvBias);
  attention.add(kQkv, spec.kvRows(), hidden, spec.qkvBias);
  attention.add(kOut, hidden, spec.qRows(), spec.outBias);
  attention.addNorm(kQkv, spec);
  if (spec.gated())
    mlp.add(kUp, up, hidden, spec.mlpBias);
  mlp.add(kUp, up, hidden, spec.mlpBias);
  mlp.add(kDown, hidden, up, spec.mlpBias);
  mlp.addNorm(kUp, spec);

  std::array<int64_t, model::kUnitsPerLayer> onDevice{}, all{};
  for (const Tensors *tensors : {&attention, &mlp}) {
    const std::vector<bool> device = onDeviceByMidpoints(tensors->elements, wg);
    for (size_t i = 0; i < device.size(); ++i) {
      const auto unit = static_cast<size_t>(tensors->units[i]);
      all[unit] += tensors->elements[i];
      onDevice[unit] += device[i] ? tensors->elements[i] : 0;
    }
  }
  MidpointShares shares;
  for (size_t unit = 0; unit < all.size(); ++unit)
    shares.unitsOnDevice[unit] = 2 * onDevice[unit] >= all[unit];
  shares.reached = 100 * static_cast<double>(std::accumulate(onDevice.begin(), onDevice.end(), int64_t{0})) /
                   static_cast<double>(std::accumulate(all.begin(), all.end(), int64_t{0}));
  return shares;
}

} // namespace headrace::cost
