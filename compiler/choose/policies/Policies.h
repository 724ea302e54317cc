// SPDX-License-Identifier: Apache-2.0
//
// The policies themselves, by name: what is said of them, and what sets them apart.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/choose/Policy.h"
#include "runtime/job/JobFile.h"

namespace headrace::compiler {

// In the order in which they are listed for users.
const std::vector<const Policy *> &allPolicies();
// Null where there is none; "auto" is none.
const Policy *findPolicy(std::string_view name);
// "auto" stands for `interval` where a placement is stated, else for `joint`; of what that does not vary (several
// placements, a start rule, KV places, an expansion) for `interval`, or for `headrace` where the goal has a latency
// objective, as for objectives of instances apart.
// InvalidArgument, with the names there are, for one that is none.
absl::StatusOr<const Policy *> policyFor(const model::Policy &asked, const model::Goal &goal);
// Beside that, for what this policy cannot be asked for: an objective is missing, a placement stated where the policy
// chooses one, ... Keys are spelled as in a job file; what the model has to do with is checked when it is compiled for.
absl::Status checkPolicy(const model::Policy &asked, const model::Goal &goal);
// Of a name that a plan or a flag has, "auto" as "interval"; without any trait where there is no such policy.
PolicyTraits traitsOf(std::string_view name);
// "interval, pie, hybridserve or headrace": those that may have blocks of KV caches at home on the host.
std::string splittingPolicyNames();
// "auto", "interval", ... or "headrace", each in quotes.
std::string policyNames();

// Each in its own file.
extern const Policy kNonePolicy;
extern const Policy kIntervalPolicy;
extern const Policy kDeepSpeedPolicy;
extern const Policy kAcceleratePolicy;
extern const Policy kVllmPrefetchPolicy;
extern const Policy kFlexGenPolicy;
extern const Policy kFlexGenNoBusPolicy;
extern const Policy kSelectNPolicy;
extern const Policy kPiePolicy;
extern const Policy kHybridServePolicy;
extern const Policy kHeadracePolicy;
extern const Policy kJointPolicy;

} // namespace headrace::compiler
