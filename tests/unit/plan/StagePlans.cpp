// SPDX-License-Identifier: Apache-2.0
#include <random>

#include "runtime/model/ModelSpec.h"
#include "tests/unit/plan/MakePlan.h"

namespace headrace::plan::test {
namespace {

enum class Which : uint8_t { First, Middle, Last };

// The same plan, but its model is as many layers of one that has more; stream: in slots that take turns, as in plans
// whose residuals leave, or, of 2, in one slot a mini-batch.
NamedOptions asStage(NamedOptions named, Which which, uint32_t miniBatches, uint64_t stream) {
  if (miniBatches > 1)
    named = withMiniBatches(std::move(named), miniBatches);
  PlanOptions &options = named.options;
  const int64_t layers = options.model.layers, before = which == Which::First ? 0 : 2;
  model::ModelSpec whole = options.model;
  whole.layers = before + layers + (which == Which::Last ? 0 : 3);
  options.model = model::stageOf(whole, before, layers);
  for (PlacementOptions &p : options.placements) {
    p.offloadEmbedding &= which == Which::First;
    p.offloadHead &= which == Which::Last;
    p.residualsStay = stream % 3 != 0;
    p.residualSlots = static_cast<int>(stream % 3 == 2 ? options.miniBatches : 1 + stream / 3 % 2);
    for (LimitOptions &limits : p.limits)
      if (limits.evictAfter == 0)
        limits.evictAfter = static_cast<int>(stream / 2 % 3);
  }
  const char *names[] = {"first stage, ", "middle stage, ", "last stage, "};
  named.name = names[static_cast<int>(which)] + named.name;
  return named;
}

} // namespace

std::vector<NamedOptions> stagePlans() {
  std::vector<NamedOptions> base = variedPlans(), out;
  const auto addSome = [&](const std::vector<NamedOptions> &of, size_t step) {
    for (size_t i = 0; i < of.size(); i += step)
      base.push_back(of[i]);
  };
  addSome(splitPlans(), 3);
  addSome(writeBackPlans(), 3);
  addSome(hostActPlans(), 6);
  addSome(cpuPlans(), 3);
  for (uint64_t turn = 0; const NamedOptions &named : base) {
    const uint32_t count = named.options.miniBatches > 1 ? 1 : static_cast<uint32_t>(1 + turn / 3 % 3);
    out.push_back(asStage(named, static_cast<Which>(turn % 3), count, turn / 2));
    ++turn;
  }
  return out;
}

NamedOptions randomStagePlan(uint64_t seed) {
  std::mt19937_64 random(seed);
  const uint64_t form = random() % 4, inner = random();
  NamedOptions named = form == 0 ? randomCpuPlan(inner) : form == 1 ? randomHostActPlan(inner) : randomSplitPlan(inner);
  const auto count = static_cast<uint32_t>(named.options.miniBatches > 1 ? 1 : 1 + random() % 3);
  named = asStage(std::move(named), static_cast<Which>(random() % 3), count, random() % 12);
  named.name += " of " + std::to_string(seed);
  return named;
}

} // namespace headrace::plan::test
