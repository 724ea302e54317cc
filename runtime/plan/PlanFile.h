// SPDX-License-Identifier: Apache-2.0
//
// Plans on disk: a FlatBuffers file ("HRPL", schema plan.fbs, versioned), its length and its checksum.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/plan/value/Plan.h"

namespace headrace::plan {

// The same plan gives the same bytes.
std::string serialize(const Plan &plan);

// Two plans that move and compute the same for the same inputs have the same, wherever they were compiled: 16 digits of
// their bytes without names, reasons, folders and the compiler's version.
std::string planHash(const Plan &plan);

// Bytes from a file are untrusted: the end (a cut, extended or changed file), the FlatBuffers verifier, the version,
// then every index, count and enumerator is checked before anything is built from it. Movement rules are
// PlanVerifier's. `where` begins every message.
absl::StatusOr<Plan> parse(absl::Span<const std::byte> bytes, const std::string &where);

// Written beside the target, then renamed: a reader never sees half a plan.
absl::Status writePlan(const Plan &plan, const std::string &path);
// Reads, parses and verifies.
absl::StatusOr<Plan> readPlan(const std::string &path);

} // namespace headrace::plan
