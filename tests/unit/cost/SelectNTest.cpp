// SPDX-License-Identifier: Apache-2.0
//
// Select-N's arithmetic with round numbers, and the paper's own cases from the shipped A10 profile, whose compute is
// fitted to Figure 2 alone.
#include "runtime/cost/SelectN.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "kernels/Kernels.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/model/Shape.h"
#include "tests/support/SourceDir.h"
#include "tests/unit/cost/Records.h"

namespace headrace::cost {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Eight layers of 10, copied in 50.
constexpr LayerTimes kRound = {8, 10, 50, 0};

TEST(SelectNTime, IsTheClosedForm) {
  EXPECT_EQ(residentNs(kRound), 80);
  EXPECT_EQ(intervalNs(kRound, 4), 120); // 2 x (max(30, 50) + 10)
  EXPECT_EQ(intervalNs(kRound, 3), 140); // 2 x (max(20, 50) + 10) + 2 x 10
  EXPECT_EQ(intervalNs(kRound, 8), 80);  // 1 x (max(70, 50) + 10): hidden
  EXPECT_EQ(intervalNs(kRound, 1), 400); // 8 x max(10, 50)
  EXPECT_EQ(emptyStartNs(kRound, 1), 410);
  EXPECT_EQ(emptyStartNs(kRound, 4), 120);
  EXPECT_EQ(intervalNs(kRound, 0), 80);
  EXPECT_EQ(intervalNs(kRound, 9), 80); // none of eight
  EXPECT_EQ(intervalNs({8, 10, 50, 5}, 4), 125);
}

TEST(SelectNTime, OfUnequalLayersIsTheSumOverGroups) {
  // Interval 3 of 7, copies of 25: max(10 + 20, 25) + 30, max(5 + 5, 25) + 5, and 40 left over.
  EXPECT_EQ(intervalNs(std::vector<double>{10, 20, 30, 5, 5, 5, 40}, 25, 1, 3), 60 + 30 + 40 + 1);
  EXPECT_EQ(intervalNs(std::vector<double>{10, 40}, 25, 0, 1), 25 + 40);
  EXPECT_EQ(intervalNs(std::vector<double>(8, 10.0), 50, 0, 4), intervalNs(kRound, 4));
  EXPECT_EQ(intervalNs(std::vector<double>{10, 40}, 25, 3, 0), 53);
}

// Plays the rule layer by layer: one compute lane, one copy lane. A layer's copy may start when the first layer of its
// group starts (interval 1: when the layer before it does), and its slot was given up.
double replay(const LayerTimes &t, int64_t interval) {
  const int64_t offloaded = interval * offloadedLayers(t.layers, interval);
  std::vector<double> start(static_cast<size_t>(t.layers)), end(static_cast<size_t>(t.layers));
  double computeFree = 0, copyFree = 0, ready = 0;
  const auto at = [](std::vector<double> &v, int64_t i) -> double & { return v[static_cast<size_t>(i)]; };
  for (int64_t l = 0; l < t.layers; ++l) {
    if (l < offloaded && interval == 1) {
      const double eligible = l == 0 ? 0 : at(start, l - 1), slotFree = l < 2 ? 0 : at(end, l - 2);
      ready = copyFree = std::max({eligible, slotFree, copyFree}) + t.transferNs;
    } else if (l < offloaded && l % interval == 0) {
      ready = copyFree = std::max(computeFree, copyFree) + t.transferNs;
    }
    const bool waits = l < offloaded && l % interval == interval - 1;
    at(start, l) = waits ? std::max(computeFree, ready) : computeFree;
    computeFree = at(end, l) = at(start, l) + t.computeNs;
  }
  return computeFree + t.restNs;
}

LayerTimes anyTimes() {
  return {*rc::gen::inRange<int64_t>(1, 97), static_cast<double>(*rc::gen::inRange(1, 1000)),
          static_cast<double>(*rc::gen::inRange(1, 5000)), static_cast<double>(*rc::gen::inRange(0, 500))};
}

TEST(SelectNTime, IsWhatAReplayOfTheRuleTakes) {
  EXPECT_TRUE(rc::check([] {
    const LayerTimes t = anyTimes();
    const int64_t interval = *rc::gen::inRange<int64_t>(0, t.layers + 2);
    RC_ASSERT(emptyStartNs(t, interval) == (interval == 0 ? residentNs(t) : replay(t, interval)));
  }));
}

TEST(SelectNTime, NeverFallsWhenAPartGrows) {
  EXPECT_TRUE(rc::check([] {
    const LayerTimes t = anyTimes();
    LayerTimes more = t;
    more.computeNs += *rc::gen::inRange(0, 300);
    more.transferNs += *rc::gen::inRange(0, 300);
    more.restNs += *rc::gen::inRange(0, 300);
    const int64_t interval = *rc::gen::inRange<int64_t>(0, t.layers + 2);
    RC_ASSERT(emptyStartNs(more, interval) >= emptyStartNs(t, interval));
    RC_ASSERT(intervalNs(more, interval) >= intervalNs(t, interval));
  }));
}

TEST(SelectNMemory, SlotsAreTakenOffWhatIsOffloaded) {
  EXPECT_EQ(freedLayers(32, 8), 3);
  EXPECT_EQ(freedLayers(32, 3), 9);
  EXPECT_EQ(freedLayers(32, 1), 30); // two slots
  EXPECT_EQ(freedLayers(32, 32), 0); // one layer and its slot
  EXPECT_EQ(freedLayers(32, 33), 0);
  EXPECT_EQ(freedLayers(1, 1), -1);
}

TEST(SelectNChoice, IsTheFeasibleIntervalThatFreesMost) {
  EXPECT_THAT(feasibleIntervals(kRound, 140), ElementsAre(3, 4, 5, 6, 7, 8));
  // 3 and 4 both offload two layers: floor(8 / 2) = 4 is the faster.
  EXPECT_EQ(chooseInterval(kRound, 140).interval, 4);
  EXPECT_EQ(chooseInterval(kRound, 140).freed, 1);
  EXPECT_EQ(chooseInterval(kRound, 140).iterationNs, 120);
  EXPECT_EQ(chooseInterval(kRound, 240).interval, 2); // 4 x (50 + 10)
  EXPECT_EQ(chooseInterval(kRound, 239).interval, 4);
  EXPECT_EQ(chooseInterval(kRound, 410).interval, 1);
  EXPECT_EQ(chooseInterval(kRound, 409).interval, 2);
}

TEST(SelectNChoice, OffloadsNothingOrSaysWhatTheLeastIs) {
  const IntervalChoice nothing = chooseInterval(kRound, 119); // one layer would fit, and frees nothing beside its slot
  EXPECT_TRUE(nothing.feasible);
  EXPECT_EQ(nothing.interval, 0);
  const IntervalChoice refused = chooseInterval(kRound, 79);
  EXPECT_FALSE(refused.feasible);
  EXPECT_EQ(refused.iterationNs, 80);
  for (double slo : {0.0, -1.0, std::nan("")})
    EXPECT_FALSE(chooseInterval(kRound, slo).feasible);
}

TEST(SelectNChoice, IsTheBestOfAllIntervals) {
  EXPECT_TRUE(rc::check([] {
    const LayerTimes t = anyTimes();
    const double slo = residentNs(t) * *rc::gen::inRange(100, 400) / 100.0;
    const IntervalChoice choice = chooseInterval(t, slo);
    RC_ASSERT(choice.feasible && choice.iterationNs <= slo && choice.freed >= 0);
    for (int64_t i = 1; i <= t.layers; ++i)
      RC_ASSERT(emptyStartNs(t, i) > slo || freedLayers(t.layers, i) <= choice.freed);
    if (choice.interval > 1) // the name the paper uses
      RC_ASSERT(choice.interval == t.layers / choice.offloaded);
  }));
}

TEST(SelectNChoice, SlosAreRoundedDownToTwoMilliseconds) {
  EXPECT_EQ(roundSlo(51'999'999), 50'000'000u);
  EXPECT_EQ(roundSlo(52'000'000), 52'000'000u);
  EXPECT_EQ(roundSlo(1'999'999), 0u);
  EXPECT_EQ(roundSlo(1'500, 100), 1'500u);
}

TEST(SelectNSlo, RefusesWhatIsNoObjective) {
  const double nan = std::nan(""), inf = std::numeric_limits<double>::infinity();
  EXPECT_TRUE(checkSlo({5e6, 0}, "--tpot").ok());
  EXPECT_TRUE(checkSlo({0, 1}, "--slo-factor").ok());
  for (const Slo &slo :
       {Slo{}, Slo{5, 2}, Slo{-5, 0}, Slo{nan, 0}, Slo{inf, 0}, Slo{0, 0.9}, Slo{0, nan}, Slo{0, inf}}) {
    EXPECT_EQ(checkSlo(slo, "--tpot").code(), absl::StatusCode::kInvalidArgument) << slo.ns << " " << slo.factor;
    EXPECT_THAT(std::string(checkSlo(slo, "--tpot").message()), HasSubstr("--tpot"));
  }
}

TEST(SelectNPaper, ThePrintedFormulaLacksTheNumberOfLayers) {
  // delta 0.5: 10 x 1.5 / 50 = 0.3 as printed; with L = 8 2.4.
  const PaperFormula formula = paperFormula(kRound, 0.5);
  EXPECT_EQ(formula.offloadPrinted, 0);
  EXPECT_EQ(formula.intervalPrinted, 0);
  EXPECT_EQ(formula.offloadTimesL, 2);
  EXPECT_EQ(formula.intervalTimesL, 4);
  EXPECT_EQ(paperFormula({8, 100, 1, 0}, 0.5).offloadTimesL, 8); // no more than there are
}

TEST(SelectNPaper, RoundingTheIntervalDownOffloadsMoreThanFits) {
  // L = 40, t_c = 10, t_t = 45, SLO 605: at most 11 layers, as n (t_t + t_c) <= SLO; floor(40 / 11) = 3 offloads 13.
  const LayerTimes t = {40, 10, 45, 0};
  const double slo = 605;
  EXPECT_EQ(offloadedLayers(40, 40 / 11), 13);
  EXPECT_GT(intervalNs(t, 3), slo); // 13 x 55 + 10 = 725
  EXPECT_EQ(chooseInterval(t, slo).interval, 4);
}

// OPT-6.7B on the A10 two ways. `fitted`: only what the profile was fitted with on Figure 2, a layer's matrices and KV
// cache; 402.7 MB of weights, copied in 16.8 ms.
//   prefill of T tokens   2 x 201.3e6 x T FLOP / (125 TFLOP/s x 0.69)
//   decode                (402.7 MB + batch x context x 16384 B) / (600 GB/s x 0.57)
LayerTimes fitted(Phase phase, int64_t batch, int64_t sequence) {
  const double weights = 12.0 * 4096 * 4096; // elements: 3 h h + h h + 2 x 4 h h
  LayerTimes t{32, 0, 2 * weights / 24e9 * 1e9, 0};
  const double flops = 2 * weights * static_cast<double>(bucketOf(phase, batch, sequence).tokens) / (125e12 * 0.69);
  const double bytes = (2 * weights + static_cast<double>(batch * sequence) * 2 * 4096 * 2) / (600e9 * 0.57);
  t.computeNs = std::max(flops, bytes) * 1e9;
  return t;
}

// `priced`: every op of a layer by the roofline over the shipped profile. ReLU is the up projection's epilogue: OPT has
// no activation step.
LayerTimes priced(Phase phase, int64_t batch, int64_t sequence) {
  const auto spec = model::readShape(sourceDir() + "/examples/models/opt-6.7b.toml");
  const auto a10 = model::readHardware(sourceDir() + "/examples/hardware/a10.toml");
  EXPECT_TRUE(spec.ok() && a10.ok());
  const Roofline costs(*spec, *a10, model::DType::F16, model::DType::F16);
  LayerTimes t{spec->layers, 0, static_cast<double>(costs.copyNs(model::layoutWeights(*spec).layerBytes(0), true)), 0};
  for (int s = 0; s < kSites; ++s) {
    if (inLayer(static_cast<Site>(s)) && opSiteOf(static_cast<Site>(s)).op != kernels::Op::Activate)
      t.computeNs +=
          static_cast<double>(costs.computeNs(opSiteOf(static_cast<Site>(s)), bucketOf(phase, batch, sequence), false));
  }
  return t;
}

TEST(SelectNFigure11, PrefillOf16Times64OffloadsTenLayersInIntervalsOfThree) {
  // t_c = 4.78 ms: n <= 32 x 4.78 x 1.5 / (16.78 + 4.78) = 10.6; T(3) = 10 x (16.78 + 4.78) + 2 x 4.78 = 225.2 of 229.4
  EXPECT_NEAR(fitted(Phase::Prefill, 16, 64).computeNs, 4.78e6, 0.01e6);
  for (const LayerTimes &t : {fitted(Phase::Prefill, 16, 64), priced(Phase::Prefill, 16, 64)}) {
    EXPECT_NEAR(t.transferNs, 16.8e6, 0.05e6);
    const IntervalChoice choice = chooseInterval(t, 1.5 * residentNs(t));
    EXPECT_EQ(choice.offloaded, 10);
    EXPECT_EQ(choice.interval, 3);
    EXPECT_EQ(paperFormula(t, 0.5).intervalPrinted, 0);
    EXPECT_EQ(paperFormula(t, 0.5).intervalTimesL, 2);
    EXPECT_GT(intervalNs(t, 2), 1.5 * residentNs(t)); // which would not hold
  }
}

TEST(SelectNFigure11, DecodeOf128At64OffloadsFourLayersInIntervalsOfEight) {
  // t_c = 1.57 ms: n <= 32 x 1.57 x 1.5 / (16.78 + 1.57) = 4.1; T(8) = 4 x (16.78 + 1.57) = 73.4 of 75.4
  EXPECT_NEAR(fitted(Phase::Decode, 128, 64).computeNs, 1.57e6, 0.01e6);
  for (const LayerTimes &t : {fitted(Phase::Decode, 128, 64), priced(Phase::Decode, 128, 64)}) {
    const IntervalChoice choice = chooseInterval(t, 1.5 * residentNs(t));
    EXPECT_EQ(choice.offloaded, 4);
    EXPECT_EQ(choice.interval, 8);
    EXPECT_EQ(offloadedLayers(32, 7), 4);
    EXPECT_EQ(paperFormula(t, 0.5).intervalTimesL, 8);
  }
}

TEST(SelectNSection52, TheChoiceIsTheSameFrom20To40PercentAndAnotherAt50) {
  // n <= 50.2 (1 + d) / 18.35: 3.28, 3.56, 3.83, 4.10
  const LayerTimes t = fitted(Phase::Decode, 128, 64);
  for (double factor : {1.2, 1.3, 1.4})
    EXPECT_EQ(chooseInterval(t, factor * residentNs(t)).offloaded, 3) << factor;
  EXPECT_EQ(chooseInterval(t, 1.5 * residentNs(t)).offloaded, 4);
}

TEST(SelectNSection52, WithEveryOpPricedTheFourthLayerComesAt40Percent) {
  // t_c = 1.68 ms with norms, biases and activations: 32 x 1.68 (1 + d) / 18.46 = 3.79 at 30%, 4.08 at 40%.
  const LayerTimes t = priced(Phase::Decode, 128, 64);
  EXPECT_NEAR(t.computeNs, 1.68e6, 0.01e6);
  EXPECT_EQ(chooseInterval(t, 1.2 * residentNs(t)).offloaded, 3);
  EXPECT_EQ(chooseInterval(t, 1.3 * residentNs(t)).offloaded, 3);
  EXPECT_EQ(chooseInterval(t, 1.4 * residentNs(t)).offloaded, 4);
  EXPECT_EQ(chooseInterval(t, 1.5 * residentNs(t)).offloaded, 4);
}

TEST(SelectNTable1, IntervalsFallWithBatchAndSequenceDownToOne) {
  const auto choose = [](int64_t b, int64_t s) {
    const LayerTimes t = fitted(Phase::Prefill, b, s);
    return chooseInterval(t, 1.5 * residentNs(t));
  };
  for (int64_t b = 4; b <= 64; b *= 2) {
    for (int64_t s = 128; s <= 1024; s *= 2) {
      const int64_t interval = choose(b, s).interval;
      EXPECT_GE(interval, 1);
      EXPECT_GE(interval, choose(2 * b, s).interval);
      EXPECT_GE(interval, choose(b, 2 * s).interval);
      if (b * s >= 8192) {
        EXPECT_EQ(interval, 1);
      }
    }
  }
  EXPECT_GT(choose(4, 128).interval, 1);
}

TEST(SelectNTable1, IsPrintedWithBatchesAsRows) {
  const std::string text = intervalTable({4, 8}, {128, 256}, [](int64_t b, int64_t s) {
    IntervalChoice choice;
    choice.interval = b == 8 && s == 256 ? 0 : b * s / 128;
    choice.feasible = s != 256 || b != 4;
    return choice;
  });
  EXPECT_EQ(text, "batch\\seq     128     256\n"
                  "        4       4       x\n"
                  "        8       8       -\n");
}

// --- From a record ---

Record measuredRecord(const model::Hardware &hardware) {
  const Roofline truth(smallLlama(), hardware, model::DType::F32, model::DType::F16);
  model::ModelSpec spec = smallLlama();
  spec.layers = 16;
  Record record = emptyRecord(spec, {2, 4, 8}, {4, 8, 16});
  record.hardware = hardware;
  const uint64_t layer = record.identity.layerBytes;
  return measured(std::move(record), truth, {layer / 4, layer});
}

model::ModelSpec sixteenLayers() {
  model::ModelSpec spec = smallLlama();
  spec.layers = 16;
  return spec;
}

// Rates at which the copy of a layer (about 20 kB) takes from a fraction of its compute to many times as long.
model::Hardware anyHardware() {
  model::Hardware h = roundHardware();
  h.flopsF32 = h.flopsF16 = *rc::gen::inRange(10'000'000, 1'000'000'000);
  h.memoryBandwidth = *rc::gen::inRange(1'000'000, 100'000'000);
  h.h2dBandwidth = h.d2hBandwidth = *rc::gen::inRange(50'000, 1'000'000);
  h.duplexBandwidth = 1.5 * h.h2dBandwidth;
  h.launchOverhead = *rc::gen::inRange(0, 100) * 1e-6;
  return h;
}

LayerTimes trueTimes(const CostModel &truth, const Record &record, Phase phase, int64_t batch, int64_t sequence) {
  const Cell cell = cellOf(truth, phase, batch, sequence);
  return {record.identity.layers, static_cast<double>(layerComputeNs(cell)),
          static_cast<double>(truth.copyNs(record.identity.layerBytes, true)),
          static_cast<double>(restComputeNs(cell))};
}

TEST(SelectNRecord, NeverGivesASmallerIntervalThanTheTrueOneInsideOrOutsideTheGrid) {
  EXPECT_TRUE(rc::check([] {
    const model::Hardware hardware = anyHardware();
    const Roofline truth(sixteenLayers(), hardware, model::DType::F32, model::DType::F16);
    const Record record = measuredRecord(hardware);
    const auto costs = RecordCostModel::create(record, sixteenLayers(), "r");
    RC_ASSERT(costs.ok());
    const Phase phase = *rc::gen::element(Phase::Prefill, Phase::Decode);
    const int64_t batch = *rc::gen::inRange(1, 33), sequence = *rc::gen::inRange(1, 65);
    const LayerTimes t = trueTimes(truth, record, phase, batch, sequence);
    const double factor = *rc::gen::inRange(100, 500) / 100.0;
    const bool absolute = *rc::gen::arbitrary<bool>();
    const double limit = factor * residentNs(t);
    const Slo slo = absolute ? Slo{limit, 0} : Slo{0, factor};
    const IntervalChoice choice = chooseFromRecord(*costs, phase, batch, sequence, slo, 1);
    // Feasible in truth but for the rounding of 14 sites in 16 layers, so not smaller than what truth allows.
    RC_ASSERT(!choice.feasible || emptyStartNs(t, choice.interval) <= limit * 1.0001 + 16 * 14 * 34);
    const IntervalChoice best = chooseInterval(t, limit * 1.0001 + 16 * 14 * 34);
    RC_ASSERT(choice.freed <= best.freed);
    if (choice.interval != 0)
      RC_ASSERT(best.interval != 0 && choice.interval >= best.interval);
  }));
}

TEST(SelectNRecord, OnTheGridIsTheTrueChoice) {
  model::Hardware h = roundHardware();
  h.h2dBandwidth = h.d2hBandwidth = 40;
  h.duplexBandwidth = 60;
  const Roofline truth(sixteenLayers(), h, model::DType::F32, model::DType::F16);
  const Record record = measuredRecord(h);
  const auto costs = RecordCostModel::create(record, sixteenLayers(), "r");
  ASSERT_TRUE(costs.ok()) << costs.status();
  for (int64_t b : {2, 4, 8}) {
    const LayerTimes t = trueTimes(truth, record, Phase::Decode, b, 8);
    for (double factor : {1.1, 1.5, 2.0, 4.0}) {
      const IntervalChoice choice = chooseFromRecord(*costs, Phase::Decode, b, 8, {0, factor});
      EXPECT_EQ(choice.interval, chooseInterval(t, factor * residentNs(t)).interval);
    }
  }
}

// Where the slowest iterations take a quarter longer than predicted, what offloads has four fifths of the objective;
// what offloads nothing has all of it.
TEST(SelectNRecord, LeavesRoomForTheSlowestIterations) {
  model::Hardware h = roundHardware();
  h.h2dBandwidth = h.d2hBandwidth = 40;
  h.duplexBandwidth = 60;
  const Roofline truth(sixteenLayers(), h, model::DType::F32, model::DType::F16);
  Record record = measuredRecord(h);
  record.spread = {300, {1000, 1000, 1000}, {1000, 1000, 1250}};
  const auto costs = RecordCostModel::create(record, sixteenLayers(), "r");
  ASSERT_TRUE(costs.ok()) << costs.status();
  const LayerTimes t = trueTimes(truth, record, Phase::Decode, 4, 8);
  int offloading = 0;
  for (const double factor : {1.0, 1.2, 1.25, 1.5, 2.0, 4.0, 8.0}) {
    const IntervalChoice relative = chooseFromRecord(*costs, Phase::Decode, 4, 8, {0, factor});
    const IntervalChoice absolute = chooseFromRecord(*costs, Phase::Decode, 4, 8, {factor * residentNs(t), 0}, 1);
    const IntervalChoice plain = chooseInterval(t, factor / 1.25 * residentNs(t));
    EXPECT_TRUE(relative.feasible && absolute.feasible) << factor;
    EXPECT_EQ(relative.interval, plain.interval) << factor; // 0 where not even the resident iteration has four fifths
    EXPECT_EQ(absolute.interval, plain.interval) << factor;
    offloading += relative.interval > 0;
  }
  EXPECT_GE(offloading, 3);
  EXPECT_THAT(
      recordTable(*costs, Phase::Decode, {0, 1.5}),
      testing::StartsWith("decode, SLO 1.5 x the time without offloading, 20.0% of it kept free for the slowest "
                          "iterations\nbatch\\seq "));
}

TEST(SelectNRecord, TheTableSaysItsPhaseAndObjective) {
  model::Hardware h = roundHardware();
  const auto costs = RecordCostModel::create(measuredRecord(h), sixteenLayers(), "r");
  ASSERT_TRUE(costs.ok()) << costs.status();
  EXPECT_THAT(
      recordTable(*costs, Phase::Decode, {0, 1.5}),
      testing::StartsWith("decode, SLO 1.5 x the time without offloading\nbatch\\seq       4       8      16\n"));
  // 3 ms is 2 ms, which no iteration of seconds meets.
  EXPECT_EQ(
      recordTable(*costs, Phase::Prefill, {3e6, 0}),
      "prefill, SLO 3 ms, in steps of 2 ms\nbatch\\seq       4       8      16\n"
      "        2       x       x       x\n        4       x       x       x\n        8       x       x       x\n");
}

} // namespace
} // namespace headrace::cost
