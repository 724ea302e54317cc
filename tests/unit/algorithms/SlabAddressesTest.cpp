// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "passes/algorithms/SlabAddresses.h"

namespace headrace::algorithms {
namespace {

using ::testing::HasSubstr;

std::string refusedAddresses(std::string_view text) {
  std::string error;
  EXPECT_FALSE(slabAddressesFromText(text, error).has_value()) << text;
  return error;
}

TEST(SlabAddresses, AreReadBackFromWhatTheyPrint) {
  const SlabAddresses some = {{{{MovableKind::Residual, 1}}, 65536},
                              {{{MovableKind::Kv, 0}, 1}, 8192},
                              {{{MovableKind::Kv, 0}}, 4096},
                              {{{MovableKind::Act, 2}}, 0},
                              {{{MovableKind::Weight, 12}}, uint64_t{1} << 40}};
  const std::string text = "weight:12@1099511627776 kv:0@4096 kv:0.1@8192 act:2@0 residual:1@65536";
  EXPECT_EQ(toText(some), text);
  std::string error;
  EXPECT_EQ(slabAddressesFromText(text, error), some);
  EXPECT_EQ(slabAddressesFromText("", error), SlabAddresses());
}

TEST(SlabAddresses, WhatIsNoneOfThemIsNamed) {
  for (const char *text : {"weight:1", "weight@1", "unit:1@0", "weight:-1@0", "kv:0.@0", "kv:.1@0", "kv:0@", "kv:0@-8",
                           "kv:0@8.5", "@:", "weight:99999999999@0"})
    EXPECT_THAT(refusedAddresses(text), HasSubstr("have '" + std::string(text) + "', expected such as weight:3@4096"))
        << text;
  EXPECT_EQ(refusedAddresses("kv:0@0 kv:0.0@256"), "have 'kv:0.0' twice");
}

} // namespace
} // namespace headrace::algorithms
