// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/BoxedImpl.h"

#include <string>
#include <type_traits>
#include <vector>

#include "gtest/gtest.h"

namespace headrace::model {
namespace {

TEST(Boxed, IsCopiedAsItsValueIs) {
  Boxed<std::string> a = std::string("one");
  Boxed<std::string> b = a;
  *b += " more";
  EXPECT_EQ(*a, "one");
  EXPECT_EQ(*b, "one more");
  a = b;
  b->clear();
  EXPECT_EQ(*a, "one more");
  EXPECT_EQ(*Boxed<std::string>(), "");
  const std::string &plain = a;
  EXPECT_EQ(plain, "one more");
}

TEST(Boxed, MovesWithoutCopyingAndMayBeAssignedAfterwards) {
  static_assert(std::is_nothrow_move_constructible_v<Boxed<std::string>>);
  Boxed<std::string> a = std::string("one");
  const std::string *at = &*a;
  Boxed<std::string> b = std::move(a);
  EXPECT_EQ(&*b, at);
  a = Boxed<std::string>(std::string("two"));
  EXPECT_EQ(*a, "two");
  const Boxed<std::string> &same = a;
  a = same; // to itself
  EXPECT_EQ(*a, "two");
}

} // namespace
} // namespace headrace::model
