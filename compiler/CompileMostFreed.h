// SPDX-License-Identifier: Apache-2.0
//
// Placements that are chosen by latency (search/MostFreed.h), or several of a range (search/Range.h): side by side in
// one draft, and chosen anew where they turn out not to fit together, or to keep a sequence waiting where one follows
// another.
#pragma once

#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/Drafting.h"
#include "compiler/evaluate/Draft.h"

namespace headrace::compiler {

// What there is to choose from, where it is not all that a policy would consider.
struct ToChooseFrom {
  // If not empty, in place of the policy's candidates and of a search; `inOrder`: each is better than those behind it.
  std::vector<Candidate> candidates;
  bool inOrder = false;
  // Not to choose from: only how little memory they need is asked of them. Null: none.
  std::function<std::vector<Candidate>()> smallest;
};

// ResourceExhausted with the minima that would do where some bucket's objective cannot be met. Policies that do not
// choose by latency give their placement whatever it takes.
absl::StatusOr<Draft> compileMostFreed(Drafting &drafting, const ToChooseFrom &of);

} // namespace headrace::compiler
