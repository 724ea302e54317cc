// SPDX-License-Identifier: Apache-2.0
//
// The parts of PlanFile.h: between a plan and the bytes of plan.fbs, and the end of a file behind these.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/plan/value/Plan.h"

namespace headrace::plan {

inline constexpr char kFileIdentifier[] = "HRPL";
// Larger files are refused before they are read. (A plan of Llama-3.1-405B's shape with 256 variants takes 6 MB.)
inline constexpr uint64_t kMaxFileBytes = uint64_t{1} << 30;

// The plan's inputs as its file has them: of what the plan has by itself, too, that.
std::string inputsOf(const Plan &plan);
// At least as many bytes as `encode` makes.
uint64_t encodedBytesBound(const Plan &plan);
std::string encode(const Plan &plan);

// Whether this is a plan's file at all, by the identifier at its beginning.
absl::Status checkIsPlan(absl::Span<const std::byte> bytes, const std::string &where);
// The plan that well-formed bytes hold. Enumerators and flags are checked here, indices by PlanStructure.h. What is
// allocated is bounded by a multiple of the bytes' size: bytes that several vectors claim are refused.
absl::StatusOr<Plan> decode(absl::Span<const std::byte> bytes, const std::string &where);

// A file's bytes: those of plan.fbs, "HRPL-END", how many they are and their checksum, each of 8 bytes. unsealed()
// gives the first part where the end is there and agrees, so that a plan that was cut, extended or changed is refused.
std::string sealed(std::string bytes);
absl::StatusOr<absl::Span<const std::byte>> unsealed(absl::Span<const std::byte> bytes, const std::string &where);

} // namespace headrace::plan
