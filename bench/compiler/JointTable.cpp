// SPDX-License-Identifier: Apache-2.0
//
// Policy joint beside every single one, by the aim: 8 models on 5 devices, batches and contexts, within a memory budget
// and within a TPOT.
//
//   joint_table FOLDER [N [THREADS]]     every cell, or each Nth, to FOLDER/cells.csv and FOLDER/NOTES.md
//
// A cell's memory is a part of what weights and KV take, or the device's where that is less. A TPOT is a tenth above
// what joint's slowest iteration of decode takes in that memory without one. Each plan's decode is played in virtual
// time at the contexts of the aim, with as much of KV in use as the batch has there, in the placement that the plan
// chose for it. No machine has a say in the figures.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "compiler/Compile.h"
#include "runtime/base/Units.h"
#include "runtime/job/Hardware.h"
#include "runtime/job/JobFile.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/model/WeightLayout.h"
#include "runtime/plan/value/PlacementTable.h"
#include "runtime/sim/BucketTime.h"
#include "tests/support/SourceDir.h"

namespace headrace::compiler {
namespace {

constexpr double kSame = 1e-3;    // of an aim: a smaller difference is none
constexpr double kCrosses = 5e-3; // of a time: by so much one policy is faster here and the other there
constexpr double kTpotPart = 1.1; // of joint's own
constexpr int64_t kFirstContext = 256;
constexpr const char *kSingle[] = {"interval", "headrace", "hybridserve", "pie"};

[[noreturn]] void fail(const std::string &text) {
  std::fprintf(stderr, "joint_table: %s\n", text.c_str());
  std::exit(1);
}

struct Load {
  int64_t batch, context; // at most what the model has
  double part;            // of the bytes of weights and KV
  bool tpot;
};
constexpr Load kLoads[] = {{1, 32768, 0.75, false},
                           {1, 32768, 0.6, true},
                           {16, 2048, 0.5, false},
                           {16, 2048, 0.75, true},
                           {4, 8192, 0.6, false}};

// One policy in one cell; no times: it has no plan there, or one that misses the TPOT.
struct Result {
  std::vector<double> ns; // by context
  double aimNs = 0;
  std::string reason;
  double bound = 0; // joint's aim by the least of any choice
  double slowestNs = 0;
  bool ran() const { return !ns.empty(); }
};

struct Cell {
  std::string model, hardware;
  CompileRequest request;
  std::vector<int64_t> contexts;
  Result joint;
  std::map<std::string, Result> single;

  const Result *best(std::string *name = nullptr) const {
    const Result *best = nullptr;
    for (const auto &[policy, result] : single)
      if (result.ran() && (best == nullptr || result.aimNs < best->aimNs)) {
        best = &result;
        if (name != nullptr)
          *name = policy;
      }
    return best;
  }
  // Two single policies of which each is the faster at some context: "interval and pie"; empty: none.
  std::string crossing() const {
    for (const auto &[a, left] : single)
      for (const auto &[b, right] : single) {
        if (a >= b || !left.ran() || !right.ran())
          continue;
        bool first = false, second = false;
        for (size_t i = 0; i < contexts.size(); ++i) {
          first |= left.ns[i] * (1 + kCrosses) < right.ns[i];
          second |= right.ns[i] * (1 + kCrosses) < left.ns[i];
        }
        if (first && second)
          return a + " and " + b;
      }
    return "";
  }
};

core::InUse inUseAt(const plan::Plan &plan, const plan::Variant &variant, int64_t context) {
  const int64_t ofOne = (context + plan.blockTokens - 1) / plan.blockTokens;
  const int64_t blocks = std::min(variant.sequences * ofOne, plan.mostContextBlocks());
  const model::BlocksOfKinds of = model::blocksOfKinds(plan.actRatio, blocks, variant.sequences, ofOne);
  core::InUse inUse;
  inUse.kvBlocks = std::min(of.kv + 1, plan.kvBlocks);
  inUse.actBlocks = std::min(of.act, plan.actBlocks);
  inUse.rows = variant.newTokens;
  inUse.writtenEnd = inUse.kvBlocks;
  inUse.writtenBegin = std::max<int64_t>(1, of.kv / variant.sequences);
  return inUse;
}

// An iteration of decode of the whole batch; of a cycle of them the mean.
double decodeNs(const plan::Plan &plan, int64_t batch, int64_t context) {
  const uint32_t placement = plan::chosenPlacement(plan, {batch, batch, context}).value_or(0);
  int64_t bucket = plan.maxContext;
  const auto decodes = [&](const plan::Variant &variant) {
    return variant.placement == placement && variant.sequences == batch && variant.context >= context &&
           plan.schedules[variant.schedule].iterationClass == plan::IterationClass::Decode;
  };
  for (const plan::Variant &variant : plan.variants)
    if (decodes(variant))
      bucket = std::min(bucket, variant.context);
  double sum = 0, few = 0;
  int count = 0, fewCount = 0; // of those that bring no more blocks than are in use here
  for (uint32_t v = 0; v < plan.variants.size(); ++v) {
    const plan::Variant &variant = plan.variants[v];
    if (!decodes(variant) || variant.context != bucket)
      continue;
    const core::InUse inUse = inUseAt(plan, variant, context);
    const int64_t holds = plan.schedules[variant.schedule].kvBlocks;
    if (holds > 0 && holds < inUse.kvBlocks)
      continue;
    const auto ns = static_cast<double>(sim::timesInUse(plan, v, inUse).iterationNs);
    (holds > 0 ? few : sum) += ns;
    ++(holds > 0 ? fewCount : count);
  }
  if (count + fewCount == 0)
    fail(absl::StrCat(plan.model->name, ": no variant decodes ", batch, " at ", context));
  return fewCount > 0 ? few / fewCount : sum / count;
}

Result resultOf(const CompileRequest &request, const std::vector<int64_t> &contexts) {
  Result result;
  const absl::StatusOr<plan::Plan> plan = compile(request);
  if (!plan.ok()) {
    result.reason = std::string(plan.status().message());
    return result;
  }
  for (const plan::BucketChoice &choice : plan->choices)
    if (choice.sloNs > 0 && sim::bucketNs(*plan, choice.variant) > choice.sloNs) {
      result.reason = "misses the TPOT";
      return result;
    }
  result.reason = plan->reason;
  for (const int64_t context : contexts)
    result.ns.push_back(decodeNs(*plan, *request.goal.batch, context));
  for (const double ns : result.ns)
    result.aimNs += ns / static_cast<double>(contexts.size());
  for (uint32_t v = 0; v < plan->variants.size(); ++v)
    if (plan->schedules[plan->variants[v].schedule].iterationClass == plan::IterationClass::Decode)
      result.slowestNs = std::max(result.slowestNs, static_cast<double>(sim::bucketNs(*plan, v)));
  result.bound = 1; // offload nothing: than which nothing is faster
  if (const size_t at = result.reason.find("): this one "); at != std::string::npos)
    result.bound = std::atof(result.reason.c_str() + at + 12);
  return result;
}

CompileRequest open(const std::string &model, const std::string &hardware, const Load &load) {
  const std::string examples = absl::StrCat(sourceDir(), "/examples/");
  const auto source = model::openModel(absl::StrCat(examples, "models/", model, ".toml"));
  const auto device = model::openHardware(absl::StrCat(examples, "hardware/", hardware, ".toml"));
  if (!source.ok() || !device.ok())
    fail(absl::StrCat(source.status().ToString(), " ", device.status().ToString()));
  CompileRequest request;
  request.model = source->spec;
  request.hardware = *device;
  request.hardware.hostMemoryBytes = 0; // as much as it takes
  request.goal.batch = load.batch;
  request.goal.context = std::min(load.context, source->spec->longestContext());
  const double kv = 2.0 * static_cast<double>(source->spec->kvRows() * source->spec->layers) *
                    static_cast<double>(model::dtypeBytes(source->spec->dtype)) * static_cast<double>(load.batch) *
                    static_cast<double>(*request.goal.context);
  const double all = kv + static_cast<double>(model::layoutWeights(source->spec).totalBytes());
  request.goal.deviceMemory = std::min(static_cast<uint64_t>(load.part * all), device->defaultBudget());
  // The buckets of what is compared.
  request.buckets.sequences = {load.batch};
  request.buckets.newTokens = {std::min<int64_t>(1024, load.batch * *request.goal.context)};
  return request;
}

Cell run(const std::string &model, const std::string &hardware, const Load &load) {
  Cell cell{.model = model,
            .hardware = hardware,
            .request = open(model, hardware, load),
            .contexts = {},
            .joint = {},
            .single = {}};
  CompileRequest &request = cell.request;
  for (int64_t context = kFirstContext; context < *request.goal.context; context *= 2)
    cell.contexts.push_back(context);
  cell.contexts.push_back(*request.goal.context);
  const auto with = [&](const char *policy) {
    CompileRequest of = request;
    of.policy.name = policy;
    return resultOf(of, cell.contexts);
  };
  cell.joint = with("joint");
  if (load.tpot && cell.joint.ran()) {
    request.goal.tpot = std::chrono::nanoseconds(static_cast<int64_t>(kTpotPart * cell.joint.slowestNs));
    cell.joint = with("joint");
  }
  for (const char *policy : kSingle)
    if (load.tpot || std::string(policy) != "headrace") // which chooses by an objective
      cell.single[policy] = with(policy);
  return cell;
}

double geometricMean(const std::vector<double> &of) {
  double sum = 0;
  for (const double one : of)
    sum += std::log(one);
  return of.empty() ? 1 : std::exp(sum / static_cast<double>(of.size()));
}
double quantile(std::vector<double> of, double part) {
  std::sort(of.begin(), of.end());
  return of.empty() ? 0 : of[static_cast<size_t>(part * static_cast<double>(of.size() - 1))];
}

std::string goalText(const Cell &cell) {
  const model::Goal &goal = cell.request.goal;
  return absl::StrCat(cell.model, ", ", cell.hardware, ", ", *goal.batch, " x ", *goal.context, ", ",
                      absl::StrFormat("%.1f GB", static_cast<double>(*goal.deviceMemory) / 1e9),
                      goal.tpot ? absl::StrFormat(", TPOT %.1f ms", static_cast<double>(goal.tpot->count()) / 1e6)
                                : "");
}

// What was chosen, in words: the reason's beginning.
std::string chosen(const Cell &cell) {
  const std::string &reason = cell.joint.reason;
  return reason.substr(0, reason.find(" of " + cell.model));
}

void writeCells(const std::vector<Cell> &cells, const std::string &file) {
  std::ofstream out(file);
  out << "model,hardware,batch,context,memory_bytes,tpot_ms,joint_ms";
  for (const char *policy : kSingle)
    out << "," << policy << "_ms";
  out << ",best_single,gain,over_bound,crossing,joint_chose\n";
  const auto ms = [](const Result &of) { return of.ran() ? absl::StrFormat("%.3f", of.aimNs / 1e6) : ""; };
  for (const Cell &cell : cells) {
    const model::Goal &goal = cell.request.goal;
    out << cell.model << "," << cell.hardware << "," << *goal.batch << "," << *goal.context << "," << *goal.deviceMemory
        << "," << (goal.tpot ? absl::StrFormat("%.3f", static_cast<double>(goal.tpot->count()) / 1e6) : "") << ","
        << ms(cell.joint);
    for (const char *policy : kSingle)
      out << "," << (cell.single.contains(policy) ? ms(cell.single.at(policy)) : "");
    std::string name;
    const Result *const best = cell.best(&name);
    out << "," << name << ","
        << (best != nullptr && cell.joint.ran() ? absl::StrFormat("%.3f", best->aimNs / cell.joint.aimNs) : "") << ","
        << (cell.joint.ran() ? absl::StrFormat("%.2f", cell.joint.bound) : "") << "," << cell.crossing() << ",\""
        << (cell.joint.ran() ? chosen(cell) : "nothing") << "\"\n";
  }
}

void writeNotes(const std::vector<Cell> &cells, const std::string &file) {
  std::vector<double> gains, bounds;
  std::map<std::string, std::vector<double>> byPolicy, byKind;
  std::vector<const Cell *> worse, crossings, even;
  int alone = 0, none = 0;
  for (const Cell &cell : cells) {
    std::string name;
    const Result *const best = cell.best(&name);
    if (!cell.joint.ran()) {
      ++none;
      if (best != nullptr)
        worse.push_back(&cell);
      continue;
    }
    bounds.push_back(cell.joint.bound);
    if (best == nullptr) {
      ++alone;
      continue;
    }
    const double gain = best->aimNs / cell.joint.aimNs;
    gains.push_back(gain);
    byPolicy[name].push_back(gain);
    byKind[cell.request.goal.tpot ? "within a TPOT" : "within a budget"].push_back(gain);
    if (gain < 1 - kSame)
      worse.push_back(&cell);
    if (!cell.crossing().empty()) {
      crossings.push_back(&cell);
      if (gain <= 1 + kSame)
        even.push_back(&cell);
    }
  }
  std::ofstream out(file);
  const auto count = [](const auto &of) { return std::to_string(of.size()); };
  out << "# Policy joint beside single policies\n\n"
      << "**In the " << gains.size() << " of " << cells.size() << " cells where a single policy has a plan joint takes "
      << absl::StrFormat("1 / %.2f", geometricMean(gains)) << "\nof the time of the best of them in the geometric "
      << "mean.** A gain is\nthe best single policy's aim by joint's: decode at contexts of 256, 512, ... to the "
      << "longest, evenly\n(`joint_table bench/results/joint`; all cells: [cells.csv](cells.csv)). The figures are "
      << "predicted, no machine\nhas a say in them.\n\n"
      << "| | cells | gain, geometric mean | least | median | most |\n|---|---|---|---|---|---|\n";
  const auto line = [&](const std::string &what, const std::vector<double> &of) {
    out << "| " << what << " | " << of.size() << " | " << absl::StrFormat("%.2f", geometricMean(of)) << " | "
        << absl::StrFormat("%.3f | %.2f | %.2f |\n", quantile(of, 0), quantile(of, 0.5), quantile(of, 1));
  };
  line("all where a single policy has a plan", gains);
  for (const auto &[kind, of] : byKind)
    line(kind, of);
  for (const auto &[policy, of] : byPolicy)
    line("the best single one is " + policy, of);
  out << "\n| | cells |\n|---|---|\n"
      << "| joint has a plan, no single policy has one | " << alone << " |\n"
      << "| joint has no plan | " << none << " |\n"
      << "| joint is slower than a single policy, by more than a thousandth | " << count(worse) << " |\n"
      << "| two single policies cross over the contexts | " << count(crossings) << " |\n"
      << "| of these joint is better than each of them, by more than a thousandth | " << crossings.size() - even.size()
      << " |\n\n"
      << "Joint's aim by the bound, that no choice is below: median " << absl::StrFormat("%.2f", quantile(bounds, 0.5))
      << ", nine in ten at most " << absl::StrFormat("%.2f", quantile(bounds, 0.9)) << ", all at most "
      << absl::StrFormat("%.2f", quantile(bounds, 1)) << ".\n";
  const auto list = [&](const std::string &title, const std::vector<const Cell *> &of) {
    if (of.empty())
      return;
    out << "\n## " << title
        << "\n\n| cell | policies that cross | best single | joint, ms | best single, ms | over the "
        << "bound | joint's choice |\n|---|---|---|---|---|---|---|\n";
    for (const Cell *cell : of) {
      std::string name;
      const Result *const best = cell->best(&name);
      out << "| " << goalText(*cell) << " | " << cell->crossing() << " | " << name << " | "
          << (cell->joint.ran() ? absl::StrFormat("%.3f", cell->joint.aimNs / 1e6) : "none") << " | "
          << absl::StrFormat("%.3f", best->aimNs / 1e6) << " | " << absl::StrFormat("%.2f", cell->joint.bound) << " | "
          << (cell->joint.ran() ? chosen(*cell) : cell->joint.reason) << " |\n";
    }
  };
  list("Where it is slower", worse);
  list("Where policies cross and it is no better", even);
}

} // namespace
} // namespace headrace::compiler

int main(int argc, char **argv) {
  using namespace headrace::compiler;
  const int every = argc > 2 ? std::atoi(argv[2]) : 1;
  const int threads = argc > 3 ? std::atoi(argv[3]) : static_cast<int>(std::thread::hardware_concurrency());
  if (argc < 2 || argc > 4 || every < 1 || threads < 1) {
    std::fprintf(stderr, "usage: joint_table FOLDER [N [THREADS]]: every cell, or each Nth\n");
    return 2;
  }
  struct Asked {
    const char *model, *hardware;
    const Load *load;
  };
  std::vector<Asked> asked;
  for (const char *model :
       {"opt-6.7b", "opt-13b", "opt-30b", "llama-2-13b", "llama-3.1-8b", "llama-3.1-70b", "qwen2.5-7b", "qwen3-32b"})
    for (const char *hardware : {"a10", "rtx4090", "a100-40", "h100", "gh200"})
      for (const Load &load : kLoads)
        asked.push_back({model, hardware, &load});
  for (size_t at = 1; at < asked.size(); ++at) // each Nth
    if (static_cast<int>(at) % every != 0)
      asked[at].load = nullptr;
  std::erase_if(asked, [](const Asked &one) { return one.load == nullptr; });
  std::vector<std::optional<Cell>> ran(asked.size());
  std::atomic<size_t> next = 0;
  std::vector<std::thread> workers;
  for (int t = 0; t < threads; ++t)
    workers.emplace_back([&] {
      for (size_t at = next++; at < asked.size(); at = next++) {
        ran[at] = run(asked[at].model, asked[at].hardware, *asked[at].load);
        std::fprintf(stderr, "%zu of %zu: %s\n", at + 1, asked.size(), goalText(*ran[at]).c_str());
      }
    });
  for (std::thread &worker : workers)
    worker.join();
  std::vector<Cell> cells;
  for (std::optional<Cell> &cell : ran)
    cells.push_back(*std::move(cell));
  writeCells(cells, std::string(argv[1]) + "/cells.csv");
  writeNotes(cells, std::string(argv[1]) + "/NOTES.md");
  return 0;
}
