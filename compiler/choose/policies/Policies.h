// SPDX-License-Identifier: Apache-2.0
//
// The policies themselves, by name.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/choose/Policy.h"
#include "compiler/choose/policies/PolicyList.h"

namespace headrace::compiler {

// In the order in which they are listed for users.
const std::vector<const Policy *> &allPolicies();
// Null where there is none; "auto" is none.
const Policy *findPolicy(std::string_view name);
// As policyEntry().
absl::StatusOr<const Policy *> policyFor(const model::Policy &asked, const model::Goal &goal);
// One function a policy, in its own file.
const Policy &nonePolicy();
const Policy &intervalPolicy();
const Policy &deepSpeedPolicy();
const Policy &acceleratePolicy();
const Policy &vllmPrefetchPolicy();
const Policy &flexGenPolicy();
const Policy &flexGenNoBusPolicy();
const Policy &selectNPolicy();
const Policy &headracePolicy();

} // namespace headrace::compiler
