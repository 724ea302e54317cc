// SPDX-License-Identifier: Apache-2.0
//
// The reasons that a plan and a refusal give, with the numbers that decided.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"

#include "compiler/choice/AmountText.h"
#include "compiler/evaluate/Placements.h"
#include "runtime/plan/value/Plan.h"

namespace headrace::compiler {

// `fixedBy`: what left nothing to choose, such as "as asked for", or empty; `before` is the candidate that offloads
// less and did not fit, or null; `decode` the largest decode variant.
std::string explainChoice(const model::ModelSpec &spec, const Target &target, const std::string &fixedBy,
                          const Candidate &chosen, uint64_t arenaBytes, const Candidate *before, uint64_t beforeBytes,
                          const plan::Variant &decode);

// ResourceExhausted: device memory is too small. `need`: what the smallest placement takes. `hostBytes`: what would do
// of the host beside this device; where the host has less, the refusal is of both memories.
absl::Status deviceMemoryExhausted(const model::ModelSpec &spec, const model::Hardware &hardware, const Target &target,
                                   const model::Policy &policy, const Candidate &smallest, MemoryNeed need,
                                   std::optional<uint64_t> hostBytes = std::nullopt);
// Whether it was that, and no objective: the bytes that would do.
std::optional<uint64_t> lacksDeviceMemory(const absl::Status &status);

// What a refusal says would do; of several refusals the one is wanted that asks for least.
struct LeastMemory {
  enum class Of : uint8_t { Device, Host, KvHost }; // goal.device_memory, hardware.host_memory, goal.kv_host_memory
  Of of = Of::Device;
  uint64_t bytes = 0;
};
// Nothing where it is no refusal for want of memory.
std::optional<LeastMemory> leastMemory(const absl::Status &status);
// Whether both refuse for want of the same memory, and `a` asks for less of it.
bool asksForLess(const absl::Status &a, const absl::Status &b);
// The same refusal, with its least memory, and with `text` behind its message.
absl::Status refusalWith(const absl::Status &refusal, const std::string &text);

// "KV blocks: 120 of 400 on the device, the others, 35.0 GiB, at home on the host: with all of them nothing fits", and
// how many the placement has that has the most.
std::string explainSplit(const plan::Plan &plan);
// "KV takes 3.00 GiB of the device, 96.00 MiB of that the slots that blocks on the host go through", in the first
// placement, where some are.
std::string explainKvOnDevice(const plan::Plan &plan);
// "Expansion 1.50: 4.50 GiB of KV in all, 3.00 GiB of the device for it, 96.00 MiB of these the slots that the others
// go through", where it is stated, and blocks are away.
std::string explainExpansion(const model::Goal &goal, const Target &target, int64_t layers);
// "Tails of 8 layers cycle through 6 places in 3 iterations: 330.00 KiB brought an iteration ...", and what these take;
// empty where nothing cycles.
std::string explainCycle(const plan::Plan &plan);
// ResourceExhausted: what KV may take of the host is too little for the blocks that are at home there.
absl::Status kvHostExhausted(uint64_t kvHostMemory, uint64_t needed);
// ResourceExhausted: what the placements leave on the host, pinned, is more than the host has.
// `hostBytes`: the least that placements of the policy put there which fit the device.
absl::Status hostExhausted(const model::ModelSpec &spec, const model::Hardware &hardware, uint64_t hostBytes);

} // namespace headrace::compiler
