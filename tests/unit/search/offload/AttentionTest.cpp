// SPDX-License-Identifier: Apache-2.0
//
// Who attends, left open: against either stated.
#include <array>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/search/Search.h"
#include "compiler/search/generators/Generators.h"
#include "runtime/cost/CostModel.h"
#include "runtime/model/ModelSpec.h"
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

std::optional<Searched> found(const CompileRequest &r) {
  const cost::Roofline costs(r.model, r.hardware, r.model->dtype, r.model->dtype);
  Space space(r, costs);
  return search(space, searchedGenerators(space));
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
      return found(asked(cell.model, cell.hardware, cell.batch, cell.context, attention));
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

} // namespace
} // namespace headrace::compiler
