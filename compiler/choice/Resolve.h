// SPDX-License-Identifier: Apache-2.0
//
// From what a user asks for and a choice to numbers: defaults filled in, contradictions refused by name, and the
// buckets (variant keys without their placement) that the plan is to have.
//
//   decode   tokens = sequences     one row a sequence: one for each sequence bucket and context bucket
//   mixed    tokens > sequences     prefill, alone or beside decoding: for each token bucket and context bucket once
//                                   for the smallest and once for the largest sequence bucket (the count decides
//                                   little but the rows of the head)
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/choice/CompileRequest.h"
#include "compiler/choice/KvOnDevice.h"
#include "kernels/IterationMeta.h"
#include "runtime/cost/CostModel.h"

namespace headrace::compiler {

// A goal with every figure decided.
// What is said of sequences, tokens and blocks is of one mini-batch.
struct Target {
  Choice choice;     // what all placements have alike, with sizes of buckets
  int64_t batch = 0; // sequences
  int64_t context = 0;
  int64_t kvTokens = 0;
  int64_t blockTokens = 0;
  int64_t kvBlocks = 0;      // a cache, the scratch block included
  int64_t mostKvBlocks = 0;  // the same of any placement, where caches may grow (mostBlocksIn)
  int64_t usefulBlocks = 0;  // that the batch has use for, where caches may grow; else 0
  uint64_t kvBytes = 0;      // a cache: there is one a layer and mini-batch
  uint64_t kvBlockBytes = 0; // a block of a cache
  uint64_t historyBytes = 0; // ids of the tokens of mostKvBlocks
  // Activation blocks of each layer and mini-batch, behind the KV blocks in tables; blocks of both kinds that may be in
  // use; and a layer's bytes of them. 0: none.
  int64_t actBlocks = 0, contextBlocks = 0;
  uint64_t actBytes = 0;
  // What all KV may take of the device, what moves through it included, where that is stated or follows from an
  // expansion; 0: no block stays, and what moves through takes what it takes.
  std::optional<uint64_t> kvDeviceBytes;
  // The blocks that stay then, the scratch block included, beside as few slots as tails take, or as many places as are
  // stated; all where unset.
  std::optional<int64_t> kvResident;
  int64_t leastResident = 1, kvPlaces = 0; // of these blocks; of the places, 0: none are stated
  uint64_t deviceMemory = 0;               // bytes that the plan may use
  model::DType activation = model::DType::F32;
  model::Encoding kv; // of the caches' rows
  kernels::MetaLayout meta;
  // Ascending by (tokens, sequences, context); no bucket is in both, decode is not empty.
  std::vector<cost::Bucket> decode, mixed;

  // Blocks that caches may grow to in so many bytes of device memory, and the ids of the tokens of so many.
  int64_t mostBlocksIn(uint64_t memory, int64_t layers) const;
  uint64_t historyOf(int64_t blocks) const;
  // The least device memory for what takes `bytes` beside the history of this one: with less memory caches grow to
  // fewer blocks, with more to more.
  uint64_t leastMemoryFor(uint64_t bytes, int64_t layers) const;
  uint64_t residualBytes(int64_t hidden) const; // of a mini-batch, of the largest iteration: F32 on every device
  int64_t sequences() const { return batch * choice.miniBatches; }               // of all mini-batches
  int64_t mostSampled() const { return meta.maxSequences * choice.miniBatches; } // rows of an iteration, at most
  uint64_t metaBytes() const { return kernels::metaBytes(meta, static_cast<uint32_t>(choice.miniBatches)); }
  int64_t caches(int64_t layers) const { return layers * choice.miniBatches; }
  KvOnDevice kvOnDevice(int64_t layers) const { return {caches(layers), kvBlocks, kvBlockBytes}; }
  // The ranges that tails go through where `slots` are asked for, or the places that are stated.
  int64_t kvRanges(int64_t slots, int64_t layers) const;
  // Of kvDeviceBytes, which are stated: the blocks that stay beside tails in so many slots; none: not one of each
  // cache.
  std::optional<int64_t> residentBeside(int64_t slots, int64_t layers) const;

  // Rows of prompts that an iteration of the whole batch has at most; 0: it has them as it decodes.
  int64_t mostPromptRows() const;
  // The largest of each, over a list that is not empty.
  static cost::Bucket limits(const std::vector<cost::Bucket> &buckets);
};

// What a request says itself of what a search may vary; what it leaves open is as by default: one mini-batch, no
// activation blocks, or these on the device.
Choice askedChoice(const CompileRequest &request);

// How activations and rows of caches are held: as asked, or by the device. Whether a head can have it, resolve() says.
model::DType activationOf(const CompileRequest &request);
model::Encoding kvEncodingOf(const CompileRequest &request, const Encodings &encodings = {});

// `swapsLayers`: KV is not split by blocks, whatever it may take of the device.
absl::StatusOr<Target> resolve(const CompileRequest &request, const Choice &choice, bool swapsLayers = false);
absl::StatusOr<Target> resolve(const CompileRequest &request); // with what it asks for

// InvalidArgument where one of the stated placements has more blocks of a cache than there are, or splits caches behind
// the last, and where none has all of them.
absl::Status checkBlocks(const std::vector<Candidate> &stated, const Target &target);

} // namespace headrace::compiler
