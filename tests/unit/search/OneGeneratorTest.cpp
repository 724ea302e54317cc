// SPDX-License-Identifier: Apache-2.0
//
// The search over all mechanisms, cut to one policy's choices: that policy's plan, or one of its choices that is
// better by the search's aim.
#include <random>

#include "absl/strings/str_cat.h"
#include "compiler/CompileInOrder.h"
#include "compiler/search/Search.h"
#include "compiler/search/generators/Generators.h"
#include "compiler/search/generators/InOrder.h"
#include "runtime/model/ModelSpec.h"
#include "tests/support/LongRun.h"
#include "tests/unit/compiler/Requests.h"
#include "gtest/gtest.h"

namespace headrace::compiler {
namespace {

class OneGenerator : public ::testing::Test {
protected:
  int below(int n) { return static_cast<int>(generator_() % static_cast<uint32_t>(n)); }

  // A small model at one context, of which memory holds a part.
  CompileRequest draw() {
    const int64_t layers = 3 + below(3);
    CompileRequest r = request(below(2) == 0 ? tinyLlama(layers) : tinyOpt(layers));
    r.goal.batch = int64_t{1} << below(4);
    r.goal.context = 64 << below(3);
    r.buckets.sequences = {*r.goal.batch};
    r.buckets.contexts = {*r.goal.context};
    r.hardware.h2dBandwidth = r.hardware.d2hBandwidth = 1e9 * (1 + below(8));
    r.hardware.duplexBandwidth = 2 * r.hardware.h2dBandwidth;
    const absl::StatusOr<plan::Plan> all = compile(r);
    EXPECT_TRUE(all.ok()) << all.status();
    r.goal.deviceMemory = all->arenaBytes * static_cast<uint64_t>(40 + below(60)) / 100;
    return r;
  }
  static cost::Roofline costsOf(const CompileRequest &r) {
    return {r.model, r.hardware, r.model->dtype, r.model->dtype};
  }
  static std::string traceOf(const CompileRequest &r) {
    return absl::StrCat(r.model->name, ", batch ", *r.goal.batch, ", context ", *r.goal.context, ", memory ",
                        *r.goal.deviceMemory, ", link ", r.hardware.h2dBandwidth);
  }
  static Coordinates coordinatesOf(const Space &space, const Candidate &candidate) {
    Coordinates at = space.origin();
    if (candidate.actRatio.any())
      at.actParts = kActParts * candidate.actRatio.num / candidate.actRatio.den;
    at.actAway = static_cast<int64_t>(candidate.residency.actAway().size());
    return at;
  }

  // The policy's plan is what its order has in the space, and the search among these generators' choices, of which its
  // are some, is no slower. Counts where both are the same.
  void compare(const CompileRequest &r, const Generator &policy, const std::vector<const Generator *> &generators,
               int &compared, int &same) {
    SCOPED_TRACE(traceOf(r));
    const absl::StatusOr<Draft> draft = compileInOrder(r, policy);
    if (!draft.ok())
      return;
    ++compared;
    const Candidate &chosen = draft->candidates.front();
    const cost::Roofline costs = costsOf(r);
    Space inOrder(r, costs, &policy);
    const std::optional<FoundInOrder> found = searchInOrder(inOrder);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->best.candidate.residency.weightsAway(), chosen.residency.weightsAway());
    EXPECT_EQ(found->best.candidate.residency.firstKvBlockAway(), chosen.residency.firstKvBlockAway());
    EXPECT_EQ(found->best.candidate.actRatio, chosen.actRatio);
    if (generators.empty())
      return;
    Space space(r, costs);
    const std::optional<Searched> searched = search(space, generators);
    if (!searched) // it begins where memory holds nothing: joint then has what takes the least
      return;
    // As it is compiled, with all the blocks that there is room for.
    const std::optional<Scored> best = space.scored(searched->best.at, *space.filled(searched->best));
    const std::optional<Scored> own = space.scored(coordinatesOf(space, chosen), chosen);
    ASSERT_TRUE(best && own);
    EXPECT_LE(best->comparedNs, own->comparedNs * 1.01) << toText(best->candidate) << "\n" << toText(chosen);
    same += best->candidate.samePlacement(chosen) || best->comparedNs == own->comparedNs;
  }

  std::mt19937 generator_{45};
};

TEST_F(OneGenerator, IntervalsPlanOrAFasterOne) {
  const int wanted = longRun() ? 300 : 15;
  int compared = 0, same = 0;
  for (int problem = 0; problem < wanted; ++problem) {
    CompileRequest r = draw();
    r.policy.actRatio = model::ActRatio();
    r.policy.offloadEmbedding = r.policy.offloadHead = model::AutoOnOff::Off;
    r.policy.slots = 2;
    compare(r, *findPolicy("interval"), {findPolicy("interval")}, compared, same);
  }
  EXPECT_GT(compared, wanted / 3);
  EXPECT_GT(same, compared / 4);
}

// Alone it begins at a few numbers of layers, none of which memory may hold: beside those that begin elsewhere.
TEST_F(OneGenerator, HybridServesPlanOrAFasterOne) {
  const int wanted = longRun() ? 300 : 10;
  int compared = 0, same = 0;
  for (int problem = 0; problem < wanted; ++problem) {
    CompileRequest r = draw();
    r.policy.actRatio = model::kAutoActRatio;
    r.goal.kvDeviceMemory = 0;
    const cost::Roofline costs = costsOf(r);
    compare(r, *findPolicy("hybridserve"), searchedGenerators(Space(r, costs)), compared, same);
  }
  EXPECT_GT(compared, wanted / 4);
}

TEST_F(OneGenerator, PiesPlanIsTheFirstOfItsOrder) {
  const int wanted = longRun() ? 300 : 15;
  int compared = 0, same = 0;
  for (int problem = 0; problem < wanted; ++problem)
    compare(draw(), *findPolicy("pie"), {}, compared, same); // a search over all mechanisms has nothing of it
  EXPECT_GT(compared, wanted / 2);
}

// Memory first: among its choices (single units, and whole layers as interval has them) not a hundredth more of it than
// the policy's plan.
TEST_F(OneGenerator, HeadracesPlanTakesNoLess) {
  const int wanted = longRun() ? 300 : 15;
  int compared = 0;
  for (int problem = 0; problem < wanted; ++problem) {
    CompileRequest r = draw();
    r.goal.tpot = std::chrono::nanoseconds(20'000 << below(6));
    r.goal.instances = model::Instances::Apart;
    SCOPED_TRACE(absl::StrCat(traceOf(r), ", tpot ", r.goal.tpot->count()));
    const absl::StatusOr<Draft> draft = compileInOrder(r, *findPolicy("headrace"));
    if (!draft.ok() || draft->candidates.front().offloadsNothing())
      continue;
    r.policy.prefer = model::Prefer::Memory;
    const cost::Roofline costs = costsOf(r);
    Space space(r, costs);
    space.hold(r.goal);
    const std::optional<Searched> searched = search(space, {findPolicy("headrace"), findPolicy("interval")});
    ASSERT_TRUE(searched);
    ++compared;
    EXPECT_LE(space.packed(searched->best.at, searched->best.candidate) * 100, draft->arenaBytes * 101)
        << toText(searched->best.candidate) << "\n"
        << toText(draft->candidates.front());
  }
  EXPECT_GT(compared, wanted / 4);
}

} // namespace
} // namespace headrace::compiler
