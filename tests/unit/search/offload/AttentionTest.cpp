// SPDX-License-Identifier: Apache-2.0
//
// Who attends, left open: against either stated.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/choice/Packing.h"
#include "compiler/search/Search.h"
#include "compiler/search/generators/Generators.h"
#include "runtime/cost/CostModel.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/plan/value/LimitedBy.h"
#include "runtime/sim/Simulator.h"
#include "tests/support/LongRun.h"
#include "tests/unit/compiler/Requests.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace headrace::compiler {
namespace {

using ::testing::HasSubstr;

CompileRequest asked(const std::string &model, const std::string &hardware, int64_t batch, int64_t context,
                     model::Attention attention) {
  CompileRequest r = shipped(model, hardware, batch, context);
  r.policy.name = "joint";
  r.policy.attention = attention;
  r.policy.actRatio = model::ActRatio();
  if (attention == model::Attention::Cpu)
    r.goal.kvDeviceMemory = 0;
  return r;
}

std::optional<Searched> searchOf(const CompileRequest &r, const char *policy) {
  const cost::Roofline costs(r.model, r.hardware, r.model->dtype, r.goal.kvEncoding.value_or(r.model->dtype));
  Space space(r, costs);
  return search(space, generatorsOf(*findPolicy(policy), space));
}

struct Cell {
  const char *model, *hardware;
  int64_t batch, context;
};

// Six models on three machines: where all fits on the device, and where nothing does.
std::vector<Cell> cells() {
  std::vector<Cell> cells;
  const std::array<const char *, 6> models = {"llama-3.1-8b", "opt-6.7b",  "opt-13b",
                                              "opt-30b",      "qwen3-32b", "llama-3.1-70b"};
  const std::array<const char *, 3> machines = {"rtx4090", "a100-40", "h100"};
  const std::array<std::pair<int64_t, int64_t>, 4> goals = {{{1, 2048}, {16, 1024}, {64, 2048}, {256, 512}}};
  for (size_t i = 0; i < 40; ++i) { // of 72
    const auto &[batch, context] = goals[(i + i / 18) % goals.size()];
    cells.push_back({models[i % 6], machines[i / 6 % 3], batch, context});
  }
  return cells;
}

TEST(Attention, LeftOpenIsNeverSlowerThanStated) {
  const std::vector<Cell> all = cells();
  std::set<bool> chosen;
  int compared = 0;
  for (size_t i = 0; i < all.size(); i += longRun() ? 1 : 5) {
    const Cell &cell = all[i];
    SCOPED_TRACE(absl::StrCat(cell.model, " on ", cell.hardware, ", ", cell.batch, " x ", cell.context));
    const auto with = [&](model::Attention attention) {
      return searchOf(asked(cell.model, cell.hardware, cell.batch, cell.context, attention), "joint");
    };
    const std::optional<Searched> open = with(model::Attention::Auto), device = with(model::Attention::Device),
                                  cpu = with(model::Attention::Cpu);
    EXPECT_EQ(open.has_value(), device || cpu);
    if (!open)
      continue;
    ++compared;
    chosen.insert(open->best.at.attendsOnCpu);
    for (const std::optional<Searched> &stated : {device, cpu})
      if (stated) {
        EXPECT_LE(open->best.comparedNs, (1 + kTie) * stated->best.comparedNs) << toText(stated->best.candidate);
      }
  }
  EXPECT_GT(compared, 0);
  EXPECT_EQ(chosen.size(), 2U); // neither is always better
}

// Weights as they are or in q4, KV as it is or in q4, the device or the CPU: what lm-offload finds where all that is
// open is none slower than the best of the eight, each stated and the rest of it searched.
TEST(Attention, LmOffloadIsAsGoodAsTheBestOfItsEightSettings) {
  const std::vector<Cell> all = cells();
  std::set<std::string> chosen;
  for (size_t i = 0; i < 30; i += longRun() ? 1 : 6) {
    const Cell &cell = all[i];
    SCOPED_TRACE(absl::StrCat(cell.model, " on ", cell.hardware, ", ", cell.batch, " x ", cell.context));
    CompileRequest open = asked(cell.model, cell.hardware, cell.batch, cell.context, model::Attention::Auto);
    open.policy.name = "lm-offload";
    open.goal.allowQuantized = model::AllowQuantized::Both;
    const std::optional<Searched> found = searchOf(open, "lm-offload");
    double best = std::numeric_limits<double>::infinity();
    for (const bool weights : {false, true})
      for (const bool kv : {false, true})
        for (const model::Attention attention : {model::Attention::Device, model::Attention::Cpu}) {
          CompileRequest stated = asked(cell.model, cell.hardware, cell.batch, cell.context, attention);
          Choice choice;
          if (weights)
            choice.encodings.weights = model::packedIn(4, stated.model);
          if (kv)
            choice.encodings.kv = model::Encoding::groups(4);
          choice.attendsOnCpu = attention == model::Attention::Cpu;
          if (const std::optional<Searched> one = searchOf(asChosen(stated, choice), "lm-offload"))
            best = std::min(best, one->best.comparedNs);
        }
    ASSERT_EQ(found.has_value(), std::isfinite(best));
    if (!found)
      continue;
    EXPECT_LE(found->best.comparedNs, (1 + kTie) * best) << toText(found->best.candidate);
    chosen.insert(absl::StrCat(found->best.at.weightEncoding, found->best.at.kvEncoding, found->best.at.attendsOnCpu));
  }
  EXPECT_GE(chosen.size(), 2U);
}

// OPT-6.7B in 40 GB: of 16 x 256 tokens all KV fits beside the weights, of 64 x 2,048 it would cross the link.
TEST(Attention, MovesToTheCpuAboveABatchAndContext) {
  const absl::StatusOr<plan::Plan> few = compile(asked("opt-6.7b", "a100-40", 16, 256, model::Attention::Auto)),
                                   many = compile(asked("opt-6.7b", "a100-40", 64, 2048, model::Attention::Auto));
  ASSERT_TRUE(few.ok() && many.ok()) << few.status() << many.status();
  EXPECT_EQ(few->policy.attention, model::Attention::Device);
  EXPECT_EQ(few->goal.kvDeviceMemory, std::nullopt);
  EXPECT_EQ(many->policy.attention, model::Attention::Cpu);
  EXPECT_THAT(many->reason, HasSubstr(". Attention that was weighed, the best of each that was tried: on the device "));
  EXPECT_THAT(many->reason, HasSubstr("; by the closed form the CPU is faster from 64 x "));
  EXPECT_THAT(many->reason, HasSubstr("With one mini-batch the device waits for the CPU"));
  // What was found, stated, is the same plan.
  const absl::StatusOr<plan::Plan> stated = compile(asked("opt-6.7b", "a100-40", 64, 2048, model::Attention::Cpu));
  ASSERT_TRUE(stated.ok()) << stated.status();
  EXPECT_EQ(many->goal.kvDeviceMemory, stated->goal.kvDeviceMemory);
  EXPECT_EQ(many->arenaBytes, stated->arenaBytes);
  EXPECT_EQ(many->variants.back().durationsNs, stated->variants.back().durationsNs);
}

const plan::Variant &largestDecode(const plan::Plan &plan) {
  const plan::Variant *largest = nullptr;
  for (const plan::Variant &variant : plan.variants)
    if (plan.schedules[variant.schedule].iterationClass == plan::IterationClass::Decode &&
        (largest == nullptr || variant.newTokens * variant.context > largest->newTokens * largest->context))
      largest = &variant;
  return *largest;
}

// As the plan predicts it: no clock has a say.
double predictedDecodeNs(const CompileRequest &r) {
  const absl::StatusOr<plan::Plan> plan = compile(r);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.ok() ? static_cast<double>(largestDecode(*plan).predictedNs) : 0;
}

// First halves two mini-batches ahead: while the CPU attends, the device computes and weights come.
TEST(Attention, AnIterationOfManyMiniBatchesIsAsLongAsItsLongestLane) {
  CompileRequest r = asked("opt-30b", "a100-40", 640, 192, model::Attention::Auto);
  r.goal.miniBatches = 10;
  r.goal.inputLen = 64;
  r.goal.outputLen = 128;
  const absl::StatusOr<plan::Plan> plan = compile(r);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->policy.attention, model::Attention::Cpu);
  const plan::Variant &decode = largestDecode(*plan);
  const uint64_t longest = std::max({decode.computeAloneNs, decode.linkAloneNs, plan::cpuAloneNs(*plan, decode)});
  EXPECT_LE(static_cast<double>(decode.predictedNs), 1.03 * static_cast<double>(longest));
  EXPECT_EQ(plan::limitedBy(*plan, decode), plan->limitingResource);
}

// 16 x 2,048 tokens of OPT-6.7B are 17 GB: over 0.25 GB/s 69 s, at 200 GB/s 0.09.
TEST(Attention, OverASlowLinkIsFourTimesAsFastAsKvThatIsBrought) {
  const auto predicted = [](model::Attention attention) {
    CompileRequest r = asked("opt-6.7b", "a100-40", 16, 2048, attention);
    r.goal.kvDeviceMemory = 0;
    r.hardware.h2dBandwidth = r.hardware.d2hBandwidth = r.hardware.duplexBandwidth = 0.25e9;
    return predictedDecodeNs(r);
  };
  const double brought = predicted(model::Attention::Device), attended = predicted(model::Attention::Cpu);
  EXPECT_NEAR(brought, 69e9, 3e9);
  EXPECT_GE(brought, 4 * attended);
}

// A CPU that is slower than all else is what limits, and what the device waits for.
TEST(Attention, ASlowCpuLimits) {
  CompileRequest r = asked("opt-6.7b", "a100-40", 16, 2048, model::Attention::Cpu);
  r.hardware.cpu.coreBandwidth = 0.1e9; // of 56 cores 5.6 GB/s
  const absl::StatusOr<plan::Plan> plan = compile(r);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->limitingResource, "cpu");
  const plan::Variant &decode = largestDecode(*plan);
  sim::Timeline timeline;
  sim::Simulator(*plan, plan->schedules[decode.schedule])
      .run(decode.durationsNs, cost::sharingOf(plan->hardware), timeline);
  EXPECT_EQ(timeline.iterationNs, decode.predictedNs);
  EXPECT_EQ(timeline.cpuBusyNs, plan::cpuAloneNs(*plan, decode));
  EXPECT_GT(timeline.cpuWaitNs, decode.predictedNs / 2);
}

// In the least memory that holds anything a search begins with nothing that fits: of what takes the least of either the
// faster.
TEST(Attention, InTheLeastMemoryTheFasterIsTaken) {
  const auto predicted = [](model::Attention attention) {
    CompileRequest r = asked("opt-30b", "a100-40", 64, 160, attention);
    r.goal.deviceMemory = 1'500'000'000;
    return predictedDecodeNs(r);
  };
  const double device = predicted(model::Attention::Device), cpu = predicted(model::Attention::Cpu);
  EXPECT_LT(cpu, 0.95 * device);
  EXPECT_LE(predicted(model::Attention::Auto), 1.01 * cpu);
}

// What it says that --attention auto would bring is what that brings; where the search would not take it, nothing.
TEST(Attention, TheHintIsKept) {
  int hints = 0;
  for (const Cell &cell : {Cell{"opt-30b", "a100-40", 64, 160},
                           {"llama-3.1-8b", "rtx4090", 1, 131072},
                           {"opt-6.7b", "a100-40", 64, 2048},
                           {"opt-13b", "rtx4090", 16, 2048}}) {
    SCOPED_TRACE(absl::StrCat(cell.model, " on ", cell.hardware, ", ", cell.batch, " x ", cell.context));
    CompileRequest r = asked(cell.model, cell.hardware, cell.batch, cell.context, model::Attention::Device);
    std::string advice;
    r.advise = [&](std::string_view line) { advice = std::string(line); };
    ASSERT_TRUE(compile(r).ok());
    const size_t at = advice.find("attention on the CPU would take ");
    const absl::StatusOr<plan::Plan> open =
        compile(asked(cell.model, cell.hardware, cell.batch, cell.context, model::Attention::Auto));
    ASSERT_TRUE(open.ok()) << open.status();
    if (at == std::string::npos)
      continue;
    ++hints;
    EXPECT_EQ(open->policy.attention, model::Attention::Cpu) << advice;
  }
  EXPECT_GE(hints, 2);
}

} // namespace
} // namespace headrace::compiler
