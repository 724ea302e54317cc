// SPDX-License-Identifier: Apache-2.0
//
// What the oracle accepts keeps every row, launch after launch, whatever the launches' sizes.
#include "tests/unit/plan/Replay.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "tests/support/LongRun.h"
#include "tests/unit/plan/MakePlan.h"
#include "tests/unit/plan/Mutations.h"
#include "tests/unit/plan/Oracle.h"

namespace headrace::plan {
namespace {

std::vector<test::NamedOptions> movingPlans(uint64_t seeds) {
  std::vector<test::NamedOptions> out = test::splitPlans(), back = test::writeBackPlans();
  out.insert(out.end(), back.begin(), back.end());
  for (uint64_t seed = 0; seed < seeds; ++seed)
    out.push_back(test::randomSplitPlan(seed));
  return out;
}

TEST(PlanReplay, KeepsEveryRow) {
  for (const test::NamedOptions &named : movingPlans(casesOf(20, 400))) {
    const Plan plan = test::makePlan(named.options);
    for (uint64_t seed = 0; seed < 3; ++seed)
      ASSERT_EQ(test::replay(plan, seed, casesOf(40, 200)), "") << named.name << ", seed " << seed;
  }
}

// Mutations of what moves when: those that the oracle accepts keep every row as well, and many of the others do not.
TEST(PlanReplay, LosesRowsOnlyWhereTheOracleFindsAFault) {
  const int wanted = casesOf(100, 4000);
  const std::set<Rule> seen = {Rule::StaleCopy, Rule::ReadBeforeReady, Rule::OverwriteLive};
  std::vector<Plan> plans;
  for (const test::NamedOptions &named : movingPlans(casesOf(10, 100)))
    plans.push_back(test::makePlan(named.options));
  std::vector<test::Mutation> mutations = test::writeBackMutations(), more = test::mutations();
  mutations.insert(mutations.end(), test::cycleMutations().begin(), test::cycleMutations().end());
  mutations.insert(mutations.end(), more.begin(), more.end());
  test::Random random(20261124);
  int harmless = 0, lost = 0, stale = 0;
  for (size_t turn = 0; harmless < wanted; ++turn) {
    Plan plan = plans[random() % plans.size()];
    const test::Mutation &mutation = mutations[turn % mutations.size()];
    if (!mutation.apply(plan, random))
      continue;
    const std::set<Rule> rules = test::brokenRules(plan);
    if (rules.empty()) {
      ASSERT_EQ(test::replay(plan, turn, 30), "") << mutation.name << ", turn " << turn;
      ++harmless;
    } else if (rules.size() == 1 && seen.contains(*rules.begin())) {
      ++stale;
      lost += test::replay(plan, turn, 30).empty() ? 0 : 1;
    }
  }
  EXPECT_GE(stale, wanted / 4);
  EXPECT_GE(lost, stale / 2);
  RecordProperty("stale", stale);
  RecordProperty("lost", lost);
}

// Those whose placements can be changed.
std::vector<test::NamedOptions> replayable(std::vector<test::NamedOptions> plans) {
  std::erase_if(plans, [](const test::NamedOptions &named) {
    return named.options.placements.size() > 1 && !named.options.switches;
  });
  return plans;
}

// Of several mini-batches, and of residuals that leave.
TEST(PlanReplay, KeepsEveryResidual) {
  std::vector<test::NamedOptions> plans = replayable(test::residualPlans()), more = replayable(test::miniBatchPlans());
  plans.insert(plans.end(), more.begin(), more.end());
  for (int seed = 0; seed < casesOf(20, 200); ++seed)
    plans.push_back(test::randomResidualPlan(seed));
  for (const test::NamedOptions &named : plans)
    ASSERT_EQ(test::replay(test::makePlan(named.options), 1, casesOf(10, 100)), "") << named.name;
}

// Of what the cpu lane works on: rows and iteration buffers of the launch, and caches at home.
TEST(PlanReplay, KeepsTheRowsOfTheCpuLane) {
  std::vector<test::NamedOptions> plans = replayable(test::cpuPlans());
  for (int seed = 0; seed < casesOf(20, 400); ++seed)
    plans.push_back(test::randomCpuPlan(seed));
  for (const test::NamedOptions &named : plans)
    ASSERT_EQ(test::replay(test::makePlan(named.options), 1, casesOf(10, 100)), "") << named.name;
}

// Keys and values that are made from activation blocks have all rows when attention reads them.
TEST(PlanReplay, KeepsTheRowsOfActivationBlocks) {
  std::vector<test::NamedOptions> plans = replayable(test::actPlans());
  for (int seed = 0; seed < casesOf(20, 400); ++seed)
    plans.push_back(test::randomActPlan(seed));
  for (const test::NamedOptions &named : replayable(plans))
    ASSERT_EQ(test::replay(test::makePlan(named.options), 1, casesOf(10, 100)), "") << named.name;
}

// The same of those at home on the host, of which a launch brings what is in use.
TEST(PlanReplay, KeepsTheRowsOfActivationBlocksOnTheHost) {
  std::vector<test::NamedOptions> plans = replayable(test::hostActPlans());
  for (int seed = 0; seed < casesOf(20, 400); ++seed)
    plans.push_back(test::randomHostActPlan(seed));
  for (const test::NamedOptions &named : replayable(plans))
    ASSERT_EQ(test::replay(test::makePlan(named.options), 1, casesOf(10, 100)), "") << named.name;
}

// Until so many mutations are none to the oracle: these keep every row, and of some of the others three in four do not.
void loseRows(const std::vector<test::NamedOptions> &of, const std::vector<test::Mutation> &mutations,
              const std::set<std::string> &losing, int wanted, uint64_t seed) {
  std::vector<Plan> plans;
  for (const test::NamedOptions &named : replayable(of))
    plans.push_back(test::makePlan(named.options));
  test::Random random(seed);
  std::map<std::string, std::pair<int, int>> lost; // by mutation: plans that lose rows, of all
  int harmless = 0;
  for (size_t turn = 0; harmless < wanted; ++turn) {
    Plan plan = plans[random() % plans.size()];
    const test::Mutation &mutation = mutations[turn % mutations.size()];
    if (!mutation.apply(plan, random))
      continue;
    const std::set<Rule> rules = test::brokenRules(plan);
    if (rules.empty()) {
      ASSERT_EQ(test::replay(plan, turn, 20), "") << mutation.name << ", turn " << turn;
      ++harmless;
    } else if (losing.contains(mutation.name)) {
      lost[mutation.name].first += test::replay(plan, turn, 20).empty() ? 0 : 1;
      ++lost[mutation.name].second;
    }
  }
  for (const std::string &name : losing) {
    EXPECT_GE(lost[name].second, wanted / 20) << name;
    EXPECT_GE(lost[name].first, lost[name].second * 3 / 4) << name << ", of " << lost[name].second;
  }
}

// Of activation blocks most faults are of structure, so that the rules do not tell which of them lose rows.
TEST(PlanReplay, LosesRowsOfActivationBlocksOnlyWhereTheOracleFindsAFault) {
  const int wanted = casesOf(40, 4000);
  const std::set<std::string> losing = {"rebuild behind the append",
                                        "keep no rows",
                                        "rebuild nothing",
                                        "use what was rebuilt for another",
                                        "rebuild into another's transient",
                                        "rebuild once more",
                                        "overwrite what was rebuilt"};
  loseRows(test::actPlans(), test::actMutations(), losing, wanted, 20261128);
}

// Of those on the host, what is read that is not the latest is no loss: an iteration rebuilds earlier rows only.
TEST(PlanReplay, LosesRowsOfActivationBlocksOnTheHostOnlyWhereTheOracleFindsAFault) {
  const std::set<std::string> losing = {"rebuild from another slot", "overwrite a slot of activation blocks",
                                        "bring no activation blocks", "bring activation blocks too early"};
  std::vector<test::Mutation> mutations = test::actHomeMutations(), more = test::mutations();
  mutations.insert(mutations.end(), more.begin(), more.end());
  loseRows(test::hostActPlans(), mutations, losing, casesOf(20, 1000), 20261129);
}

TEST(PlanReplay, LosesRowsOfTheCpuLaneOnlyWhereTheOracleFindsAFault) {
  const std::set<std::string> losing = {"read before the copy is there", "leave a copy down out",
                                        "rotate behind the copy"};
  loseRows(test::cpuPlans(), test::cpuMutations(), losing, casesOf(20, 1000), 20261130);
}

// Rows that come from another stage, and those that go to one.
TEST(PlanReplay, KeepsTheRowsOfStages) {
  std::vector<test::NamedOptions> plans = replayable(test::stagePlans());
  for (int seed = 0; seed < casesOf(20, 400); ++seed)
    plans.push_back(test::randomStagePlan(seed));
  for (const test::NamedOptions &named : replayable(plans))
    ASSERT_EQ(test::replay(test::makePlan(named.options), 1, casesOf(10, 100)), "") << named.name;
}

TEST(PlanReplay, LosesTheRowsOfStagesOnlyWhereTheOracleFindsAFault) {
  const std::set<std::string> losing = {"read the stream before it has come", "leave the receive out",
                                        "send before the last sum", "leave the send out", "publish before the send"};
  std::vector<test::Mutation> mutations = test::stageMutations(), more = test::residualMutations();
  mutations.insert(mutations.end(), more.begin(), more.end());
  loseRows(test::stagePlans(), mutations, losing, casesOf(20, 1000), 20261201);
}

TEST(PlanReplay, LosesResidualsOnlyWhereTheOracleFindsAFault) {
  const int wanted = casesOf(10, 2000);
  const std::set<Rule> seen = {Rule::StaleCopy, Rule::ReadBeforeReady, Rule::OverwriteLive, Rule::UseAfterRelease,
                               Rule::EntryExit};
  std::vector<Plan> plans;
  for (const test::NamedOptions &named : replayable(test::residualPlans()))
    plans.push_back(test::makePlan(named.options));
  const std::vector<test::Mutation> mutations = test::residualMutations();
  test::Random random(20261127);
  int harmless = 0, lost = 0, broken = 0;
  for (size_t turn = 0; harmless < wanted; ++turn) {
    Plan plan = plans[random() % plans.size()];
    const test::Mutation &mutation = mutations[turn % mutations.size()];
    if (!mutation.apply(plan, random))
      continue;
    const std::set<Rule> rules = test::brokenRules(plan);
    if (rules.empty()) {
      ASSERT_EQ(test::replay(plan, turn, 20), "") << mutation.name << ", turn " << turn;
      ++harmless;
    } else if (std::includes(seen.begin(), seen.end(), rules.begin(), rules.end())) {
      ++broken;
      lost += test::replay(plan, turn, 20).empty() ? 0 : 1;
    }
  }
  EXPECT_GE(broken, wanted);
  EXPECT_GE(lost, broken / 2);
  RecordProperty("broken", broken);
  RecordProperty("lost", lost);
}

} // namespace
} // namespace headrace::plan
