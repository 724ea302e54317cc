// SPDX-License-Identifier: Apache-2.0
//
// HybridServe on a GPU that plays a small one: OPT-30B within 24 GB, weights and caches on the host. Keys and values
// alone against activations in their place, in one run; as many prompts of 1,920 as 100 GiB of host memory hold.
#include <algorithm>
#include <optional>

#include "bench/cuda/Parts.h"
#include "bench/cuda/Session.h"
#include "compiler/Compile.h"

namespace headrace::bench {
namespace {

constexpr int64_t kPrompt = 1920, kContext = 1936; // room for a block of tokens generated
constexpr uint64_t kDeviceMemory = 24'000'000'000;
constexpr double kHostMemory = 100 * kGiB;
constexpr const char *kBaseline = "keys and values alone, all on the host";

struct Case {
  const char *name;
  std::optional<model::ActRatio> share; // unset: what is fastest
  model::ActHome home = model::ActHome::Auto;
  uint64_t kvOnDevice = 0; // bytes that KV takes there; other blocks are on the host, as all weights are
};

plan::Plan planOf(const Context &context, const model::ModelSpec &spec, const Case &of, int64_t sequences) {
  compiler::CompileRequest compile;
  compile.model = spec;
  compile.modelHash = "synthetic";
  compile.hardware = openProfile(context.deviceName);
  compile.goal.deviceMemory = kDeviceMemory;
  compile.goal.elasticKv = model::AutoOnOff::Off;
  compile.goal.batch = sequences;
  compile.goal.context = kContext;
  compile.buckets = {.newTokens = {sequences}, .sequences = {sequences}, .contexts = {kContext}};
  compile.policy.name = "hybridserve";
  compile.goal.kvDeviceMemory = of.kvOnDevice;
  compile.policy.actRatio = of.share;
  if (of.share && of.share->any())
    compile.policy.actHome = of.home;
  return take(compiler::compile(compile));
}

// With keys and values alone and all of them on the host, which takes most of it: the same batch for all.
int64_t mostSequences(const model::ModelSpec &spec) {
  return largestThatFits(64, [&](int64_t n) {
    const Cell all{"", n, 1, kContext, n, false};
    return static_cast<double>(kvBytes(spec, all, 16) + weightBytes(spec)) <= kHostMemory;
  });
}

Json decode(const Context &context, const model::ModelSpec &spec, const LayerWeights &weights, const Case &of,
            int64_t sequences) {
  const Cell cell{"", sequences, 1, kPrompt + 1, sequences, false};
  Session session(planOf(context, spec, of, sequences), weights, {.cuda = {.index = context.device}});
  const Played played = session.play(0, cell, {.warmUp = 2, .most = 6, .seconds = 12});
  const plan::Plan &plan = session.plan();
  const plan::Variant &variant = plan.variants[played.variant];
  const double ms = median(played.ms), predicted = static_cast<double>(variant.predictedNs) * 1e-6;
  Json fields = {{"ms", ms},
                 {"sequences", sequences},
                 {"share of activations", model::actRatioText(plan.actRatio)},
                 {"iterations", played.ms.size()},
                 {"tokens/s", static_cast<double>(sequences) / ms * 1e3},
                 {"h2d bytes", played.h2dBytes},
                 {"d2h bytes", played.d2hBytes},
                 {"link GB/s", static_cast<double>(played.h2dBytes) / ms * 1e-6},
                 {"predicted ms", predicted},
                 {"measured / predicted", ms / predicted},
                 {"arena bytes", plan.arenaBytes},
                 {"pinned bytes", plan.hostBytes},
                 {"load seconds", session.loadSeconds()}};
  if (const Json *alone = context.report.find(kBaseline); alone != nullptr && alone->contains("ms")) {
    fields["throughput by keys and values alone"] = (*alone)["ms"].get<double>() / ms;
    fields["predicted so"] = (*alone)["predicted ms"].get<double>() / predicted;
  }
  return fields;
}

} // namespace

void measureHybridCaches(const Context &context) {
  Report &report = context.report;
  report.part("hybrid", "OPT-30B within 24 GB, weights on the host, decode of prompts of 1,920 as many as 100 GiB of "
                        "host memory hold; two iterations in flight; median of up to 6 iterations after 2");
  const model::ModelSpec spec = openShape("opt-30b");
  const int64_t sequences = mostSequences(spec);
  std::optional<LayerWeights> weights;
  std::vector<Report::Task> tasks;
  const auto add = [&](Case of) {
    tasks.push_back({of.name, 60, [=, &context, &spec, &weights] {
                       if (!weights)
                         weights.emplace(spec);
                       return decode(context, spec, *weights, of, sequences);
                     }});
  };
  using model::ActHome;
  using model::ActRatio;
  add({kBaseline, ActRatio{0, 1}});
  add({"as many activations as is fastest", std::nullopt});
  add({"keys and values alone, 18 GB of them on the device", ActRatio{0, 1}, ActHome::Auto,
       19'130'000'000}); // with the slots that the others go through
  add({"half activations, on the device", ActRatio{1, 2}, ActHome::Device});
  add({"activations alone, on the host", ActRatio{1, 1}, ActHome::Host});
  report.attempt(tasks);
}

} // namespace headrace::bench
