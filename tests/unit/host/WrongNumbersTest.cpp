// SPDX-License-Identifier: Apache-2.0
#include "runtime/host/WrongNumbers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/Half.h"

namespace headrace::host {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Room for 4 rows and 3 sampled ones, of which 2 and 1 are in use.
class Meta {
public:
  Meta() : words_(kernels::metaBytes(kLayout) / sizeof(uint64_t)) {
    kernels::initMeta(kLayout, get());
    get()->numTokens = 2;
    get()->numSampled = 1;
  }
  kernels::IterationMeta *get() { return reinterpret_cast<kernels::IterationMeta *>(words_.data()); }

private:
  static constexpr kernels::MetaLayout kLayout{4, 3, 2};
  std::vector<uint64_t> words_;
};

TEST(FirstWrongNumber, LooksAtTheRowsInUseByRowAndColumn) {
  Meta meta;
  std::vector<float> y(4 * 5, 1.0f);
  const kernels::LinearArgs args{.count = &meta.get()->numTokens,
                                 .y = y.data(),
                                 .n = 5,
                                 .activation = kernels::Elem::F32,
                                 .result = kernels::Elem::F32};
  EXPECT_FALSE(firstWrongNumber(args).has_value());
  y[2 * 5] = y[3 * 5 + 4] = kNan; // padded rows
  EXPECT_FALSE(firstWrongNumber(args).has_value());
  y[1 * 5 + 3] = -std::numeric_limits<float>::infinity();
  y[1 * 5 + 4] = kNan;
  const auto found = firstWrongNumber(args);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->row, 1);
  EXPECT_EQ(found->column, 3);
  EXPECT_TRUE(std::isinf(found->value));
}

TEST(FirstWrongNumber, CountsSampledRowsWhereTheStepDoes) {
  Meta meta;
  std::vector<float> y(3 * 4, 1.0f);
  const kernels::GatherRowsArgs gather{.meta = meta.get(), .y = y.data(), .hidden = 4};
  y[4] = kNan; // of the second, which is not in use
  EXPECT_FALSE(firstWrongNumber(gather).has_value());
  y[3] = kNan;
  ASSERT_TRUE(firstWrongNumber(gather).has_value());
  EXPECT_EQ(firstWrongNumber(gather)->column, 3);
  const kernels::EmbedArgs embed{.meta = meta.get(), .x = y.data(), .hidden = 4};
  EXPECT_EQ(firstWrongNumber(embed)->row, 0);
}

// A cache of F16 holds less than the F32 that is written to it: rows 0 and 1 are in slots 9 and 6 of blocks of 4.
TEST(FirstWrongNumber, LooksAtWhatTheCacheMadeOfKeysAndValues) {
  constexpr int64_t kHeads = 4, kKvHeads = 2, kHeadDim = 8, kBlock = 4, kBlocks = 3;
  Meta meta;
  int32_t *slots = meta.get()->array<int32_t>(meta.get()->kvSlot);
  slots[0] = 9;
  slots[1] = 6;
  std::vector<float> qkv(4 * (kHeads + 2 * kKvHeads) * kHeadDim, 70000.0f); // finite
  const uint16_t infinity = kernels::f16FromFloat(70000.0f);
  std::vector<uint16_t> kv(kBlocks * 2 * kKvHeads * kBlock * kHeadDim, 0);
  const kernels::RopeAppendArgs args{.meta = meta.get(),
                                     .qkv = qkv.data(),
                                     .kv = kv.data(),
                                     .segments =
                                         kernels::oneRun(kBlocks, kernels::kvBlockElements(kKvHeads, kBlock, kHeadDim)),
                                     .heads = kHeads,
                                     .kvHeads = kKvHeads,
                                     .headDim = kHeadDim,
                                     .blockTokens = kBlock,
                                     .kvElem = kernels::Elem::F16,
                                     .activation = kernels::Elem::F32};
  const auto at = [&](int64_t block, int64_t part, int64_t head, int64_t row, int64_t d) -> uint16_t & {
    return kv[static_cast<size_t>((((block * 2 + part) * kKvHeads + head) * kBlock + row) * kHeadDim + d)];
  };
  at(0, 0, 0, 0, 0) = at(1, 1, 1, 3, 7) = at(2, 0, 0, 2, 0) = infinity; // the scratch block, and others' rows
  EXPECT_FALSE(firstWrongNumber(args).has_value());
  at(1, 1, 1, 2, 5) = infinity; // slot 6: the value of the second kv head
  const auto found = firstWrongNumber(args);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->row, 1);
  EXPECT_EQ(found->column, (kHeads + kKvHeads + 1) * kHeadDim + 5);
  qkv[3] = kNan; // what was rotated comes first
  EXPECT_EQ(firstWrongNumber(args)->row, 0);
  EXPECT_EQ(firstWrongNumber(args)->column, 3);
}

} // namespace
} // namespace headrace::host
