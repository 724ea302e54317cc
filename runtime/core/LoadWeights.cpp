// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/LoadWeights.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/model/WeightLayout.h"
#include "runtime/plan/value/BufferIndex.h"
#include "runtime/plan/value/Mirrors.h"

namespace headrace::core {
namespace {

// Brings the weights to their homes in one placement, and to host memory whatever any placement keeps there.
class Loader {
public:
  Loader(const plan::Plan &plan, Device &device, const model::WeightSource *weights, const LoadOptions &options)
      : plan_(plan), device_(device), weights_(weights), options_(options), layout_(model::layoutWeights(plan.model)),
        buffers_(plan) {}

  absl::StatusOr<Manifest> load() {
    RETURN_IF_ERROR(check());
    Manifest manifest;
    manifest.planned = plan::weightBytesByHome(plan_, options_.placement);
    manifest.kv = plan::kvBytesByHome(plan_, options_.placement);
    uint64_t done = 0;
    const uint64_t total = layout_.totalBytes();
    if (options_.progress)
      options_.progress(0, total);
    for (uint32_t u = 0; u < layout_.units.size(); ++u) {
      if (layout_.units[u].absent())
        continue;
      RETURN_IF_ERROR(loadUnit(u, manifest));
      done += layout_.units[u].bytes;
      if (options_.progress)
        options_.progress(done, total);
    }
    const DeviceCounters counters = device_.counters();
    manifest.deviceArenaBytes = counters.peakDeviceBytes;
    manifest.hostSlabBytes = counters.hostBytes;
    return manifest;
  }

private:
  absl::Status check() const {
    if (device_.holdsData() && weights_ == nullptr)
      return absl::InvalidArgumentError(
          absl::StrCat("device '", std::string(device_.kind()), "' holds data and was given no weights"));
    for (size_t u = 0; u < layout_.units.size(); ++u) {
      const uint32_t buffer = buffers_.weight(u);
      if (layout_.units[u].absent()) // the stage has it not
        continue;
      if (buffer == plan::kNone)
        return absl::InvalidArgumentError(absl::StrCat("plan: no buffer for the model's unit ", layout_.units[u].name));
      if (plan_.buffers[buffer].bytes != layout_.units[u].bytes)
        return absl::InvalidArgumentError(absl::StrCat("plan: buffer ", plan_.buffers[buffer].name, " has ",
                                                       plan_.buffers[buffer].bytes, " bytes, the model's unit ",
                                                       layout_.units[u].name, " has ", layout_.units[u].bytes));
    }
    return absl::OkStatus();
  }

  absl::Status loadUnit(uint32_t u, Manifest &manifest) {
    const model::Unit &unit = layout_.units[u];
    const uint32_t buffer = buffers_.weight(u);
    absl::Span<const std::byte> bytes; // the unit as filled; empty until then
    for (const plan::Extent &extent : plan_.placements[options_.placement].extents)
      if (extent.buffer == buffer && extent.space == plan::Space::Device) {
        RETURN_IF_ERROR(bringToDevice(unit, extent.address, bytes));
        manifest.loaded.device += extent.bytes;
      }
    std::set<uint64_t> filled; // addresses
    for (uint32_t p = 0; p < plan_.placements.size(); ++p)
      for (const plan::Extent &extent : plan_.placements[p].extents) {
        if (extent.buffer != buffer || extent.space == plan::Space::Device)
          continue;
        if (filled.insert(extent.address).second)
          RETURN_IF_ERROR(bringToHost(unit, extent.address, bytes));
        if (p == options_.placement)
          manifest.loaded.host += extent.bytes;
      }
    return absl::OkStatus();
  }

  absl::Status bringToDevice(const model::Unit &unit, uint64_t address, absl::Span<const std::byte> &bytes) {
    if (!device_.holdsData())
      return absl::OkStatus();
    RETURN_IF_ERROR(fillScratch(unit, bytes));
    return device_.writeDevice(address, bytes);
  }

  absl::Status bringToHost(const model::Unit &unit, uint64_t address, absl::Span<const std::byte> &bytes) {
    if (!device_.holdsData())
      return absl::OkStatus();
    absl::Span<std::byte> slab = device_.hostSlab();
    if (unit.bytes > slab.size() || address > slab.size() - unit.bytes)
      return absl::InvalidArgumentError(absl::StrCat("plan: unit ", unit.name, ": host bytes [", address, ", +",
                                                     unit.bytes, ") are outside the slab of ", slab.size()));
    absl::Span<std::byte> target = slab.subspan(address, unit.bytes);
    const bool held = !bytes.empty() && weights_->held(unit, order()).data() == bytes.data();
    if (bytes.empty() || held) { // no detour through scratch
      absl::Status status = fill(unit, target);
      bytes = target;
      return status;
    }
    std::copy_n(bytes.data(), unit.bytes, target.data());
    return absl::OkStatus();
  }

  absl::Status fillScratch(const model::Unit &unit, absl::Span<const std::byte> &bytes) {
    if (!bytes.empty())
      return absl::OkStatus();
    bytes = weights_->held(unit, order());
    if (bytes.size() == unit.bytes)
      return absl::OkStatus();
    if (scratch_.size() < unit.bytes)
      scratch_.resize(unit.bytes);
    absl::Span<std::byte> target(scratch_.data(), unit.bytes);
    absl::Status status = fill(unit, target);
    bytes = target;
    return status;
  }

  // By all threads of the device.
  absl::Status fill(const model::Unit &unit, absl::Span<std::byte> target) {
    const auto each = [this](int64_t count, absl::FunctionRef<void(int64_t)> f) { device_.each(count, f); };
    return weights_->fillBy(each, unit, order(), target);
  }

  model::MatrixOrder order() const { return plan::orderOf(device_.matrixOrder()); }

  const plan::Plan &plan_;
  Device &device_;
  const model::WeightSource *weights_;
  const LoadOptions &options_;
  const model::WeightLayout layout_;
  const plan::BufferIndex buffers_;
  std::vector<std::byte> scratch_; // the largest unit that is not filled in place; gone once loading ends
};

absl::Status compareManifest(const Manifest &manifest, const plan::Plan &plan) {
  const auto check = [](const char *what, uint64_t loaded, uint64_t planned) {
    return loaded == planned ? absl::OkStatus()
                             : absl::InternalError(absl::StrCat("manifest: ", loaded, " bytes of ", what,
                                                                " loaded, the plan says ", planned));
  };
  for (const absl::Status &status : {check("weights on the device", manifest.loaded.device, manifest.planned.device),
                                     check("weights in host memory", manifest.loaded.host, manifest.planned.host),
                                     check("device arena", manifest.deviceArenaBytes, plan.arenaBytes),
                                     check("host slab", manifest.hostSlabBytes, plan.hostBytes)})
    if (!status.ok())
      return status;
  return absl::OkStatus();
}

} // namespace

absl::StatusOr<Manifest> loadWeights(const plan::Plan &plan, Device &device, const model::WeightSource *weights,
                                     const LoadOptions &options) {
  ASSIGN_OR_RETURN(manifest, Loader(plan, device, weights, options).load());
  RETURN_IF_ERROR(compareManifest(manifest, plan));
  return manifest;
}

} // namespace headrace::core
