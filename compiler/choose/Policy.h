// SPDX-License-Identifier: Apache-2.0
//
// How a placement is chosen: what there is to choose from, and by what. One file a policy in policies/, found there by
// its name; nothing else compares names. Without the compiler's headers.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "compiler/choose/PolicyTraits.h"

namespace headrace::compiler {

struct Candidate;
struct Objective;
struct PolicyInputs;

struct Policy {
  // Whether a candidate meets a bucket's objective in the policy's own opinion, which decides in place of the predicted
  // time; null: the predicted time does. The inputs must outlive it.
  using Opinion = std::function<bool(const Candidate &, const Objective &)>;

  std::string_view name;
  std::string_view summary; // one line, for --help
  PolicyTraits traits;
  // From the one that offloads least. What the user stated (embedding, head, slots) is in the request's policy.
  std::vector<Candidate> (*candidates)(const PolicyInputs &);
  Opinion (*opinion)(const PolicyInputs &) = nullptr;
  std::string_view opinionText; // what the reason says of how it chose
};

} // namespace headrace::compiler
