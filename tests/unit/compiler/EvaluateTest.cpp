// SPDX-License-Identifier: Apache-2.0
//
// What is evaluated of a choice is what compiling it gives: every address, the bytes of the device and of the host, and
// the time of every bucket and transition.
#include "compiler/evaluate/Evaluate.h"
#include "compiler/evaluate/PlayChoice.h"

#include <map>
#include <random>

#include "absl/strings/str_cat.h"
#include "compiler/emit/CompileDraft.h"
#include "passes/algorithms/CycleOf.h"
#include "runtime/model/ModelSpec.h"
#include "tests/support/LongRun.h"
#include "tests/unit/compiler/Requests.h"
#include "gtest/gtest.h"

namespace headrace::compiler {
namespace {

using algorithms::WriteBack;

// A record's prices: of a device whose compute and copies disturb each other.
class DisturbedCosts : public cost::CostModel {
public:
  DisturbedCosts(const cost::CostModel &alone, double duplexShare, cost::Interference interference)
      : alone_(alone), duplexShare_(duplexShare), interference_(interference) {}
  uint64_t computeNs(const cost::OpSite &site, const cost::Bucket &bucket, bool direct) const override {
    return alone_.computeNs(site, bucket, direct);
  }
  uint64_t copyNs(uint64_t bytes, bool hostToDevice) const override { return alone_.copyNs(bytes, hostToDevice); }
  double duplexShare() const override { return duplexShare_; }
  cost::Interference interference() const override { return interference_; }

private:
  const cost::CostModel &alone_;
  const double duplexShare_;
  const cost::Interference interference_;
};

// How often each mechanism was drawn.
struct Drawn {
  int inPlaces = 0, cycles = 0, noTails = 0, oneCut = 0, writtenBack = 0, duplex = 0, interfering = 0, several = 0,
      grown = 0, actsAway = 0, residuals = 0, miniBatches = 0, transitions = 0;
};

class EvaluateTest : public testing::Test {
protected:
  int below(int end) { return static_cast<int>(generator_() % static_cast<unsigned>(end)); }
  bool oneIn(int n) { return below(n) == 0; }
  WriteBack anyBack() { return oneIn(3) ? WriteBack::Mirror : oneIn(2) ? WriteBack::All : WriteBack::Dirty; }

  model::ModelSpec anyModel() {
    const int layers = 1 + below(7);
    return oneIn(4)   ? tinyOpt(layers)
           : oneIn(3) ? tinyQwen(layers, oneIn(2))
           : oneIn(2) ? tinyQwen3(layers)
                      : tinyLlama(layers);
  }

  // What all placements have alike.
  Choice anyCommon(CompileRequest &r, bool cycles) {
    Choice common = askedChoice(r);
    common.miniBatches = oneIn(2) || cycles ? 1 : int64_t{1} << below(4);
    r.goal.batch = common.miniBatches * (1 + below(4));
    r.goal.miniBatches = common.miniBatches;
    if (cycles)
      return common;
    if (oneIn(3)) {
      common.actRatio = model::actRatioOf(1, 1 + below(3));
      std::vector<int32_t> away;
      for (int32_t layer = 0; layer < r.model->layers; ++layer)
        if (oneIn(2))
          away.push_back(layer);
      if (oneIn(2))
        common.residency.setActAway(away);
    }
    if (oneIn(5))
      common.residency.residuals().setSlots(algorithms::kResidualSlots + below(2));
    return common;
  }

  Candidate anyPlacement(const CompileRequest &r, const Choice &common, bool splits, bool cycles) {
    const model::WeightLayout layout = model::layoutWeights(r.model);
    Candidate candidate = alike({}, common);
    algorithms::Residency &residency = candidate.residency;
    const bool movesBack = residency.movesBack();
    if (!oneIn(4)) {
      std::vector<int32_t> units;
      const int32_t end = static_cast<int32_t>(layout.units.size()) - (r.model->tiedEmbeddings ? 1 : 0);
      for (int32_t unit = 0; unit < end; ++unit)
        if (oneIn(2))
          units.push_back(unit);
      residency.setWeightsAway(units);
    }
    const bool eager = splits || movesBack || oneIn(2);
    if (!eager)
      residency.start = oneIn(2) ? algorithms::kPaper : algorithms::ahead(1 + below(2));
    if (eager && common.miniBatches == 1 && oneIn(3))
      residency.weights().setRing(uint64_t{1} << (16 + below(4)));
    else
      residency.weights().setSlots(below(5));
    if (splits) {
      residency.setKvAway(r.model->layers, below(4));
      if (cycles) {
        std::optional<algorithms::SwapVisits> fifo;
        if (oneIn(2))
          fifo = algorithms::SwapVisits{1 + below(3), 1 + below(3), oneIn(2) ? 500 : 1000};
        residency.kv().setPlaces(2 + below(static_cast<int>(r.model->layers) - 2), fifo);
      } else {
        residency.kv().setSlots(below(5));
      }
      residency.kv().decodeBack = anyBack();
      residency.kv().mixedBack = anyBack();
    }
    if (eager && !oneIn(3)) {
      residency.wrap.around = true;
      residency.wrap.oneCut = oneIn(2);
    }
    return candidate;
  }

  // Alone, with all blocks in use, an iteration takes what the plan says of its bucket; with fewer it brings no more.
  static void expectPlayed(const Draft &draft, Iterations &iterations, const Candidate &candidate, int &buckets) {
    if (candidate.residency.cycles() || draft.placements.size() > 1)
      return;
    std::vector<PlayPoint> all, few;
    std::vector<uint64_t> expected;
    for (const plan::Variant &variant : draft.variants) {
      const plan::Schedule &schedule = draft.schedules[variant.schedule];
      const auto dirty = std::count_if(schedule.steps.begin(), schedule.steps.end(),
                                       [](const plan::Step &step) { return step.dirtyOnly; });
      if (variant.placement != 0 || schedule.kvBlocks != 0 || dirty > 0 ||
          variant.sequences != iterations.target().batch || variant.context != iterations.target().context)
        continue;
      for (const cost::Bucket &bucket : iterations.buckets(schedule.iterationClass))
        if (bucket.tokens == variant.newTokens && bucket.sequences == variant.sequences &&
            bucket.context == variant.context) {
          all.push_back({schedule.iterationClass, bucket, bucket.context});
          few.push_back({schedule.iterationClass, bucket, 1});
        }
      expected.push_back(variant.predictedNs);
    }
    ASSERT_EQ(all.size(), expected.size());
    Player player(iterations);
    const absl::StatusOr<std::vector<Played>> played = player.play(candidate, all), fewer = player.play(candidate, few);
    ASSERT_TRUE(played.ok() && fewer.ok()) << played.status() << fewer.status();
    for (size_t i = 0; i < all.size(); ++i) {
      EXPECT_EQ((*played)[i].ns, expected[i]);
      EXPECT_LE((*fewer)[i].h2dBytes, (*played)[i].h2dBytes);
      ++buckets;
    }
  }

  // One placement, as its text says it.
  static absl::StatusOr<plan::Plan> compiled(CompileRequest r, const std::string &text) {
    std::string error;
    const std::optional<Choice> choice = choiceFromText(text, error);
    if (!choice)
      return absl::InvalidArgumentError(error);
    Candidate candidate;
    static_cast<Choice &>(candidate) = *choice;
    candidate.name = "p";
    r.placements = {candidate};
    r.buckets = choice->buckets;
    return compile(r);
  }

  std::mt19937 generator_{44};
};

TEST_F(EvaluateTest, IsWhatCompilingGives) {
  Problems problems(250, 5000);
  const int wanted = problems.count();
  Drawn drawn;
  int compiled = 0, played = 0;
  for (int draws = 0; compiled < wanted; ++draws) {
    ASSERT_LT(draws, 3 * wanted) << "only " << compiled << " of these were choices";
    problems.begin(compiled, generator_);
    CompileRequest r = request(anyModel());
    r.goal.deviceMemory = uint64_t{1} << 30;
    r.goal.context = 48 + 16 * below(4);
    r.buckets.contexts = {32, r.goal.context.value()};
    r.buckets.newTokens = {8};
    const bool cycles = r.model->layers > 3 && oneIn(4), splits = cycles || oneIn(2);
    const Choice common = anyCommon(r, cycles);
    const int placements = oneIn(2) ? 1 : oneIn(2) ? 2 : 2 + below(11);
    std::vector<Candidate> candidates;
    for (int p = 0; p < placements; ++p) {
      Candidate candidate = anyPlacement(r, common, splits, cycles);
      candidate.name = absl::StrCat("p", p);
      const algorithms::Residency &residency = candidate.residency;
      if (cycles && algorithms::cyclePeriodOf(residency, r.model->layers) > plan::kMostPhases)
        continue;
      if (contradictionIn(candidate).empty() &&
          std::none_of(candidates.begin(), candidates.end(),
                       [&](const Candidate &other) { return other.samePlacement(candidate); }))
        candidates.push_back(candidate);
    }
    if (candidates.empty())
      continue;
    r.goal.elasticKv =
        !splits && !common.actRatio.any() && candidates.size() > 1 ? model::AutoOnOff::On : model::AutoOnOff::Off;
    if (r.goal.elasticKv == model::AutoOnOff::On) // fewer blocks than the batch has use for
      r.goal.kvTokens = *r.goal.context * common.miniBatches;
    const absl::StatusOr<Target> target = resolve(r, common);
    ASSERT_TRUE(target.ok()) << target.status();
    if (std::any_of(candidates.begin(), candidates.end(), [&](const Candidate &candidate) {
          return candidate.residency.firstKvBlockAway().value_or(0) >= target->kvBlocks;
        }))
      continue; // no such block
    const cost::Roofline alone(r.model, r.hardware, target->activation, target->kv);
    const double share = oneIn(2) ? 2.0 : 1.0 + 0.25 * below(4);
    const cost::Interference interference = {oneIn(2) ? 1 : 1.25, oneIn(2) ? uint64_t{0} : uint64_t{700}};
    const DisturbedCosts costs(alone, share, interference);
    r.costs = &costs;
    std::string text;
    for (const Candidate &candidate : candidates)
      absl::StrAppend(&text, text.empty() ? "" : " | ", toText(candidate));
    SCOPED_TRACE(absl::StrCat(r.model->name, ", batch ", *r.goal.batch, ", share ", share, ": ", text));
    const model::WeightLayout layout = model::layoutWeights(r.model);
    Prices prices(costs);
    Iterations iterations(r, *target, layout, prices);
    const absl::StatusOr<Draft> draft = evaluate(iterations, candidates);
    if (!draft.ok())
      continue;                                                   // a ring that is too small for a unit
    const absl::StatusOr<plan::Plan> plan = compileDraft(*draft); // holds the two against each other
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ(draft->arenaBytes, plan->arenaBytes);
    EXPECT_EQ(draft->hostBytes, plan->hostBytes);
    expectPlayed(*draft, iterations, candidates.front(), played);
    ++compiled;
    const algorithms::Residency &first = candidates.front().residency;
    drawn.inPlaces += cycles;
    for (const plan::Schedule &schedule : plan->schedules) {
      drawn.cycles += schedule.period > 1 && schedule.phase == 0;
      drawn.noTails += schedule.kvBlocks > 0;
    }
    drawn.oneCut += first.wrap.oneCut && first.wrap.around;
    drawn.writtenBack += splits && first.kv().writesBack();
    drawn.duplex += share < 2;
    drawn.interfering += interference.wakeNs > 0 || interference.computeFactor > 1;
    drawn.several += candidates.size() > 1;
    drawn.grown += plan->kvBlocks > target->kvBlocks;
    drawn.actsAway += !first.actAway().empty();
    drawn.residuals += first.residualsLeave();
    drawn.miniBatches += common.miniBatches > 1;
    drawn.transitions += !plan->transitions.empty();
  }
  EXPECT_GT(played, wanted / 5); // buckets
  const std::map<std::string, int> all = {{"in places", drawn.inPlaces},
                                          {"cycles", drawn.cycles},
                                          {"no tails", drawn.noTails},
                                          {"one cut", drawn.oneCut},
                                          {"written back", drawn.writtenBack},
                                          {"duplex", drawn.duplex},
                                          {"interfering", drawn.interfering},
                                          {"several", drawn.several},
                                          {"grown", drawn.grown},
                                          {"activations away", drawn.actsAway},
                                          {"residuals", drawn.residuals},
                                          {"mini-batches", drawn.miniBatches},
                                          {"transitions", drawn.transitions}};
  for (const auto &[what, times] : all)
    EXPECT_GT(times, wanted / 50) << what;
}

// What a copy overwrites was read last, but long ago, as the lane's last copy knows; and written since by a transient
// that lies in the slot.
TEST_F(EvaluateTest, WhatACopyOverwritesIsNamedByWhatOtherEdgesLeave) {
  CompileRequest r = request(tinyQwen(7, false));
  r.goal.batch = 16;
  r.goal.miniBatches = 4;
  r.goal.context = 48;
  const absl::StatusOr<plan::Plan> plan = compiled(
      r, "mini-batches=4 new-tokens=8 contexts=32,48 weights=0-1,3,7,12-13,15,19-21,26-27,29 start=paper slots=2");
  ASSERT_TRUE(plan.ok()) << plan.status();
  const plan::Schedule &decode = plan->schedules.front();
  const plan::Edge &last = *std::prev(
      std::find_if(decode.edges.begin(), decode.edges.end(), [](const plan::Edge &edge) { return edge.to > 231; }));
  EXPECT_EQ(last.to, 231u);
  EXPECT_EQ(last.from, 230u);
  EXPECT_EQ(last.kind, plan::EdgeKind::Waw);
}

// The norms of heads are the end of a unit, and read later than the rest of it.
TEST_F(EvaluateTest, ACutDoesNotLeaveTheNormsOfHeadsAlone) {
  CompileRequest r = request(tinyQwen3(2));
  r.goal.batch = 8;
  r.goal.miniBatches = 2;
  r.goal.context = 96;
  const absl::StatusOr<plan::Plan> plan =
      compiled(r, "mini-batches=2 new-tokens=8 contexts=32,96 weights=1-3,6-7,9 kv=0-1@1 start=eager slots=2 "
                  "kv-slots=1 decode-write-back=all mixed-write-back=mirror wrap");
  ASSERT_TRUE(plan.ok()) << plan.status();
  const plan::State &entry = plan->states[plan->schedules.front().entryState];
  ASSERT_EQ(entry.contents.size(), 1u);
  EXPECT_EQ(entry.contents.front().bytes, 33280u); // 33,024 of them, then 128 of two norms, aligned
}

} // namespace
} // namespace headrace::compiler
