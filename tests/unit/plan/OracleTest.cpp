// SPDX-License-Identifier: Apache-2.0
//
// The oracle alone, on plans with caches that are split.
#include "tests/unit/plan/Oracle.h"

#include <gtest/gtest.h>

#include <map>

#include "runtime/model/ModelSpec.h"
#include "tests/support/ShuffleBuffers.h"
#include "tests/unit/plan/MakePlan.h"
#include "tests/unit/plan/Mutations.h"
#include "tests/unit/plan/Replay.h"
#include "tests/unit/plan/WriteBackCases.h"

namespace headrace::plan {
namespace {

std::string names(const std::set<Rule> &rules) {
  std::string out;
  for (const Rule rule : rules)
    out += std::string(out.empty() ? "" : ", ") + ruleName(rule);
  return out.empty() ? "none" : out;
}

TEST(PlanOracle, FindsNothingWrongInPlansWhoseCachesAreSplit) {
  for (const test::NamedOptions &named : test::splitPlans()) {
    const Plan plan = test::makePlan(named.options);
    EXPECT_EQ(names(test::brokenRules(plan)), "none") << named.name;
    EXPECT_EQ(names(test::brokenRules(test::withShuffledBuffers(plan, 1))), "none") << named.name << ", shuffled";
  }
}

TEST(PlanOracle, FindsNothingWrongInPlansThatWriteBack) {
  std::set<std::string> parts;
  std::vector<test::NamedOptions> all = test::writeBackPlans();
  for (uint64_t seed = 0; seed < 100; ++seed)
    all.push_back(test::randomSplitPlan(seed));
  for (const test::NamedOptions &named : all) {
    const Plan plan = test::makePlan(named.options);
    EXPECT_EQ(names(test::brokenRules(plan)), "none") << named.name;
    EXPECT_EQ(names(test::brokenRules(test::withShuffledBuffers(plan, 1))), "none") << named.name << ", shuffled";
    parts.merge(test::partsOfSplit(plan));
  }
  EXPECT_EQ(parts.size(), 18u);
}

// And in those that the verifier's tests put together otherwise.
TEST(PlanOracle, FindsNothingWrongInPlansOfAnotherHand) {
  for (const test::WriteBack how : test::kWriteBacks)
    for (const int64_t resident : {0, 1, 2}) {
      const std::string what = std::string(test::name(how)) + ", " + std::to_string(resident) + " resident";
      const test::Tails cycle = test::cycle(resident, how);
      for (const Plan &plan :
           {test::tailPlan(4, {test::turns(resident, how)}), test::tailPlan(3, {cycle}),
            test::tailPlan(3, {cycle, test::turns(1, how, 2, 3)}), test::tailPlan(3, {cycle, {3, 3, 0, true, {}}})}) {
        EXPECT_EQ(names(test::brokenRules(plan)), "none") << what;
        EXPECT_EQ(test::replay(plan, 1, 100), "") << what;
      }
    }
}

// By mutation, the lists of rules that it broke: mutations of these plans, each in those in which it can be made, until
// it has broken so many.
using Found = std::map<std::string, std::set<std::set<Rule>>>;
Found breakEach(const std::vector<test::Mutation> &mutations, const std::vector<test::NamedOptions> &options,
                int wanted = 20) {
  constexpr int kTurns = 4000;
  std::vector<Plan> plans;
  for (const test::NamedOptions &named : options)
    plans.push_back(test::makePlan(named.options));
  test::Random random(20261123);
  Found found;
  for (const test::Mutation &mutation : mutations) {
    int broken = 0;
    for (int turn = 0; turn < kTurns && broken < wanted; ++turn) {
      Plan plan = plans[random() % plans.size()];
      if (!mutation.apply(plan, random))
        continue;
      const std::set<Rule> rules = test::brokenRules(plan);
      broken += rules.empty() ? 0 : 1;
      found[mutation.name].insert(rules);
    }
    EXPECT_EQ(broken, wanted) << mutation.name;
  }
  return found;
}
// What nothing else gives away.
void expectAlone(Found &found, const std::string &name, Rule rule) {
  std::string others;
  for (const std::set<Rule> &rules : found[name])
    others += "\n  " + names(rules);
  EXPECT_TRUE(found[name].contains({rule})) << name << ": never " << ruleName(rule) << " alone, but" << others;
}

TEST(PlanOracle, FindsEachMutationOfThem) {
  std::vector<test::Mutation> mutations = test::splitMutations();
  mutations.insert(mutations.end(), test::mutations().begin(), test::mutations().end());
  Found found = breakEach(mutations, test::splitPlans());
  expectAlone(found, "read what is stale", Rule::StaleCopy);
  expectAlone(found, "carry what is stale", Rule::StaleCopy);
  expectAlone(found, "read a home while it is written", Rule::ReadBeforeReady);
  expectAlone(found, "read a home while it is written", Rule::OverwriteLive);
  expectAlone(found, "leave out a block of a transition", Rule::EntryExit);
  expectAlone(found, "put a home on another", Rule::HostRange);
}

TEST(PlanOracle, FindsEachMutationOfPlansThatWriteBack) {
  std::vector<test::Mutation> mutations = test::writeBackMutations();
  mutations.insert(mutations.end(), test::cycleMutations().begin(), test::cycleMutations().end());
  Found found = breakEach(mutations, test::writeBackPlans(), 40);
  const std::vector<std::pair<const char *, Rule>> alone = {
      {"drop an edge of an evict", Rule::ReadBeforeReady},
      {"drop an edge of an evict", Rule::OverwriteLive},
      {"give a slot up under an evict", Rule::OverwriteLive},
      {"evict before the append", Rule::StaleCopy},
      {"read a home beside an evict", Rule::ReadBeforeReady},
      {"read a home beside an evict", Rule::StaleCopy},
      {"leave an evict out", Rule::StaleCopy},
      {"evict less", Rule::StaleCopy},
      {"evict what is at home on the device", Rule::Structure},
      {"evict a weight", Rule::HostRange},
      {"evict in a change of placement", Rule::HostRange},
      {"change how much an evict copies", Rule::StaleCopy},
      {"change how much an evict copies", Rule::Structure},
      {"copy only what was written", Rule::Structure},
      {"append to other blocks of a home", Rule::StaleCopy},
      {"append to other blocks of a home", Rule::Structure},
      {"look for blocks where none are", Rule::Structure},
      {"change a phase", Rule::Structure},
      {"change a period", Rule::Structure},
      {"make a cycle of what is none", Rule::Structure},
      {"renumber phases", Rule::EntryExit},
      {"swap variants of two phases", Rule::Structure},
      {"change a state of a cycle", Rule::EntryExit},
      {"flip what is ahead of its home", Rule::StaleCopy},
      {"flip what is ahead of its home", Rule::EntryExit},
      {"say that a weight is ahead of its home", Rule::EntryExit},
      {"drop a flush", Rule::EntryExit},
      {"flush from or to another state", Rule::EntryExit},
      {"shorten a flush", Rule::StaleCopy},
      {"change the placement with a state ahead", Rule::EntryExit}};
  for (const auto &[name, rule] : alone)
    expectAlone(found, name, rule);
}

TEST(PlanOracle, FindsNothingWrongInPlansWithActivationBlocks) {
  std::vector<test::NamedOptions> all = test::actPlans();
  for (uint64_t seed = 0; seed < 100; ++seed)
    all.push_back(test::randomActPlan(seed));
  for (const test::NamedOptions &named : all) {
    const Plan plan = test::makePlan(named.options);
    EXPECT_EQ(names(test::brokenRules(plan)), "none") << named.name;
    EXPECT_EQ(names(test::brokenRules(test::withShuffledBuffers(plan, 1))), "none") << named.name << ", shuffled";
  }
}

TEST(PlanOracle, FindsEachMutationOfPlansWithActivationBlocks) {
  Found found = breakEach(test::actMutations(), test::actPlans());
  for (const test::Mutation &mutation : test::actMutations())
    if (const std::string &name = mutation.name; name != "rebuild before the weights' copy" &&
                                                 name != "activation blocks in one range" &&
                                                 name != "move activation blocks" && name != "copy activation blocks")
      expectAlone(found, name, Rule::Structure);
  expectAlone(found, "rebuild before the weights' copy", Rule::ReadBeforeReady);
  expectAlone(found, "rebuild before the weights' copy", Rule::EntryExit);
  EXPECT_TRUE(found["activation blocks in one range"].contains({Rule::Overlap, Rule::UseAfterRelease}));
  EXPECT_TRUE(found["copy activation blocks"].contains({Rule::HostRange, Rule::SlotTooSmall}));
  expectAlone(found, "move activation blocks", Rule::UseAfterRelease);
}

TEST(PlanOracle, FindsEachMutationOfActivationBlocksOnTheHost) {
  Found found = breakEach(test::actHomeMutations(), test::hostActPlans(), 24);
  const std::vector<std::pair<const char *, Rule>> alone = {
      {"activation blocks in a slot as keys and values", Rule::Structure},
      {"a tail as activation blocks", Rule::Structure},
      {"rebuild before the blocks' copy", Rule::ReadBeforeReady},
      {"rebuild before the blocks' copy", Rule::UseAfterRelease},
      {"rebuild from another slot", Rule::UseAfterRelease},
      {"bring another's activation blocks", Rule::UseAfterRelease},
      {"overwrite a slot of activation blocks", Rule::UseAfterRelease},
      {"bring activation blocks too early", Rule::OverwriteLive},
      {"bring activation blocks too early", Rule::UseAfterRelease},
      {"bring no activation blocks", Rule::EntryExit},
      {"bring no activation blocks", Rule::UseAfterRelease},
      {"keep rows before rebuilding", Rule::StaleCopy},
      {"bring activation blocks beside their rows", Rule::ReadBeforeReady},
      {"keep rows at another home", Rule::Structure},
      {"keep rows on the host indirectly", Rule::WrongSpace},
      {"activation blocks over another home", Rule::HostRange},
      {"another home of activation blocks in one placement", Rule::Structure},
      {"bring too few activation blocks", Rule::Structure},
      {"a slot too short for activation blocks", Rule::SlotTooSmall},
      {"carry activation blocks", Rule::EntryExit},
      {"copy activation blocks back or in a transition", Rule::HostRange},
      {"a copy of another mini-batch's activation blocks", Rule::Structure}};
  for (const auto &[name, rule] : alone)
    expectAlone(found, name, rule);
  EXPECT_TRUE(found["bring another's activation blocks"].contains({Rule::HostRange, Rule::UseAfterRelease}));
  EXPECT_TRUE(found["clear a direct mark of activation blocks"].contains({Rule::Structure, Rule::WrongSpace}));
}

TEST(PlanOracle, FindsNothingWrongInStages) {
  std::vector<test::NamedOptions> all = test::stagePlans();
  for (uint64_t seed = 0; seed < 40; ++seed)
    all.push_back(test::randomStagePlan(seed));
  for (const test::NamedOptions &named : all) {
    const Plan plan = test::makePlan(named.options);
    EXPECT_EQ(names(test::brokenRules(plan)), "none") << named.name;
    EXPECT_EQ(names(test::brokenRules(test::withShuffledBuffers(plan, 1))), "none") << named.name << ", shuffled";
  }
}

TEST(PlanOracle, FindsEachMutationOfStages) {
  Found found = breakEach(test::stageMutations(), test::stagePlans());
  const std::vector<std::pair<const char *, Rule>> alone = {
      {"read the stream before it has come", Rule::ReadBeforeReady},
      {"leave the receive out", Rule::EntryExit},
      {"embed where rows come", Rule::Structure},
      {"send before the last sum", Rule::StaleCopy},
      {"leave the send out", Rule::StaleCopy},
      {"leave the send out", Rule::UseAfterRelease},
      {"send another mini-batch's rows", Rule::Structure},
      {"publish earlier rows", Rule::StaleCopy},
      {"publish other rows", Rule::Structure},
      {"write a home behind the publish", Rule::OverwriteLive},
      {"gather rows without a head", Rule::Structure},
      {"sample without a head", Rule::Structure},
      {"a weight of another stage", Rule::Structure},
      {"another stage", Rule::Structure}};
  for (const auto &[name, rule] : alone)
    expectAlone(found, name, rule);
  Found ids = breakEach(test::idMutations(), test::stagePlans());
  for (const test::Mutation &mutation : test::idMutations())
    expectAlone(ids, mutation.name.c_str(), Rule::Structure);
  // In the wrong order, with edges of its own beside those that the right one had.
  EXPECT_TRUE(found["read the stream before it has come"].contains({Rule::RedundantEdge, Rule::EntryExit}));
  EXPECT_TRUE(found["publish before the send"].contains({Rule::ReadBeforeReady, Rule::OverwriteLive}));
  EXPECT_TRUE(found["publish rows beside tokens"].contains({Rule::Structure, Rule::StaleCopy})); // a sum is in a slot
}

TEST(PlanOracle, FindsEachMutationOfPlansInWhichResidualsLeave) {
  Found found = breakEach(test::residualMutations(), test::residualPlans());
  const std::vector<std::pair<const char *, Rule>> alone = {
      {"drop an edge of a residual's copy", Rule::ReadBeforeReady},
      {"drop an edge of a residual's copy", Rule::OverwriteLive},
      {"prefetch a residual under its evict", Rule::OverwriteLive},
      {"evict a residual before its last sum", Rule::StaleCopy},
      {"leave a residual's evict out", Rule::UseAfterRelease},
      {"leave a residual's prefetch out", Rule::UseAfterRelease},
      {"copy another mini-batch's residual", Rule::Structure},
      {"use another residual's slot", Rule::UseAfterRelease},
      {"a residual at home on the device", Rule::Structure},
      {"move a residual's home", Rule::Structure},
      {"copy a part of a residual", Rule::Structure},
      {"change how much of a residual is copied", Rule::Structure},
      {"read a residual's copy aside", Rule::StaleCopy},
      {"add to a residual elsewhere", Rule::StaleCopy},
      {"keep a residual between iterations", Rule::EntryExit},
      {"a residual of another kind", Rule::Structure},
      {"use a part of a residual", Rule::Structure}};
  for (const auto &[name, rule] : alone)
    expectAlone(found, name, rule);
}

} // namespace
} // namespace headrace::plan
