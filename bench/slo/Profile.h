// SPDX-License-Identifier: Apache-2.0
//
// Performance records of a model on this machine, by profile::analyze as `headrace profile` uses it: iterations once,
// with everything resident, then copies for each link that the model is run over.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "bench/slo/Player.h"
#include "runtime/cost/Record.h"
#include "runtime/profile/AnalyzerGrid.h"

namespace headrace::bench {

inline constexpr char kModelHash[] = "synthetic";

class Profile {
public:
  Profile(model::ModelSpec spec, model::Hardware host, host::HostOptions device, const KeptWeights &weights,
          cost::MeasuredSpread &widest);

  // The record over a link of this bandwidth, bytes/s. Its iterations are those of the first record made, which must be
  // the one over the slowest link: over a faster one fewer pairs need measuring (cost/Record.h). Its spread is the
  // widest that any profile has measured until then: what disturbs the machine is not the link's, and comes and goes.
  cost::Record over(double bandwidth);
  model::Hardware hardware(double bandwidth) const;

private:
  profile::Grid grid(const model::Hardware &hardware) const;

  model::ModelSpec spec_;
  model::Hardware host_;
  host::HostOptions device_;
  const KeptWeights &weights_;
  cost::MeasuredSpread &widest_; // of all models
  std::optional<profile::Grid> grid_;
  std::vector<cost::Cell> cells_;
  bool layersEqual_ = true;
};

} // namespace headrace::bench
