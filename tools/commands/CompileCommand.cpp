// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <map>
#include <tuple>

#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "runtime/base/FileIo.h"
#include "runtime/base/ReplaceFile.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/plan/PlanFile.h"
#include "tools/commands/Commands.h"
#include "tools/commands/Compiling.h"
#include "tools/commands/InputErrors.h"
#include "tools/commands/ModelHash.h"
#include "tools/commands/ModelPath.h"
#include "tools/commands/Outputs.h"
#include "tools/commands/RunSetup.h"
#include "tools/commands/Terminal.h"
#include "tools/report/ChoiceReport.h"
#include "tools/report/Format.h"
#include "tools/report/InspectReport.h"

namespace headrace::tools {
namespace {

using Json = nlohmann::ordered_json;

// A schedule's name as part of a file's.
std::string fileName(std::string_view schedule) {
  std::string out;
  for (const char c : schedule)
    out += (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ? c : '-';
  return out;
}

// The variant with the most sequences and the longest context of a class; kNone if there is none.
uint32_t largest(const plan::Plan &plan, plan::ShapeClass shape) {
  uint32_t best = plan::kNone;
  const auto key = [&](uint32_t i) {
    const plan::Variant &v = plan.variants[i];
    return std::tuple(v.newTokens, v.sequences, v.context);
  };
  for (uint32_t i = 0; i < plan.variants.size(); ++i)
    if (plan.variants[i].placement == 0 && plan.schedules[plan.variants[i].schedule].shape == shape &&
        (best == plan::kNone || key(i) > key(best)))
      best = i;
  return best;
}
uint32_t largestDecode(const plan::Plan &plan) { return largest(plan, plan::ShapeClass::Decode); }
uint32_t largestMixed(const plan::Plan &plan) { return largest(plan, plan::ShapeClass::Mixed); }

void printText(const CompileOptions &options, const model::Job &job, const plan::Plan &plan) {
  const plan::Placement &placement = plan.placements.front();
  std::string out;
  const auto line = [&](const char *name, const std::string &value) {
    absl::StrAppendFormat(&out, "%-14s %s\n", name, value);
  };
  line("model", model::cat(plan.model->name, ", ", plan.model->layers, " layers"));
  line("hardware", plan.hardware.name);
  line("offloaded", describePlacement(placement));
  line("why", plan.reason);
  line("limited by", plan.limitingResource);
  line("device memory", absl::StrFormat("%s of %s allowed (%d of %d bytes)", formatBytes(plan.arenaBytes),
                                        formatBytes(plan.budgetBytes), plan.arenaBytes, plan.budgetBytes));
  line("host memory", absl::StrFormat("%s (%d bytes)", formatBytes(plan.hostBytes), plan.hostBytes));
  if (!plan.choices.empty())
    line("policy", describeGoal(plan));
  for (const VariantReport &r : reportVariants(plan)) {
    if (!plan.choices.empty())
      break; // a line a bucket below
    if (r.index == largestDecode(plan) || r.index == largestMixed(plan))
      line(r.index == largestDecode(plan) ? "decode" : "prefill, mixed",
           absl::StrFormat("%d tokens of %d sequences at context %d: %s predicted, compute %s, link %s (%s h2d)",
                           r.newTokens, r.sequences, r.context, formatNs(r.predictedNs), formatNs(r.computeAloneNs),
                           formatNs(r.linkAloneNs), formatBytes(r.linkBytes.h2d)));
  }
  line("variants", model::cat(plan.variants.size(), "; headrace inspect shows each"));
  line("as flags", "headrace compile " + chosenFlags(job, plan));
  line("plan", options.dryRun ? "not written: dry run" : options.output);
  if (!plan.choices.empty())
    out += "\n" + choicesText(plan, options.all);
  show(out, /*json=*/false);
}

void printJson(const CompileOptions &options, const model::Job &job, const plan::Plan &plan) {
  Json json = Json::parse(inspectJson(plan, options.dryRun ? "" : options.output), nullptr, false);
  json["dry_run"] = options.dryRun;
  json["offloaded_layers"] = plan.placements.front().offloadedLayers;
  json["command"] = "headrace compile " + chosenFlags(job, plan);
  std::puts(json.dump(2, ' ', false, Json::error_handler_t::replace).c_str());
}

} // namespace

absl::Status compileCommand(const CompileOptions &options) {
  if (options.output.empty() && !options.dryRun)
    return absl::InvalidArgumentError("command line: no --output FILE: expected one, or --dry-run");
  absl::StatusOr<AssembledJob> assembled = assembleJob(options.job);
  if (!assembled.ok())
    return assembled.status();
  for (const std::string &note : assembled->notes)
    std::fprintf(stderr, "headrace: %s\n", note.c_str());
  const model::Job &job = assembled->job;
  for (const std::string &note : job.model->notes)
    warnOnce(note);
  Outputs outputs(options.overwrite);
  if (!options.dryRun)
    outputs.add("--output", options.output, OutputKind::Plan);
  outputs.addFolder("--dump-ir", options.dumpIr);
  outputs.addInputs(job.files);
  RETURN_IF_ERROR(outputs.check());
  RETURN_IF_ERROR(outputs.prepareFolders());

  absl::Status dumped;
  PhaseText show;
  struct Shown {
    int count = 0; // files sort in the order of the phases
    std::string text;
  };
  std::map<std::string, Shown> schedules;
  if (!options.dumpIr.empty())
    show = [&](std::string_view schedule, std::string_view after, std::string_view text) {
      if (!dumped.ok())
        return;
      Shown &shown = schedules[std::string(schedule)];
      const std::string name = options.dumpEachPass ? absl::StrFormat("%02d-%s", ++shown.count, after)
                                                    : absl::StrFormat("%d-%s", ++shown.count, after);
      dumped = model::replaceFile(model::joinPath(options.dumpIr, model::cat(fileName(schedule), ".", name, ".mlir")),
                                  model::cat(kIrMark, shown.text == text ? std::string_view("(unchanged)\n") : text));
      shown.text = text;
    };
  else if (options.dumpEachPass)
    return badUsage("--dump-each-pass: expected --dump-ir FOLDER beside it");
  absl::StatusOr<plan::Plan> plan = options.dumpEachPass ? compileJob(job, {}, show) : compileJob(job, show);
  if (!dumped.ok())
    return dumped;
  if (!plan.ok())
    return aboutInput(assembled->input, plan.status());
  if (options.verifyWeights)
    RETURN_IF_ERROR(hashWeights(*job.model, *plan));
  if (!options.dryRun) {
    plan->modelPath = pathInPlan(plan->modelPath, options.output);
    absl::Status written = outputs.check(); // the user's files may have changed meanwhile
    if (written.ok())
      written = plan::writePlan(*plan, options.output);
    if (!written.ok())
      return written;
  }
  options.json ? printJson(options, job, *plan) : printText(options, job, *plan);
  return absl::OkStatus();
}

} // namespace headrace::tools
