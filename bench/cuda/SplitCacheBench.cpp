// SPDX-License-Identifier: Apache-2.0
//
// Long contexts with half of their KV at home on the host: an iteration against the same one with all of it on the
// device, and against what the link takes for the bytes that moved.
#include <algorithm>

#include "bench/cuda/Parts.h"
#include "bench/cuda/Session.h"

namespace headrace::bench {
namespace {

constexpr const char *kAlone = "all KV on the device";

// Of one large pinned copy, bytes a second.
double bandwidth() {
  static const double measured = [] {
    const PinnedBuffer host(kGiB);
    const DeviceBuffer device(kGiB);
    Timer timer;
    const double ms = timer.medianMs(3, [&](cudaStream_t stream) {
      must(cudaMemcpyAsync(device.as(), host.as(), kGiB, cudaMemcpyHostToDevice, stream), "cudaMemcpyAsync");
    });
    return static_cast<double>(kGiB) / ms * 1e3;
  }();
  return measured;
}

Json decode(const Context &context, const model::ModelSpec &spec, const Cell &cell, double onDevice, int64_t interval,
            const char *policy) {
  const LayerWeights weights(spec);
  Session session(take(planRound({.spec = spec,
                                  .hardware = openProfile(context.deviceName),
                                  .deviceMemory = 60 * kGiB,
                                  .cells = {cell},
                                  .intervals = {interval},
                                  .kvOnDevice = onDevice,
                                  .policy = policy,
                                  .kvWriteBack = model::KvWriteBack::Auto})),
                  weights, {.cuda = {.index = context.device}});
  const Played played = session.play(0, cell, {.seconds = 3});
  const plan::Variant &variant = session.plan().variants[played.variant];
  const double ms = median(played.ms), predicted = static_cast<double>(variant.predictedNs) * 1e-6;
  Json fields = {{"ms", ms},
                 {"p99 ms", quantile(played.ms, 0.99)},
                 {"iterations", played.ms.size()},
                 {"h2d bytes", played.h2dBytes},
                 {"d2h bytes", played.d2hBytes},
                 {"predicted ms", predicted},
                 {"measured / predicted", ms / predicted}};
  if (const Json *alone = context.report.find(kAlone); onDevice < 1 && alone != nullptr && alone->contains("ms")) {
    const double link = static_cast<double>(played.h2dBytes) / bandwidth() * 1e3;
    fields["link ms"] = link;
    fields["ratio"] = ms / std::max((*alone)["ms"].get<double>(), link);
  }
  return fields;
}

} // namespace

void measureSplitCaches(const Context &context) {
  Report &report = context.report;
  report.part("caches", "Llama-3.1-8B, decode of 2 sequences at 32,768: 8 GiB of KV, BF16; two iterations in flight; "
                        "ratio: iteration / max(the one with all KV on the device, bytes to the device / bandwidth of "
                        "one copy)");
  const model::ModelSpec spec = openShape("llama-3.1-8b");
  const Cell cell{"decode 2 at 32768", 2, 1, 32768, 2, false};
  std::vector<Report::Task> tasks;
  const auto add = [&](const char *name, double onDevice, int64_t interval, const char *policy = "") {
    tasks.push_back({name, 15, [=, &context] { return decode(context, spec, cell, onDevice, interval, policy); }});
  };
  add(kAlone, 1, 0);
  add("half of the KV on the host", 0.5, 0);
  add("half of the KV and every fourth layer's weights on the host", 0.5, 4);
  add("pie: layers' caches swapped whole, three quarters of the memory", 0.75, 0, "pie");
  report.attempt(tasks);
}

} // namespace headrace::bench
