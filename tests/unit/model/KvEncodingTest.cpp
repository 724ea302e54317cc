// SPDX-License-Identifier: Apache-2.0
#include "runtime/model/KvEncoding.h"

#include <gtest/gtest.h>

namespace headrace::model {
namespace {

TEST(KvEncoding, IsWrittenWithoutItsGroup) {
  for (const char *text : {"f32", "f16", "bf16", "q8", "q4"}) {
    const std::optional<Encoding> encoding = kvEncodingFromText(text);
    ASSERT_TRUE(encoding) << text;
    EXPECT_EQ(kvEncodingText(*encoding), text);
    EXPECT_EQ(encoding->packed(), text[0] == 'q');
  }
  EXPECT_EQ(kvEncodingText(Encoding::groups(4, 32)), "q4");
  for (const char *text : {"", "auto", "q3", "q4:32", "q4:64", "q8_0", "Q4", "int8"})
    EXPECT_FALSE(kvEncodingFromText(text)) << text;
}

TEST(KvEncoding, HasTheLargestGroupThatDividesAHead) {
  const Encoding q4 = Encoding::groups(4);
  for (const int64_t head : {64, 128, 192, 256})
    EXPECT_EQ(kvEncodingFor(q4, head), Encoding::groups(4, 64)) << head;
  for (const int64_t head : {32, 96, 160})
    EXPECT_EQ(kvEncodingFor(q4, head), Encoding::groups(4, 32)) << head;
  for (const int64_t head : {1, 16, 63, 65, 80, 112, 120})
    EXPECT_EQ(kvEncodingFor(q4, head), std::nullopt) << head;
  EXPECT_EQ(kvEncodingFor(Encoding::groups(8, 32), 128), Encoding::groups(8, 64)); // whatever was said before
  EXPECT_EQ(kvEncodingFor(DType::F16, 80), Encoding(DType::F16));
}

TEST(KvEncoding, IsRefusedByTheHeadSize) {
  EXPECT_EQ(kvEncodingRefusal(Encoding::groups(8), 128), "");
  EXPECT_EQ(kvEncodingRefusal(DType::BF16, 80), "");
  EXPECT_EQ(kvEncodingRefusal(Encoding::groups(8), 80),
            "f32, f16 or bf16: q8 has groups of 64 or 32 inside one token's head, and neither divides a head of 80");
}

} // namespace
} // namespace headrace::model
