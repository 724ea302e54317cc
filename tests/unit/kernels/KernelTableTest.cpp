// SPDX-License-Identifier: Apache-2.0
//
// The table of kernels, the layout of IterationMeta, and the half formats.
#include <set>

#include "tests/unit/kernels/KernelTest.h"

namespace headrace::kernels {
namespace {

TEST(KernelTable, EveryOpHasANameAndAnEntryOnEveryInstructionSet) {
  std::set<std::string> names;
  for (const Op op : kOps) {
    names.insert(opName(op));
    std::set<decltype(HostKernel::run)> entries;
    for (HostIsa isa : testedIsas()) {
      const HostKernel kernel = hostKernel(op, isa);
      ASSERT_TRUE(kernel.work != nullptr && kernel.units != nullptr && kernel.run != nullptr) << opName(op);
      entries.insert(kernel.run);
    }
    EXPECT_EQ(entries.size(), testedIsas().size()) << opName(op);
    EXPECT_EQ(hostKernel(op).run, hostKernel(op, bestIsa()).run);
  }
  EXPECT_EQ(names.size(), static_cast<size_t>(kOpCount));
  EXPECT_EQ(hostKernel(static_cast<Op>(kOpCount)).run, nullptr);
  EXPECT_STREQ(opName(static_cast<Op>(200)), "unknown");
}

TEST(IterationMetaLayout, ArraysAreApartAlignedAndInsideTheBuffer) {
  for (const MetaLayout &layout :
       {MetaLayout{1, 1, 1}, MetaLayout{7, 3, 5}, MetaLayout{4096, 256, 512}, MetaLayout{}}) {
    IterationMeta m;
    initMeta(layout, &m);
    const uint64_t tokens = 4 * layout.maxTokens, sequences = 4 * layout.maxSequences;
    const std::pair<uint64_t, uint64_t> arrays[] = {{m.tokenIds, tokens},
                                                    {m.positions, tokens},
                                                    {m.tokenSequence, tokens},
                                                    {m.kvSlot, tokens},
                                                    {m.queryStart, sequences + 4},
                                                    {m.contextLength, sequences},
                                                    {m.sampleRow, sequences},
                                                    {m.requestSlot, sequences},
                                                    {m.samplePosition, sequences},
                                                    {m.temperature, sequences},
                                                    {m.topP, sequences},
                                                    {m.seed, 2 * sequences},
                                                    {m.topK, sequences},
                                                    {m.minP, sequences},
                                                    {m.repetition, sequences},
                                                    {m.presence, sequences},
                                                    {m.frequency, sequences},
                                                    {m.promptTokens, sequences},
                                                    {m.blockTable, sequences * layout.maxBlocksPerSequence}};
    uint64_t end = sizeof(IterationMeta);
    for (const auto &[offset, bytes] : arrays) {
      EXPECT_GE(offset, end);
      EXPECT_EQ(offset % 64, 0u);
      end = offset + bytes;
    }
    EXPECT_LE(end, metaBytes(layout));
    EXPECT_LT(metaBytes(layout) - end, 256u);
    EXPECT_EQ(metaBytes(layout) % 256, 0u);
    EXPECT_EQ(m.tableStride, layout.maxBlocksPerSequence);
    // An iteration without sequences uses no block table; one with all of them all of it.
    EXPECT_EQ(metaBytesInUse(m), m.blockTable);
    m.numSequences = static_cast<int32_t>(layout.maxSequences);
    EXPECT_EQ(metaBytesInUse(m), end);
    m.numSequences = 0;
    EXPECT_EQ(m.numTokens + m.numSequences + m.numSampled, 0);
    EXPECT_EQ(m.iteration, 0u);
  }
}

// Of several mini-batches headers lie as far apart as one's arrays take; block tables are behind all of them, none of
// which has a row yet, and all have room for every row.
TEST(IterationMetaLayout, OfMiniBatchesTablesAreBehindAllArrays) {
  for (const MetaLayout &layout : {MetaLayout{1, 1, 1}, MetaLayout{7, 3, 5}, MetaLayout{64, 32, 512}})
    for (const uint32_t count : {1u, 2u, 5u, kMostMiniBatches}) {
      std::vector<uint64_t> words(metaBytes(layout, count) / sizeof(uint64_t));
      auto *const first = reinterpret_cast<IterationMeta *>(words.data());
      initMetas(layout, count, first);
      IterationMeta alone;
      initMeta(layout, &alone);
      const uint64_t apart = metaFixedBytes(layout);
      EXPECT_EQ(apart, alone.blockTable);
      EXPECT_EQ(apart % 64, 0u);
      for (uint32_t i = 0; i < count; ++i) {
        const IterationMeta *const own = metaOf(layout, first, i);
        EXPECT_EQ(reinterpret_cast<const char *>(own) - reinterpret_cast<const char *>(first), i * apart);
        EXPECT_EQ(i * apart + own->blockTable, count * apart);
        EXPECT_EQ(own->promptTokens, alone.promptTokens);
      }
      const uint64_t end = count * (apart + layout.maxSequences * layout.maxBlocksPerSequence * sizeof(int32_t));
      EXPECT_GE(metaBytes(layout, count), end);
      EXPECT_LT(metaBytes(layout, count) - end, 256u);
      EXPECT_EQ(metaBytes(layout, count) % 256, 0u);
    }
}

TEST(Half, EveryF16AndBf16ValueSurvivesTheRoundTrip) {
  for (uint32_t i = 0; i < 65536; ++i) {
    const uint16_t half = static_cast<uint16_t>(i);
    const float a = floatFromF16(half), b = floatFromBf16(half);
    if (std::isnan(a))
      EXPECT_TRUE(std::isnan(floatFromF16(f16FromFloat(a))));
    else
      EXPECT_EQ(f16FromFloat(a), half);
    if (std::isnan(b))
      EXPECT_TRUE(std::isnan(floatFromBf16(bf16FromFloat(b))));
    else
      EXPECT_EQ(bf16FromFloat(b), half);
  }
}

TEST(Half, NarrowingTakesTheNearestAndTheEvenOneOfTwo) {
  for (uint32_t i = 0; i < 0x7bff; ++i) { // every pair of neighbours among the finite positive F16 values
    const float low = floatFromF16(static_cast<uint16_t>(i)), high = floatFromF16(static_cast<uint16_t>(i + 1));
    const float middle = low + (high - low) / 2; // exact in F32
    EXPECT_EQ(f16FromFloat(middle), i % 2 == 0 ? i : i + 1);
    EXPECT_EQ(f16FromFloat(std::nextafter(middle, 0.0f)), i);
    EXPECT_EQ(f16FromFloat(std::nextafter(middle, INFINITY)), i + 1);
  }
  EXPECT_EQ(f16FromFloat(65519.996f), 0x7bff); // 65504 is the largest; from 65520 on it is infinity
  EXPECT_EQ(f16FromFloat(65520.0f), 0x7c00);
  EXPECT_EQ(f16FromFloat(-INFINITY), 0xfc00);
  EXPECT_EQ(bf16FromFloat(1.00390625f), 0x3f80); // 1 + 2^-8, halfway: even is 1
  EXPECT_EQ(bf16FromFloat(1.01171875f), 0x3f82); // 1 + 3 * 2^-8, halfway: even is 1 + 2^-6
  EXPECT_EQ(bf16FromFloat(3.4e38f), 0x7f80);     // past the largest BF16: infinity
  EXPECT_EQ(floatFromF16(1), 0x1p-24f);
}

} // namespace
} // namespace headrace::kernels
