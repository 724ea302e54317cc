// SPDX-License-Identifier: Apache-2.0
#include "runtime/serve/engine/KeepLogits.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/Kernels.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::serve {
namespace {

// Where a schedule leaves the logits of a mini-batch, from the operands of its Sample step.
absl::StatusOr<plan::Operand> findLogits(const plan::Schedule &schedule, uint32_t miniBatch) {
  size_t sample = schedule.steps.size();
  const plan::Operand *logits = nullptr;
  for (size_t i = 0; i < schedule.steps.size(); ++i) {
    const plan::Step &step = schedule.steps[i];
    for (uint32_t o = step.firstOperand; o < step.firstOperand + step.operandCount; ++o) {
      const plan::Operand &operand = schedule.operands[o];
      if (step.kind == plan::StepKind::Compute && step.op == kernels::Op::Sample && step.miniBatch == miniBatch &&
          operand.arg == plan::Arg::X) {
        sample = i;
        logits = &operand;
      }
    }
  }
  if (logits == nullptr)
    return absl::FailedPreconditionError(absl::StrCat("schedule '", schedule.name, "' has no sampling step"));
  // They are read once the iteration has ended.
  for (size_t i = sample + 1; i < schedule.steps.size(); ++i) {
    const plan::Step &step = schedule.steps[i];
    for (uint32_t o = step.firstOperand; o < step.firstOperand + step.operandCount; ++o)
      if (const plan::Operand &operand = schedule.operands[o];
          operand.access != plan::Access::Read && operand.space == plan::Space::Device &&
          operand.address < logits->address + logits->bytes && logits->address < operand.address + operand.bytes)
        return absl::FailedPreconditionError(absl::StrCat(
            "schedule '", schedule.name, "': step ", i, " overwrites the logits",
            step.miniBatch == miniBatch ? "" : absl::StrCat(" of mini-batch ", miniBatch), ", they cannot be kept"));
  }
  return *logits;
}

} // namespace

absl::Status KeptLogits::prepare(const plan::Plan &plan, const core::Device &device) {
  if (!device.holdsData())
    return absl::FailedPreconditionError(
        absl::StrCat("device '", std::string(device.kind()), "' holds no data, there are no logits to keep"));
  logits_.clear();
  for (const plan::Schedule &schedule : plan.schedules) {
    for (uint32_t i = 0; i < plan.miniBatches; ++i) {
      logits_.emplace_back();
      if (schedule.iterationClass == plan::IterationClass::Transition)
        continue;
      ASSIGN_OR_RETURN(logits, findLogits(schedule, i));
      logits_.back() = logits;
    }
  }
  return absl::OkStatus();
}

absl::Status KeptLogits::read(const plan::Plan &plan, core::Device &device, uint32_t variant, uint32_t miniBatch,
                              size_t index, std::vector<float> &out) const {
  const uint64_t vocab = static_cast<uint64_t>(plan.model->vocab), rowBytes = vocab * sizeof(float);
  const plan::Operand &logits = logits_[plan.variants[variant].schedule * plan.miniBatches + miniBatch];
  const size_t before = out.size();
  out.resize(before + vocab);
  return device.readDevice(logits.address + index * rowBytes,
                           {reinterpret_cast<std::byte *>(out.data() + before), rowBytes});
}

} // namespace headrace::serve
