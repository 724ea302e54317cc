// SPDX-License-Identifier: Apache-2.0
#include "bench/cuda/Session.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "runtime/job/JobFile.h"
#include "runtime/model/WeightLayout.h"
#include "runtime/plan/value/BlockRuns.h"
#include "tests/support/SourceDir.h"

namespace headrace::bench {
namespace {

constexpr size_t kCopyThreads = 8;

} // namespace

void copyByThreads(std::byte *to, const std::byte *from, size_t bytes) {
  const size_t run = model::alignUp(bytes / kCopyThreads + 1);
  std::vector<std::thread> threads;
  for (size_t at = 0; at < bytes; at += run)
    threads.emplace_back([=] { std::memcpy(to + at, from + at, std::min(run, bytes - at)); });
  for (std::thread &thread : threads)
    thread.join();
}

model::ModelSpec openShape(const std::string &name) {
  return take(model::openModel(sourceDir() + "/examples/models/" + name + ".toml")).spec;
}
model::Hardware openProfile(const std::string &deviceName) {
  return take(model::openHardware(sourceDir() + "/examples/hardware/" + profileOf(deviceName) + ".toml"));
}
uint64_t freeDeviceMemory() {
  size_t free = 0, total = 0;
  must(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return free;
}

LayerWeights::LayerWeights(const model::ModelSpec &spec) {
  const model::WeightLayout layout = model::layoutWeights(spec);
  const auto source = model::syntheticWeights(1);
  std::vector<std::thread> threads;
  std::vector<absl::Status> made(layout.units.size());
  for (size_t u = 0; u < layout.units.size(); ++u) {
    const model::Unit &unit = layout.units[u];
    if (units_.contains(unit.role))
      continue;
    void *p = nullptr;
    must(cudaHostAlloc(&p, unit.bytes, cudaHostAllocPortable), "cudaHostAlloc");
    const absl::Span<std::byte> bytes(static_cast<std::byte *>(p), unit.bytes);
    units_[unit.role] = bytes;
    threads.emplace_back(
        [&made, &source, &unit, bytes, u] { made[u] = source->fill(unit, model::MatrixOrder::RowMajor, bytes); });
  }
  for (std::thread &thread : threads)
    thread.join();
  for (const absl::Status &status : made)
    check(status);
}

LayerWeights::~LayerWeights() {
  for (const auto &[role, bytes] : units_)
    cudaFreeHost(bytes.data());
}

absl::Span<const std::byte> LayerWeights::held(const model::Unit &unit, model::MatrixOrder order) const {
  const auto it = units_.find(unit.role);
  const bool has = order == model::MatrixOrder::RowMajor && it != units_.end() && it->second.size() == unit.bytes;
  return has ? it->second : absl::Span<const std::byte>();
}

absl::Status LayerWeights::fill(const model::Unit &unit, model::MatrixOrder order, absl::Span<std::byte> out) const {
  const absl::Span<const std::byte> bytes = held(unit, order);
  if (bytes.size() != out.size())
    return absl::InvalidArgumentError("unit " + unit.name + " has other bytes than the first layer's");
  copyByThreads(out.data(), bytes.data(), bytes.size());
  return absl::OkStatus();
}

Session::Session(plan::Plan plan, const model::WeightSource &weights, const Options &options)
    : plan_(std::make_unique<plan::Plan>(std::move(plan))) {
  device_ = take(cuda::makeCudaDevice(options.cuda));
  const double at = nowSeconds();
  runtime_ =
      take(core::Runtime::load(*plan_, *device_, {.trace = options.trace}, &weights, {.placement = options.placement}));
  fillCaches(plan::BufferKind::Kv, plan_->kvEncoding.element);
  fillCaches(plan::BufferKind::Act, plan_->activationDtype);
  loadSeconds_ = nowSeconds() - at;
}

// What the caches hold is read by attention: zeros would cost less power, and what was there before may be no number.
void Session::fillCaches(plan::BufferKind kind, model::DType dtype) {
  const std::vector<uint16_t> &numbers = randomNumbers(dtype);
  const PinnedBuffer staging(numbers.size() * sizeof(uint16_t), dtype);
  const auto bytes = absl::MakeConstSpan(staging.as<std::byte>(), numbers.size() * sizeof(uint16_t));
  uint64_t begin = UINT64_MAX, end = 0; // caches lie together, block by block
  for (const plan::Extent &extent : plan_->placements[runtime_->placement()].extents) {
    if (plan_->buffers[extent.buffer].kind != kind)
      continue;
    if (extent.space == plan::Space::Device) {
      begin = std::min(begin, extent.address);
      end = std::max(end, plan::addressEnd(*plan_, extent));
      continue;
    }
    const absl::Span<std::byte> home = device_->hostSlab().subspan(extent.address, extent.bytes);
    for (size_t at = 0; at < home.size(); at += bytes.size())
      copyByThreads(home.data() + at, bytes.data(), std::min(bytes.size(), home.size() - at));
  }
  for (uint64_t at = begin; at < end; at += bytes.size())
    check(device_->writeDevice(at, bytes.subspan(0, std::min<uint64_t>(bytes.size(), end - at))));
}

} // namespace headrace::bench
