// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/MetaWriter.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/StatusMacros.h"

namespace headrace::core {
namespace {

absl::Status tooMany(const char *what, int64_t value, int64_t limit) {
  return absl::InvalidArgumentError(absl::StrCat("iteration: ", value, " ", what, ", the plan's limit is ", limit));
}

absl::Status refuse(size_t sequence, const std::string &message) {
  return absl::InvalidArgumentError(absl::StrCat("iteration: sequence ", sequence, ": ", message));
}

// Positions have 32 bits, and such a division takes less.
int64_t blocksIn(int64_t context, int64_t blockTokens) {
  return 1 + static_cast<uint32_t>(context - 1) / static_cast<uint32_t>(blockTokens);
}

// KV blocks that a sequence's rows need.
absl::StatusOr<int64_t> blocksOf(const kernels::MetaLayout &layout, int64_t blockTokens, size_t s,
                                 const SequenceRows &sequence) {
  const int64_t known = static_cast<int64_t>(sequence.tokens.size()), count = known + sequence.padding;
  if (count == 0 || sequence.padding < 0)
    return refuse(s, "no rows");
  if (sequence.sample && known == 0)
    return refuse(s, "no row to sample, padding only");
  if (count > layout.maxTokens)
    return tooMany("tokens", count, layout.maxTokens);
  if (sequence.firstPosition < 0 || sequence.firstPosition > std::numeric_limits<int32_t>::max() - count)
    return refuse(s, absl::StrCat("first position ", sequence.firstPosition, " is out of range"));
  if (sequence.requestSlot < 0 || sequence.requestSlot >= layout.maxSequences)
    return refuse(s, absl::StrCat("request slot ", sequence.requestSlot, ", the plan has ", layout.maxSequences));
  const int64_t context = sequence.firstPosition + count, needed = blocksIn(context, blockTokens);
  if (needed > layout.maxBlocksPerSequence)
    return refuse(s, absl::StrCat("context ", context, " needs ", needed, " KV blocks, the plan's limit is ",
                                  layout.maxBlocksPerSequence));
  if (static_cast<int64_t>(sequence.blocks.size()) < needed)
    return refuse(s,
                  absl::StrCat("context ", context, " needs ", needed, " KV blocks, it has ", sequence.blocks.size()));
  return needed;
}

} // namespace

absl::Status writeMeta(const kernels::MetaLayout &layout, int64_t blockTokens, absl::Span<const SequenceRows> sequences,
                       kernels::IterationMeta *meta) {
  if (static_cast<int64_t>(sequences.size()) > layout.maxSequences)
    return tooMany("sequences", static_cast<int64_t>(sequences.size()), layout.maxSequences);

  int32_t *tokenIds = meta->array<int32_t>(meta->tokenIds);
  int32_t *positions = meta->array<int32_t>(meta->positions);
  int32_t *tokenSequence = meta->array<int32_t>(meta->tokenSequence);
  int32_t *kvSlot = meta->array<int32_t>(meta->kvSlot);
  int32_t *queryStart = meta->array<int32_t>(meta->queryStart);
  int32_t *contextLength = meta->array<int32_t>(meta->contextLength);
  int32_t *blockTable = meta->array<int32_t>(meta->blockTable);
  int32_t *sampleRow = meta->array<int32_t>(meta->sampleRow);
  int32_t *requestSlot = meta->array<int32_t>(meta->requestSlot);
  int32_t *samplePosition = meta->array<int32_t>(meta->samplePosition);
  float *temperature = meta->array<float>(meta->temperature);
  float *topP = meta->array<float>(meta->topP);
  uint64_t *seed = meta->array<uint64_t>(meta->seed);
  int32_t *topK = meta->array<int32_t>(meta->topK);
  float *minP = meta->array<float>(meta->minP);
  float *repetition = meta->array<float>(meta->repetition);
  float *presence = meta->array<float>(meta->presence);
  float *frequency = meta->array<float>(meta->frequency);
  int32_t *promptTokens = meta->array<int32_t>(meta->promptTokens);

  int32_t *actBlock = meta->array<int32_t>(meta->actBlock);
  int32_t *actPosition = meta->array<int32_t>(meta->actPosition);
  int32_t *actTokens = meta->array<int32_t>(meta->actTokens);

  const int32_t previousTokens = meta->numTokens;
  int64_t row = 0, stride = 0;
  for (size_t s = 0; s < sequences.size(); ++s) {
    ASSIGN_OR_RETURN(blocks, blocksOf(layout, blockTokens, s, sequences[s]));
    row += static_cast<int64_t>(sequences[s].tokens.size()) + sequences[s].padding;
    if (row > layout.maxTokens)
      return tooMany("tokens", row, layout.maxTokens);
    stride = std::max(stride, blocks);
  }
  meta->tableStride = static_cast<int32_t>(stride);
  int64_t listed = 0; // activation blocks
  row = 0;
  int32_t sampled = 0;
  for (size_t s = 0; s < sequences.size(); ++s) {
    const SequenceRows &sequence = sequences[s];
    const int64_t known = static_cast<int64_t>(sequence.tokens.size()), count = known + sequence.padding;
    const int64_t context = sequence.firstPosition + count, blocksNeeded = blocksIn(context, blockTokens);

    // Those with tokens of earlier iterations.
    for (int64_t b = 0; layout.maxActBlocks > 0 && b * blockTokens < sequence.firstPosition; ++b) {
      const int64_t number = sequence.blocks[static_cast<size_t>(b)] - layout.firstActBlock;
      if (number < 0)
        continue;
      if (number >= layout.maxActBlocks || listed == layout.maxActBlocks)
        return refuse(s, absl::StrCat("activation block ", layout.firstActBlock + number, " as number ", listed + 1,
                                      " of the iteration, the plan has ", layout.maxActBlocks, " from ",
                                      layout.firstActBlock, " on"));
      actBlock[listed] = static_cast<int32_t>(number);
      actPosition[listed] = static_cast<int32_t>(b * blockTokens);
      actTokens[listed++] = static_cast<int32_t>(std::min(blockTokens, sequence.firstPosition - b * blockTokens));
    }
    queryStart[s] = static_cast<int32_t>(row);
    contextLength[s] = static_cast<int32_t>(context);
    std::memcpy(blockTable + static_cast<int64_t>(s) * stride, sequence.blocks.data(),
                static_cast<size_t>(blocksNeeded) * sizeof(int32_t));
    // A decoded row lies in the last block: one division less a sequence.
    int64_t block = count == 1 ? blocksNeeded - 1 : sequence.firstPosition / blockTokens;
    int64_t inBlock = sequence.firstPosition - block * blockTokens;
    for (int64_t i = 0; i < count; ++i, ++row) {
      tokenIds[row] = i < known ? sequence.tokens[static_cast<size_t>(i)] : 0;
      positions[row] = static_cast<int32_t>(sequence.firstPosition + i);
      tokenSequence[row] = static_cast<int32_t>(s);
      kvSlot[row] = static_cast<int32_t>(sequence.blocks[static_cast<size_t>(block)] * blockTokens + inBlock);
      if (++inBlock == blockTokens) {
        inBlock = 0;
        ++block;
      }
    }
    if (sequence.sample) {
      sampleRow[sampled] = static_cast<int32_t>(row - 1 - sequence.padding);
      requestSlot[sampled] = sequence.requestSlot;
      samplePosition[sampled] = static_cast<int32_t>(context - sequence.padding);
      temperature[sampled] = sequence.temperature;
      topP[sampled] = sequence.topP;
      seed[sampled] = sequence.seed;
      topK[sampled] = sequence.topK;
      minP[sampled] = sequence.minP;
      repetition[sampled] = sequence.repetition;
      presence[sampled] = sequence.presence;
      frequency[sampled] = sequence.frequency;
      promptTokens[sampled] = static_cast<int32_t>(sequence.promptTokens);
      ++sampled;
    }
  }
  queryStart[sequences.size()] = static_cast<int32_t>(row);
  for (int64_t t = row; t < previousTokens; ++t)
    kvSlot[t] = 0;
  meta->numTokens = static_cast<int32_t>(row);
  meta->numSequences = static_cast<int32_t>(sequences.size());
  meta->numSampled = sampled;
  meta->numActBlocks = static_cast<int32_t>(listed);
  meta->numActRows = static_cast<int32_t>(listed * blockTokens);
  return absl::OkStatus();
}

absl::Status writeMetas(const kernels::MetaLayout &layout, int64_t blockTokens,
                        absl::Span<const absl::Span<const SequenceRows>> miniBatches, kernels::IterationMeta *meta) {
  const uint64_t fixed = kernels::metaFixedBytes(layout);
  uint32_t sampled = 0;
  uint64_t table = miniBatches.size() * fixed; // from `meta` on: where the next block table begins
  for (uint32_t i = 0; i < miniBatches.size(); ++i) {
    kernels::IterationMeta *const own = kernels::metaOf(layout, meta, i);
    own->blockTable = static_cast<uint32_t>(table - i * fixed);
    RETURN_IF_ERROR(writeMeta(layout, blockTokens, miniBatches[i], own));
    table = i * fixed + kernels::metaBytesInUse(*own);
    own->firstOutput = sampled;
    sampled += static_cast<uint32_t>(own->numSampled);
  }
  return absl::OkStatus();
}

} // namespace headrace::core
