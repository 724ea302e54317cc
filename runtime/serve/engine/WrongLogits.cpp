// SPDX-License-Identifier: Apache-2.0
//
// What a BatchRun says of logits that are not finite. The step that made the numbers is found by a second pass over the
// prompt alone: its rows from position 0, in chunks, through the same weights into the same KV blocks. Rows do not
// depend on the batch they are in, so the pass meets the same numbers; where they first arose in an earlier iteration
// and came through the KV cache, it meets them there.
#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "kernels/Kernels.h"
#include "runtime/serve/engine/BatchRun.h"

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

absl::Status BatchRun::wrongLogits(const InFlight &iteration, absl::Span<const int32_t> tokens) {
  size_t wrong = 0, first = sequences_.size();
  for (size_t i = 0; i < tokens.size(); ++i)
    if (tokens[i] == kernels::kNotFinite) {
      ++wrong;
      first = std::min<size_t>(first, iteration.sampledOf[i]);
    }
  const auto rows = std::find_if(iteration.rows.begin(), iteration.rows.end(),
                                 [&](const ComposedRows &one) { return one.sequence == first; });
  const int64_t position = rows->firstPosition + rows->rows;
  const uint32_t placement = iteration.launched.placement;
  const std::string others =
      wrong == 1 ? "" : absl::StrCat(" (and those of ", wrong - 1, wrong == 2 ? " more prompt)" : " more prompts)");
  absl::Status late = awaitRest(); // the pass has the device to itself
  return absl::AbortedError(
      absl::StrCat("prompt ", first, ", position ", position, ": the logits", others,
                   " are not finite (NaN or infinite), so there is no token; ",
                   late.ok() ? firstWrongStep(first, placement) : absl::StrCat("then: ", std::string(late.message()))));
}

std::string BatchRun::firstWrongStep(size_t s, uint32_t placement) {
  const Sequence &sequence = sequences_[s];
  std::vector<int32_t> ids = *sequence.prompt;
  ids.insert(ids.end(), result_.tokens[s].begin(), result_.tokens[s].end());
  const auto end = static_cast<int64_t>(ids.size());
  const auto unknown = [](const absl::Status &why) {
    return absl::StrCat("which step made them was not found: ", std::string(why.message()));
  };
  for (int64_t at = 0; at < end;) {
    const int64_t count = std::min(end - at, std::max<int64_t>(mixedTokens(placement), 1));
    const absl::StatusOr<uint32_t> variant = runtime_.chooseIn(placement, count, 1, at + count);
    if (!variant.ok())
      return unknown(variant.status());
    const core::SequenceRows rows{
        .tokens = absl::MakeConstSpan(ids).subspan(static_cast<size_t>(at), static_cast<size_t>(count)),
        .firstPosition = at,
        .blocks = sequence.blocks,
        .sample = true};
    if (absl::Status status = core::writeMeta(plan_.metaLayout, plan_.blockTokens, {&rows, 1}, device_.meta());
        !status.ok())
      return unknown(status);
    const absl::StatusOr<std::optional<core::WrongNumber>> found = runtime_.findWrongNumber(*variant);
    if (!found.ok())
      return unknown(found.status());
    if (*found) {
      const plan::Schedule &schedule = plan_.schedules[plan_.variants[*variant].schedule];
      const plan::Step &step = schedule.steps[(*found)->step];
      const bool sampledRow = step.part == plan::Part::Head;
      return absl::StrCat("the first step that made such numbers: ", describeStep(plan_, schedule, step),
                          ", at position ", sampledRow ? at + count - 1 : at + (*found)->row, ", column ",
                          (*found)->column, " (", (*found)->value, ")");
    }
    at += count;
  }
  return "a second pass over the prompt made finite numbers only: memory has changed in between";
}

} // namespace headrace::serve
