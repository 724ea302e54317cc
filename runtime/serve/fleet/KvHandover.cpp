// SPDX-License-Identifier: Apache-2.0
#include "runtime/serve/fleet/KvHandover.h"

#include <algorithm>

#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/core/KvPlaces.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::serve {
namespace {

using model::cat;

// The block's bytes, from where they are read.
absl::Status read(core::Runtime &runtime, const core::KvPlaces &from, absl::Span<std::byte> bytes) {
  if (from.space == plan::Space::Device)
    return runtime.device().readDevice(from.address, bytes);
  const auto home = runtime.device().hostSlab().subspan(from.address, bytes.size());
  std::copy(home.begin(), home.end(), bytes.begin());
  return absl::OkStatus();
}

// To every copy of the block.
absl::Status write(core::Runtime &runtime, const core::KvPlaces &to, absl::Span<const std::byte> bytes) {
  const auto toSlab = [&](uint64_t address) {
    std::copy(bytes.begin(), bytes.end(), runtime.device().hostSlab().begin() + static_cast<ptrdiff_t>(address));
  };
  if (to.space == plan::Space::Host) {
    toSlab(to.address);
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(runtime.device().writeDevice(to.address, bytes));
  if (to.mirrored)
    toSlab(to.mirror);
  return absl::OkStatus();
}

absl::Status checkBlocks(const core::Runtime &runtime, absl::Span<const int32_t> blocks) {
  const plan::Placement &placement = runtime.plan().placements[runtime.placement()];
  for (int32_t block : blocks)
    if (block < 1 || block >= placement.kvBlocks)
      return absl::InvalidArgumentError(cat("KV block ", block, ": expected 1 to ", placement.kvBlocks - 1,
                                            ", as placement '", placement.name, "' has"));
  return absl::OkStatus();
}

} // namespace

uint64_t kvBlockBytesOfAllLayers(const plan::Plan &plan) {
  return static_cast<uint64_t>(plan.model->layers) * plan.kvBlockBytes();
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
       {checkHandover(from.plan(), to.plan()), checkBlocks(from, fromBlocks), checkBlocks(to, toBlocks)})
    if (!status.ok())
      return status;
  for (core::Runtime *runtime : {&from, &to})
    RETURN_IF_ERROR(runtime->flushKv());
  if (!from.device().holdsData() || !to.device().holdsData()) {
    to.kvWritten(); // it takes as long in virtual time
    return absl::OkStatus();
  }
  for (core::Runtime *runtime : {&from, &to})
    RETURN_IF_ERROR(runtime->device().drain());
  const core::KvLayout source(from.plan(), from.placement()), target(to.plan(), to.placement());
  staging_.resize(source.blockBytes());
  for (int64_t layer = 0; layer < from.plan().model->layers; ++layer)
    for (size_t b = 0; b < fromBlocks.size(); ++b) {
      RETURN_IF_ERROR(read(from, source.of(layer, fromBlocks[b]), absl::MakeSpan(staging_)));
      RETURN_IF_ERROR(write(to, target.of(layer, toBlocks[b]), staging_));
    }
  RETURN_IF_ERROR(moveIds(from, fromBlocks, to, toBlocks));
  to.kvWritten();
  return absl::OkStatus();
}

absl::Status KvHandover::moveIds(core::Runtime &from, absl::Span<const int32_t> fromBlocks, core::Runtime &to,
                                 absl::Span<const int32_t> toBlocks) {
  const auto base = [](const core::Runtime &of) {
    const plan::Plan &plan = of.plan();
    const uint32_t history = plan.ioBuffer(plan::Io::History);
    const std::vector<plan::Extent> &extents = plan.placements[of.placement()].extents;
    return std::find_if(extents.begin(), extents.end(), [&](const plan::Extent &e) { return e.buffer == history; })
        ->address;
  };
  const uint64_t block = static_cast<uint64_t>(from.plan().blockTokens) * sizeof(int32_t);
  const uint64_t source = base(from), target = base(to);
  staging_.resize(block);
  for (size_t b = 0; b < fromBlocks.size(); ++b) {
    RETURN_IF_ERROR(
        from.device().readDevice(source + static_cast<uint64_t>(fromBlocks[b]) * block, absl::MakeSpan(staging_)));
    RETURN_IF_ERROR(to.device().writeDevice(target + static_cast<uint64_t>(toBlocks[b]) * block, staging_));
  }
  return absl::OkStatus();
}

} // namespace headrace::serve
