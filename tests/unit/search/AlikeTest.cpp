// SPDX-License-Identifier: Apache-2.0
#include "compiler/search/Alike.h"

#include <random>

#include "absl/strings/str_cat.h"
#include "compiler/search/Choices.h"
#include "runtime/model/ModelSpec.h"
#include "tests/unit/compiler/Requests.h"
#include "gtest/gtest.h"

namespace headrace::compiler {
namespace {

// What a choice takes at least is no more than what it is played to take; and where it is the link that it waits for,
// nearly all of it.
TEST(Alike, NoChoiceTakesLessThanWhatItBrings) {
  std::mt19937 generator(5);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(generator() % static_cast<uint32_t>(n)); };
  int near = 0;
  for (int problem = 0; problem < 200; ++problem) {
    const int64_t layers = 2 + below(5);
    const model::ModelSpec specs[] = {tinyLlama(layers), tinyOpt(layers), tinyQwen(layers, below(2) == 0)};
    CompileRequest r = request(specs[below(3)]);
    r.goal.batch = int64_t{1} << below(4);
    r.goal.context = 64 << below(4);
    r.hardware.h2dBandwidth = r.hardware.d2hBandwidth = 1e9 / (1 << below(6));
    r.hardware.duplexBandwidth = r.hardware.h2dBandwidth * (1 + 0.5 * static_cast<double>(below(3)));
    r.hardware.copyLatency = 1e-6 * static_cast<double>(below(3));
    r.policy.actRatio = model::ActRatio();
    if (below(2) == 0)
      r.goal.sloFactor = 2;
    else
      r.goal.tpot = std::chrono::milliseconds(1);
    const model::WeightLayout layout = model::layoutWeights(r.model);
    const absl::StatusOr<Target> target = resolve(r);
    ASSERT_TRUE(target.ok()) << target.status();
    const cost::Roofline costs(r.model, r.hardware, target->activation, target->kv);
    Prices prices(costs);
    const Choices choices(r, layout);
    Coordinates at = choices.origin();
    at.layers = below(layers + 1);
    at.embedding = below(2) == 0;
    at.head = below(2) == 0 && choices.free().head;
    at.slots = 1 + below(3);
    at.kvSlots = 2 + below(2);
    at.decodeDirty = below(2) == 0;
    at.wraps = below(2) == 0;
    const Choice common = choices.common(at);
    Alike alike(r, *target, common, layout, {}, prices);
    Scored scored{.at = at, .candidate = choices.weights(at, common)};
    if (const int64_t resident = below(2 * target->kvBlocks); resident < target->kvBlocks)
      choices.setTails(at, resident, scored.candidate);
    SCOPED_TRACE(absl::StrCat(r.model->name, ": ", toText(scored.candidate)));
    ASSERT_TRUE(alike.play(scored));
    const Alike::AtLeast least = alike.atLeast(scored.candidate);
    EXPECT_LE(least.aimNs, scored.aimNs);
    ASSERT_EQ(least.limitedNs.size(), scored.limitedNs.size());
    for (size_t i = 0; i < least.limitedNs.size(); ++i)
      EXPECT_LE(least.limitedNs[i], scored.limitedNs[i]);
    near += least.aimNs > 0.95 * scored.aimNs ? 1 : 0;
  }
  EXPECT_GT(near, 50);
}

} // namespace
} // namespace headrace::compiler
