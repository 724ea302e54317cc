// SPDX-License-Identifier: Apache-2.0
//
// The policies by name, and which of them a request asks for.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/search/Generator.h"
#include "runtime/job/JobFile.h"

namespace headrace::compiler {

// In the order in which they are listed for users.
const std::vector<const Generator *> &allPolicies();
// Of a search over all mechanisms: the policies that have a part in it, and `caches`, which is none by itself; where
// something that `lm-offload` decides is left open (what is packed, who attends, mini-batches), that.
std::vector<const Generator *> searchedGenerators(const Space &space);
// What a policy by its aim searches: itself, where it has seeds, else all of those.
std::vector<const Generator *> generatorsOf(const Generator &policy, const Space &space);
// Null where there is no such policy; "auto" is none.
const Generator *findPolicy(std::string_view name);
// "auto" stands for `interval` where a placement is stated, else for `joint`; of what that does not vary (several
// placements, a start rule, KV places, an expansion) for `interval`, or for `headrace` where the goal has a latency
// objective, as for objectives of instances apart.
// InvalidArgument, with the names there are, for one that is none.
absl::StatusOr<const Generator *> policyFor(const model::Policy &asked, const model::Goal &goal);
// Beside that, for what this policy cannot be asked for: an objective is missing, a placement stated where the policy
// chooses one, ... Keys are spelled as in a job file; what the model has to do with is checked when it is compiled for.
absl::Status checkPolicy(const model::Policy &asked, const model::Goal &goal);
// Of a name that a plan or a flag has, "auto" as "interval"; where there is no such policy one that nothing is said of.
const Generator &policyNamed(std::string_view name);
// "interval, pie, hybridserve or headrace": those that may have blocks of KV caches at home on the host.
std::string splittingPolicyNames();
// "auto", "interval", ... or "headrace", each in quotes.
std::string policyNames();

extern const Generator kSelectNGenerator; // whose placements are headrace's as well

} // namespace headrace::compiler
