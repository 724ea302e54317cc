// SPDX-License-Identifier: Apache-2.0
//
// What a search says against what the compiler makes of its placement.
#include "compiler/search/SearchPlacement.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "compiler/Compile.h"
#include "compiler/choice/Resolve.h"
#include "runtime/model/ModelSpec.h"
#include "tests/unit/compiler/Requests.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace headrace::compiler {
namespace {

using ::testing::HasSubstr;

// A model on a device with everything that a search needs.
struct Searched {
  explicit Searched(CompileRequest from) : request(std::move(from)) {
    search.model = &*request.model;
    search.layout = &layout;
    search.target = &target;
    search.deviceKind = request.hardware.kind;
  }
  uint64_t residentNs(const cost::Bucket &bucket, bool decode) {
    SearchRequest all = search;
    all.decode.clear();
    all.mixed.clear();
    (decode ? all.decode : all.mixed) = {{bucket, ~uint64_t{0} / 2}};
    const std::vector<uint64_t> ns = placementProblem(all, prices)->problem.schedules[0].buckets[0].computeNs;
    return std::accumulate(ns.begin(), ns.end(), uint64_t{0});
  }
  // Goals of `factor` times the resident time for every bucket of the target.
  void askFor(double factor) {
    search.decode.clear();
    search.mixed.clear();
    for (const cost::Bucket &bucket : target.decode)
      search.decode.push_back({bucket, static_cast<uint64_t>(factor * static_cast<double>(residentNs(bucket, true)))});
    for (const cost::Bucket &bucket : target.mixed)
      search.mixed.push_back({bucket, static_cast<uint64_t>(factor * static_cast<double>(residentNs(bucket, false)))});
  }

  CompileRequest request;
  const Target target = *resolve(request);
  const model::WeightLayout layout = model::layoutWeights(request.model);
  const cost::Roofline costs{request.model, request.hardware, target.activation, target.kv};
  Prices prices{costs};
  SearchRequest search;
};

CompileRequest sized(CompileRequest request, model::Buckets buckets) {
  request.goal.deviceMemory = uint64_t{1} << 42;
  request.buckets = std::move(buckets);
  return request;
}

size_t comparedAll = 0, same = 0; // variants, and those whose times are the same to the nanosecond

void expectThePlanToBeWhatTheSearchSays(Searched &s) {
  const absl::StatusOr<SearchedPlacement> found = searchPlacement(s.search, s.prices);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->freedBytes, found->link.movedBytes - found->ringBytes);
  CompileRequest request = s.request;
  request.placements = {found->candidate};
  const absl::StatusOr<plan::Plan> plan = compile(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->placements.size(), 1u);
  uint64_t slots = 0;
  for (const plan::Slot &slot : plan->placements[0].slots)
    slots += slot.bytes;
  EXPECT_EQ(slots, found->ringBytes);
  EXPECT_EQ(plan::weightBytesByHome(*plan, 0).host, found->link.movedBytes);
  for (const plan::Schedule &schedule : plan->schedules)
    if (schedule.iterationClass != plan::IterationClass::Transition) {
      EXPECT_EQ(plan::linkBytes(schedule).h2d, found->link.movedBytes);
    }
  // Every bucket that has a goal: the goal is met, in the time that was said. The recurrence lets the part of a unit
  // that is copied ahead wait for all that the whole unit lies over, so the plan may be a little faster.
  size_t compared = 0;
  for (const plan::Variant &variant : plan->variants)
    for (const auto &[goals, ns] :
         {std::pair(&s.search.decode, &found->decodeNs), std::pair(&s.search.mixed, &found->mixedNs)})
      for (size_t i = 0; i < goals->size(); ++i)
        if ((*goals)[i].bucket.tokens == variant.newTokens && (*goals)[i].bucket.sequences == variant.sequences &&
            (*goals)[i].bucket.context == variant.context) {
          EXPECT_LE(variant.predictedNs, (*ns)[i]);
          EXPECT_GE(static_cast<double>(variant.predictedNs), 0.99 * static_cast<double>((*ns)[i]));
          same += variant.predictedNs == (*ns)[i];
          EXPECT_LE(variant.predictedNs, (*goals)[i].sloNs);
          ++compared;
        }
  EXPECT_EQ(compared, s.search.decode.size() + s.search.mixed.size());
  comparedAll += compared;
}

TEST(SearchPlacement, TheSimulatorSaysTheSameOfItsPlan) {
  for (const CompileRequest &request :
       {sized(request(tinyLlama(6)), {.newTokens = {2, 16}, .sequences = {2}, .contexts = {64}}),
        sized(request(tinyOpt(7)), {.newTokens = {2, 16}, .sequences = {1, 2}, .contexts = {32, 64}}),
        sized(shipped("opt-6.7b", "a10", 32, 512), {.newTokens = {32}, .sequences = {32}, .contexts = {512}}),
        sized(shipped("llama-3.1-8b", "a10", 8, 1024), {.newTokens = {8, 512}, .sequences = {8}, .contexts = {1024}})})
    for (const double factor : {1.02, 1.5, 2.0, 4.0, 30.0}) {
      SCOPED_TRACE(request.model->name + " at " + std::to_string(factor));
      Searched s(request);
      s.askFor(factor);
      expectThePlanToBeWhatTheSearchSays(s);
    }
  EXPECT_GE(same, comparedAll * 9 / 10);
}

TEST(SearchPlacement, ADecodeGoalAloneLeavesMixedIterationsToThePlanner) {
  Searched s(sized(request(tinyLlama(6)), {.newTokens = {2, 16}, .sequences = {2}, .contexts = {64}}));
  s.askFor(2);
  s.search.mixed.clear();
  const absl::StatusOr<SearchedPlacement> found = searchPlacement(s.search, s.prices);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_TRUE(found->candidate.residency.wrap.decode.has_value());
  EXPECT_FALSE(found->candidate.residency.wrap.mixed.has_value());
  EXPECT_TRUE(found->mixedNs.empty());
  expectThePlanToBeWhatTheSearchSays(s);
}

TEST(SearchPlacement, OffersNothingWhereNothingCanBeFreed) {
  Searched s(sized(request(tinyLlama(6)), {.newTokens = {2}, .sequences = {2}, .contexts = {64}}));
  s.askFor(1.0);
  for (BucketGoal &goal : s.search.decode)
    goal.sloNs = s.residentNs(goal.bucket, true);
  s.search.mostBytes = 1; // no unit is as small
  const absl::StatusOr<SearchedPlacement> found = searchPlacement(s.search, s.prices);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_TRUE(found->candidate.offloadsNothing());
  EXPECT_EQ(found->candidate.name, "none");
  EXPECT_EQ(found->freedBytes, 0u);
  expectThePlanToBeWhatTheSearchSays(s);
}

TEST(SearchPlacement, SaysWhatCannotBeMetAndTheLeast) {
  Searched s(sized(request(tinyLlama(6)), {.newTokens = {2}, .sequences = {2}, .contexts = {64}}));
  const cost::Bucket bucket = s.target.decode[0];
  const uint64_t least = s.residentNs(bucket, true);
  s.search.decode = {{bucket, least - 1}};
  const absl::Status status = searchPlacement(s.search, s.prices).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(), absl::StrCat("decode of 2 tokens, 2 sequences at context 64 cannot be done in ",
                                           least - 1, " ns: it takes ", least, " ns with nothing offloaded"));
  s.search.decode.clear();
  EXPECT_EQ(searchPlacement(s.search, s.prices).status().code(), absl::StatusCode::kInvalidArgument);
}

// The embedding's rows are read over the link; the rest of its bytes is freed. One that is tied is the head's as well.
TEST(SearchPlacement, TheEmbeddingIsFreedBesideTheUnits) {
  Searched s(sized(request(tinyLlama(6)), {.newTokens = {2}, .sequences = {2}, .contexts = {64}}));
  s.askFor(2);
  s.search.embedding = true;
  const absl::StatusOr<SearchedPlacement> found = searchPlacement(s.search, s.prices);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_TRUE(awayOf(found->candidate.residency, *s.search.model).embedding);
  EXPECT_EQ(found->freedBytes, found->link.movedBytes - found->ringBytes + s.layout.units[0].bytes);
  Searched tied(sized(request(tinyOpt(6)), {.newTokens = {2}, .sequences = {2}, .contexts = {64}}));
  tied.askFor(2);
  tied.search.embedding = true;
  EXPECT_FALSE(awayOf(searchPlacement(tied.search, tied.prices)->candidate.residency, *tied.search.model).embedding);
}

// Memory first: the least slowdown that frees so much, and no less would do.
TEST(SearchFastest, FreesWhatIsAskedWithTheLeastSlowdown) {
  Searched s(sized(shipped("opt-6.7b", "a10", 8, 512), {.newTokens = {8}, .sequences = {8}, .contexts = {512}}));
  s.askFor(1);
  for (const uint64_t layers : {2, 6, 20}) {
    const uint64_t bytes = layers * s.layout.layerBytes(0);
    const absl::StatusOr<FastestSearched> fastest = searchFastest(s.search, bytes, s.prices);
    ASSERT_TRUE(fastest.ok()) << fastest.status();
    EXPECT_GE(fastest->placement.freedBytes, bytes);
    const auto resident = static_cast<double>(s.search.decode[0].sloNs);
    EXPECT_LE(static_cast<double>(fastest->placement.decodeNs[0]), resident * fastest->factor);
    // The link alone takes nearly as long for what must be moved: what is freed and a ring of a unit at least.
    const uint64_t least = s.prices.copyNs(bytes, true);
    EXPECT_GE(resident * fastest->factor, static_cast<double>(least));
    EXPECT_LE(resident * fastest->factor, std::max(1.1 * resident, 1.1 * static_cast<double>(least)));
  }
  // Without the ring's bytes not even everything is freed.
  const absl::Status status = searchFastest(s.search, 32 * s.layout.layerBytes(0), s.prices).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("no placement frees"));
}

// A chain's placements are nested, and each compiles to what it says.
TEST(SearchChain, OfAModelIsNestedAndMeetsEachGoal) {
  Searched s(sized(shipped("llama-3.1-8b", "a10", 8, 1024), {.newTokens = {8}, .sequences = {8}, .contexts = {1024}}));
  s.askFor(1.02);
  const std::vector<ChainStep> factors = {1.0, 1.2, 1.5, 2.0};
  const absl::StatusOr<std::vector<ChainedPlacement>> chain = searchChain(s.search, factors, s.prices);
  ASSERT_TRUE(chain.ok()) << chain.status();
  ASSERT_EQ(chain->size(), factors.size());
  CompileRequest all = s.request;
  for (size_t i = 0; i < factors.size(); ++i) {
    const SearchedPlacement &placement = (*chain)[i].placement;
    EXPECT_LE(placement.decodeNs[0],
              static_cast<uint64_t>(static_cast<double>(s.search.decode[0].sloNs) * factors[i].factor));
    EXPECT_TRUE((*chain)[i].nested);
    EXPECT_GE((*chain)[i].share, 0.96); // a unit of 33 MB of 1.1 GB
    if (i > 0) {
      const std::vector<int32_t> before = (*chain)[i - 1].placement.candidate.residency.weightsAway();
      const std::vector<int32_t> units = placement.candidate.residency.weightsAway();
      EXPECT_TRUE(std::includes(units.begin(), units.end(), before.begin(), before.end()));
      EXPECT_GT(placement.freedBytes, (*chain)[i - 1].placement.freedBytes);
    }
    all.placements.push_back(placement.candidate);
  }
  // One plan carries them all.
  const absl::StatusOr<plan::Plan> plan = compile(all);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->placements.size(), factors.size());
}

TEST(SearchChain, RefusesFactorsThatFallOrAreNone) {
  Searched s(sized(request(tinyLlama(6)), {.newTokens = {2}, .sequences = {2}, .contexts = {64}}));
  s.askFor(2);
  const std::vector<std::vector<ChainStep>> bad = {
      {}, {0.0}, {-1.0}, {1.5, 1.2}, {std::nan("")}, {1.0, std::numeric_limits<double>::infinity()}, {{1, 10}, {1, 9}}};
  for (const std::vector<ChainStep> &factors : bad)
    EXPECT_EQ(searchChain(s.search, factors, s.prices).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(searchChain(s.search, {0.4, 1.0}, s.prices).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(SearchPlacement, TheSameRequestHasTheSameAnswer) {
  Searched s(sized(shipped("qwen1.5-7b", "a10", 8, 512), {.newTokens = {8}, .sequences = {8}, .contexts = {512}}));
  s.askFor(1.5);
  const absl::StatusOr<SearchedPlacement> a = searchPlacement(s.search, s.prices);
  Prices others(s.costs);
  const absl::StatusOr<SearchedPlacement> b = searchPlacement(s.search, others);
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_TRUE(a->candidate.samePlacement(b->candidate));
}

} // namespace
} // namespace headrace::compiler
