// SPDX-License-Identifier: Apache-2.0
//
// LM-Offload's closed form, with the rates of a hardware profile, against what the same choice is played to take:
// decode of shipped models on shipped cards, some layers and some KV on the host, packed or not.
#include <algorithm>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/search/Space.h"
#include "runtime/cost/lm_offload/MachineOf.h"
#include "runtime/model/KvEncoding.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/model/WeightEncodings.h"
#include "runtime/model/WeightLayout.h"
#include "tests/unit/compiler/Requests.h"
#include "gtest/gtest.h"

namespace headrace::compiler {
namespace {

double layersOf(const CompileRequest &r) { return static_cast<double>(r.model->layers); }

TEST(ClosedFormTimeline, IsCloseOnRandomCases) {
  const size_t wanted = 200;
  std::mt19937 random(49);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<uint32_t>(n)); };
  const std::vector<std::string> models = {"opt-6.7b", "opt-30b", "opt-66b", "llama-30b", "llama-3.1-8b", "qwen3-32b"};
  const std::vector<std::string> cards = {"a100-40", "rtx4090", "h100"};
  std::vector<std::pair<double, std::string>> errors;
  for (size_t draws = 0; errors.size() < wanted; ++draws) {
    ASSERT_LT(draws, 4 * wanted);
    const int64_t parts = int64_t{1} << below(4), batch = parts << below(6), context = 128 << below(5);
    CompileRequest r = shipped(models[static_cast<size_t>(below(6))], cards[static_cast<size_t>(below(3))], batch,
                               std::min<int64_t>(context, 2048));
    r.goal.miniBatches = parts;
    r.policy.actRatio = model::ActRatio();
    r.buckets = {.newTokens = {batch / parts}, .sequences = {batch / parts}, .contexts = {*r.goal.context}};
    r.goal.deviceMemory = uint64_t{1} << 50; // what is where is drawn
    r.hardware.hostMemoryBytes = 0;
    r.hardware.memoryBytes = uint64_t{1} << 50;
    cost::OffloadSetting setting;
    if (const int bits = std::vector<int>{0, 0, 8, 4}[static_cast<size_t>(below(4))]; bits > 0) {
      r.model->encodings = model::packedIn(bits, r.model);
      setting.weights = r.model->encodings[model::UnitRole::Up];
    }
    if (const int bits = std::vector<int>{0, 0, 8, 4}[static_cast<size_t>(below(4))]; bits > 0) {
      r.goal.kvEncoding = model::kvEncodingFor(model::Encoding::groups(bits), r.model->headDim);
      setting.kv = r.goal.kvEncoding;
    }
    const absl::StatusOr<Target> target = resolve(r);
    ASSERT_TRUE(target.ok()) << target.status();
    const cost::Roofline costs(r.model, r.hardware, target->activation, target->kv);
    Space space(r, costs);
    const Coordinates at = space.origin();
    ASSERT_TRUE(space.exists(at));
    // Of every layer the same units, as the closed form has shares.
    const int units = std::vector<int>{0, 1 + below(14), 15}[static_cast<size_t>(below(3))];
    const model::WeightLayout &layout = space.layout(at);
    std::vector<int32_t> away;
    uint64_t awayBytes = 0, allBytes = 0;
    for (int64_t layer = 0; layer < r.model->layers; ++layer)
      for (int unit = 0; unit < model::kUnitsPerLayer; ++unit) {
        const int32_t index = layout.layerUnit(layer, model::UnitRole::Qkv) + unit;
        const uint64_t bytes = layout.units[static_cast<size_t>(index)].bytes;
        allBytes += bytes;
        if (((units >> unit) & 1) == 0)
          continue;
        away.push_back(index);
        awayBytes += bytes;
      }
    Candidate candidate;
    candidate.name = "shares";
    candidate.residency.setWeightsAway(away);
    if (!away.empty()) {
      candidate.residency.wrap.around = true;
      candidate.residency.weights().setSlots(2);
    }
    candidate = alike(std::move(candidate), space.commonOf(at));
    const int64_t resident =
        std::vector<int64_t>{0, target->kvBlocks / 2, target->kvBlocks}[static_cast<size_t>(below(3))];
    if (resident < target->kvBlocks)
      space.setTails(at, resident, candidate);
    const std::optional<Scored> played = space.scored(at, candidate);
    if (!played)
      continue;
    const AimPoint &point = space.aim(at).points.back();
    setting.block = batch;
    setting.miniBatches = parts;
    setting.prompt = point.at.context - 2; // with its output no longer than the context
    setting.output = 2;
    setting.percent.wc = 100 * static_cast<double>(awayBytes) / static_cast<double>(allBytes);
    setting.percent.wg = 100 - setting.percent.wc;
    setting.percent.cg = resident == target->kvBlocks ? 100
                                                      : 100 * static_cast<double>(std::max<int64_t>(0, resident - 1)) /
                                                            static_cast<double>(target->kvBlocks - 1);
    setting.percent.cc = 100 - setting.percent.cg;
    setting.percent.hg = 100;
    setting.percent.hc = 0;
    const auto form =
        cost::closedForm(cost::plannedModel(r.model, r.hardware),
                         cost::offloadMachine(r.hardware, r.model, setting.weights, setting.kv, *r.goal.deviceMemory),
                         cost::kPlannedRuntime, setting);
    ASSERT_TRUE(form.ok()) << form.status();
    const double seconds = static_cast<double>(played->played.back().ns) / 1e9;
    errors.emplace_back(std::abs(form->iteration / seconds - 1),
                        absl::StrCat(r.model->name, " on ", r.hardware.name, ", ", batch, " in ", parts, " at ",
                                     *r.goal.context, ", ", setting.percent.wc, "% of weights away, ", resident, " of ",
                                     target->kvBlocks, " blocks there, weights ", model::weightEncodingText(r.model),
                                     ", KV ", model::kvEncodingText(target->kv), ": ", 1e3 * form->iteration, " ms (",
                                     std::string(cost::limitingLaneName(form->decodeLayer.limit)), ") against ",
                                     1e3 * seconds, "; device ", 1e3 * layersOf(r) * form->decode.device(), " against ",
                                     1e-6 * static_cast<double>(played->played.back().computeNs), ", h2d ",
                                     1e3 * layersOf(r) * form->decode.h2d(), " and d2h ",
                                     1e3 * layersOf(r) * form->decode.d2h(), " against ",
                                     1e-6 * static_cast<double>(played->played.back().linkNs)));
  }
  std::sort(errors.begin(), errors.end());
  std::string worst;
  for (size_t i = errors.size() - errors.size() / 6; i < errors.size(); ++i)
    absl::StrAppend(&worst, errors[i].first, ": ", errors[i].second, "\n");
  EXPECT_LE(errors[errors.size() / 2].first, 0.05) << worst;
  EXPECT_LE(errors[errors.size() * 95 / 100].first, 0.12) << worst;
  RecordProperty("median", absl::StrCat(errors[errors.size() / 2].first));
  RecordProperty("p95", absl::StrCat(errors[errors.size() * 95 / 100].first));
}

} // namespace
} // namespace headrace::compiler
