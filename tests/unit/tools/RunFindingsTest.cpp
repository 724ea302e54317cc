// SPDX-License-Identifier: Apache-2.0
#include "tools/report/RunFindings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/Kernels.h"
#include "runtime/model/ModelSpec.h"
#include "tests/unit/tools/SplitTestPlan.h"

namespace headrace::tools {
namespace {

using testing::HasSubstr;
using testing::Not;

// testPlan's iteration with compute `compute` and copies `copies` times as long as planned (20 40 40 60 40 0; 150 90).
PhaseInput decode(double predictedMs, double measuredMs, int64_t compute, int64_t copies) {
  PhaseInput phase{"decode", predictedMs, measuredMs, 0, {}};
  phase.looked.modelHash = "00ff";
  phase.looked.device = "host";
  phase.looked.iteration = 5;
  phase.looked.about = "iteration 5 of 8";
  const int64_t ns[] = {150 * copies, 20 * compute, 40 * compute, 40 * compute,
                        60 * compute, 90 * copies,  40 * compute, 0};
  int64_t at = 0;
  for (const int64_t one : ns) {
    phase.looked.steps.emplace_back(at, at + one);
    at += one;
  }
  return phase;
}
std::string why(const plan::Plan &plan, const PhaseInput &phase, double linkBandwidth = 0, bool sim = false) {
  return findOut(plan, {phase}, linkBandwidth, sim).phases[0].why;
}

TEST(RunFindings, WhatLimitsIsTheLaneThatIsBusyLonger) {
  const RunFindings found = findOut(testPlan(), {decode(1, 1, 1, 1)}, 0, false);
  ASSERT_EQ(found.phases.size(), 1u);
  EXPECT_STREQ(found.phases[0].predicted.limit(), "link h2d"); // 240 of copies, 200 of compute
  EXPECT_EQ(found.phases[0].predicted.computeNs, 200u);
  EXPECT_EQ(found.phases[0].predicted.h2dNs, 240u);
  EXPECT_STREQ(findOut(testPlan(), {decode(1, 1, 1, 1)}, 2e9, false).phases[0].predicted.limit(), "compute"); // 120
  EXPECT_STREQ((LaneTimes{10, 3, 11}).limit(), "link d2h");
  EXPECT_THAT(findingsText(found),
              HasSubstr("limited by       link h2d in decode (predicted: compute 200 ns, link 240 ns)\n"));
  EXPECT_EQ(findingsText({}), "");
}

TEST(RunFindings, NearThePredictionThereIsNothingToExplain) {
  EXPECT_EQ(why(testPlan(), decode(100, 130, 3, 3)), ""); // 1.3 x
  EXPECT_EQ(why(testPlan(), decode(130, 100, 3, 3)), "");
  EXPECT_EQ(why(testPlan(), decode(0, 100, 3, 3)), "");
  EXPECT_NE(why(testPlan(), decode(100, 131, 3, 3)), "");
  EXPECT_NE(why(testPlan(), decode(131, 100, 1, 1)), "");
}

TEST(RunFindings, TheReasonIsTheLaneThatWasMeasuredToBeOff) {
  const std::string compute = why(testPlan(), decode(100, 200, 2, 1));
  EXPECT_THAT(compute, HasSubstr("decode took 2.00 x the predicted time, as compute did: compute 2.00 x (400 ns for "
                                 "200 ns), copies 1.00 x (1.00 GB/s for 1.00) in iteration 5 of 8; the profile "
                                 "\"round\" is not of this machine"));
  EXPECT_THAT(compute, HasSubstr("headrace profile models/two-layers -o record.toml"));
  EXPECT_THAT(compute, Not(HasSubstr("--h2d-bandwidth")));
  const std::string link = why(testPlan(), decode(100, 200, 1, 2)); // 240 bytes in 480 ns
  EXPECT_THAT(link, HasSubstr("as copies did: compute 1.00 x (200 ns for 200 ns), copies 2.00 x (0.50 GB/s for 1.00)"));
  EXPECT_THAT(link, HasSubstr("compile --h2d-bandwidth 0.50GB/s plans for such a link"));
  EXPECT_THAT(why(testPlan(), decode(100, 300, 2, 3)), HasSubstr("as both compute and copies did"));
  // The run's own link is what copies are held against: at half the bandwidth they took what they should.
  EXPECT_THAT(why(testPlan(), decode(100, 200, 2, 2), 0.5e9), HasSubstr("as compute did"));
}

// It was faster than predicted: a lane that is slower is no reason.
TEST(RunFindings, ALaneThatIsOffTheOtherWayIsNoReason) {
  EXPECT_THAT(why(testPlan(), decode(200, 100, 2, 1)),
              HasSubstr("decode took 0.50 x the predicted time, its steps did not"));
}

TEST(RunFindings, WhereStepsTookWhatWasPredictedItIsTheTimeAroundThem) {
  // The iteration looked at took 440 ns in all.
  EXPECT_THAT(why(testPlan(), decode(0.001, 0.00244, 1, 1)), HasSubstr("0.002 ms went by")); // 2440 ns less 440
  EXPECT_THAT(why(testPlan(), decode(0.0004, 0.0002, 1, 1)), HasSubstr("with the copies behind its tokens"));
}

TEST(RunFindings, ARecordThatDoesNotFitIsMeasuredAnew) {
  plan::Plan plan = testPlan();
  plan.goal.record = "r.toml";
  EXPECT_THAT(why(plan, decode(100, 200, 2, 1)), HasSubstr("the record r.toml is not of this machine"));
  EXPECT_THAT(why(plan, decode(100, 200, 2, 1)), HasSubstr("headrace profile --force"));
}

TEST(RunFindings, NoMachineIsToBlameForVirtualTime) {
  EXPECT_THAT(why(testPlan(), decode(100, 200, 2, 2), 0, true), Not(HasSubstr("machine")));
}

// splitTestPlan's iteration with 2 of 5 blocks in use, so that the tail is 256 bytes of 1024, each lane as many times
// as long as that is planned.
PhaseInput split(double predictedMs, double measuredMs, int64_t compute, int64_t copies) {
  PhaseInput phase = decode(predictedMs, measuredMs, compute, copies);
  phase.variant = phase.looked.variant = kTails;
  phase.looked.inUse[0] = core::InUse{.kvBlocks = 2};
  const int64_t less = 150 * copies - 256 * copies; // the first copy, and all behind it
  phase.looked.steps[0].second -= less;
  for (size_t i = 1; i < phase.looked.steps.size(); ++i) {
    phase.looked.steps[i].first -= less;
    phase.looked.steps[i].second -= less;
  }
  return phase;
}

TEST(RunFindings, CopiesAreHeldAgainstWhatWasInUseOfKv) {
  EXPECT_EQ(why(splitTestPlan(), split(406, 406, 1, 1)), ""); // 1174 with everything in use
  // Half as fast a link as planned: the copies that there were took twice as long, and that is what is said of it.
  const std::string link = why(splitTestPlan(), split(406, 752, 1, 2)); // 692 of copies
  EXPECT_THAT(link, HasSubstr("decode took 1.85 x the predicted time, as copies did: compute 1.00 x (200 ns for 200 "
                              "ns), copies 2.00 x (0.50 GB/s for 1.00)"));
  EXPECT_THAT(
      link,
      HasSubstr("copied 346 B of at most 1.09 KiB: KV blocks below 2 of 5 were in use; the profile")); // 256 + 90 of
                                                                                                       // 1024 + 90
  EXPECT_THAT(link, HasSubstr("compile --h2d-bandwidth 0.50GB/s plans for such a link"));
  EXPECT_THAT(why(splitTestPlan(), split(1174, 1000 * 1174, 3, 1)), HasSubstr("as compute did: "));
  // With everything in use there is nothing to say of it.
  PhaseInput all = split(100, 200, 2, 1);
  all.looked.inUse[0] = core::InUse{.kvBlocks = 5};
  EXPECT_THAT(why(splitTestPlan(), all), Not(HasSubstr("in use")));
}

TEST(RunFindings, WhatLimitsIsThatOfWhatWasInUse) {
  const auto limits = [](const PhaseInput &phase) {
    return findOut(splitTestPlan(), {phase}, 0, false).phases[0].predicted;
  };
  EXPECT_EQ(limits(split(1, 1, 1, 1)).h2dNs, 346u);
  PhaseInput unseen = split(1, 1, 1, 1);
  unseen.looked.steps.clear();
  EXPECT_EQ(limits(unseen).h2dNs, 1114u);
}

TEST(RunFindings, WithoutALookItSaysHowToTakeOne) {
  PhaseInput phase{"prefill", 100, 200, 0, {}};
  EXPECT_EQ(why(testPlan(), phase),
            "prefill took 2.00 x the predicted time: --timeline FILE.svg measures which steps did");
}

TEST(RunFindings, APhaseWithoutIterationsIsNotThere) {
  EXPECT_TRUE(findOut(testPlan(), {{"decode", 0, 0, plan::kNone, {}}}, 0, false).phases.empty());
}

Track stalled(std::vector<Gap> gaps) {
  Track track;
  track.about = "iteration 5 of 8";
  for (const Gap &gap : gaps)
    track.stallNs += gap.endNs - gap.startNs;
  track.stalls = std::move(gaps);
  return track;
}

TEST(CopyWaits, AreTheCopiesByNameTheLongestFirst) {
  const CopyWaits waits = copyWaits(stalled({{0, 10, "L1 up"}, {20, 50, "L2 up"}, {60, 85, "L1 up"}}));
  ASSERT_EQ(waits.waits.size(), 2u);
  EXPECT_EQ(waits.waits[0].copy, "L1 up"); // 10 + 25
  EXPECT_EQ(waits.waits[0].ns, 35u);
  EXPECT_EQ(waits.waits[1].ns, 30u);
  EXPECT_EQ(waits.totalNs, 65u);
}

TEST(CopyWaits, BeyondThreeAreFoldedByUnit) {
  RunFindings found;
  found.waits = copyWaits(stalled({{0, 900, "L1 up"},
                                   {1000, 1800, "L2 up"},
                                   {2000, 2700, "head"},
                                   {3000, 3060, "L1 qkv"},
                                   {3100, 3150, "L2 qkv"},
                                   {3200, 3400, "L3 up"}}));
  EXPECT_EQ(findingsText(found),
            "waited for       L1 up 900 ns, L2 up 800 ns, head 700 ns, 1 more of up 200 ns, 2 more of "
            "qkv 110 ns: 2.71 us in iteration 5 of 8\n"); // 900 + 800 + 700 + 60 + 50 + 200 = 2710
}

TEST(RunFindings, TheWaitsAreThoseOfTheIterationLookedAt) {
  PhaseInput phase = decode(1, 1, 1, 1);
  // Nothing computes from 100 on, when L0 has ended, until the copy has at 200.
  phase.looked.steps = {{0, 200}, {0, 20}, {20, 60}, {60, 100}, {200, 260}, {260, 350}, {260, 300}, {300, 300}};
  const RunFindings found = findOut(testPlan(), {phase}, 0, false);
  ASSERT_EQ(found.waits.waits.size(), 1u);
  EXPECT_EQ(found.waits.waits[0].copy, "L1 qkv");
  EXPECT_EQ(found.waits.waits[0].ns, 100u);
  nlohmann::ordered_json json;
  addFindings(found, json);
  EXPECT_EQ(json["limited_by"]["decode"]["resource"], "link h2d");
  EXPECT_EQ(json["waited_for"]["copies"][0]["copy"], "L1 qkv");
  EXPECT_EQ(json["waited_for"]["iteration"], "iteration 5 of 8");
  EXPECT_TRUE(json["why"].empty());
}

} // namespace
} // namespace headrace::tools
