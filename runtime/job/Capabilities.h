// SPDX-License-Identifier: Apache-2.0
//
// Which mechanisms may not stand side by side, and why: one table. Who resolves a request asks it once, and so do
// fleets and engines of what a plan has; `headrace compile --beside` prints it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace headrace::model {

enum class Mechanism : uint8_t {
  KvOnHost,        // a stated number of KV blocks on the device, the others at home on the host
  Expansion,       // KV by what it takes of the device
  KvPlaces,        // tails of caches cycle through places
  WriteBack,       // a stated way for what is appended to tails to get home
  WriteBackInPart, // of these rows as they are appended, or the blocks that were written to
  SwappedLayers,   // layers' caches swapped whole, first in, first out
  ActBlocks,       // activations kept in place of keys and values
  ActsOnHost,      // these at home on the host
  ResidualsOnHost, // residual streams leave the device between layers
  MiniBatches,     // several that each layer is passed for
  ElasticKv,       // placements with more KV blocks than are asked for
  InstancesApart,  // prompts and decoding on two instances
  HandOver,        // of sequences, between the instances of a fleet
  SwapSpace,       // preempted sequences are copied to the host
  Ring,            // units go through one range one behind the other
  WeightsOnly,     // a policy that moves nothing else
  ItemByItem,      // start rules that wait for a layer's movables together
  AttentionOnCpu,  // rows that decode attend on the CPU
  Stages,          // a model over several devices
};
inline constexpr size_t kMechanisms = static_cast<size_t>(Mechanism::Stages) + 1;
// As a user says it: "--kv-places", "--policy pie".
std::string_view mechanismName(Mechanism mechanism);

struct Clash {
  Mechanism a, b;
  std::string_view why;
};
// What is not here stands side by side.
absl::Span<const Clash> allClashes();
// Empty: they may. In any order.
std::string_view whyNotBeside(Mechanism a, Mechanism b);

// What someone asks for, or has: how it is said ("goal.expansion = 1.5"), and what is expected in its place where that
// is not to leave it out ("start rule eager").
struct MechanismInUse {
  Mechanism what;
  std::string said;
  std::string otherwise = {};
};
// InvalidArgument for the first clash in the table's order: "policy.kv_places = 3 beside goal.expansion = 1.5: expected
// one of them: " and why.
absl::Status checkBeside(absl::Span<const MechanismInUse> used);

} // namespace headrace::model
