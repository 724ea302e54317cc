// SPDX-License-Identifier: Apache-2.0
//
// Policies side by side on one machine in one run: each compiled for the same goal, then all of them driven in turn,
// round by round, so that what disturbs the machine disturbs all.
#include <cstdio>
#include <map>
#include <memory>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "compiler/search/Batches.h"
#include "compiler/search/generators/Generators.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/base/Units.h"
#include "runtime/job/Capabilities.h"
#include "runtime/model/ModelSpec.h"
#include "tools/commands/BenchInstance.h"
#include "tools/commands/BenchJob.h"
#include "tools/commands/Commands.h"
#include "tools/commands/Compiling.h"
#include "tools/commands/Devices.h"
#include "tools/commands/InputErrors.h"
#include "tools/commands/Outputs.h"
#include "tools/commands/Progress.h"
#include "tools/commands/RunSetup.h"
#include "tools/commands/Terminal.h"
#include "tools/report/BenchReport.h"
#include "tools/report/Format.h"

namespace headrace::tools {
namespace {

using model::cat;

absl::StatusOr<std::vector<int64_t>> parseBatches(const std::string &text) {
  std::vector<int64_t> out;
  for (const auto part : absl::StrSplit(text, ',')) {
    int64_t batch = 0;
    if (!absl::SimpleAtoi(part, &batch) || batch < 1 || batch > (int64_t{1} << 20))
      return badFlag("--batches", text, "numbers of 1 or more, such as 1,8,32");
    out.push_back(batch);
  }
  return out;
}

std::string describeObjective(const model::Goal &goal) {
  std::string text;
  if (goal.sloFactor)
    return absl::StrFormat("%g x resident", *goal.sloFactor);
  if (goal.ttft)
    text = "TTFT " + model::durationText(*goal.ttft);
  if (goal.tpot)
    text += (text.empty() ? "TPOT " : ", TPOT ") + model::durationText(*goal.tpot);
  return text;
}

class Bench {
public:
  // `weights` are null for a device that holds no data.
  Bench(const BenchOptions &options, const AssembledJob &assembled, const model::WeightSource *weights)
      : options_(options), input_(assembled.input), job_(assembled.job), weights_(weights), device_(options.device) {
    device_.device = options.device.deviceOr(assembled.device);
    if (options.instances == model::Instances::Together)
      roles_ = {BenchRole::Both};
    else if (options.phase == BenchRole::Both)
      roles_ = {BenchRole::Prefill, BenchRole::Decode};
    else
      roles_ = {options.phase};
  }

  // A batch of 0 stands for the largest that would do.
  absl::StatusOr<BenchReport> run(const std::vector<std::string> &policies, const std::vector<int64_t> &batches) {
    report_.model = job_.model->spec->name;
    report_.hardware = job_.hardware->name;
    report_.objective = describeObjective(job_.goal);
    report_.instances = model::instancesName(options_.instances);
    report_.inputLength = *job_.goal.inputLen;
    report_.outputLength = *job_.goal.outputLen;
    report_.rounds = options_.rounds;
    report_.deviceMemory = job_.goal.deviceMemory.value_or(job_.hardware->defaultBudget());
    report_.device = device_.device;
    Progress progress("bench");
    cells_ = batches.size() * (policies.size() + 1);
    for (const int64_t batch : batches)
      RETURN_IF_ERROR(compare(policies, batch, progress));
    return std::move(report_);
  }

private:
  // One policy's instances under one load; an instance that could not be made says why.
  struct Contender {
    struct One {
      BenchRole role;
      BenchLoad load;
      std::string refused, asked; // by these flags of compile
      std::unique_ptr<BenchInstance> instance;
      Prompts prompts;
    };
    std::string policy;
    std::vector<One> instances;
  };

  // What the compiler made of a job; no plan, but the reason, where its goal cannot be met.
  struct Made {
    std::optional<plan::Plan> plan;
    std::string asked; // by these flags
    BenchObjective objective;
    std::string refused;
  };

  absl::StatusOr<Made> make(const std::string &policy, BenchRole role, const BenchLoad &load) {
    absl::StatusOr<BenchObjective> objective = objectiveOf(job_, role, load);
    if (!objective.ok())
      return objective.status();
    Made made;
    made.objective = *objective;
    model::Job job = job_;
    RETURN_IF_ERROR(applyPolicy(policy, job.policy));
    if (job.goal.sloFactor && role != BenchRole::Both) {
      job.goal.sloFactor.reset();
      job.goal.ttft = objective->ttft;
      job.goal.tpot = objective->tpot;
      job.goal.inputLen = std::min(load.input, iterationTokens(role, load)); // that TTFT is of an iteration
    }
    // Without an objective for its phase an instance has nothing to choose by.
    const model::Job asked = job;
    job = benchJob(asked, role, load);
    ASSIGN_OR_RETURN(named, compiler::policyFor(job.policy, asked.goal));
    if (named->order == compiler::Order::MostFreed && !job.goal.hasSlo()) {
      made.refused = role == BenchRole::Prefill ? "no objective for prefill: expected --ttft or --slo-factor"
                                                : "no objective for decode: expected --tpot or --slo-factor";
      return made;
    }
    if (const absl::Status status = model::validate(job, /*where=*/""); !status.ok())
      return aboutInput(input_, status);
    absl::StatusOr<plan::Plan> plan = compileJob(job);
    if (plan.ok()) {
      made.plan = *std::move(plan);
      made.asked = askedFlags(job);
      if (job.goal.sloFactor) {
        ASSIGN_OR_RETURN(in, objectiveIn(*made.plan, role, load));
        made.objective = in;
      }
    } else if (absl::IsResourceExhausted(plan.status()))
      made.refused = std::string(plan.status().message());
    else if (kvNeedsMore(asked.goal, plan.status()))
      made.refused = std::string(aboutInput(input_, plan.status()).message());
    else
      return aboutInput(input_, plan.status());
    return made;
  }

  // Of this batch: another may do with what KV may take of the device.
  static bool kvNeedsMore(const model::Goal &goal, const absl::Status &status) {
    return goal.kvDeviceMemory &&
           std::string(status.message())
               .starts_with(cat("goal.kv_device_memory = ", *goal.kvDeviceMemory, ": expected at least "));
  }

  // Why an instance does not hold its objectives as predicted; empty if it does.
  static std::string missed(const plan::Plan &plan, BenchRole role, const BenchLoad &load,
                            const BenchObjective &objective) {
    for (const bool decode : {false, true}) {
      if (role == (decode ? BenchRole::Prefill : BenchRole::Decode))
        continue;
      const plan::BucketChoice *choice = choiceFor(plan, decode, load);
      if (choice == nullptr || choice->sloNs == 0)
        continue;
      const plan::Variant &variant = plan.variants[choice->variant];
      const int64_t rows = variant.newTokens * plan.miniBatches, all = load.batch * load.input;
      const uint64_t iterations = decode || objective.ofIterations ? 1 : static_cast<uint64_t>((all + rows - 1) / rows);
      if (iterations * variant.predictedNs <= choice->sloNs)
        continue;
      return cat(iterations == 1 ? std::string("an iteration") : cat(iterations, " iterations"), " of ",
                 decode ? "decode" : "prefill", " at batch ", load.batch, iterations == 1 ? " takes " : " take ",
                 formatNs(iterations * variant.predictedNs), ", the objective is ", formatNs(choice->sloNs));
    }
    return "";
  }

  absl::StatusOr<Contender> contend(const std::string &policy, int64_t batch) {
    Contender contender;
    contender.policy = policy;
    for (const BenchRole role : roles_) {
      Contender::One one{
          role, {batch, *job_.goal.inputLen, *job_.goal.outputLen, options_.maxNumBatchedTokens}, "", "", nullptr, {}};
      if (batch == 0)
        RETURN_IF_ERROR(fill(policy, one));
      if (one.refused.empty()) {
        absl::StatusOr<Made> made = make(policy, role, one.load);
        if (!made.ok())
          return made.status();
        one.refused = made->refused;
        if (made->plan) {
          ASSIGN_OR_RETURN(instance, BenchInstance::load(*std::move(made->plan), role, one.load, made->objective,
                                                         device_, weights_));
          one.instance = std::move(instance);
          one.asked = made->asked;
          one.prompts = randomPrompts(one.load.batch, one.load.input, job_.model->spec->vocab, options_.seed);
          report_.device = one.instance->device();
        }
      }
      contender.instances.push_back(std::move(one));
    }
    return contender;
  }

  // Sets the load's batch to the largest that fits the memory and holds the objectives, or says why none does.
  absl::Status fill(const std::string &policy, Contender::One &one) {
    const int64_t most = mostPrompts(job_, one.load, report_.deviceMemory);
    Progress progress("the largest batch");
    std::string first; // why a batch of 1 would not do
    const auto holds = [&](int64_t batch) -> absl::StatusOr<bool> {
      progress.note(cat("trying ", batch));
      BenchLoad load = one.load;
      load.batch = batch;
      absl::StatusOr<Made> made = make(policy, one.role, load);
      if (!made.ok())
        return made.status();
      const std::string why = made->plan ? missed(*made->plan, one.role, load, made->objective) : made->refused;
      if (batch == 1)
        first = why;
      return why.empty();
    };
    absl::StatusOr<std::optional<int64_t>> found = compiler::largestBatch(most, holds);
    if (!found.ok())
      return found.status();
    if (*found)
      one.load.batch = **found;
    else
      one.refused = cat("no batch fits and holds; at batch 1: ", first);
    return absl::OkStatus();
  }

  absl::Status compare(const std::vector<std::string> &policies, int64_t batch, Progress &bench) {
    std::vector<Contender> contenders;
    for (const std::string &policy : policies) {
      bench.update(cell_++, cells_);
      Progress progress(batch == 0 ? policy : cat(policy, " at batch ", batch));
      absl::StatusOr<Contender> contender = contend(policy, batch);
      if (!contender.ok())
        return contender.status();
      contenders.push_back(*std::move(contender));
    }
    bench.update(cell_++, cells_);
    Progress progress(batch == 0 ? std::string("rounds") : cat("rounds at batch ", batch), Amount::Rounds);
    // One round that does not count: caches, page faults, clock rates.
    for (int64_t round = 0; round <= options_.rounds; ++round)
      for (size_t c = 0; c < contenders.size(); ++c) {
        progress.update(static_cast<uint64_t>(round), static_cast<uint64_t>(options_.rounds + 1));
        progress.note(contenders[c].policy);
        for (Contender::One &one : contenders[c].instances)
          if (one.instance)
            RETURN_IF_ERROR(one.instance->round(one.prompts, /*counts=*/round > 0));
      }
    for (Contender &contender : contenders)
      RETURN_IF_ERROR(addRow(contender, batch));
    return absl::OkStatus();
  }

  absl::Status addRow(Contender &contender, int64_t batch) {
    BenchRow row;
    row.policy = contender.policy;
    row.batch = batch;
    for (Contender::One &one : contender.instances) {
      BenchPhase none;
      none.batch = one.load.batch;
      none.refused = one.refused;
      if (one.role != BenchRole::Prefill) { // before a prefill that is run for its times
        row.decode = none;
        if (one.instance) {
          ASSIGN_OR_RETURN(phase, one.instance->decode(report_.deviceMemory));
          phase.compiled = one.asked;
          row.decode = std::move(phase);
        }
      }
      if (one.role != BenchRole::Decode) {
        row.prefill = none;
        if (one.instance) {
          ASSIGN_OR_RETURN(phase, one.instance->prefill(one.prompts, report_.deviceMemory));
          phase.compiled = one.asked;
          row.prefill = std::move(phase);
        }
      }
    }
    report_.rows.push_back(std::move(row));
    return absl::OkStatus();
  }

  const BenchOptions &options_;
  const JobInput &input_;
  const model::Job &job_;
  const model::WeightSource *weights_;
  DeviceFlags device_; // named
  std::vector<BenchRole> roles_;
  BenchReport report_;
  uint64_t cell_ = 0, cells_ = 0; // of its progress: policies, and then their rounds, of each batch
};

std::vector<std::string> policiesOf(const BenchOptions &options) {
  return absl::StrSplit(options.policies, ',', absl::SkipEmpty());
}

// What can be refused by flags alone.
absl::Status checkFlags(const BenchOptions &options) {
  const bool apart = options.instances == model::Instances::Apart;
  if (!apart && options.phase != BenchRole::Both)
    return badFlag("--phase", options.phase == BenchRole::Prefill ? "prefill" : "decode",
                   "both, with --instances together");
  if (options.fill && !options.batches.empty())
    return badFlag("--batches", options.batches, "--fill finds the batch", "one of them");
  const std::map<std::string, std::string> &flags = options.job.flags;
  if (const auto batch = flags.find("--batch"); batch != flags.end() && !options.batches.empty())
    return badFlag("--batch", batch->second, "--batches is given, too", "one of them");
  for (const char *synonym : {"--max-num-seqs", "--parallel"})
    if (const auto batch = options.job.synonyms.find(synonym);
        batch != options.job.synonyms.end() && !options.batches.empty())
      return badFlag(synonym, batch->second, "it means --batch, and --batches is given, too", "one of them");
  if (policiesOf(options).empty())
    return badFlag("--policies", options.policies, "names, such as none,select-n,headrace");
  return checkWeightFlags(options.weights);
}

// Every policy by itself, beside what the job says.
absl::Status checkPolicies(const BenchOptions &options, const model::Job &job) {
  if (job.policy.prefer == model::Prefer::Throughput)
    return badUsage(
        "--prefer throughput finds a batch, bench compares at those of --batches: expected latency or memory");
  for (const std::string &name : policiesOf(options)) {
    model::Job one = job;
    RETURN_IF_ERROR(applyPolicy(name, one.policy));
    const bool keeps = compiler::policyNamed(one.policy.name).keepsActivations;
    const bool shares = one.policy.actRatio && (one.policy.actRatio->any() || one.policy.actRatio->isAuto());
    if (options.instances == model::Instances::Apart && (keeps || shares))
      return badUsage(cat("--policies ", tools::quoted(name), keeps ? "" : " with --act-ratio",
                          ": expected --instances together beside it: ",
                          model::whyNotBeside(model::Mechanism::ActBlocks, model::Mechanism::InstancesApart)));
    // What a policy chooses by is for each instance to have: one without is named in the table.
    if (!one.goal.hasSlo() && compiler::policyNamed(one.policy.name).order == compiler::Order::MostFreed)
      one.goal.sloFactor = 1;
    for (const absl::Status &status : {model::validate(one, /*where=*/""), compiler::checkPolicy(one.policy, one.goal)})
      if (!status.ok())
        return badUsage(cat("--policies ", tools::quoted(name), ": ", status.message()));
  }
  return absl::OkStatus();
}

// The batches to compare at; 0: the largest that would do.
absl::StatusOr<std::vector<int64_t>> batchesOf(const BenchOptions &options, const model::Job &job) {
  const int64_t miniBatches = job.goal.miniBatches;
  if (options.fill && miniBatches > 1)
    return badUsage(cat("--fill finds any batch, goal.mini_batches = ", miniBatches,
                        " wants one that it divides: ", "expected --batches beside it"));
  if (options.batches.empty())
    return std::vector<int64_t>{options.fill ? 0 : job.goal.batch.value_or((7 / miniBatches + 1) * miniBatches)};
  ASSIGN_OR_RETURN(batches, parseBatches(options.batches));
  for (const int64_t batch : batches)
    if (batch % miniBatches != 0)
      return badNumber("--batches", batch, cat("a multiple of goal.mini_batches = ", miniBatches));
  return batches;
}

// The lengths of what is run, which a TTFT is of: a flag's, the job's, or 256 and 32.
absl::Status setLengths(const BenchOptions &options, model::Job &job) {
  const int64_t input = options.inputLength.value_or(job.goal.inputLen.value_or(256));
  const int64_t output = options.outputLength.value_or(job.goal.outputLen.value_or(32));
  // One token in is an iteration of decode; a decode instance counts from its second decode iteration.
  const bool decodesApart = options.instances == model::Instances::Apart && options.phase != BenchRole::Prefill;
  if (input < 2)
    return badNumber("--input-len", input, "2 or more");
  if (const int64_t leastOut = decodesApart ? 3 : 2; output < leastOut)
    return badNumber("--output-len", output, cat(leastOut, " or more"));
  if (job.goal.context && *job.goal.context < input + output)
    return badNumber("--context", *job.goal.context, cat("at least the ", input, " tokens in and ", output, " out"));
  if (input + output > job.model->spec->longestContext())
    return badNumber("--input-len", input,
                     cat("with --output-len ", output, " at most ", model::longestContextText(job.model->spec)));
  job.goal.inputLen = input;
  job.goal.outputLen = output;
  return absl::OkStatus();
}

// The weights that every instance loads; null where the device holds no data. Refuses a device that is not there, and
// lanes that it does not have.
absl::StatusOr<std::unique_ptr<model::WeightSource>> openFor(const BenchOptions &options,
                                                             const AssembledJob &assembled) {
  ASSIGN_OR_RETURN(device, makeDevice(options.device.deviceOr(assembled.device), options.device));
  if (!device->holdsData())
    return nullptr;
  return openWeights(options.weights, weightsOf(assembled.job));
}

absl::Status write(const BenchOptions &options, const Outputs &outputs, const BenchReport &report) {
  const std::string json = report.json();
  if (!options.svg.empty())
    RETURN_IF_ERROR(outputs.write(options.svg, report.svg()));
  if (!options.output.empty())
    RETURN_IF_ERROR(outputs.write(options.output, json));
  show(options.json ? json : report.text(options.all), options.json);
  const auto ran = [](const std::optional<BenchPhase> &phase) { return phase && phase->ran(); };
  if (std::none_of(report.rows.begin(), report.rows.end(),
                   [&](const BenchRow &row) { return ran(row.prefill) || ran(row.decode); }))
    return withReport(absl::FailedPreconditionError("bench: nothing ran, for the reasons above"));
  return absl::OkStatus();
}

} // namespace

absl::Status benchCommand(const BenchOptions &options) {
  RETURN_IF_ERROR(checkFlags(options));
  if (!options.device.device.empty())
    RETURN_IF_ERROR(makeDevice(options.device.device, options.device).status());
  ASSIGN_OR_RETURN(assembled, assembleJob(options.job));
  const model::Job &job = assembled.job;
  Outputs outputs(options.overwrite);
  outputs.add("--svg", options.svg, OutputKind::Bench);
  outputs.add("--output", options.output, OutputKind::Bench);
  outputs.addInputs(job.files);
  outputs.addInput(options.weights.folder);
  RETURN_IF_ERROR(outputs.check());
  say(assembled.notes);
  const bool ownBatches = options.fill || !options.batches.empty();
  if ((options.instances == model::Instances::Apart || ownBatches) && !(job.buckets == model::Buckets())) {
    say(options.instances == model::Instances::Apart
            ? "bench makes buckets of the prompts that it runs; the job's are not used"
            : "buckets are of the batches that are compared; the job's are not used");
    assembled.job.buckets = {};
  }
  RETURN_IF_ERROR(setLengths(options, assembled.job));
  ASSIGN_OR_RETURN(batches, batchesOf(options, job));
  RETURN_IF_ERROR(checkPolicies(options, job));
  ASSIGN_OR_RETURN(weights, openFor(options, assembled));
  ASSIGN_OR_RETURN(report, Bench(options, assembled, weights.get()).run(policiesOf(options), batches));
  return write(options, outputs, report);
}

} // namespace headrace::tools
