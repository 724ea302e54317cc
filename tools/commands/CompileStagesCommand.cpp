// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/CompileStagesCommand.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/types/span.h"
#include "runtime/base/FileIo.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/base/Units.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/plan/PlanFile.h"
#include "runtime/plan/StagesFile.h"
#include "tools/commands/InputErrors.h"
#include "tools/commands/LoadedStages.h"
#include "tools/commands/ModelPath.h"
#include "tools/commands/Outputs.h"
#include "tools/commands/PromptTime.h"
#include "tools/commands/RunSetup.h"
#include "tools/commands/Terminal.h"
#include "tools/report/Format.h"
#include "tools/report/StagesReport.h"

namespace headrace::tools {
namespace {

using model::cat;

// 0: auto.
absl::StatusOr<int64_t> countOf(const std::string &text) {
  int64_t count = 0;
  if (text == "auto")
    return 0;
  if (!absl::SimpleAtoi(text, &count) || count < 1 || count > compiler::kMostStages)
    return badFlag("--stages", text, cat("a number of devices from 1 to ", compiler::kMostStages, ", or auto"));
  return count;
}

absl::Status checkStagedFlags(const CompileOptions &options) {
  for (const auto &[flag, given] : {std::pair("--dump-ir", !options.dumpIr.empty()),
                                    {"--explain", options.explain},
                                    {"--verify-weights", options.verifyWeights}})
    if (given)
      return badUsage(cat(flag, " beside --stages: expected one plan, of a whole model"));
  return absl::OkStatus();
}

// What a hop of the largest launch's rows takes: they are in F32, as the residual stream is. No GPU has shown a copy to
// another, so there is nothing that goes on.
absl::Status refusePeerCopies(absl::Span<const plan::Plan> plans) {
  constexpr std::string_view kNotShown = "no GPU has shown a peer copy yet: expected no --peer-copies";
  if (plans.size() < 2)
    return badUsage(cat("--peer-copies: one stage has no other to send rows to; ", kNotShown));
  const plan::Plan &plan = plans.front();
  int64_t rows = 0;
  for (const plan::Variant &variant : plan.variants)
    rows = std::max(rows, variant.newTokens * plan.miniBatches);
  const auto bytes = static_cast<uint64_t>(rows * plan.model->hidden) * sizeof(float);
  const model::Hardware &hardware = plan.hardware;
  const auto takes = [&](double bandwidth) {
    return static_cast<uint64_t>(std::llround(1e9 * (hardware.copyLatency + static_cast<double>(bytes) / bandwidth)));
  };
  const uint64_t out = takes(hardware.d2hBandwidth * hardware.linkEfficiency),
                 in = takes(hardware.h2dBandwidth * hardware.linkEfficiency);
  const std::string byHost = cat("by the host it takes ", formatNs(out + in), " (d2h ", formatNs(out), " + h2d ",
                                 formatNs(in), ")"),
                    hop = cat("--peer-copies: a hop of the largest launch's ", rows, " rows is ", formatBytes(bytes));
  if (hardware.peerBandwidth == 0)
    return badUsage(cat(hop, ": ", byHost, "; what it would take from device to device nobody has said (",
                        hardware.name, " has no peer_bandwidth), and ", kNotShown));
  return badUsage(cat(hop, ": from device to device it would take ", formatNs(takes(hardware.peerBandwidth)), " (",
                      model::bandwidthText(hardware.peerBandwidth), "), ", byHost, "; ", kNotShown));
}

// Plans that the file which is there names beyond those that are made now, of a cut into more stages.
std::vector<std::string> leftOver(const std::string &output, size_t stages) {
  const absl::StatusOr<std::string> text = model::readTextFile(output);
  if (!text.ok() || !isStagesFile(output))
    return {};
  const absl::StatusOr<plan::NamedStages> before = plan::parseStages(*text, output);
  std::vector<std::string> paths;
  for (size_t i = stages; before.ok() && i < before->stages.size(); ++i)
    if (const std::string &path = before->stages[i].path;
        path == plan::stagePlanPath(output, i) && holdsKind(path, OutputKind::Plan))
      paths.push_back(path);
  return paths;
}

// Which objectives are missed, where that is allowed.
std::vector<std::string> missesOf(absl::Span<const plan::Plan> plans) {
  std::vector<std::string> misses;
  for (size_t i = 0; i < plans.size(); ++i)
    if (const absl::Status held = checkObjectives(plans[i]); !held.ok())
      misses.push_back(cat("stage ", i, ": ", held.message()));
  return misses;
}

} // namespace

absl::Status compileStagesCommand(const CompileOptions &options, const AssembledJob &assembled) {
  RETURN_IF_ERROR(checkStagedFlags(options));
  ASSIGN_OR_RETURN(count, countOf(*options.stages));
  Outputs outputs(options.overwrite);
  if (!options.dryRun) {
    outputs.add("--output", options.output, OutputKind::Stages);
    for (int64_t i = 0; i < (count == 0 ? compiler::kMostStages : count); ++i)
      outputs.add("--output", plan::stagePlanPath(options.output, static_cast<size_t>(i)), OutputKind::Plan);
  }
  outputs.addInputs(assembled.job.files);
  RETURN_IF_ERROR(outputs.check());
  absl::StatusOr<compiler::StagedPlans> made = compileStagesToHold(assembled, count);
  if (!made.ok())
    return aboutInput(assembled.input, made.status());
  if (options.peerCopies)
    return refusePeerCopies(made->plans);
  if (!options.dryRun) {
    RETURN_IF_ERROR(outputs.check()); // the user's files may have changed meanwhile
    const std::vector<std::string> left = leftOver(options.output, made->plans.size());
    for (size_t i = 0; i < made->plans.size(); ++i) {
      const std::string path = plan::stagePlanPath(options.output, i);
      made->plans[i].modelPath = pathInPlan(made->plans[i].modelPath, path);
      RETURN_IF_ERROR(plan::writePlan(made->plans[i], path));
    }
    RETURN_IF_ERROR(outputs.write(options.output, plan::stagesText(made->plans, options.output)));
    for (const std::string &path : left)
      if (std::remove(path.c_str()) == 0)
        say(cat("removed ", oneLine(path), ", of the stages that were in ", oneLine(options.output), " before"));
  }
  for (const std::string &miss : missesOf(made->plans))
    warnOnce(miss);
  std::vector<const plan::Plan *> plans;
  std::vector<std::string> files;
  for (const plan::Plan &plan : made->plans) {
    if (!options.dryRun)
      files.push_back(plan::stagePlanPath(options.output, plans.size()));
    plans.push_back(&plan);
  }
  if (options.json)
    show(stagesReportJson(plans, made->reason, files).dump(1) + "\n", true);
  else
    show(stagesReportText(plans, made->reason,
                          options.dryRun ? "not written: dry run"
                                         : cat(oneLine(options.output), ", ", oneLine(files.front()),
                                               files.size() > 1 ? " and on" : "")),
         false);
  return absl::OkStatus();
}

} // namespace headrace::tools
