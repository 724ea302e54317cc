// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <tuple>

#include <nlohmann/json.hpp>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "runtime/base/FileIo.h"
#include "runtime/base/ReplaceFile.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/cost/RecordFile.h"
#include "runtime/job/Capabilities.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/plan/PlanFile.h"
#include "tools/commands/Commands.h"
#include "tools/commands/CompileStagesCommand.h"
#include "tools/commands/Compiling.h"
#include "tools/commands/InputErrors.h"
#include "tools/commands/ModelHash.h"
#include "tools/commands/ModelPath.h"
#include "tools/commands/Outputs.h"
#include "tools/commands/RequestTimes.h"
#include "tools/commands/RunSetup.h"
#include "tools/commands/Terminal.h"
#include "tools/report/ChoiceReport.h"
#include "tools/report/ClosedFormReport.h"
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
uint32_t largest(const plan::Plan &plan, plan::IterationClass iterationClass) {
  uint32_t best = plan::kNone;
  const auto key = [&](uint32_t i) {
    const plan::Variant &v = plan.variants[i];
    return std::tuple(v.newTokens, v.sequences, v.context);
  };
  for (uint32_t i = 0; i < plan.variants.size(); ++i)
    if (plan.variants[i].placement == 0 && plan.schedules[plan.variants[i].schedule].iterationClass == iterationClass &&
        plan.schedules[plan.variants[i].schedule].kvBlocks == 0 && // all blocks may be in use
        (best == plan::kNone || key(i) > key(best)))
      best = i;
  return best;
}
uint32_t largestDecode(const plan::Plan &plan) { return largest(plan, plan::IterationClass::Decode); }
uint32_t largestMixed(const plan::Plan &plan) { return largest(plan, plan::IterationClass::Mixed); }

// Of decode: a token a sequence an iteration.
double tokensPerSecond(const plan::Plan &plan, const VariantReport &decode) {
  return static_cast<double>(decode.sequences) * plan.miniBatches * 1e9 / static_cast<double>(decode.predictedNs);
}

// What a plan has not: what would be better if it were allowed, or empty; and its closed form, where that is asked for.
struct Explained {
  std::string advice;
  absl::StatusOr<ClosedFormReport> closedForm = absl::UnavailableError("not asked for");
};

void printText(const CompileOptions &options, const model::Job &job, const plan::Plan &plan,
               const std::vector<RequestTime> &requests, const Explained &explained) {
  const plan::Placement &placement = plan.placements.front();
  std::string out;
  const auto line = [&](const char *name, const std::string &value) {
    absl::StrAppendFormat(&out, "%-14s %s\n", name, value);
  };
  line("model", model::cat(plan.model->name, ", ", plan.model->layers, " layers"));
  line("hardware", plan.hardware.name);
  line("offloaded", describePlacement(plan, placement));
  if (const std::string text = miniBatchesText(plan); !text.empty())
    line("mini-batches", text);
  if (plan.actBlocks > 0)
    line("activations", actText(plan));
  if (const std::string homes = kvHomesText(plan, 0); !homes.empty())
    line("KV cache", homes);
  line("why", plan.reason);
  if (!explained.advice.empty())
    line("if allowed", explained.advice);
  line("limited by", plan.limitingResource);
  line("device memory", absl::StrFormat("%s of %s allowed (%d of %d bytes)", formatBytes(plan.arenaBytes),
                                        formatBytes(plan.deviceMemory), plan.arenaBytes, plan.deviceMemory));
  line("host memory",
       absl::StrFormat("%s (%d bytes)%s", formatBytes(plan.hostBytes), plan.hostBytes, unknownHostMemory(plan)));
  if (!plan.choices.empty())
    line("policy", describeGoal(plan));
  for (const VariantReport &r : reportVariants(plan)) {
    if (r.index == largestDecode(plan))
      line("throughput", absl::StrFormat("%s tokens/s of decode: %d sequences at context %d in %s",
                                         formatRate(tokensPerSecond(plan, r)), r.sequences * plan.miniBatches,
                                         r.context, formatNs(r.predictedNs)));
    if (!plan.choices.empty())
      continue; // a line a bucket below
    if (r.index == largestDecode(plan) || r.index == largestMixed(plan))
      line(r.index == largestDecode(plan) ? "decode" : "prefill, mixed",
           absl::StrFormat(
               "%d tokens of %d sequences at context %d%s: %s predicted, compute %s, %slink %s (%s h2d%s)", r.newTokens,
               r.sequences, r.context,
               plan.miniBatches == 1 ? "" : absl::StrFormat(" in each of %d mini-batches", plan.miniBatches),
               formatNs(r.predictedNs), formatNs(r.computeAloneNs),
               r.cpuAloneNs == 0 ? "" : "CPU " + formatNs(r.cpuAloneNs) + ", ", formatNs(r.linkAloneNs),
               formatBytes(r.linkBytes.h2d), r.linkBytes.d2h > 0 ? ", " + formatBytes(r.linkBytes.d2h) + " d2h" : ""));
  }
  line("one request", absl::StrJoin(requests, "; ", [](std::string *text, const RequestTime &time) {
         absl::StrAppend(text, time.prompt, " tokens in: first token ",
                         formatNs(static_cast<uint64_t>(time.firstToken.count())));
         if (time.newTokens > 1)
           absl::StrAppend(text, ", then ", formatNs(std::llround(time.tpotMs * 1e6)), " each");
       }));
  line("variants", model::cat(plan.variants.size(), "; headrace inspect shows each"));
  line("as flags", "headrace compile " + chosenFlags(job, plan));
  line("plan", options.dryRun ? "not written: dry run" : oneLine(options.output));
  if (!plan.choices.empty())
    out += "\n" + choicesText(plan, options.all);
  if (explained.closedForm.ok())
    out += "\n" + closedFormText(plan, *explained.closedForm);
  show(out, /*json=*/false);
}

void printJson(const CompileOptions &options, const model::Job &job, const plan::Plan &plan,
               const std::vector<RequestTime> &requests, const Explained &explained) {
  Json json = Json::parse(inspectJson(plan, options.dryRun ? "" : options.output), nullptr, false);
  json["dry_run"] = options.dryRun;
  json["offloaded_layers"] = plan::offloadedWeights(plan, plan.placements.front()).layers;
  for (const VariantReport &r : reportVariants(plan))
    if (r.index == largestDecode(plan))
      json["decode_tokens_per_second"] = tokensPerSecond(plan, r);
  json["one_request"] = Json::array();
  for (const RequestTime &time : requests)
    json["one_request"].push_back({{"prompt_tokens", time.prompt},
                                   {"new_tokens", time.newTokens},
                                   {"prefill_iterations", time.prefillIterations},
                                   {"ttft_ms", static_cast<double>(time.firstToken.count()) / 1e6},
                                   {"tpot_ms", time.tpotMs}});
  json["command"] = "headrace compile " + chosenFlags(job, plan);
  if (!explained.advice.empty())
    json["if_allowed"] = explained.advice;
  if (explained.closedForm.ok())
    json["closed_form"] = closedFormJson(*explained.closedForm);
  print(json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

// The IR's text after each phase or pass, a file each; a text that is the one before says so.
class IrFiles {
public:
  explicit IrFiles(const CompileOptions &options) : options_(options) {}

  // For compileJob(); empty where nothing is to be written.
  PhaseText writer(bool eachPass) {
    if (options_.dumpIr.empty() || options_.dumpEachPass != eachPass)
      return {};
    return [this](std::string_view schedule, std::string_view after, std::string_view text) {
      write(schedule, after, text);
    };
  }
  const absl::Status &status() const { return status_; }

private:
  struct Shown {
    int count = 0; // files sort in the order of the phases
    std::string text;
  };
  void write(std::string_view schedule, std::string_view after, std::string_view text) {
    if (!status_.ok())
      return;
    Shown &shown = schedules_[std::string(schedule)];
    const std::string name = options_.dumpEachPass ? absl::StrFormat("%02d-%s", ++shown.count, after)
                                                   : absl::StrFormat("%d-%s", ++shown.count, after);
    status_ = model::replaceFile(model::joinPath(options_.dumpIr, model::cat(fileName(schedule), ".", name, ".mlir")),
                                 model::cat(kIrMark, shown.text == text ? std::string_view("(unchanged)\n") : text));
    shown.text = text;
  }

  const CompileOptions &options_;
  std::map<std::string, Shown> schedules_;
  absl::Status status_;
};

// What can be refused by flags alone.
absl::Status checkFlags(const CompileOptions &options) {
  if (options.output.empty() && !options.dryRun)
    return badUsage("no --output FILE: expected one, or --dry-run");
  if (options.dumpEachPass && options.dumpIr.empty())
    return badUsage("--dump-each-pass: expected --dump-ir FOLDER beside it");
  return absl::OkStatus();
}

// What says how many threads compute is not what plans are made by: they would be others in another shell.
void tellThreads(const JobInput &input, const model::Hardware &hardware) {
  const char *const variable = std::getenv("HEADRACE_THREADS");
  int threads = 0;
  if (variable == nullptr || hardware.kind != model::DeviceKind::Host || input.flags.contains("--threads") ||
      !absl::SimpleAtoi(variable, &threads) || threads == hardware.threads)
    return;
  say(model::cat("HEADRACE_THREADS=", threads, " is for what runs: this plan is priced for ", hardware.threads,
                 hardware.threads == 1 ? " thread" : " threads", "; --threads ", threads, " prices it for ", threads));
}

// The table of capabilities: what stands side by side is not in it.
void printBeside(bool json) {
  Json rows = Json::array();
  std::string text = absl::StrFormat("%-18s  %-29s  %s\n", "this", "not beside", "why");
  for (const model::Clash &clash : model::allClashes()) {
    const std::string a(model::mechanismName(clash.a)), b(model::mechanismName(clash.b)), why(clash.why);
    absl::StrAppendFormat(&text, "%-18s  %-29s  %s\n", a, b, why);
    rows.push_back({{"a", a}, {"b", b}, {"why", why}});
  }
  print(json ? rows.dump(2) + "\n" : text);
}

} // namespace

absl::Status compileCommand(const CompileOptions &options) {
  if (options.beside) {
    if (options.job.any() || !options.job.source.empty())
      return badUsage("--beside: expected no model and no key of a job beside it: it prints what is so of all");
    const bool compiles = options.dryRun || options.dumpEachPass || options.explain || options.verifyWeights ||
                          options.overwrite || !options.output.empty() || !options.dumpIr.empty();
    if (compiles)
      return badUsage("--beside: expected no other flag than --json beside it: nothing is compiled");
    printBeside(options.json);
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(checkFlags(options));
  ASSIGN_OR_RETURN(assembled, assembleJob(options.job));
  say(assembled.notes);
  const model::Job &job = assembled.job;
  tellThreads(options.job, *job.hardware);
  for (const std::string &note : job.model->notes)
    warnOnce(note);
  if (options.stages)
    return compileStagesCommand(options, assembled);
  if (options.peerCopies)
    return badUsage("--peer-copies: is of rows between stages: expected --stages beside it");
  if (options.verifyWeights)
    RETURN_IF_ERROR(checkHasWeights(*job.model));
  Outputs outputs(options.overwrite);
  if (!options.dryRun)
    outputs.add("--output", options.output, OutputKind::Plan);
  outputs.addFolder("--dump-ir", options.dumpIr);
  outputs.addInputs(job.files);
  RETURN_IF_ERROR(outputs.check());
  RETURN_IF_ERROR(outputs.prepareFolders());

  IrFiles ir(options);
  Explained explained;
  absl::StatusOr<plan::Plan> plan =
      compileToHold(assembled, ir.writer(/*eachPass=*/false), ir.writer(/*eachPass=*/true), &explained.advice);
  RETURN_IF_ERROR(ir.status());
  if (!plan.ok())
    return aboutInput(assembled.input, plan.status());
  if (options.verifyWeights)
    RETURN_IF_ERROR(hashWeights(*job.model, *plan));
  if (options.explain) {
    cost::MeasuredLoading loading;
    if (!job.goal.record.empty()) {
      ASSIGN_OR_RETURN(record, cost::readRecord(job.goal.record));
      loading = record.loading;
    }
    explained.closedForm = reportClosedForm(*plan, loading);
    RETURN_IF_ERROR(explained.closedForm.status());
  }
  if (!options.dryRun) {
    plan->modelPath = pathInPlan(plan->modelPath, options.output);
    RETURN_IF_ERROR(outputs.check()); // the user's files may have changed meanwhile
    RETURN_IF_ERROR(plan::writePlan(*plan, options.output));
  }
  ASSIGN_OR_RETURN(requests, requestTimes(*plan));
  options.json ? printJson(options, job, *plan, requests, explained)
               : printText(options, job, *plan, requests, explained);
  return absl::OkStatus();
}

} // namespace headrace::tools
