// SPDX-License-Identifier: Apache-2.0
//
// Golden models with caches that are split between device and host.
#pragma once

#include <cstdint>
#include <ostream>

#include "compiler/search/generators/WholeLayers.h"
#include "tests/golden/GoldenRun.h"

namespace headrace::golden {

struct SplitCase {
  int64_t resident = 1; // blocks on the device, the scratch block included
  int64_t interval = 0; // of every so many layers the last is away; 0: no weights are
  int64_t slots = 0;    // that tails take turns in; 0: as many as the compiler says
  bool wrap = true;
  int64_t mixedTokens = 0; // RunSetup::mixedTokens
  bool poison = false;
  // How rows of tails get home, by class of the iteration.
  algorithms::WriteBack decode = algorithms::WriteBack::Mirror, mixed = algorithms::WriteBack::Mirror;
};

constexpr const char *nameOf(algorithms::WriteBack writeBack) {
  return writeBack == algorithms::WriteBack::Mirror ? "mirror"
         : writeBack == algorithms::WriteBack::All  ? "all"
                                                    : "dirty";
}

inline std::ostream &operator<<(std::ostream &out, const SplitCase &c) {
  return out << c.resident << " blocks on the device, interval " << c.interval << ", " << c.slots << " slots, wrap "
             << c.wrap << ", " << c.mixedTokens << " mixed tokens, poison " << c.poison << ", decode "
             << nameOf(c.decode) << ", mixed " << nameOf(c.mixed);
}

// `setup` with the case's placement; `blocks`: that there are, all of them on the device is no split.
inline RunSetup withCase(RunSetup setup, const SplitCase &c, int64_t blocks) {
  model::Policy policy;
  policy.none = c.interval == 0;
  if (c.interval > 0)
    policy.interval = c.interval;
  compiler::Candidate placement = compiler::wholeLayers(policy, setup.spec, model::layoutWeights(setup.spec)).front();
  placement.residency.wrap.around = c.wrap;
  if (c.resident < blocks) {
    placement.residency.setKvAway(setup.spec.layers, c.resident);
    placement.residency.kv().setSlots(c.slots);
    placement.residency.kv().decodeBack = c.decode;
    placement.residency.kv().mixedBack = c.mixed;
  }
  setup.placement = placement;
  setup.mixedTokens = c.mixedTokens;
  setup.poison = c.poison;
  return setup;
}

} // namespace headrace::golden
