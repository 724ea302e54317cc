// SPDX-License-Identifier: Apache-2.0
//
// What placements come to, without compiling them: every address, bytes of the device and of the host, and the time of
// every bucket and transition.
//
//   Iterations iterations(request, target, layout, prices);
//   ASSIGN_OR_RETURN(draft, evaluate(iterations, {candidate}));
//   draft.arenaBytes, draft.hostBytes, draft.variants[0].predictedNs ...
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/evaluate/AddPlaced.h"
#include "compiler/evaluate/Draft.h"

namespace headrace::compiler {

// With what a request and its target say of a plan, and no placement yet; the policy by its name.
Draft emptyDraft(const CompileRequest &request, const Target &target, std::string_view policy);

// Placements that have been placed together: their caches grown into what of the device they leave, where the target
// has it so (GrowCaches.h), and their schedules, variants and transitions.
absl::Status fillDraft(Iterations &iterations, const HostLayout &host, std::vector<PlacedCandidate> placed,
                       Draft &draft);

// Side by side, what several have at home at one address. Where they take more of the device than `deviceMemory` the
// draft says by how much (Draft::over) and has no schedules. One that is the same as another counts once; there is one
// at least.
absl::StatusOr<Draft> evaluate(Iterations &iterations, const std::vector<Candidate> &placements,
                               std::string_view policy, uint64_t deviceMemory);
// Whatever memory there is.
absl::StatusOr<Draft> evaluate(Iterations &iterations, const std::vector<Candidate> &placements);

} // namespace headrace::compiler
