// SPDX-License-Identifier: Apache-2.0
#include "runtime/serve/fleet/KvHandover.h"

#include <algorithm>

#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::serve {
namespace {

using model::cat;

// Bytes of one block in one layer's cache.
uint64_t layerBlockBytes(const plan::Plan &plan) {
  return 2 * static_cast<uint64_t>(plan.model->kvRows()) * static_cast<uint64_t>(plan.blockTokens) *
         model::dtypeBytes(plan.kvDtype);
}

// Calls `copy(address, offset, bytes)` for each part of a block as the placement that runs has it.
template <typename Copy> absl::Status forBlock(core::Runtime &runtime, int64_t layer, int32_t block, const Copy &copy) {
  const plan::Plan &plan = runtime.plan();
  const uint64_t bytes = layerBlockBytes(plan), begin = static_cast<uint64_t>(block) * bytes;
  const uint32_t buffer = plan.kvBuffer(layer);
  uint64_t covered = 0;
  for (const plan::Extent &extent : plan.placements[runtime.placement()].extents) {
    if (extent.buffer != buffer || extent.space != plan::Space::Device)
      continue;
    const uint64_t from = std::max(begin, extent.bufferOffset);
    const uint64_t to = std::min(begin + bytes, extent.bufferOffset + extent.bytes);
    if (from >= to)
      continue;
    if (absl::Status status = copy(extent.address + (from - extent.bufferOffset), from - begin, to - from);
        !status.ok())
      return status;
    covered += to - from;
  }
  if (covered != bytes)
    return absl::InvalidArgumentError(cat("KV block ", block, " of layer ", layer, ": ", covered, " of its ", bytes,
                                          " bytes are in device memory in placement '",
                                          plan.placements[runtime.placement()].name, "'"));
  return absl::OkStatus();
}

absl::Status checkBlocks(const plan::Plan &plan, absl::Span<const int32_t> blocks) {
  for (int32_t block : blocks)
    if (block < 1 || block >= plan.kvBlocks)
      return absl::InvalidArgumentError(cat("KV block ", block, ": expected 1 to ", plan.kvBlocks - 1));
  return absl::OkStatus();
}

} // namespace

uint64_t kvBlockBytesOfAllLayers(const plan::Plan &plan) {
  return static_cast<uint64_t>(plan.model->layers) * layerBlockBytes(plan);
}

uint64_t handoverBytes(const plan::Plan &plan, absl::Span<const int64_t> tokens) {
  uint64_t blocks = 0;
  for (int64_t t : tokens)
    blocks += static_cast<uint64_t>((t + plan.blockTokens - 1) / plan.blockTokens);
  return blocks * kvBlockBytesOfAllLayers(plan);
}

absl::Status checkHandover(const plan::Plan &from, const plan::Plan &to) {
  const auto same = [](const char *what, auto a, auto b) {
    return a == b ? absl::OkStatus() : absl::FailedPreconditionError(cat("KV hand-over: ", what, " ", a, " and ", b));
  };
  for (const absl::Status &status :
       {same("models", from.model->name, to.model->name), same("model hashes", from.modelHash, to.modelHash),
        same("layers", from.model->layers, to.model->layers), same("KV rows", from.model->kvRows(), to.model->kvRows()),
        same("tokens a block", from.blockTokens, to.blockTokens),
        same("element types", model::dtypeName(from.kvDtype), model::dtypeName(to.kvDtype))})
    if (!status.ok())
      return status;
  return absl::OkStatus();
}

absl::Status KvHandover::move(core::Runtime &from, absl::Span<const int32_t> fromBlocks, core::Runtime &to,
                              absl::Span<const int32_t> toBlocks) {
  if (fromBlocks.size() != toBlocks.size())
    return absl::InvalidArgumentError(
        cat("KV hand-over of ", fromBlocks.size(), " blocks into ", toBlocks.size(), " blocks"));
  for (const absl::Status &status :
       {checkHandover(from.plan(), to.plan()), checkBlocks(from.plan(), fromBlocks), checkBlocks(to.plan(), toBlocks)})
    if (!status.ok())
      return status;
  if (!from.device().holdsData() || !to.device().holdsData())
    return absl::OkStatus();
  for (core::Runtime *runtime : {&from, &to})
    RETURN_IF_ERROR(runtime->device().drain());
  staging_.resize(layerBlockBytes(from.plan()));
  for (int64_t layer = 0; layer < from.plan().model->layers; ++layer) {
    for (size_t b = 0; b < fromBlocks.size(); ++b) {
      absl::Status status = forBlock(from, layer, fromBlocks[b], [&](uint64_t address, uint64_t at, uint64_t bytes) {
        return from.device().readDevice(address, absl::MakeSpan(staging_).subspan(at, bytes));
      });
      if (status.ok())
        status = forBlock(to, layer, toBlocks[b], [&](uint64_t address, uint64_t at, uint64_t bytes) {
          return to.device().writeDevice(address, absl::MakeConstSpan(staging_).subspan(at, bytes));
        });
      if (!status.ok())
        return status;
    }
  }
  return absl::OkStatus();
}

} // namespace headrace::serve
