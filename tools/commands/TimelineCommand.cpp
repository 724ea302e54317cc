// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>

#include "runtime/base/FileIo.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/plan/PlanFile.h"
#include "runtime/plan/StagesFile.h"
#include "tools/commands/Commands.h"
#include "tools/commands/InputErrors.h"
#include "tools/commands/LoadedStages.h"
#include "tools/commands/Outputs.h"
#include "tools/commands/StagesTimeline.h"
#include "tools/commands/Terminal.h"
#include "tools/report/Format.h"
#include "tools/timeline/Timeline.h"

namespace headrace::tools {
namespace {

using model::cat;

// The first that may run whatever of KV is in use.
uint32_t firstVariant(const plan::Plan &plan) {
  const auto at = std::find_if(plan.variants.begin(), plan.variants.end(), [&](const plan::Variant &variant) {
    return plan.schedules[variant.schedule].kvBlocks == 0;
  });
  return at == plan.variants.end() ? 0 : static_cast<uint32_t>(at - plan.variants.begin());
}

// The variant of the same bucket that is number `phase` of its cycle.
absl::StatusOr<uint32_t> ofPhase(const plan::Plan &plan, uint32_t variant, uint32_t phase) {
  const plan::Variant &of = plan.variants[variant];
  const plan::Schedule &schedule = plan.schedules[of.schedule];
  if (phase >= schedule.period)
    return badNumber("--phase", phase,
                     schedule.period == 1
                         ? cat("none, variant ", variant, " is of no cycle")
                         : cat("one of the ", schedule.period, " phases of variant ", variant, "'s cycle, from 0"));
  return variant - schedule.phase + phase; // which stand one behind the other
}

absl::Status draw(const Chart &chart, const TimelineOptions &options, TimelineFormat format, bool toFile,
                  const Outputs &outputs) {
  const int columns = terminalWidth();
  const int width = options.width > 0 ? options.width : columns > 0 ? columns : 120;
  if (toFile)
    return outputs.write(options.output, timelineFile(chart, format, width));
  if (format != TimelineFormat::Text) {
    print(timelineFile(chart, format));
    return absl::OkStatus();
  }
  print(wrapLines(timelineText(chart, width), columns > 0 ? static_cast<size_t>(width) : 0));
  return absl::OkStatus();
}

} // namespace

absl::Status timelineCommand(const TimelineOptions &options) {
  const bool toFile = !options.output.empty() && options.output != "-";
  const std::optional<TimelineFormat> named = toFile ? timelineFormatOf(options.output) : std::nullopt;
  const TimelineFormat format = options.format.value_or(named.value_or(TimelineFormat::Text));
  if (named && *named != format)
    return badFlag("--output", options.output, "--format asks for another format than the name says",
                   cat("a name that ends in ", timelineSuffix(format), ", or no --format"));
  Outputs outputs(options.overwrite);
  if (toFile)
    outputs.add("--output", options.output, OutputKind::Timeline);
  outputs.addInputs({options.plan, options.measured});
  std::string path = options.plan;
  if (isStagesFile(path)) {
    ASSIGN_OR_RETURN(stages, plan::readStages(path));
    for (const plan::StagePlan &stage : stages)
      outputs.addInput(stage.path);
    RETURN_IF_ERROR(outputs.check());
    if (stages.size() > 1) {
      ASSIGN_OR_RETURN(chart, predictedStages(options, stages));
      return draw(chart, options, format, toFile, outputs);
    }
    path = stages.front().path;
  }
  absl::StatusOr<plan::Plan> plan = plan::readPlan(path);
  if (!plan.ok())
    return plan.status();
  RETURN_IF_ERROR(outputs.check());
  Trace measured;
  if (!options.measured.empty()) {
    absl::StatusOr<std::string> text = model::readTextFile(options.measured);
    if (!text.ok())
      return text.status();
    absl::StatusOr<Trace> trace = parseTrace(*text, options.measured, *plan);
    if (!trace.ok())
      return trace.status();
    if (options.variant.value_or(trace->variant) != trace->variant)
      return absl::InvalidArgumentError(cat(options.measured, ": measured on variant ", trace->variant,
                                            ": expected --variant ", trace->variant, ", not ", *options.variant));
    measured = *std::move(trace);
  }
  // The variant that was measured, unless one is named.
  uint32_t variant = options.variant.value_or(options.measured.empty() ? firstVariant(*plan) : measured.variant);
  if (variant >= plan->variants.size())
    return badNumber("--variant", variant,
                     cat("one of the ", plan->variants.size(), " variants of ", options.plan, ", from 0"));
  if (options.phase) {
    ASSIGN_OR_RETURN(of, ofPhase(*plan, variant, *options.phase));
    if (!options.measured.empty() && of != measured.variant)
      return absl::InvalidArgumentError(
          cat(options.measured, ": measured on variant ", measured.variant, ": expected no --phase, or its own"));
    variant = of;
  }
  return draw(makeChart(*plan, variant, options.measured.empty() ? nullptr : &measured), options, format, toFile,
              outputs);
}

} // namespace headrace::tools
