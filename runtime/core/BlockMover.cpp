// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/BlockMover.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/StatusMacros.h"

namespace headrace::core {
namespace {

constexpr size_t kBatch = 256; // copies asked for at once

} // namespace

BlockMover::BlockMover(const plan::Plan &plan, Device &device)
    : plan_(plan), device_(device), ids_(static_cast<uint64_t>(plan.blockTokens) * sizeof(int32_t)) {
  batch_.reserve(kBatch);
}

absl::Status BlockMover::flush() {
  if (batch_.empty())
    return absl::OkStatus();
  const absl::StatusOr<uint64_t> ticket = device_.copyBeside(batch_);
  batch_.clear();
  ticket_ = ticket.ok() ? *ticket : 0;
  return ticket.status();
}

absl::Status BlockMover::add(bool toDevice, const plan::BlockPlace &place, uint64_t swap, uint64_t bytes) {
  if (!place.device)
    return absl::OkStatus();
  if (!batch_.empty()) {
    BlockCopy &last = batch_.back();
    if (last.device + last.bytes == *place.device && last.swap + last.bytes == swap) {
      last.bytes += bytes;
      return absl::OkStatus();
    }
  }
  if (batch_.size() == kBatch)
    RETURN_IF_ERROR(flush());
  batch_.push_back({toDevice, *place.device, swap, bytes});
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> BlockMover::ask() {
  RETURN_IF_ERROR(flush());
  return std::exchange(ticket_, 0);
}

void BlockMover::onHost(const plan::BlockPlace &place, bool toBlock, absl::Span<std::byte> memory) {
  std::byte *const at = device_.hostSlab().data() + *place.host;
  std::memcpy(toBlock ? at : memory.data(), toBlock ? memory.data() : at, memory.size());
}

absl::StatusOr<uint64_t> BlockMover::move(const plan::CacheMap &map, uint32_t miniBatch, int32_t from, int32_t to) {
  uint64_t linkBytes = 0;
  for (int64_t layer = 0; layer < map.layers(); ++layer) {
    const plan::BlockPlace source = map.of(layer, from, miniBatch), target = map.of(layer, to, miniBatch);
    if (source.device)
      return absl::InvalidArgumentError(
          absl::StrCat("KV block ", from, " is at home on the device, expected one of the host"));
    const uint64_t bytes = map.bytesOf(layer, from);
    linkBytes += target.device ? bytes : 0;
    if (!device_.holdsData())
      continue;
    const absl::Span<std::byte> held = device_.hostSlab().subspan(*source.host, bytes);
    if (target.device)
      RETURN_IF_ERROR(device_.writeDevice(*target.device, held));
    if (target.host)
      onHost(target, /*toBlock=*/true, held);
  }
  // Without data there are none to read, and the device is told all the same.
  if (const absl::Status read = device_.readDevice(*map.of(map.layers(), from, miniBatch).device, absl::MakeSpan(ids_));
      device_.holdsData())
    RETURN_IF_ERROR(read);
  RETURN_IF_ERROR(device_.writeDevice(*map.of(map.layers(), to, miniBatch).device, ids_));
  if (!device_.holdsData() && linkBytes > 0) {
    const model::Hardware &hardware = plan_.hardware;
    const double seconds = static_cast<double>(linkBytes) / (hardware.h2dBandwidth * hardware.linkEfficiency) +
                           static_cast<double>(map.layers()) * hardware.copyLatency;
    RETURN_IF_ERROR(device_.waitUntil(device_.nowNs() + static_cast<int64_t>(seconds * 1e9)));
  }
  return linkBytes;
}

} // namespace headrace::core
