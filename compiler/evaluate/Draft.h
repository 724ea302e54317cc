// SPDX-License-Identifier: Apache-2.0
//
// What a choice comes to, before it is compiled: a plan with all that there is to weigh it by (addresses, copies,
// edges, the time of every bucket and transition), and what it was made of. What compute steps use is not in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "compiler/choice/Candidate.h"
#include "compiler/choice/CompileRequest.h"
#include "compiler/choice/Resolve.h"
#include "runtime/plan/value/Plan.h"

namespace headrace::compiler {

// More device memory than there is.
struct OverMemory {
  size_t placement = 0; // that takes so much alone; the first where only all of them together do
  uint64_t bytes = 0;
};

struct Draft : plan::Plan {
  CompileRequest request;
  Target target;                     // caches grown
  std::vector<Candidate> candidates; // by placement; caches grown
  bool grown = false;                // they lie block by block
  uint64_t hostKvBytes = 0;          // of hostBytes, what caches take
  std::optional<OverMemory> over;    // set: there is no schedule in it
};

// Adds transitions and brings variants into their order: what is done to a plan once all placements are in it.
class PlanWriter;
class Prices;
void closePlan(Prices &prices, PlanWriter &writer);

// Where a plan that was compiled is not as its draft says: "variant 3: predicted_ns 5, the draft has 4"; empty:
// nowhere.
std::string differenceFrom(const plan::Plan &draft, const plan::Plan &compiled);

} // namespace headrace::compiler
