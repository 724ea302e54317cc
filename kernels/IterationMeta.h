// SPDX-License-Identifier: Apache-2.0
//
// What changes from iteration to iteration, in one packed buffer at a fixed device address.
//
// The host writes it (core/MetaWriter.h), one copy brings it to the device before the launch, kernels read it there.
// Its arrays lie behind the header at byte offsets that depend only on the plan's limits (MetaLayout), never on the
// variant, so that every graph of a plan reads the same addresses. Block tables, the most of it, are last, their rows
// one behind the other at the stride in use: what an iteration uses is a prefix, and that is what is copied.
//
// Rows (tokens) of one sequence follow each other; sequence s owns rows [queryStart[s], queryStart[s + 1]).
//
// Where an iteration passes each layer for several mini-batches, each has a header and arrays of its own, which lie
// metaFixedBytes() apart (metaOf()), and behind them a block table, at the stride of its own sequences:
//
//   | header, arrays of 0 | header, arrays of 1 | table of 0 | table of 1 |  not in use  |
//   | <----------------------- one copy ------------------------------> |
//
// Only the tables' offsets change from iteration to iteration. What is said here of an iteration is then of a
// mini-batch, but for the tokens of all of them, which lie in one array.
#pragma once

#include <cstdint>
#include <limits>

#include "kernels/HostDevice.h"

namespace headrace::kernels {

struct IterationMeta {
  int32_t numTokens;    // rows in use, <= the variant's new-token bucket
  int32_t numSequences; // sequences with rows in this iteration, <= the variant's sequence bucket
  int32_t numSampled;   // rows whose logits are wanted, <= the sequence bucket
  int32_t tableStride;  // row length of blockTable: what the longest sequence of the iteration needs, or more
  uint64_t iteration;   // counts from 1; published with the tokens
  // Byte offsets of the arrays from the start of this struct.
  uint32_t tokenIds;       // int32 [T]; below zero: see EmbedArgs
  uint32_t positions;      // int32 [T]
  uint32_t tokenSequence;  // int32 [T]: the sequence a row belongs to
  uint32_t kvSlot;         // int32 [T]: block * blockTokens + row in block, where k and v of this row are written
  uint32_t queryStart;     // int32 [S + 1]
  uint32_t contextLength;  // int32 [S]: tokens in the cache once this iteration's are appended
  uint32_t blockTable;     // int32 [S, tableStride]; behind the arrays, and tables, of all mini-batches before
  uint32_t sampleRow;      // int32 [S]: row of x for the s-th sampled token
  uint32_t requestSlot;    // int32 [S]: where `sampled` keeps the s-th sampled token
  uint32_t samplePosition; // int32 [S]: position of the token being sampled; so many are before it
  uint32_t temperature;    // float [S]
  uint32_t topP;           // float [S]
  uint32_t seed;           // uint64 [S]
  uint32_t topK;           // int32 [S]; 0: all
  uint32_t minP;           // float [S]
  uint32_t repetition;     // float [S]; 0 and 1: none
  uint32_t presence;       // float [S]
  uint32_t frequency;      // float [S]
  uint32_t promptTokens;   // int32 [S]: so many of the sequence's tokens were not generated
  uint32_t firstOutput;    // where the first token sampled goes in the iteration's tokens: numSampled of those before
  // Activation blocks with tokens of earlier iterations, in the order of sequences and positions (Op::RebuildKv).
  int32_t numActBlocks;
  int32_t numActRows;   // of all tokens that these have room for
  uint32_t actBlock;    // int32 [A]: its number less MetaLayout::firstActBlock
  uint32_t actPosition; // int32 [A]: of its first token
  uint32_t actTokens;   // int32 [A]: of its tokens those of earlier iterations; they come first

  template <typename T> HEADRACE_HD const T *array(uint32_t offset) const {
    return reinterpret_cast<const T *>(reinterpret_cast<const char *>(this) + offset);
  }
  template <typename T> HEADRACE_HD T *array(uint32_t offset) {
    return reinterpret_cast<T *>(reinterpret_cast<char *>(this) + offset);
  }
};

// The plan's limits, and the sizes that follow from them.
struct MetaLayout {
  int64_t maxTokens = 0;
  int64_t maxSequences = 0;
  int64_t maxBlocksPerSequence = 0;
  // Blocks from this number on are activation blocks, at most so many of a mini-batch's; none: all are KV blocks.
  int64_t firstActBlock = std::numeric_limits<int32_t>::max(), maxActBlocks = 0;
};
// Of an iteration.
inline constexpr uint32_t kMostMiniBatches = 64;

// Bytes of a mini-batch's header and of its arrays but the block table, a multiple of 64.
uint64_t metaFixedBytes(const MetaLayout &layout);
// Bytes of the buffer of so many mini-batches, at the plan's longest stride, a multiple of 256.
uint64_t metaBytes(const MetaLayout &layout, uint32_t miniBatches = 1);
// Bytes from a mini-batch's header to the end of its block table's rows in use.
uint64_t metaBytesInUse(const IterationMeta &meta);
// Fills in the header's offsets and the plan's longest stride; counts are zero.
void initMeta(const MetaLayout &layout, IterationMeta *meta);
// Of so many mini-batches, the first one's at `meta`. Their block tables have no rows: all are behind the last arrays.
void initMetas(const MetaLayout &layout, uint32_t miniBatches, IterationMeta *meta);
// That of a mini-batch, the first one's at `meta`.
IterationMeta *metaOf(const MetaLayout &layout, IterationMeta *meta, uint32_t miniBatch);
const IterationMeta *metaOf(const MetaLayout &layout, const IterationMeta *meta, uint32_t miniBatch);

} // namespace headrace::kernels
