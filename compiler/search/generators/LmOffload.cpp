// SPDX-License-Identifier: Apache-2.0
//
// LM-Offload: what is packed, of weights and of KV caches, and how many layers' weights leave, KV going to the host
// where it then has no room; within what allow_quantized allows, and with mini-batches where these are left open. Its
// closed form (runtime/cost/lm_offload) says where to begin, the search goes on from there by what is played;
//
//   layers away    0   1   2 ... 48      for each encoding, and each number of mini-batches
//   KV             what room they leave: a share of all
//   closed form    1.9 1.4 1.5 ... 6.2 s the best of them, and both ends
//
// and whether the CPU attends, where that is left open (--attention auto).
#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "compiler/search/GeneratorInputs.h"
#include "compiler/search/Space.h"
#include "runtime/cost/lm_offload/FittingShares.h"
#include "runtime/cost/lm_offload/MachineOf.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::compiler {
namespace {

constexpr size_t kBest = 4;              // of an encoding and a number of mini-batches, by the closed form
constexpr int64_t kMostMiniBatches = 16; // that it begins with
constexpr double kNever = 1e300;         // memory does not hold it

// On a host the CPU is the device: its closed form is the device's.
bool machineAttends(Space &space) { return space.request().hardware.cpu.known(); }

// The closed form of one encoding and number of mini-batches, by the layers whose weights are away.
class ByLayers {
public:
  ByLayers(Space &space, const Coordinates &at)
      : target_(space.target(at)), aim_(space.aim(at)), spec_(space.request(at).model) {
    setting_ = cost::plannedSetting(spec_, target_.kv, target_.sequences(), target_.choice.miniBatches);
    if (at.attendsOnCpu && machineAttends(space))
      setting_.attention = cost::AttentionPlace::kCpu;
    model_ = cost::plannedModel(spec_, space.request().hardware);
    machine_ =
        cost::offloadMachine(space.request().hardware, spec_, setting_.weights, setting_.kv, target_.deviceMemory);
  }

  // Of the aim, in seconds.
  double seconds(int64_t away) const {
    cost::OffloadSetting setting = setting_;
    setting.prompt = std::max<int64_t>(1, target_.context - 2); // what memory has to hold
    const std::optional<model::Percent> percent = cost::sharesWithAway(model_, machine_, setting, away);
    if (!percent)
      return kNever;
    setting.percent = *percent;
    double sum = 0;
    for (const AimPoint &point : aim_.points) {
      const cost::Bucket &bucket = point.at.bucket;
      const bool decodes = point.at.iterationClass == plan::IterationClass::Decode;
      if (decodes) { // of a mini-batch
        setting.prompt = std::max<int64_t>(1, point.at.context - 1);
      } else {
        setting.block = std::max<int64_t>(1, bucket.sequences) * setting.miniBatches;
        setting.prompt = std::max<int64_t>(1, bucket.tokens / std::max<int64_t>(1, bucket.sequences));
      }
      setting.prompt = std::min(setting.prompt, model_.longestContext - setting.output);
      const auto form = cost::closedForm(model_, machine_, cost::kPlannedRuntime, setting);
      setting.block = setting_.block;
      if (!form.ok())
        return kNever;
      sum += point.weight * static_cast<double>(model_.layers) *
             (decodes ? form->decodeLayer.seconds : form->prefillLayer.seconds);
    }
    return sum;
  }

private:
  const Target &target_;
  const Aim &aim_;
  const model::ModelSpec &spec_;
  cost::OffloadSetting setting_;
  cost::OffloadModel model_;
  cost::OffloadMachine machine_;
};

std::vector<Coordinates> seeds(Space &of, const Coordinates &origin) {
  std::vector<Coordinates> found;
  const int64_t layers = of.request().model->layers;
  const auto add = [&](Coordinates at, bool embedding) {
    at.embedding |= embedding && of.free().embedding;
    if (std::find(found.begin(), found.end(), at) == found.end())
      found.push_back(at);
  };
  const auto addOf = [&](Coordinates at) { // of one number of mini-batches
    struct Begun {
      double seconds = 0;
      int64_t layers = 0;
    };
    std::vector<Begun> begun;
    const ByLayers form(of, at);
    for (int64_t away = 0; away <= layers && of.free().layers; ++away)
      begun.push_back({form.seconds(away), away});
    std::stable_sort(begun.begin(), begun.end(), [](const Begun &a, const Begun &b) { return a.seconds < b.seconds; });
    for (size_t i = 0; i < std::min(begun.size(), kBest); ++i) {
      at.layers = begun[i].layers;
      if (begun[i].seconds < kNever)
        add(at, at.layers > 0);
    }
    // Where the closed form does not know all that memory holds: all on the device, the table alone away, all away.
    at.layers = origin.layers;
    add(at, false);
    add(at, true);
    at.layers = of.free().layers ? layers : origin.layers;
    add(at, true);
  };
  for (Coordinates at = origin;;) {
    if (of.exists(at))
      addOf(at);
    const int64_t next = of.free().miniBatches ? of.nextMiniBatches(at.miniBatches, 1) : at.miniBatches;
    if (next == at.miniBatches || next > kMostMiniBatches)
      return found;
    at.miniBatches = next;
  }
}

} // namespace

extern const Generator kLmOffloadGenerator;
const Generator kLmOffloadGenerator = {
    .name = "lm-offload",
    .summary = "LM-Offload: what is packed (--allow-quantized), layers and KV on the host, begun by its closed form "
               "(and who attends: --attention auto)",
    .order = Order::LeastAim,
    .onePlacement = true,
    .allowsForSlowest = true,
    .weighsAttention = true,
    .splitsCaches = true,
    .colour = 8,
    .requests = [](const CompileRequest &asked) -> absl::StatusOr<std::vector<CompileRequest>> {
      if (asked.policy.actRatio && (asked.policy.actRatio->any() || asked.policy.actRatio->isAuto()))
        return absl::InvalidArgumentError(
            absl::StrCat("policy.act_ratio = ", model::actRatioText(*asked.policy.actRatio),
                         ": expected 0 or none beside policy.name \"lm-offload\", which keeps keys and values"));
      std::vector<CompileRequest> requests = {asked};
      if (!asked.policy.actRatio && asked.policy.actHome == model::ActHome::Auto) // it keeps keys and values
        requests.front().policy.actRatio = model::ActRatio();
      return requests;
    },
    .seeds = seeds,
    .holds = [](const Coordinates &at) { return at.listed == 0 && at.actParts == 0 && at.actAway == 0; },
};

} // namespace headrace::compiler
