// SPDX-License-Identifier: Apache-2.0
//
// What penalties do to a logit, and where the tokens are that they look at; for every device.
#pragma once

#include <cstdint>

#include "kernels/HostDevice.h"
#include "kernels/IterationMeta.h"

namespace headrace::kernels {

struct Penalties {
  float repetition = 1, presence = 0, frequency = 0;
};

// Of the s-th sampled row; a repetition of 0 is none, too, so that a buffer of zeroes has none.
HEADRACE_HD static inline Penalties penaltiesOf(const IterationMeta &meta, int64_t s) {
  const float repetition = meta.array<float>(meta.repetition)[s];
  return {repetition > 0.0f ? repetition : 1.0f, meta.array<float>(meta.presence)[s],
          meta.array<float>(meta.frequency)[s]};
}
HEADRACE_HD static inline bool penalises(const Penalties &penalties) {
  return penalties.repetition != 1.0f || penalties.presence != 0.0f || penalties.frequency != 0.0f;
}

// A token's word of what the sequence has had: how often it was generated, and this where the prompt has it.
static constexpr uint32_t kInPrompt = 0x80000000u;

// A NaN stays one, an infinity too.
HEADRACE_HD static inline float penalised(const Penalties &penalties, float logit, uint32_t had) {
  if (had == 0)
    return logit;
  if (penalties.repetition != 1.0f)
    logit = logit > 0.0f ? logit / penalties.repetition : logit * penalties.repetition;
  const uint32_t generated = had & ~kInPrompt;
  if (generated == 0)
    return logit;
  return logit - penalties.frequency * static_cast<float>(generated) - penalties.presence;
}

// The tokens before the s-th sampled one: all that the sequence has, the one in the row that is sampled from included.
struct History {
  const int32_t *ids = nullptr; // [KV blocks, blockTokens]
  const int32_t *blockTable = nullptr;
  int64_t blockTokens = 0;
  int64_t tokens = 0, promptTokens = 0; // the prompt's are the first of them
};
HEADRACE_HD static inline History historyOf(const IterationMeta &meta, const int32_t *ids, int64_t blockTokens,
                                            int64_t s) {
  const int64_t sequence = meta.array<int32_t>(meta.tokenSequence)[meta.array<int32_t>(meta.sampleRow)[s]];
  return {ids, meta.array<int32_t>(meta.blockTable) + sequence * meta.tableStride, blockTokens,
          meta.array<int32_t>(meta.samplePosition)[s], meta.array<int32_t>(meta.promptTokens)[s]};
}
HEADRACE_HD static inline int32_t idAt(const History &history, int64_t position) {
  return history
      .ids[history.blockTable[position / history.blockTokens] * history.blockTokens + position % history.blockTokens];
}

} // namespace headrace::kernels
