// SPDX-License-Identifier: Apache-2.0
//
// How a placement is chosen: what there is to choose from, and by what. One file a policy in policies/, found there by
// its name; nothing else compares names.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/choose/ChoosePlacement.h"
#include "compiler/choose/PolicyTraits.h"
#include "compiler/lower/CompileRequest.h"
#include "compiler/lower/Placements.h"
#include "compiler/lower/Prices.h"

namespace headrace::compiler {

// All outlive what a policy makes of them.
struct PolicyInputs {
  const CompileRequest &request;
  const Target &target;
  const model::WeightLayout &layout;
  const PlacementFamily &family;
  const std::vector<PricedStep> &steps; // of an iteration with nothing offloaded
};

class Policy {
public:
  virtual ~Policy() = default;
  virtual std::string_view name() const = 0;
  virtual std::string_view summary() const = 0; // one line, for --help and docs
  virtual PolicyTraits traits() const = 0;
  // From the one that offloads least. What the user stated (embedding, head, slots) is in the request's policy.
  virtual std::vector<Candidate> candidates(const PolicyInputs &in) const = 0;

  // Whether a candidate meets a bucket's objective in the policy's own opinion, which decides in place of the predicted
  // time; null: the predicted time does. The inputs must outlive it.
  using Opinion = std::function<bool(const Candidate &, const Objective &)>;
  virtual Opinion opinion(const PolicyInputs &) const { return nullptr; }
  // What the reason says of how the placement was chosen, where the policy has an opinion.
  virtual std::string_view opinionText() const { return ""; }
};

} // namespace headrace::compiler
