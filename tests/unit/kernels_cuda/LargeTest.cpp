// SPDX-License-Identifier: Apache-2.0
//
// What takes the emulator minutes: on a GPU only.
#include "tests/unit/kernels_cuda/PagedText.h"

namespace headrace::kernels {
namespace {

TEST(CudaAttentionLarge, DecodeMatchesTheReferenceAtLongContexts) {
  for (Elem elem : {Elem::F16, Elem::BF16}) {
    AttentionCase c{8, 2, 128, 16, elem, elem};
    const PagedText text(c, 20000, 3);
    for (int64_t position : {16383, 16384, 19999}) {
      const std::vector<TextPart> parts = {{&text, position, 1}};
      expectReference(c, parts, runAttention(c, parts, {1, 1, 32768}));
    }
  }
}

TEST(CudaAttentionLarge, DecodeBitsAreTheSameInEveryRunAndBatch) {
  const AttentionCase c{8, 2, 128, 16, Elem::BF16, Elem::BF16};
  std::vector<PagedText> texts;
  for (int64_t length : {9000, 1, 513, 4097, 700, 2500, 64, 8191})
    texts.emplace_back(c, length, length);
  std::vector<TextPart> parts;
  for (const PagedText &text : texts)
    parts.push_back({&text, text.length - 1, 1});
  std::vector<AttentionResult> alone;
  for (const TextPart &part : parts)
    alone.push_back(runAttention(c, {part}, {1, 1, 9216}, 7));
  for (uint64_t repeat = 0; repeat < 20; ++repeat) {
    const AttentionResult batch = runAttention(c, parts, {8, 8, repeat % 2 == 0 ? 9216 : 16384}, repeat);
    for (size_t i = 0; i < parts.size(); ++i)
      ASSERT_EQ(batch.rowBits(i), alone[i].rowBits(0)) << "row " << i << " run " << repeat;
  }
}

TEST(CudaAttentionLarge, PrefillMatchesTheReferenceAtLongContexts) {
  for (Elem elem : {Elem::F16, Elem::BF16})
    for (int64_t headDim : {64, 128}) {
      const AttentionCase c{8, 2, headDim, 16, elem, elem};
      const PagedText text(c, 4096, 3);
      const AttentionResult result = runAttention(c, {{&text, 0, 4096}}, {4096, 1, 4096});
      for (int64_t position : {0, 63, 64, 1000, 4095})
        expectReference(c, TextPart{&text, position, 1}, result, position);
    }
}

} // namespace
} // namespace headrace::kernels
