// SPDX-License-Identifier: Apache-2.0
//
// The reasons that a plan and a refusal give, with the numbers that decided.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"

#include "compiler/lower/Placements.h"
#include "runtime/plan/Plan.h"

namespace headrace::compiler {

// "8.00 GiB", "12.50 MiB".
std::string bytesText(uint64_t bytes);
std::string msText(uint64_t ns); // "2.500 ms"

// `asked`: the placement was stated; `before` is the candidate that offloads less and did not fit, or null; `decode`
// the largest decode variant.
std::string explainChoice(const model::ModelSpec &spec, const Target &target, bool asked, const Candidate &chosen,
                          uint64_t arenaBytes, const Candidate *before, uint64_t beforeBytes,
                          const plan::Variant &decode);

// ResourceExhausted: device memory is too small. `need` is what the smallest placement takes; `hostBytes` what it pins,
// where the host has less, else 0.
absl::Status deviceMemoryExhausted(const model::ModelSpec &spec, const Target &target, const model::Policy &policy,
                                   const Candidate &smallest, const MemoryNeed &need, uint64_t hostBytes = 0);
// Whether it was that, and no objective: the bytes that would do.
std::optional<uint64_t> lacksDeviceMemory(const absl::Status &status);

// "KV blocks: 120 of 400 on the device, the others, 35.0 GiB, at home on the host: with all of them nothing fits", and
// how many the placement has that has the most.
std::string explainSplit(const plan::Plan &plan);
// "Expansion 1.50: 4.50 GiB of KV in all, 3.00 GiB of the device for it, 96.00 MiB of these the slots that the others
// go through", where it is stated, and blocks are away.
std::string explainExpansion(const model::Goal &goal, const Target &target, int64_t layers);
// "the tails of 8 layers rotate through 6 places: a cycle of 3 iterations brings 8 tails, ...", and what these take;
// empty where nothing rotates.
std::string explainCycle(const plan::Plan &plan);
// What KV may take of the host is too little for the blocks that are at home there.
std::string explainKvHostExhausted(uint64_t kvHostMemory, uint64_t needed);
// What the placements leave on the host, pinned, is more than the host has.
// `hostBytes`: the least that placements of the policy put there which fit the device.
std::string explainHostExhausted(const model::ModelSpec &spec, const model::Hardware &hardware, uint64_t hostBytes);

} // namespace headrace::compiler
