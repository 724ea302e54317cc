// SPDX-License-Identifier: Apache-2.0
//
// A policy as a generator of choices: which it would consider, what is best of them to it, and what may be asked of it.
// One file each in generators/, its paper's formulas with it; found there by name, and nothing else compares names.
//
//   candidates   placements of weights, from the one that offloads least: what an order is of
//   seeds        where a search over all mechanisms begins for it, and how far it may go from there
//
// Without the headers of a search.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace headrace::compiler {

struct Candidate;
struct CompileRequest;
struct Coordinates;
struct GeneratorInputs;
struct Objective;
class Space;

// What is best of what it would consider.
enum class Order : uint8_t {
  First,     // the first of its candidates that memory holds, whatever it takes
  MostFreed, // by the goal's latency objective, which it needs: what frees the most device memory within it
  LeastAim,  // the least aim (Aim.h) of generators' choices and of what lies between them: its own, or all
};

// Where a search begins from an origin, which has nothing on the host but what is stated. No seeds: the space has
// nothing of it.
using Seeds = std::vector<Coordinates> (*)(Space &of, const Coordinates &origin);

struct Generator {
  // Whether a candidate meets a bucket's objective in the policy's own opinion, which decides in place of the predicted
  // time; null: the predicted time does. The inputs must outlive it.
  using Opinion = std::function<bool(const Candidate &, const Objective &)>;

  std::string_view name;
  std::string_view summary; // one line, for --help
  Order order = Order::First;

  // What may be asked of it.
  bool statesPlacement = false;  // takes what interval, offload_layers and start_rule state
  bool onePlacement = false;     // one setting serves all iterations
  bool allowsForSlowest = false; // holds objectives for the slowest iterations that the performance record has seen
  bool weighsAttention = false;  // device or CPU, where that is left open (policy.attention = "auto")
  bool takesPercent = false;     // what is where may be stated by shares (policy.percent)
  bool countsGaps = false;       // holds a TPOT for the whole gap between tokens, foreign prompts included

  // What it moves beside whole layers of weights.
  bool searchesUnits = false;    // single units in a ring are searched beside the candidates
  bool splitsCaches = false;     // where KV caches do not fit, some of their blocks are at home on the host
  bool swapsLayers = false;      // where they do not fit, layers' caches are swapped whole, first in, first out
  bool startsItemByItem = false; // under the paper's start rule, whatever the start rule stated
  bool keepsActivations = false; // KV on the host and activation blocks in place of some of it, where neither is stated
  bool seeksChunk = false;       // the largest chunk of prompts is sought where the goal says what is prompted

  // What reports say.
  bool flagsReachIt = false;  // its placements are whole layers in the slots of their start rule: flags can state them
  bool printsFormula = false; // Select-N's closed form stands beside its choices
  size_t colour = 5;          // its own in every chart (tools/timeline/BarChart.h)

  // What of the request its placements leave no room for: InvalidArgument. Null: nothing.
  absl::Status (*check)(const GeneratorInputs &) = nullptr;
  // What a request says where this policy decides more of it than placements (homes of caches, of residual streams):
  // in the policy's order, of which the first that memory holds is compiled. Null: what it says.
  absl::StatusOr<std::vector<CompileRequest>> (*requests)(const CompileRequest &asked) = nullptr;
  // What the user stated (embedding, head, slots) is in the request's policy. Null: a part of Order::LeastAim alone.
  std::vector<Candidate> (*candidates)(const GeneratorInputs &) = nullptr;
  Opinion (*opinion)(const GeneratorInputs &) = nullptr;
  std::string_view opinionText; // what the reason says of how it chose
  // Placements that a plan has all of, where the request asks for such: the nth set of them, of which the first is
  // taken that memory holds. Empty: there is none, or none more. Null: there is none.
  absl::StatusOr<std::vector<Candidate>> (*together)(const GeneratorInputs &, size_t nth) = nullptr;
  // What the reason says of what was chosen beside what it says of any policy's; empty: nothing. Null: nothing.
  std::string (*why)(const GeneratorInputs &, const std::vector<Candidate> &placements) = nullptr;

  // Of a search over all mechanisms. Null: it has no part in it.
  Seeds seeds = nullptr;
  bool (*holds)(const Coordinates &at) = nullptr; // whether it would consider this; moves beyond are another's
};

// None of these, but what is left to try where none holds the objectives: what it begins with depends on them.
extern const Generator kMostFreedGenerator;

} // namespace headrace::compiler
