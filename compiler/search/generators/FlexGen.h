// SPDX-License-Identifier: Apache-2.0
//
// FlexGen as Select-N compares with it (sections 3.1, 3.3, 5.3 and 5.5): a fixed share of every layer in host memory,
// the next layer's share copied while a layer computes, and the share decided before anything runs, from
//
//   peak performance   every efficiency of the device 1, so that compute is a lower bound
//   1 / n of the bus   n devices share it; flexgen-nobus assumes the whole
//
//   T = L max(t_c, t_t) + min(t_c, t_t) + rest       t_t: the copy of a layer's share; the first copy is exposed
//
// Its SLO-aware form (section 3.3) takes the largest share with T within the objective. An objective that is a factor
// is one of its own estimate without offloading: it knows no measured time. What is a percentage of each tensor there
// is a set of whole units here (no GEMM is split), the same of every layer.
#pragma once

#include <vector>

#include "compiler/choice/Candidate.h"
#include "compiler/choice/Resolve.h"
#include "compiler/evaluate/Prices.h"
#include "compiler/search/Objective.h"
#include "runtime/cost/CostModel.h"
#include "runtime/model/WeightLayout.h"

namespace headrace::compiler {

class FlexGen {
public:
  // `steps` are those of an iteration with nothing offloaded. busDevices 1: the whole bus.
  FlexGen(const model::ModelSpec &spec, const model::WeightLayout &layout, const model::Hardware &hardware,
          const Target &target, std::vector<PricedStep> steps, int64_t busDevices);

  // Nothing, then every set of a layer's units by its bytes; under the paper's start rule in two slots.
  std::vector<Candidate> candidates() const;
  // Whether its own estimate meets the goal for this bucket.
  bool meets(const Candidate &candidate, const Objective &objective, const model::Goal &goal) const;
  // T of a share, in ns.
  double estimateNs(const Candidate &candidate, const cost::Bucket &bucket) const;

private:
  const model::ModelSpec &spec_;
  const model::WeightLayout &layout_;
  std::vector<PricedStep> steps_;
  cost::Roofline peak_;
};

} // namespace headrace::compiler
