// SPDX-License-Identifier: Apache-2.0
//
// The iterations that a plan has of a placement, and what of them is the same in all: the list of steps of each class,
// its buckets, and how a bucket is priced and played.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "compiler/choice/Candidate.h"
#include "compiler/choice/CompileRequest.h"
#include "compiler/choice/Resolve.h"
#include "compiler/evaluate/MemoryUse.h"
#include "compiler/evaluate/Prices.h"
#include "compiler/evaluate/Steps.h"
#include "runtime/model/WeightLayout.h"
#include "runtime/plan/value/Plan.h"
#include "runtime/sim/Simulator.h"

namespace headrace::compiler {

struct IterationOf { // a placement
  plan::IterationClass iterationClass = plan::IterationClass::Decode;
  uint64_t phase = 0, period = 1; // of a cycle
  int64_t kvBlocks = 0;           // no tail is brought, these may be in use; 0: all that there are
  std::string className() const;
  std::string scheduleName(const Candidate &candidate) const;
};

class Iterations {
public:
  // All outlive it.
  Iterations(const CompileRequest &request, const Target &target, const model::WeightLayout &layout, Prices &prices);

  // Of each class one, or a cycle of so many; where tails of caches are away, one more of each that brings none.
  std::vector<IterationOf> of(const Candidate &candidate) const;
  // With buckets: decode, then mixed where the target has such.
  const std::vector<plan::IterationClass> &classes() const { return classes_; }
  const std::vector<cost::Bucket> &buckets(plan::IterationClass iterationClass) const {
    return iterationClass == plan::IterationClass::Decode ? target_.decode : target_.mixed;
  }
  StepsRequest stepsRequest(plan::IterationClass iterationClass) const;
  const Steps &steps(plan::IterationClass iterationClass) const;

  // Of an iteration of each class.
  std::vector<MemoryUse> memoryUses() const;
  // The compute steps of a decode iteration with nothing offloaded.
  std::vector<PricedStep> pricedSteps() const;
  // All that a placement says of a candidate but where things lie.
  plan::Placement described(const Candidate &candidate) const;
  // What a step that is `direct` has at its class's limits; `homeBytes`: of caches' homes that it writes to.
  cost::Work directWork(const cost::OpSite &site, plan::IterationClass iterationClass, uint64_t homeBytes) const;
  // Of a schedule that is in the plan; `sites`: by step.
  plan::Variant variantOf(const plan::Plan &plan, uint32_t schedule,
                          const std::vector<std::optional<cost::OpSite>> &sites, const cost::Bucket &bucket,
                          const sim::Simulator &simulator);

  const CompileRequest &request() const { return request_; }
  const Target &target() const { return target_; }
  const model::WeightLayout &layout() const { return layout_; }
  Prices &prices() const { return prices_; }

private:
  const CompileRequest &request_;
  const Target &target_;
  const model::WeightLayout &layout_;
  Prices &prices_;
  std::vector<plan::IterationClass> classes_;
  std::vector<Steps> steps_; // by class
  sim::Timeline timeline_;
};

} // namespace headrace::compiler
