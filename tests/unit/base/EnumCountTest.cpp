// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/EnumCount.h"

#include <cstdint>

#include "gtest/gtest.h"

namespace headrace::model {

enum class Colour : uint8_t { Red = 0, Green = 1, Blue2 = 2 };
enum class OneMore : uint8_t { Red = 0, Green = 1, Blue2 = 2, Black = 3 };
enum class OtherName : uint8_t { Red = 0, Green = 1, Blue = 2 };
enum class OtherOrder : uint8_t { Green = 0, Red = 1, Blue2 = 2 };
namespace {
enum class Hidden : uint8_t { Only = 0 };
}

namespace {

TEST(EnumCount, ReadsTheEnumeratorsOffTheEnumeration) {
  EXPECT_EQ(enumCount<Colour>(), 3);
  EXPECT_EQ(enumCount<OneMore>(), 4);
  EXPECT_EQ(enumCount<Hidden>(), 1);
  EXPECT_EQ(enumeratorName<Colour::Blue2>(), "Blue2");
  EXPECT_EQ(enumeratorName<Hidden::Only>(), "Only");
  EXPECT_EQ(enumeratorName<static_cast<Colour>(3)>(), "");
  EXPECT_EQ(enumeratorName<static_cast<Hidden>(1)>(), "");
}

TEST(EnumCount, MirrorsHaveTheSameNamesForTheSameValues) {
  EXPECT_TRUE((mirrors<Colour, Colour>()));
  EXPECT_FALSE((mirrors<Colour, OneMore>()));
  EXPECT_FALSE((mirrors<Colour, OtherName>()));
  EXPECT_FALSE((mirrors<Colour, OtherOrder>()));
  EXPECT_TRUE((extends<Colour, OneMore>()));
  EXPECT_FALSE((extends<OneMore, Colour>()));
  EXPECT_FALSE((extends<OtherOrder, OneMore>()));
}

} // namespace
} // namespace headrace::model
