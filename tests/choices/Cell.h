// SPDX-License-Identifier: Apache-2.0
//
// One cell of the matrix: a row's choices, compiled for a model and run on a device by the engine, against the same
// prompts where nothing is away.
#pragma once

#include <cstdint>
#include <functional>
#include <ostream>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/choice/CompileRequest.h"
#include "runtime/job/Capabilities.h"
#include "runtime/plan/value/Plan.h"
#include "tests/choices/Rows.h"

namespace headrace::choices {

enum class Model : uint8_t { Llama, Opt, Qwen };
// HostPoisoned: one step at a time, and what a step used for the last time is NaN behind it. Packed: the same, of
// weights and, in larger heads, caches that are packed, in 8 bits or in 4; EmulatedPackedKv: such caches on emulated
// CUDA graphs.
enum class On : uint8_t { Host, HostPoisoned, Sim, EmulatedCuda, Packed, EmulatedPackedKv };
constexpr bool isEmulated(On on) { return on == On::EmulatedCuda || on == On::EmulatedPackedKv; }
inline constexpr Model kModels[] = {Model::Llama, Model::Opt, Model::Qwen};
inline constexpr On kDevices[] = {On::Host,         On::HostPoisoned, On::Sim,
                                  On::EmulatedCuda, On::Packed,       On::EmulatedPackedKv};

struct Cell {
  const Row *row = nullptr;
  Model model = Model::Llama;
  On on = On::Host;
};
std::string nameOf(const Cell &cell); // "kv_2_slots_llama_host"
std::ostream &operator<<(std::ostream &out, const Cell &cell);
std::vector<Model> modelsOf(const Row &row);

// The placements of a row's choices, each with these encodings beside what it says. InvalidArgument for a text that is
// no choice, and where they differ by more than placements of a plan do.
absl::StatusOr<std::vector<compiler::Candidate>> placementsOf(std::string_view choices,
                                                              std::string_view encodings = "");
// Which mechanisms the row makes use of.
std::set<model::Mechanism> mechanismsOf(const Row &row);

absl::StatusOr<plan::Plan> compile(const Cell &cell);

// All that is wrong with a cell, in words; empty: nothing is. `change`, if set, is made to the plan before it runs.
//
//   the choice is refused, or the plan is not what it says
//   tokens or logits are not those of the run with nothing away (logits, where the CPU attends beside CUDA: with
//   nothing else away); what was poison was read, so that logits are no numbers a launch moved other bytes than its
//   steps say; something crosses the link that the row does not name, or does not a step used what nobody had brought
//   virtual time: two steps touched the same bytes at once, with the link as it is, much slower or much faster
std::vector<std::string> findingsIn(const Cell &cell, const std::function<void(plan::Plan &)> &change = nullptr);

} // namespace headrace::choices
