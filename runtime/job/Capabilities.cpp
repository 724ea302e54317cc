// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/Capabilities.h"

#include <algorithm>
#include <array>

#include "runtime/base/Text.h"

namespace headrace::model {
namespace {

using enum Mechanism;

constexpr std::string_view kNames[] = {
    "--kv-device-memory",
    "--expansion",
    "--kv-places",
    "--kv-write-back",
    "--kv-write-back mirror, dirty",
    "--policy pie",
    "--act-ratio",
    "--act-home host",
    "--residuals host",
    "--mini-batches",
    "--elastic-kv on",
    "--instances apart",
    "fleet, with hand-over",
    "--swap-space",
    "units in a ring",
    "a policy of weights alone",
    "--start-rule paper",
    "--attention cpu",
    "--stages",
};
static_assert(std::size(kNames) == kMechanisms);

constexpr std::string_view kAlike = "how many activation blocks there are, and their home, is fixed for the whole plan";
constexpr std::string_view kHandsOver = "keys and values are handed over, no activations";
constexpr std::string_view kStays = "the policy moves weights alone, what an iteration writes stays on the device";
constexpr std::string_view kWholly = "the CPU attends to caches that are wholly at home on the host";
constexpr std::string_view kEagerly = "what an iteration writes moves under the rule eager alone";

constexpr Clash kClashes[] = {
    {KvPlaces, Expansion, "each says what KV takes of the device"},
    {KvPlaces, ResidualsOnHost, "residual streams stay where tails cycle through places"},
    {SwappedLayers, ItemByItem, "caches are swapped while other layers compute, under the rule eager"},
    {SwappedLayers, WriteBackInPart, "what is in use of a layer's cache is swapped out whole"},
    {SwappedLayers, ResidualsOnHost, "residual streams stay where caches are swapped through places"},
    {SwappedLayers, MiniBatches, "a layer's cache is swapped whole, with all sequences of the batch"},
    {ActBlocks, Expansion, kAlike},
    {ActBlocks, KvPlaces, kAlike},
    {ActBlocks, ElasticKv, kAlike},
    {ActBlocks, SwappedLayers, kAlike},
    {ActBlocks, InstancesApart, kHandsOver},
    {ActBlocks, HandOver, kHandsOver},
    {ActBlocks, SwapSpace, "swap space takes keys and values alone"},
    {MiniBatches, HandOver, "hand-over knows one range of KV blocks"},
    {MiniBatches, Ring, "each mini-batch uses all of a layer"},
    {KvOnHost, WeightsOnly, kStays},
    {KvPlaces, WeightsOnly, kStays},
    {WriteBack, WeightsOnly, kStays},
    {Expansion, WeightsOnly, kStays},
    {ResidualsOnHost, WeightsOnly, kStays},
    {ActsOnHost, WeightsOnly, kStays},
    {KvOnHost, ItemByItem, kEagerly},
    {KvPlaces, ItemByItem, kEagerly},
    {WriteBack, ItemByItem, kEagerly},
    {Expansion, ItemByItem, kEagerly},
    {ResidualsOnHost, ItemByItem, kEagerly},
    {ActsOnHost, ItemByItem, kEagerly},
    {AttentionOnCpu, Expansion, kWholly},
    {AttentionOnCpu, ElasticKv, kWholly},
    {AttentionOnCpu, KvPlaces, kWholly},
    {AttentionOnCpu, SwappedLayers, kWholly},
    {AttentionOnCpu, ActBlocks, "the CPU has no keys and values of activation blocks"},
    {AttentionOnCpu, ResidualsOnHost, "residual streams stay between the halves of a layer"},
    {AttentionOnCpu, WeightsOnly, kStays},
    {AttentionOnCpu, ItemByItem, kEagerly},
    {Stages, KvPlaces, "rows come and go through slots, which tails that cycle have none beside"},
    {Stages, SwappedLayers, "rows come and go through slots, which swapped caches have none beside"},
    {Stages, ActBlocks, "block tables are those of all stages, activation blocks have numbers of each plan's"},
    {Stages, ElasticKv, "all stages have as many KV blocks"},
    {Stages, InstancesApart, "sequences are not handed over among stages"},
    {Stages, HandOver, "sequences are not handed over among stages"},
    {Stages, SwapSpace, "who is preempted over stages is computed anew"},
    {Stages, ItemByItem, kEagerly},
};

const MechanismInUse *find(absl::Span<const MechanismInUse> used, Mechanism what) {
  const auto at = std::find_if(used.begin(), used.end(), [&](const MechanismInUse &use) { return use.what == what; });
  return at == used.end() ? nullptr : &*at;
}

} // namespace

std::string_view mechanismName(Mechanism mechanism) { return kNames[static_cast<size_t>(mechanism)]; }

absl::Span<const Clash> allClashes() { return kClashes; }

std::string_view whyNotBeside(Mechanism a, Mechanism b) {
  for (const Clash &clash : kClashes)
    if ((clash.a == a && clash.b == b) || (clash.a == b && clash.b == a))
      return clash.why;
  return {};
}

absl::Status checkBeside(absl::Span<const MechanismInUse> used) {
  for (const Clash &clash : kClashes) {
    const MechanismInUse *const a = find(used, clash.a), *const b = find(used, clash.b);
    if (a != nullptr && b != nullptr)
      return absl::InvalidArgumentError(cat(a->said, " beside ", b->said, ": expected ",
                                            b->otherwise.empty() ? std::string("one of them") : b->otherwise, ": ",
                                            clash.why));
  }
  return absl::OkStatus();
}

} // namespace headrace::model
