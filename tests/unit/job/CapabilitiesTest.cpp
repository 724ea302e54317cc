// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/Capabilities.h"

#include <gmock/gmock.h>

#include <set>
#include <utility>

namespace headrace::model {
namespace {

using testing::HasSubstr;

TEST(Capabilities, ATableHasNoPairTwiceAndNoneWithoutAReason) {
  std::set<std::pair<Mechanism, Mechanism>> seen;
  for (const Clash &clash : allClashes()) {
    EXPECT_NE(clash.a, clash.b);
    EXPECT_FALSE(clash.why.empty());
    EXPECT_TRUE(seen.insert(std::minmax(clash.a, clash.b)).second)
        << mechanismName(clash.a) << " and " << mechanismName(clash.b);
    EXPECT_EQ(whyNotBeside(clash.a, clash.b), clash.why);
    EXPECT_EQ(whyNotBeside(clash.b, clash.a), clash.why);
  }
  EXPECT_EQ(whyNotBeside(Mechanism::KvOnHost, Mechanism::MiniBatches), "");
}

TEST(Capabilities, EveryMechanismHasANameOfItsOwn) {
  std::set<std::string_view> names;
  for (size_t i = 0; i < kMechanisms; ++i)
    EXPECT_TRUE(names.insert(mechanismName(static_cast<Mechanism>(i))).second) << i;
  EXPECT_FALSE(names.contains(""));
}

// Of every clash, said in either order; and no two that are not in the table.
TEST(Capabilities, WhatClashesIsSaidWithTheTablesReason) {
  for (size_t i = 0; i < kMechanisms; ++i)
    for (size_t j = 0; j < kMechanisms; ++j) {
      const auto a = static_cast<Mechanism>(i), b = static_cast<Mechanism>(j);
      const absl::Status status = checkBeside({{a, "first = 1"}, {b, "second = 2"}});
      const std::string_view why = whyNotBeside(a, b);
      EXPECT_EQ(status.ok(), why.empty()) << i << " " << j;
      if (status.ok())
        continue;
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(std::string(status.message()), HasSubstr(" = 1"));
      EXPECT_THAT(std::string(status.message()), HasSubstr(" = 2"));
      EXPECT_THAT(std::string(status.message()), HasSubstr("expected one of them: " + std::string(why)));
    }
}

TEST(Capabilities, TheFirstOfTheTableIsSaidWithWhatIsExpected) {
  EXPECT_EQ(
      checkBeside({{Mechanism::ItemByItem, "policy.start_rule = \"paper\"", "start rule eager"},
                   {Mechanism::Expansion, "goal.expansion = 2"},
                   {Mechanism::KvPlaces, "policy.kv_places = 3"}})
          .message(),
      "policy.kv_places = 3 beside goal.expansion = 2: expected one of them: each says what KV takes of the device");
  EXPECT_EQ(checkBeside({{Mechanism::ItemByItem, "policy.start_rule = \"paper\"", "start rule eager"},
                         {Mechanism::KvPlaces, "policy.kv_places = 3"}})
                .message(),
            "policy.kv_places = 3 beside policy.start_rule = \"paper\": expected start rule eager: what an iteration "
            "writes moves under the rule eager alone");
  EXPECT_TRUE(checkBeside({}).ok());
}

} // namespace
} // namespace headrace::model
