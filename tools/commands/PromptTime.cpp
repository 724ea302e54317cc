// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/PromptTime.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compiler/search/ExplainObjective.h"
#include "compiler/search/generators/Generators.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/base/Units.h"
#include "runtime/model/ModelSpec.h"
#include "tools/commands/RequestTimes.h"

namespace headrace::tools {
namespace {

using model::cat;
using std::chrono::nanoseconds;

// A TTFT at which its own plan holds it, found upwards from `ttft`: a plan that misses one says the next to try, and
// what is chosen between the two is no faster.
constexpr int kMostTries = 64;
absl::StatusOr<std::optional<PromptTime>> leastHeld(nanoseconds ttft, const CompileAt &compileAt) {
  for (int tries = 0; tries < kMostTries; ++tries) {
    const absl::StatusOr<plan::Plan> plan = compileAt(ttft);
    if (!plan.ok())
      return absl::IsResourceExhausted(plan.status()) ? absl::StatusOr<std::optional<PromptTime>>(std::nullopt)
                                                      : plan.status();
    ASSIGN_OR_RETURN(took, promptTime(*plan));
    if (took.time <= ttft) {
      took.time = ttft;
      return took;
    }
    ttft = took.time;
  }
  return std::nullopt;
}

std::string promptText(const PromptTime &prompt) {
  return cat("a prompt of ", prompt.tokens, " tokens takes ", prompt.iterations,
             prompt.iterations == 1 ? " iteration" : " iterations");
}

} // namespace

absl::StatusOr<PromptTime> promptTime(const plan::Plan &plan) {
  ASSIGN_OR_RETURN(time, requestTime(plan, plan.goal.promptLength(plan.maxContext), /*newTokens=*/1));
  return PromptTime{time.prompt, time.prefillIterations, time.firstToken};
}

absl::Status checkObjectives(const plan::Plan &plan) {
  std::vector<std::string> misses = compiler::missesOf(plan);
  if (plan.goal.ttft) {
    ASSIGN_OR_RETURN(took, promptTime(plan));
    if (took.time > *plan.goal.ttft)
      misses.insert(misses.begin(), cat(promptText(took), ", ", model::durationText(took.time),
                                        " in all, so the minimum TTFT is ", model::durationText(took.time)));
  }
  return misses.empty() ? absl::OkStatus()
                        : compiler::refuseMissed(plan, compiler::policyNamed(plan.policy.name), misses);
}

absl::StatusOr<plan::Plan> holdTtft(const model::Job &job, absl::StatusOr<plan::Plan> plan,
                                    const CompileAt &compileAt) {
  if (!plan.ok()) {
    const std::optional<nanoseconds> least = compiler::leastTtft(plan.status());
    if (!least)
      return plan;
    ASSIGN_OR_RETURN(held, leastHeld(*least, compileAt));
    if (!held || held->time == *least)
      return plan;
    return absl::ResourceExhaustedError(
        cat(plan.status().message(), "; that TTFT is of an iteration: ", promptText(*held), ", the minimum TTFT is ",
            model::durationText(held->time), " at this memory"));
  }
  ASSIGN_OR_RETURN(took, promptTime(*plan));
  if (took.time <= *job.goal.ttft)
    return plan;
  ASSIGN_OR_RETURN(held, leastHeld(took.time, compileAt));
  std::string text =
      cat("TTFT of ", model::durationText(*job.goal.ttft), " cannot be met by policy ", plan->policy.name, " for ",
          plan->model->name, " at batch ", *plan->goal.batch, " and context ", plan->maxContext, ": ", promptText(took),
          ", ", model::durationText(took.time), " in all, each within that TTFT");
  if (held)
    text += cat("; the minimum TTFT is ", model::durationText(held->time), " at this memory");
  return absl::ResourceExhaustedError(text + "; what would do besides: shorter prompts (goal.input_len)");
}

} // namespace headrace::tools
