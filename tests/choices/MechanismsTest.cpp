// SPDX-License-Identifier: Apache-2.0
//
// The rows cover what placements are made of: each mechanism of the table of what does not stand beside what, or it is
// said here why it is no placement's; and every two that do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "tests/choices/Cell.h"

namespace headrace::choices {
namespace {

using model::Mechanism;

// Mechanisms that no choice states, so that no row can.
const std::map<Mechanism, std::string_view> kNoPlacements = {
    {Mechanism::InstancesApart, "of a goal: prompts and decoding on two instances (tests/conformance/Fleet*Test.cpp)"},
    {Mechanism::HandOver, "of a fleet (tests/conformance/SplitHandoverTest.cpp)"},
    {Mechanism::SwapSpace, "of an engine (tests/conformance/EngineTest.cpp, tests/golden/SwapTest.cpp)"},
    {Mechanism::WeightsOnly, "of a policy; what it makes are rows of weights"},
    {Mechanism::Stages, "of several devices (tests/conformance/StagesTest.cpp)"},
};
TEST(Mechanisms, EachHasARowOrIsNoPlacements) {
  std::set<Mechanism> used;
  for (const Row &row : rows()) {
    const auto placements = placementsOf(row.choices);
    EXPECT_TRUE(placements.ok()) << row.name << ": " << placements.status();
    used.merge(mechanismsOf(row));
  }
  for (size_t m = 0; m < model::kMechanisms; ++m) {
    const auto mechanism = static_cast<Mechanism>(m);
    EXPECT_NE(used.count(mechanism), kNoPlacements.count(mechanism))
        << model::mechanismName(mechanism)
        << " has to have a row in tests/choices/Rows.cpp, or a reason here why it cannot; not both";
  }
}

// Two that nothing speaks against, and that are in no row all the same.
struct Apart {
  Mechanism a, b;
  std::string_view why;
};
constexpr std::string_view kSplitDoesNotGrow = "caches that are split do not grow";
constexpr std::string_view kNeedsActs = "there are no activation blocks beside it";
constexpr Apart kApart[] = {
    {Mechanism::KvPlaces, Mechanism::SwappedLayers, "of a choice the same entry, without kv-fifo and with it"},
    {Mechanism::WriteBackInPart, Mechanism::ItemByItem, "no way to write back is stated beside it"},
    {Mechanism::ActsOnHost, Mechanism::AttentionOnCpu, kNeedsActs},
    {Mechanism::ActsOnHost, Mechanism::Expansion, kNeedsActs},
    {Mechanism::ActsOnHost, Mechanism::KvPlaces, kNeedsActs},
    {Mechanism::ActsOnHost, Mechanism::SwappedLayers, kNeedsActs},
    {Mechanism::ActsOnHost, Mechanism::ElasticKv, kNeedsActs},
    {Mechanism::ElasticKv, Mechanism::KvOnHost, kSplitDoesNotGrow},
    {Mechanism::ElasticKv, Mechanism::Expansion, kSplitDoesNotGrow},
    {Mechanism::ElasticKv, Mechanism::KvPlaces, kSplitDoesNotGrow},
    {Mechanism::ElasticKv, Mechanism::WriteBack, kSplitDoesNotGrow},
    {Mechanism::ElasticKv, Mechanism::WriteBackInPart, kSplitDoesNotGrow},
    {Mechanism::ElasticKv, Mechanism::SwappedLayers, kSplitDoesNotGrow},
};
std::string_view whyApart(Mechanism a, Mechanism b) {
  for (const Apart &apart : kApart)
    if ((apart.a == a && apart.b == b) || (apart.a == b && apart.b == a))
      return apart.why;
  return model::whyNotBeside(a, b);
}

TEST(Mechanisms, EveryTwoThatStandBesideEachOtherDoInSomeRow) {
  for (size_t a = 0; a < model::kMechanisms; ++a)
    for (size_t b = 0; b < a; ++b) {
      const auto one = static_cast<Mechanism>(a), other = static_cast<Mechanism>(b);
      if (kNoPlacements.contains(one) || kNoPlacements.contains(other))
        continue;
      std::string_view with;
      for (const Row &row : rows())
        if (const std::set<Mechanism> used = mechanismsOf(row); used.contains(one) && used.contains(other))
          with = row.name;
      const std::string_view apart = whyApart(one, other);
      EXPECT_EQ(with.empty(), !apart.empty())
          << model::mechanismName(one) << " beside " << model::mechanismName(other) << ": "
          << (with.empty() ? "no row of tests/choices/Rows.cpp has both" : with) << "; " << apart;
    }
}

// Names are of tests, and each row is another one.
TEST(Rows, DifferByNameAndByWhatTheyChoose) {
  std::set<std::string_view> names;
  std::set<std::pair<std::string_view, int64_t>> choices;
  for (const Row &row : rows()) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_TRUE(choices.insert({row.choices, row.goal.batch}).second) << row.name;
    EXPECT_TRUE(std::all_of(row.name.begin(), row.name.end(), [](char c) {
      return c == '_' || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    })) << row.name;
  }
}

} // namespace
} // namespace headrace::choices
