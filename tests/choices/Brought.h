// SPDX-License-Identifier: Apache-2.0
//
// A book of what the arena holds of buffers that are at home on the host: launches are played in the order and the
// sizes that they have, so that a step which reads what nobody has brought, or what something else has taken the place
// of, is found where no data is, too.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "kernels/IterationMeta.h"
#include "runtime/plan/value/Plan.h"

namespace headrace::choices {

class Brought {
public:
  explicit Brought(const plan::Plan &plan) : plan_(plan) {}

  struct Run {
    uint64_t offset = 0, bytes = 0; // of a copy, that a launch does
  };
  // The first step that reads what is not there; empty: there is none. `first`: the first mini-batch's iteration
  // buffer; null for a transition.
  std::string play(const plan::Schedule &schedule, const kernels::IterationMeta *first,
                   const std::function<Run(const plan::Step &)> &runOf);

private:
  struct Held {
    uint64_t end = 0; // address
    uint32_t buffer = 0;
    uint64_t offset = 0; // in the buffer
  };

  void drop(uint64_t begin, uint64_t end);
  void hold(uint64_t address, uint64_t bytes, uint32_t buffer, uint64_t offset);
  bool holds(uint64_t address, uint64_t bytes, uint32_t buffer, uint64_t offset) const;
  bool isHome(const plan::Schedule &schedule, const plan::Operand &operand) const;
  // Calls f(offset in the operand, bytes) for each part that an iteration uses of it.
  void forEachUsed(const plan::Operand &operand, const kernels::IterationMeta &meta,
                   const std::function<void(uint64_t, uint64_t)> &f) const;
  // Of a block, by its number in tables; none: it is not the operand's.
  std::optional<uint64_t> offsetOf(const plan::Operand &operand, int64_t number) const;
  uint64_t blockBytes(const plan::Operand &operand) const;
  bool append(const plan::Operand &operand, const kernels::IterationMeta &meta);
  bool compute(const plan::Schedule &schedule, const plan::Operand &operand, bool appends,
               const kernels::IterationMeta &meta);

  const plan::Plan &plan_;
  std::map<uint64_t, Held> held_; // by address; none overlap
};

} // namespace headrace::choices
