// SPDX-License-Identifier: Apache-2.0
//
// What a step's operands are to its op, each held against the memory that it names: of BindStep.cpp, which makes a
// kernel's arguments of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "kernels/Kernels.h"
#include "runtime/core/BindStep.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/model/WeightLayout.h"
#include "runtime/plan/value/BlockRuns.h"
#include "runtime/plan/value/Plan.h"

namespace headrace::core {

// A product that saturates: a size that does not fit 64 bits is larger than any operand.
inline uint64_t product(std::initializer_list<int64_t> factors) {
  uint64_t result = 1;
  for (int64_t factor : factors)
    if (factor < 0 || __builtin_mul_overflow(result, static_cast<uint64_t>(factor), &result))
      return std::numeric_limits<uint64_t>::max();
  return result;
}

// One step's operands, by what they are to the op.
class StepOperands {
public:
  StepOperands(const plan::Plan &plan, const plan::Schedule &schedule, uint32_t step, const Bases &bases)
      : plan_(plan), schedule_(schedule), index_(step), step_(schedule.steps[step]), bases_(bases) {}

  const plan::Step &step() const { return step_; }
  const plan::Schedule &schedule() const { return schedule_; }

  absl::Status refuse(const std::string &message) const {
    return absl::InvalidArgumentError(absl::StrCat("schedule '", schedule_.name, "', step ", index_, " (",
                                                   kernels::opName(step_.op), ", layer ", step_.layer, "): ", message));
  }

  bool isWeight(const plan::Operand &operand, const model::WeightLayout &layout) const {
    return operand.buffer < plan_.buffers.size() && plan_.buffers[operand.buffer].kind == plan::BufferKind::Weight &&
           plan_.buffers[operand.buffer].index < layout.units.size();
  }

  const plan::Operand *find(plan::Arg arg) const {
    for (uint32_t i = 0; i < step_.operandCount; ++i)
      if (const plan::Operand &operand = schedule_.operands[step_.firstOperand + i]; operand.arg == arg)
        return &operand;
    return nullptr;
  }

  // Every operand lies in its space; host memory is used by direct steps only, and by those of the cpu lane, which use
  // no other.
  absl::Status checkRanges() const {
    if (step_.firstOperand > schedule_.operands.size() ||
        step_.operandCount > schedule_.operands.size() - step_.firstOperand)
      return refuse("its operands are outside the schedule's list");
    for (uint32_t i = 0; i < step_.operandCount; ++i) {
      const plan::Operand &operand = schedule_.operands[step_.firstOperand + i];
      const bool onCpu = step_.lane == plan::Lane::Cpu;
      if (operand.space == plan::Space::Device && onCpu)
        return refuse(
            absl::StrCat("operand ", plan::argName(operand.arg), " is in device memory and the step is the CPU's"));
      if (operand.space == plan::Space::Host && !step_.direct && !onCpu)
        return refuse(
            absl::StrCat("operand ", plan::argName(operand.arg), " is in host memory and the step is not direct"));
      const uint64_t limit = operand.space == plan::Space::Host ? plan_.hostBytes : plan_.arenaBytes;
      const uint64_t bytes = plan::spannedBytes(plan_, operand);
      if (bytes > limit || operand.address > limit - bytes)
        return refuse(absl::StrCat("operand ", plan::argName(operand.arg), ": bytes [", operand.address, ", +", bytes,
                                   ") are outside its memory of ", limit, " bytes"));
    }
    return absl::OkStatus();
  }

  std::byte *device(uint64_t address) const { return bases_.device + address; }
  std::byte *pointer(const plan::Operand &operand) const {
    return (operand.space == plan::Space::Host ? bases_.host : bases_.device) + operand.address;
  }

  // The operand `arg`, which the op needs, with at least `bytes` bytes.
  absl::StatusOr<std::byte *> require(plan::Arg arg, uint64_t bytes) const {
    const plan::Operand *operand = find(arg);
    if (operand == nullptr)
      return refuse(absl::StrCat("operand ", plan::argName(arg), " is missing"));
    return checked(*operand, bytes);
  }

  absl::StatusOr<std::byte *> checked(const plan::Operand &operand, uint64_t bytes) const {
    if (operand.bytes < bytes)
      return refuse(
          absl::StrCat("operand ", plan::argName(operand.arg), " has ", operand.bytes, " bytes, it needs ", bytes));
    return pointer(operand);
  }

  // As require; null where `bytes` is 0.
  absl::StatusOr<std::byte *> workspace(uint64_t bytes) const {
    if (bytes == 0)
      return nullptr;
    return require(plan::Arg::Workspace, bytes);
  }

  // The header of the step's mini-batch: its arrays and the block tables of all are in what follows.
  absl::StatusOr<const kernels::IterationMeta *> meta() const {
    const uint64_t begin = step_.miniBatch * kernels::metaFixedBytes(plan_.metaLayout);
    absl::StatusOr<std::byte *> p =
        require(plan::Arg::Meta, kernels::metaBytes(plan_.metaLayout, plan_.miniBatches) - begin);
    if (!p.ok())
      return p.status();
    return reinterpret_cast<const kernels::IterationMeta *>(*p);
  }
  absl::StatusOr<std::byte *> sampled() const {
    return require(plan::Arg::Sampled, product({plan_.metaLayout.maxSequences, sizeof(int32_t)}));
  }
  absl::StatusOr<std::byte *> history() const {
    return require(plan::Arg::History, product({plan_.kvBlocks + plan_.actBlocks, plan_.blockTokens, sizeof(int32_t)}));
  }
  absl::StatusOr<std::byte *> output() const {
    return require(plan::Arg::Output, product({plan_.mostSampled(), sizeof(int32_t)}));
  }

  // The unit whose weights the operand `arg` names.
  absl::StatusOr<const model::Unit *> unit(plan::Arg arg, const model::WeightLayout &layout) const {
    const plan::Operand *operand = find(arg);
    if (operand == nullptr)
      return refuse(absl::StrCat("operand ", plan::argName(arg), " is missing"));
    if (!isWeight(*operand, layout))
      return refuse(absl::StrCat("operand ", plan::argName(arg), " is buffer ", operand->buffer, ", not one of the ",
                                 layout.units.size(), " weight units"));
    return &layout.units[plan_.buffers[operand->buffer].index];
  }

  // A tensor of `unit` inside the range that the operand `arg` covers.
  absl::StatusOr<std::byte *> tensor(const model::Unit &unit, const model::WeightLayout &layout,
                                     const model::Tensor &tensor, plan::Arg arg) const {
    const plan::Operand *operand = find(arg);
    if (operand == nullptr)
      return refuse(absl::StrCat("operand ", plan::argName(arg), " is missing"));
    if (!isWeight(*operand, layout) ||
        plan_.buffers[operand->buffer].index != static_cast<uint64_t>(&unit - layout.units.data()) ||
        operand->bufferOffset > tensor.offset || tensor.bytes > operand->bytes ||
        tensor.offset - operand->bufferOffset > operand->bytes - tensor.bytes)
      return refuse(absl::StrCat("operand ", plan::argName(arg), " does not cover bytes [", tensor.offset, ", +",
                                 tensor.bytes, ") of ", unit.name));
    return pointer(*operand) + (tensor.offset - operand->bufferOffset);
  }

private:
  const plan::Plan &plan_;
  const plan::Schedule &schedule_;
  const uint32_t index_;
  const plan::Step &step_;
  const Bases &bases_;
};

} // namespace headrace::core
