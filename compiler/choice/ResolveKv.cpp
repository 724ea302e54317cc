// SPDX-License-Identifier: Apache-2.0
#include "compiler/choice/ResolveKv.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "compiler/choice/KvExpansion.h"
#include "passes/algorithms/MovableKinds.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/job/Expansion.h"
#include "runtime/model/KvEncoding.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/model/WeightLayout.h"

namespace headrace::compiler {
namespace {

// Beyond it the KV cache no longer has a size that a plan can state.
constexpr uint64_t kMostBytes = uint64_t{1} << 53;

absl::Status refuse(absl::string_view key, const absl::AlphaNum &value, const std::string &expected) {
  return absl::InvalidArgumentError(absl::StrCat(key, " = ", value, ": expected ", expected));
}

// A block of a cache; may be more than 64 bits hold.
__int128 kvBlockBytes(const CompileRequest &request, const Target &target) {
  return __int128{target.blockTokens} * target.kv.bytes(2 * request.model->kvHeads, request.model->headDim);
}

// The fewest ranges that all caches go through where no block stays: slots of tails, or places of layers' caches.
int64_t leastRanges(int64_t caches, bool swapsLayers) {
  return swapsLayers ? model::kLeastKvPlaces : rangesOfSlots(caches, algorithms::kKvSlots);
}

// Slots take memory for all that may be there, so no more than may be of use.
double autoExpansion(const CompileRequest &request, int64_t caches, int64_t ranges) {
  const model::Hardware &hardware = request.hardware;
  return std::min(mostAutoExpansion(caches, ranges),
                  linkExpansion(static_cast<double>(model::layoutWeights(request.model).totalBytes()),
                                static_cast<double>(std::max<uint64_t>(1, *request.goal.kvDeviceMemory)),
                                hardware.bandwidth() * hardware.memoryEfficiency,
                                hardware.h2dBandwidth * hardware.linkEfficiency));
}

// As many blocks as the device's bytes for KV make with the expansion, none that nobody could use.
absl::Status expandKv(const CompileRequest &request, bool swapsLayers, Target &target) {
  const model::Goal &goal = request.goal;
  const int64_t caches = target.caches(request.model->layers), ranges = leastRanges(caches, swapsLayers);
  const bool automatic = *goal.expansion == model::kAutoExpansion;
  const double expansion = automatic ? autoExpansion(request, caches, ranges) : *goal.expansion;
  const __int128 block = kvBlockBytes(request, target), held = *goal.kvDeviceMemory / block;
  const double most = expansion * static_cast<double>(held) / static_cast<double>(caches);
  const int64_t least = target.meta.maxBlocksPerSequence + 1;
  const auto inRanges = [&](int64_t blocks) { // aligned, they take a little more than the blocks
    return KvOnDevice{caches, blocks, static_cast<uint64_t>(block)}.splitBytes(0, ranges);
  };
  int64_t blocks = most < static_cast<double>(target.kvBlocks) ? static_cast<int64_t>(most) : target.kvBlocks;
  while (blocks >= least && inRanges(blocks) > *goal.kvDeviceMemory)
    --blocks;
  if (blocks < least) {
    const double bytes = std::ceil(static_cast<double>(least * caches) / expansion) * static_cast<double>(block);
    return refuse("goal.kv_device_memory", *goal.kvDeviceMemory,
                  absl::StrCat("at least ", std::max(static_cast<uint64_t>(bytes), inRanges(least)),
                               " bytes: one sequence of context ", target.context, " with an expansion of ",
                               expansion));
  }
  target.kvBlocks = blocks;
  return absl::OkStatus();
}

// What all KV may take of the device, where an expansion is stated.
absl::Status shareKv(const CompileRequest &request, bool swapsLayers, Target &target) {
  target.leastResident = 0;
  const double expansion = *request.goal.expansion;
  if (expansion == model::kAutoExpansion) // what is stated, or what is left
    return absl::OkStatus();
  const int64_t caches = target.caches(request.model->layers), ranges = leastRanges(caches, swapsLayers);
  if (const double most = mostExpansion(caches, ranges); expansion > most)
    return refuse("goal.expansion", expansion,
                  absl::StrCat("at most ", most, ": ", caches, " layers' caches that go through ", ranges,
                               swapsLayers ? " places" : " slots", " of the device"));
  if (!target.kvDeviceBytes)
    target.kvDeviceBytes =
        static_cast<uint64_t>(static_cast<double>(target.kvOnDevice(request.model->layers).wholeBytes()) / expansion);
  return absl::OkStatus();
}

// How many blocks stay, where it is stated what KV may take of the device.
absl::Status splitKv(const CompileRequest &request, Target &target) {
  const int64_t layers = request.model->layers, shares = target.choice.miniBatches;
  const std::optional<int64_t> resident = target.residentBeside(algorithms::kKvSlots, layers);
  if (!resident) {
    const KvOnDevice kv = target.kvOnDevice(layers);
    const uint64_t least = kv.leastBytes(target.kvRanges(algorithms::kKvSlots, layers));
    const std::string what = least == kv.wholeBytes() ? "all of it"
                             : target.kvPlaces > 0    ? "one block of all caches and places for the others"
                                                      : "one block of all caches and slots for the others";
    return refuse("goal.kv_device_memory", *target.kvDeviceBytes,
                  absl::StrCat("at least ", least, " bytes, ", what, " (", layers, " layers",
                               shares == 1 ? "" : absl::StrCat(" and ", shares, " mini-batches"),
                               "), or 0 for no block"));
  }
  if (*resident < target.kvBlocks)
    target.kvResident = resident;
  return absl::OkStatus();
}

// Some of the blocks keep activations, the others keys and values.
absl::Status resolveAct(const CompileRequest &request, Target &target) {
  target.contextBlocks = target.kvBlocks - 1;
  const model::BlocksOfKinds blocks = model::blocksOfKinds(target.choice.actRatio, target.contextBlocks, target.batch,
                                                           target.meta.maxBlocksPerSequence);
  target.kvBlocks = blocks.kv + 1;
  target.actBlocks = blocks.act;
  target.meta.firstActBlock = target.kvBlocks;
  target.meta.maxActBlocks = target.actBlocks;
  const __int128 bytes = __int128{target.actBlocks} * target.blockTokens * request.model->hidden *
                         static_cast<int64_t>(model::dtypeBytes(target.activation));
  if (bytes > static_cast<__int128>(kMostBytes / static_cast<uint64_t>(target.caches(request.model->layers))))
    return refuse("goal.kv_tokens", target.kvTokens,
                  absl::StrCat("activation blocks of at most ", kMostBytes, " bytes"));
  target.actBytes = model::alignUp(static_cast<uint64_t>(bytes));
  return absl::OkStatus();
}

} // namespace

model::DType activationOf(const CompileRequest &request) {
  return request.hardware.kind == model::DeviceKind::Host ? model::DType::F32 : request.model->dtype;
}

model::Encoding kvEncodingOf(const CompileRequest &request, const Encodings &encodings) {
  const model::Encoding asked = encodings.kv.value_or(request.goal.kvEncoding.value_or(activationOf(request)));
  return model::kvEncodingFor(asked, request.model->headDim).value_or(asked);
}

absl::Status resolveKv(const CompileRequest &request, bool swapsLayers, Target &target) {
  const model::ModelSpec &spec = request.model;
  const model::Goal &goal = request.goal;
  target.blockTokens = goal.blockTokens;
  if (goal.blockTokens < 1 || goal.blockTokens > 4096)
    return refuse("goal.block_tokens", goal.blockTokens, "1 to 4096");
  const int64_t blocksPerSequence = (target.context + goal.blockTokens - 1) / goal.blockTokens;
  const int64_t shares = target.choice.miniBatches; // of the tokens
  if (goal.kvTokens && *goal.kvTokens / shares < target.context)
    return refuse("goal.kv_tokens", *goal.kvTokens,
                  absl::StrCat("at least ", shares == 1 ? "one sequence" : absl::StrCat(shares, " sequences"),
                               " of context ", target.context,
                               shares == 1 ? "" : absl::StrCat(", one for each of ", shares, " mini-batches")));
  // At most 2^20 sequences of 2^31 tokens each; the bytes of as many need not fit 64 bits.
  const int64_t tokens = goal.kvTokens ? (*goal.kvTokens - 1) / shares + 1 : target.batch * target.context;
  const __int128 blocks = goal.kvTokens ? (__int128{tokens} + goal.blockTokens - 1) / goal.blockTokens
                                        : __int128{target.batch} * blocksPerSequence;
  const std::string lower =
      absl::StrCat(": lower batch (", target.sequences(), "), context (", target.context, ") or kv_tokens");
  if (blocks >= std::numeric_limits<int32_t>::max())
    return refuse("goal.kv_tokens", tokens,
                  absl::StrCat("at most ", std::numeric_limits<int32_t>::max() - 1, " blocks of ", goal.blockTokens,
                               " tokens", lower));
  target.kvBlocks = static_cast<int64_t>(blocks) + 1;
  target.meta.maxBlocksPerSequence = blocksPerSequence;
  target.kvTokens = static_cast<int64_t>(blocks) * goal.blockTokens;

  target.activation = activationOf(request);
  target.kv = kvEncodingOf(request, target.choice.encodings);
  if (const std::string expected = model::kvEncodingRefusal(target.kv, spec.headDim); !expected.empty())
    return refuse("goal.kv_dtype", model::kvEncodingText(target.kv), expected);
  if (target.choice.actRatio.any())
    RETURN_IF_ERROR(resolveAct(request, target));
  if (goal.expansion && goal.kvDeviceMemory) {
    RETURN_IF_ERROR(expandKv(request, swapsLayers, target));
    target.kvTokens = (target.kvBlocks - 1) * goal.blockTokens;
  }
  const __int128 kvBytes = target.kvBlocks * kvBlockBytes(request, target);
  if (kvBytes > static_cast<__int128>(kMostBytes / static_cast<uint64_t>(target.caches(spec.layers))))
    return refuse("goal.kv_tokens", tokens, absl::StrCat("a KV cache of at most ", kMostBytes, " bytes", lower));
  target.kvBytes = model::alignUp(static_cast<uint64_t>(kvBytes));
  target.kvBlockBytes = static_cast<uint64_t>(kvBytes) / static_cast<uint64_t>(target.kvBlocks);
  target.kvPlaces = request.policy.kvPlaces.value_or(0);
  target.kvDeviceBytes = goal.kvDeviceMemory;
  target.leastResident = goal.kvDeviceMemory == uint64_t{0} ? 0 : 1;
  if (goal.expansion)
    RETURN_IF_ERROR(shareKv(request, swapsLayers, target));
  return target.kvDeviceBytes && !swapsLayers ? splitKv(request, target) : absl::OkStatus();
}

} // namespace headrace::compiler
