// SPDX-License-Identifier: Apache-2.0
//
// Thousands of plans that break a rule, each refused for a rule that an independent oracle lists too.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "runtime/base/EnumCount.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/plan/proof/PlanVerifier.h"
#include "tests/support/LongRun.h"
#include "tests/support/ShuffleBuffers.h"
#include "tests/unit/plan/CacheSpots.h"
#include "tests/unit/plan/MakePlan.h"
#include "tests/unit/plan/Mutations.h"
#include "tests/unit/plan/Oracle.h"

namespace headrace::plan {
namespace {

std::string names(const std::set<Rule> &rules) {
  std::string out;
  for (const Rule rule : rules)
    out += std::string(out.empty() ? "" : ", ") + ruleName(rule);
  return out.empty() ? "none" : out;
}

std::vector<test::NamedOptions> allPlans() {
  std::vector<test::NamedOptions> out = test::variedPlans(), split = test::splitPlans(), back = test::writeBackPlans();
  out.insert(out.end(), split.begin(), split.end());
  out.insert(out.end(), back.begin(), back.end());
  return out;
}
std::vector<test::Mutation> allMutations() {
  std::vector<test::Mutation> out = test::mutations();
  for (const std::vector<test::Mutation> *more :
       {&test::splitMutations(), &test::writeBackMutations(), &test::cycleMutations(), &test::miniBatchMutations(),
        &test::residualMutations()})
    out.insert(out.end(), more->begin(), more->end());
  return out;
}
struct Outcome {
  std::map<Rule, int> refusals;      // by rule, of those the verifier names
  std::map<std::string, int> broken; // by mutation
  int same = 0;                      // the two lists are one
  int harmless = 0;                  // no rule was broken
};

// Mutations of these plans in turn until so many have broken a rule. Each is refused for a rule that the oracle lists.
Outcome breakPlans(const std::vector<test::NamedOptions> &options, const std::vector<test::Mutation> &mutations,
                   int wanted, uint64_t seed) {
  Outcome out;
  std::vector<Plan> plans;
  for (const test::NamedOptions &named : options) {
    // Every second one with its buffers in another order, and some that no step uses between them.
    Plan plan = test::makePlan(named.options);
    plans.push_back(plans.size() % 2 == 0 ? std::move(plan) : test::withShuffledBuffers(std::move(plan), plans.size()));
    EXPECT_EQ(names(test::brokenRules(plans.back())), "none") << named.name;
  }
  test::Random random(seed);
  int refused = 0;
  for (size_t turn = 0; refused < wanted && !testing::Test::HasFailure(); ++turn) {
    const test::Mutation &mutation = mutations[turn % mutations.size()];
    size_t which = 0;
    Plan plan;
    bool applied = false;
    for (int tries = 0; tries < 8 && !applied; ++tries) { // most plans have something of the kind
      which = random() % plans.size();
      plan = plans[which];
      applied = mutation.apply(plan, random);
    }
    if (!applied)
      continue;
    const std::set<Rule> expected = test::brokenRules(plan);
    const std::vector<Violation> violations = findViolations(plan, 1000);
    std::set<Rule> found;
    for (const Violation &violation : violations)
      found.insert(violation.rule);
    const auto context = [&] {
      return mutation.name + " in \"" + options[which].name + "\", turn " + std::to_string(turn) + ": oracle " +
             names(expected) + ", verifier " + names(found) +
             (violations.empty() ? "" : ", first: " + violations.front().message);
    };
    EXPECT_EQ(found.empty(), expected.empty()) << context();
    EXPECT_TRUE(std::includes(expected.begin(), expected.end(), found.begin(), found.end())) << context();
    if (expected.empty()) {
      ++out.harmless;
      continue;
    }
    ++refused;
    ++out.broken[mutation.name];
    out.same += found == expected || (expected.contains(Rule::RedundantEdge) && found.size() + 1 == expected.size());
    for (const Rule rule : found)
      ++out.refusals[rule];
  }
  return out;
}

TEST(PlanMutation, EachBrokenPlanIsRefusedForARuleThatTheOracleLists) {
  const int broken = casesOf(500, 20000);
  const std::vector<test::Mutation> mutations = allMutations();
  Outcome outcome = breakPlans(allPlans(), mutations, broken, 20240607);
  // Every mutation broke plans, every rule was broken, and the two lists are mostly the same, not merely compatible.
  std::set<std::string> ofOthers; // mini-batches and residuals, which these plans have not
  for (const std::vector<test::Mutation> *others : {&test::miniBatchMutations(), &test::residualMutations()})
    for (const test::Mutation &mutation : *others)
      ofOthers.insert(mutation.name);
  for (const test::Mutation &mutation : mutations)
    EXPECT_GE(outcome.broken[mutation.name], ofOthers.contains(mutation.name) ? 0 : broken / 400) << mutation.name;
  for (int rule = 0; rule < model::enumCount<Rule>(); ++rule)
    EXPECT_GE(outcome.refusals[static_cast<Rule>(rule)], broken / 200) << ruleName(static_cast<Rule>(rule));
  EXPECT_GE(outcome.same, broken * 95 / 100);
  RecordProperty("harmless", outcome.harmless);
  RecordProperty("same", outcome.same);
}

// Of plans that bring tails: 10,000 with HEADRACE_LONG, and other ones than above.
TEST(PlanMutation, OfCachesThatMoveEachIsRefusedForARuleThatTheOracleLists) {
  const int broken = casesOf(500, 10000);
  std::vector<test::NamedOptions> moving;
  for (const test::NamedOptions &named : test::splitPlans())
    if (test::partsOfSplit(test::makePlan(named.options)).contains("tail operand"))
      moving.push_back(named);
  ASSERT_GE(moving.size(), 15u);
  const std::vector<test::Mutation> mutations = allMutations();
  Outcome outcome = breakPlans(moving, mutations, broken, 20261123);
  for (const test::Mutation &mutation : test::splitMutations())
    EXPECT_GE(outcome.broken[mutation.name], broken / 500) << mutation.name;
  EXPECT_GE(outcome.same, broken * 95 / 100);
}

// Of tails that are written back, of states ahead of their homes and of cycles: 20,000 with HEADRACE_LONG, of more
// plans that chance has put together.
TEST(PlanMutation, OfTailsThatAreWrittenBackEachIsRefusedForARuleThatTheOracleLists) {
  const int broken = casesOf(500, 20000);
  std::vector<test::NamedOptions> plans = test::writeBackPlans();
  for (int seed = 0; seed < casesOf(40, 400); ++seed)
    plans.push_back(test::randomSplitPlan(seed));
  std::vector<test::Mutation> mutations = test::writeBackMutations(), cycles = test::cycleMutations();
  mutations.insert(mutations.end(), cycles.begin(), cycles.end());
  const std::vector<test::Mutation> wanted = mutations, others = allMutations();
  mutations.insert(mutations.end(), others.begin(), others.end()); // these twice as often
  Outcome outcome = breakPlans(plans, mutations, broken, 20261124);
  for (const test::Mutation &mutation : wanted)
    EXPECT_GE(outcome.broken[mutation.name], broken / 500) << mutation.name;
  EXPECT_GE(outcome.harmless, broken / 50); // and what is no fault is none to both
  EXPECT_GE(outcome.same, broken * 95 / 100);
  RecordProperty("harmless", outcome.harmless);
  RecordProperty("same", outcome.same);
}

// Of two to four mini-batches: 10,000 with HEADRACE_LONG.
TEST(PlanMutation, OfMiniBatchesEachIsRefusedForARuleThatTheOracleLists) {
  const int broken = casesOf(400, 10000);
  const std::vector<test::Mutation> wanted = test::miniBatchMutations(), others = allMutations();
  std::vector<test::Mutation> mutations = others;
  for (int i = 0; i < 3; ++i)
    mutations.insert(mutations.end(), wanted.begin(), wanted.end());
  Outcome outcome = breakPlans(test::miniBatchPlans(), mutations, broken, 20261125);
  for (const test::Mutation &mutation : wanted)
    EXPECT_GE(outcome.broken[mutation.name], broken / 100) << mutation.name;
  EXPECT_GE(outcome.same, broken * 95 / 100);
  RecordProperty("harmless", outcome.harmless);
  RecordProperty("same", outcome.same);
}

// By mutations of one kind more often than by any other, each of these at least so often. How often is in the test's
// report.
void breakMostly(const std::vector<test::NamedOptions> &plans, const std::vector<test::Mutation> &wanted, int broken,
                 uint64_t seed, int least) {
  std::vector<test::Mutation> mutations = allMutations();
  for (int i = 0; i < 3; ++i)
    mutations.insert(mutations.end(), wanted.begin(), wanted.end());
  Outcome outcome = breakPlans(plans, mutations, broken, seed);
  for (const test::Mutation &mutation : wanted) {
    EXPECT_GE(outcome.broken[mutation.name], least) << mutation.name;
    std::string key = mutation.name;
    std::replace_if(
        key.begin(), key.end(), [](char c) { return c < 'a' || c > 'z'; }, '_');
    testing::Test::RecordProperty(key, outcome.broken[mutation.name]);
  }
  EXPECT_GE(outcome.harmless, broken / 50); // and what is no fault is none to both
  EXPECT_GE(outcome.same, broken * 95 / 100);
  testing::Test::RecordProperty("harmless", outcome.harmless);
  testing::Test::RecordProperty("same", outcome.same);
}

// A row whose home is on the host gets there before its slot, place or state is given up, at the latest by the flush:
// without any one of the copies that bring tails home a plan is refused, unless appends write these homes as well.
TEST(PlanMutation, WithoutAnyOneCopyThatBringsRowsHomeAPlanIsRefused) {
  int iterations = 0, transitions = 0;
  std::vector<test::NamedOptions> all = test::writeBackPlans(), packed = test::packedPlans();
  std::copy_if(packed.begin(), packed.end(), std::back_inserter(all),
               [](const test::NamedOptions &named) { return named.options.kvEncoding.packed(); });
  for (const test::NamedOptions &named : all) {
    Plan plan = test::makePlan(named.options);
    if (test::partsOfSplit(plan).contains("evict beside a mirror"))
      continue;
    const std::vector<test::Spot> evicts = test::evicts(plan), flushes = test::flushes(plan);
    for (const std::vector<test::Spot> *spots : {&evicts, &flushes})
      for (const test::Spot &spot : *spots) {
        Plan without = plan;
        test::eraseStep(without, spot);
        EXPECT_FALSE(findViolations(without, 1).empty()) << named.name;
        ++(spots == &evicts ? iterations : transitions);
      }
  }
  EXPECT_GE(iterations, 100);
  EXPECT_GE(transitions, 20);
}

// Of packed weights and caches: 10,000 with HEADRACE_LONG.
TEST(PlanMutation, OfPackedWeightsAndCachesEachIsRefusedForARuleThatTheOracleLists) {
  const int broken = casesOf(400, 10000);
  std::vector<test::Mutation> mutations = allMutations();
  for (int i = 0; i < 3; ++i)
    mutations.insert(mutations.end(), test::packedMutations().begin(), test::packedMutations().end());
  Outcome outcome = breakPlans(test::packedPlans(), mutations, broken, 20261129);
  for (const test::Mutation &mutation : test::packedMutations())
    EXPECT_GE(outcome.broken[mutation.name], broken / 100) << mutation.name;
  EXPECT_GE(outcome.same, broken * 95 / 100);
  RecordProperty("harmless", outcome.harmless);
  RecordProperty("same", outcome.same);
}

// Of residuals that leave: 20,000 with HEADRACE_LONG, of more plans that chance has put together.
TEST(PlanMutation, OfResidualsEachIsRefusedForARuleThatTheOracleLists) {
  const int broken = casesOf(400, 20000);
  std::vector<test::NamedOptions> plans = test::residualPlans();
  for (int seed = 0; seed < casesOf(10, 200); ++seed)
    plans.push_back(test::randomResidualPlan(seed));
  breakMostly(plans, test::residualMutations(), broken, 20261126, broken / 200);
}

// Of stages: 2,000 with HEADRACE_LONG, of more plans that chance has put together; by mutations of residuals, too.
TEST(PlanMutation, OfStagesEachIsRefusedForARuleThatTheOracleLists) {
  const int broken = casesOf(300, 2000);
  std::vector<test::NamedOptions> plans = test::stagePlans();
  for (int seed = 0; seed < casesOf(10, 200); ++seed)
    plans.push_back(test::randomStagePlan(seed));
  breakMostly(plans, test::stageMutations(), broken, 20261202, broken / 200);
}

// Of ids that stages keep, and that no other plan does: 1,000 with HEADRACE_LONG, of whole models beside stages.
TEST(PlanMutation, OfIdsEachIsRefusedForARuleThatTheOracleLists) {
  const int broken = casesOf(100, 1000);
  std::vector<test::NamedOptions> plans = test::stagePlans();
  for (int seed = 0; seed < casesOf(10, 200); ++seed)
    plans.push_back(test::randomStagePlan(seed));
  for (const std::vector<test::NamedOptions> &whole : {test::variedPlans(), test::miniBatchPlans()})
    for (size_t i = 0; i < whole.size(); i += 6)
      plans.push_back(whole[i]);
  Outcome outcome = breakPlans(plans, test::idMutations(), broken, 20261203);
  for (const test::Mutation &mutation : test::idMutations())
    EXPECT_GE(outcome.broken[mutation.name], broken / 10) << mutation.name;
  EXPECT_GE(outcome.harmless, broken / 50);
  EXPECT_EQ(outcome.same, broken);
}

// Of activation blocks: 12,000 with HEADRACE_LONG, of more plans that chance has put together; and of some that have
// none.
TEST(PlanMutation, OfActivationBlocksEachIsRefusedForARuleThatTheOracleLists) {
  const int broken = casesOf(500, 12000);
  std::vector<test::NamedOptions> plans = test::actPlans();
  for (int seed = 0; seed < casesOf(10, 200); ++seed)
    plans.push_back(test::randomActPlan(seed));
  for (const std::vector<test::NamedOptions> &none : {test::variedPlans(), test::splitPlans(), test::miniBatchPlans()})
    for (size_t i = 0; i < none.size(); i += 6)
      plans.push_back(none[i]);
  breakMostly(plans, test::actMutations(), broken, 20261128, broken / 100);
}

// Of the cpu lane: 10,000 with HEADRACE_LONG, of more plans that chance has put together.
TEST(PlanMutation, OfTheCpuLaneEachIsRefusedForARuleThatTheOracleLists) {
  const int broken = casesOf(600, 10000);
  std::vector<test::NamedOptions> plans = test::cpuPlans();
  for (int seed = 0; seed < casesOf(10, 200); ++seed)
    plans.push_back(test::randomCpuPlan(seed));
  breakMostly(plans, test::cpuMutations(), broken, 20261130, broken / 300);
}

// Of activation blocks at home on the host: 10,000 with HEADRACE_LONG, beside caches that are whole and split ones.
TEST(PlanMutation, OfActivationBlocksOnTheHostEachIsRefusedForARuleThatTheOracleLists) {
  const int broken = casesOf(400, 10000);
  std::vector<test::NamedOptions> plans = test::hostActPlans();
  for (int seed = 0; seed < casesOf(10, 200); ++seed)
    plans.push_back(test::randomHostActPlan(seed));
  std::vector<test::Mutation> wanted = test::actHomeMutations(), all = test::actMutations();
  wanted.insert(wanted.end(), all.begin(), all.end());
  breakMostly(plans, wanted, broken, 20261129, broken / 300);
}

// Three layers in 32 slots, or two in 33, are where they were after as many iterations.
TEST(PlanMutation, ACycleHasAtMost32Phases) {
  for (const auto &[layers, phases] : {std::pair(3, 32), std::pair(2, 33)}) {
    test::PlacementOptions p;
    p.limits[0].context = 32; // 5 blocks
    p.limits[0].keepHome = test::KeepHome::EvictDirty;
    p.blocksOnDevice = 2;
    p.ringSlots = phases;
    p.carriedTails = 1;
    p.period = static_cast<uint32_t>(phases);
    test::PlanOptions options{test::tinyLlama(layers), {p}};
    options.interleaved = true;
    const Plan plan = test::makePlan(options);
    const std::vector<Violation> violations = findViolations(plan, 1);
    const std::string expected = phases == 32 ? "none" : "structure";
    EXPECT_EQ(names(test::brokenRules(plan)), expected);
    EXPECT_EQ(violations.empty() ? "none" : ruleName(violations[0].rule), expected);
  }
}

TEST(PlanMutation, LargestLiveBytesIsWhatBruteForceCounts) {
  std::vector<test::NamedOptions> plans = allPlans();
  for (int seed = 0; seed < casesOf(20, 400); ++seed)
    plans.push_back(test::randomSplitPlan(seed));
  for (const std::vector<test::NamedOptions> &more : {test::miniBatchPlans(), test::cpuPlans()})
    plans.insert(plans.end(), more.begin(), more.end());
  for (const test::NamedOptions &named : plans) {
    const Plan plan = test::makePlan(named.options);
    for (uint32_t i = 0; i < plan.schedules.size(); ++i)
      EXPECT_EQ(largestLiveBytes(plan, i), test::liveBytesByBruteForce(plan, i))
          << named.name << ", schedule " << plan.schedules[i].name;
  }
}

} // namespace
} // namespace headrace::plan
