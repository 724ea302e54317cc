// SPDX-License-Identifier: Apache-2.0
//
// The operands of a step, taken one by one: each is held against what the model says it is, and what was not taken in
// the end is none of the op's. Which ones an op has is VerifySizes.cpp's.
#pragma once

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "kernels/Kernels.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/plan/proof/VerifyParts.h"
#include "runtime/plan/value/BufferIndex.h"

namespace headrace::plan {

// What an op may do with an operand, as bits.
inline constexpr unsigned kR = 1u << static_cast<int>(Access::Read);
inline constexpr unsigned kW = 1u << static_cast<int>(Access::Write);
inline constexpr unsigned kRW = 1u << static_cast<int>(Access::ReadWrite);

class TakenOperands {
public:
  TakenOperands(const Plan &plan, const model::WeightLayout &layout, const BufferIndex &buffers,
                const CacheHomes &caches, uint32_t schedule, Report &report)
      : plan_(plan), spec_(plan.model), layout_(layout), buffers_(buffers), caches_(caches), index_(schedule),
        schedule_(plan.schedules[schedule]), report_(report), tokens_(schedule_.maxTokens),
        sequences_(schedule_.maxSequences) {}

protected:
  void begin(uint32_t step) {
    step_ = &schedule_.steps[step];
    number_ = step;
    taken_ = 0;
    failed_ = false;
  }
  bool isTaken(Arg arg) const { return taken_ >> static_cast<int>(arg) & 1; }
  void note(Arg arg) { taken_ |= 1u << static_cast<int>(arg); }

  template <typename... Parts> void fail(const Parts &...parts) {
    if (failed_)
      return;
    failed_ = true;
    const char *name = step_->kind == StepKind::Publish ? "publish" : kernels::opName(step_->op);
    report_.add(Rule::Structure, index_, number_, absl::StrCat(name, ": ", parts...));
  }

  const Operand *find(Arg arg) const;
  // The operand, which must be there, with an access out of `accesses`; noted, so that others are refused.
  const Operand *take(Arg arg, unsigned accesses);
  // A whole persistent buffer.
  void whole(Arg arg, unsigned accesses, uint32_t buffer);
  // A cache, as far as it is at home on the device.
  void cache(unsigned accesses);
  // Blocks of a cache that lie apart from those in cache(), as one run; none of them, and there is no such operand.
  void blocks(Arg arg, unsigned accesses, Space space, uint64_t begin, uint64_t end);
  void tail(unsigned accesses);
  // That copies write the tail back is seen where the homes are (Playback.h).
  void home();
  // Where the plan has activation blocks.
  bool needsAct();
  void act(unsigned accesses);
  uint64_t rebuiltBytes() const;
  void rebuilt(unsigned accesses);
  // The range of the step's mini-batch; where there is one mini-batch, the buffer.
  void range(Arg arg, unsigned accesses, Io io);
  void meta();
  void range(Arg arg, unsigned accesses, Io io, uint64_t begin, uint64_t bytes);
  // A transient buffer from its start, with at least `bytes`.
  void local(Arg arg, unsigned accesses, uint64_t bytes);
  void rows(Arg arg, unsigned accesses, int64_t rows, int64_t columns);
  // The residual stream and logits.
  void rowsF32(Arg arg, unsigned accesses, int64_t rows, int64_t columns);
  // The residual stream, one row a token. Where it leaves, it is in a slot (VerifyPlaces.cpp).
  void stream(Arg arg, unsigned accesses, int64_t columns);
  kernels::Backend backend() const;
  void workspace(uint64_t bytes);
  // The unit that an operand is of.
  const model::Unit *unit(Arg arg);
  // The operand covers a tensor of the unit.
  void covers(Arg arg, const model::Unit &unit, const model::Tensor *tensor);
  void headNorms();

  const Plan &plan_;
  const model::ModelSpec &spec_;
  const model::WeightLayout &layout_;
  const BufferIndex &buffers_;
  const CacheHomes &caches_;
  const uint32_t index_;
  const Schedule &schedule_;
  Report &report_;
  const int64_t tokens_, sequences_;
  // Of the step at hand.
  const Step *step_ = nullptr;
  uint32_t number_ = 0;
  uint32_t taken_ = 0;
  bool failed_ = false;
};

} // namespace headrace::plan
