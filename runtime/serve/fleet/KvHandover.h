// SPDX-License-Identifier: Apache-2.0
//
// Moves the KV cache of a request from the instance that prefilled it to the one that decodes it (Select-N, section
// 4.4: prefill and decode on separate instances). What it costs is bytes over the receiver's link; who moves them paces
// it (Fleet.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "runtime/core/Runtime.h"

namespace headrace::serve {

// Bytes of one KV block over all layers: layers x 2 x kvRows x blockTokens x element.
uint64_t kvBlockBytesOfAllLayers(const plan::Plan &plan);
// Bytes that a hand-over of sequences with these many cached tokens moves: whole blocks.
uint64_t handoverBytes(const plan::Plan &plan, absl::Span<const int64_t> tokens);

// FailedPrecondition, naming the first difference, unless blocks of one plan's cache mean the same in the other's:
// model, tokens a block, element type.
absl::Status checkHandover(const plan::Plan &from, const plan::Plan &to);

class KvHandover {
public:
  // Copies what `fromBlocks` hold in every layer, and which tokens that is of, into `toBlocks`, one for one, by way of
  // a buffer of one block. Neither runtime may have an iteration in flight; each is flushed (Runtime::flushKv()) and
  // drained. Where a device holds no data nothing is moved or waited for. InvalidArgument if the lists differ in length or name a block outside a cache.
  absl::Status move(core::Runtime &from, absl::Span<const int32_t> fromBlocks, core::Runtime &to,
                    absl::Span<const int32_t> toBlocks);

private:
  absl::Status moveIds(core::Runtime &from, absl::Span<const int32_t> fromBlocks, core::Runtime &to,
                       absl::Span<const int32_t> toBlocks);

  std::vector<std::byte> staging_;
};

} // namespace headrace::serve
