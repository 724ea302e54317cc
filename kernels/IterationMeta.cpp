// SPDX-License-Identifier: Apache-2.0
#include "kernels/IterationMeta.h"

#include <cstring>

namespace headrace::kernels {

// Walks the arrays but the block table and returns the end, a multiple of 64; `place` gets each one's offset.
template <typename Place> static uint64_t walkArrays(const MetaLayout &layout, Place place) {
  uint64_t offset = sizeof(IterationMeta);
  auto add = [&](uint32_t IterationMeta::*member, int64_t elements, uint64_t elementBytes) {
    offset = (offset + 63) / 64 * 64;
    place(member, offset);
    offset += static_cast<uint64_t>(elements) * elementBytes;
  };
  const int64_t tokens = layout.maxTokens, sequences = layout.maxSequences;
  add(&IterationMeta::tokenIds, tokens, 4);
  add(&IterationMeta::positions, tokens, 4);
  add(&IterationMeta::tokenSequence, tokens, 4);
  add(&IterationMeta::kvSlot, tokens, 4);
  add(&IterationMeta::queryStart, sequences + 1, 4);
  add(&IterationMeta::contextLength, sequences, 4);
  add(&IterationMeta::sampleRow, sequences, 4);
  add(&IterationMeta::requestSlot, sequences, 4);
  add(&IterationMeta::samplePosition, sequences, 4);
  add(&IterationMeta::temperature, sequences, 4);
  add(&IterationMeta::topP, sequences, 4);
  add(&IterationMeta::seed, sequences, 8);
  add(&IterationMeta::topK, sequences, 4);
  add(&IterationMeta::minP, sequences, 4);
  add(&IterationMeta::repetition, sequences, 4);
  add(&IterationMeta::presence, sequences, 4);
  add(&IterationMeta::frequency, sequences, 4);
  add(&IterationMeta::promptTokens, sequences, 4);
  add(&IterationMeta::actBlock, layout.maxActBlocks, 4);
  add(&IterationMeta::actPosition, layout.maxActBlocks, 4);
  add(&IterationMeta::actTokens, layout.maxActBlocks, 4);
  return (offset + 63) / 64 * 64;
}

uint64_t metaFixedBytes(const MetaLayout &layout) {
  return walkArrays(layout, [](uint32_t IterationMeta::*, uint64_t) {});
}

uint64_t metaBytes(const MetaLayout &layout, uint32_t miniBatches) {
  const auto table = static_cast<uint64_t>(layout.maxSequences * layout.maxBlocksPerSequence) * sizeof(int32_t);
  return (miniBatches * (metaFixedBytes(layout) + table) + 255) / 256 * 256;
}

uint64_t metaBytesInUse(const IterationMeta &meta) {
  return meta.blockTable + static_cast<uint64_t>(meta.numSequences) * static_cast<uint64_t>(meta.tableStride) * 4;
}

void initMeta(const MetaLayout &layout, IterationMeta *meta) {
  std::memset(static_cast<void *>(meta), 0, sizeof *meta);
  meta->tableStride = static_cast<int32_t>(layout.maxBlocksPerSequence);
  meta->blockTable = static_cast<uint32_t>(walkArrays(layout, [meta](uint32_t IterationMeta::*member, uint64_t offset) {
    meta->*member = static_cast<uint32_t>(offset);
  }));
}

void initMetas(const MetaLayout &layout, uint32_t miniBatches, IterationMeta *meta) {
  for (uint32_t i = 0; i < miniBatches; ++i) {
    IterationMeta *const own = metaOf(layout, meta, i);
    initMeta(layout, own);
    own->blockTable *= miniBatches - i;
  }
}

IterationMeta *metaOf(const MetaLayout &layout, IterationMeta *meta, uint32_t miniBatch) {
  return reinterpret_cast<IterationMeta *>(reinterpret_cast<char *>(meta) + miniBatch * metaFixedBytes(layout));
}

const IterationMeta *metaOf(const MetaLayout &layout, const IterationMeta *meta, uint32_t miniBatch) {
  return reinterpret_cast<const IterationMeta *>(reinterpret_cast<const char *>(meta) +
                                                 miniBatch * metaFixedBytes(layout));
}

} // namespace headrace::kernels
