// SPDX-License-Identifier: Apache-2.0
#include "runtime/serve/engine/WrongLogits.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "kernels/Kernels.h"
#include "runtime/core/MetaWriter.h"
#include "runtime/model/KvEncoding.h"

namespace headrace::serve {
namespace {

// "layer 3, linear layers.3.up": the unit, where the step has weights.
std::string describeStep(const plan::Plan &plan, const plan::Schedule &schedule, const plan::Step &step) {
  std::string out = step.layer >= 0 ? absl::StrCat("layer ", step.layer, ", ") : std::string();
  absl::StrAppend(&out, kernels::opName(step.op));
  for (uint32_t i = 0; i < step.operandCount; ++i) {
    const plan::Operand &operand = schedule.operands[step.firstOperand + i];
    if (operand.arg == plan::Arg::Weight || operand.arg == plan::Arg::NormWeights || operand.arg == plan::Arg::Table)
      absl::StrAppend(&out, " ", plan.buffer(schedule, operand.buffer).name);
  }
  return out;
}

} // namespace

std::string wrongLogitsMessage(int64_t position, size_t others, const std::string &step) {
  return absl::StrCat(
      "position ", position, ": the logits",
      others == 0 ? "" : absl::StrCat(" (and those of ", others, others == 1 ? " more prompt)" : " more prompts)"),
      " are not finite (NaN or infinite), so there is no token; ", step);
}

std::string firstWrongStep(core::Runtime &runtime, absl::Span<const int32_t> ids, uint32_t miniBatch,
                           absl::Span<const int32_t> blocks, uint32_t placement, int64_t most) {
  const plan::Plan &plan = runtime.plan();
  const auto end = static_cast<int64_t>(ids.size());
  const auto unknown = [](const absl::Status &why) {
    return absl::StrCat("which step made them was not found: ", std::string(why.message()));
  };
  const auto rowsOf = [&](int64_t first, int64_t count) {
    return core::SequenceRows{.tokens = ids.subspan(static_cast<size_t>(first), static_cast<size_t>(count)),
                              .firstPosition = first,
                              .blocks = blocks};
  };
  std::vector<core::SequenceRows> rows;
  for (int64_t at = 0; at < end;) {
    const int64_t count = std::clamp<int64_t>(most, 1, end - at), next = at + count;
    rows.clear();
    rows.push_back(rowsOf(at, count));
    rows.back().sample = true;
    const absl::StatusOr<uint32_t> variant = runtime.chooseIn(placement, count, 1, next);
    if (!variant.ok())
      return unknown(variant.status());
    std::vector<absl::Span<const core::SequenceRows>> miniBatches(plan.miniBatches); // the others are empty
    miniBatches[miniBatch] = rows;
    if (absl::Status status = core::writeMetas(plan.metaLayout, plan.blockTokens, miniBatches, runtime.device().meta());
        !status.ok())
      return unknown(status);
    const absl::StatusOr<std::optional<core::WrongNumber>> found = runtime.findWrongNumber(*variant);
    if (!found.ok())
      return unknown(found.status());
    if (*found) {
      const plan::Schedule &schedule = plan.schedules[plan.variants[*variant].schedule];
      const plan::Step &step = schedule.steps[(*found)->step];
      const bool sampledRow = step.part == plan::Part::Head;
      const bool packs =
          plan.kvEncoding.packed() && (step.op == kernels::Op::RopeAppend || step.op == kernels::Op::RebuildKv);
      return absl::StrCat("the first step that made such numbers: ", describeStep(plan, schedule, step),
                          ", at position ", sampledRow ? next - 1 : at + (*found)->row, ", column ", (*found)->column,
                          " (", (*found)->value, ")",
                          packs ? absl::StrCat("; a KV cache in ", model::kvEncodingText(plan.kvEncoding),
                                               " holds magnitudes up to ", model::kLargestPacked)
                                : std::string());
    }
    at = next;
  }
  return "a second pass over the prompt made finite numbers only: memory has changed in between";
}

} // namespace headrace::serve
