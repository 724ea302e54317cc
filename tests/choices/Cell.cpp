// SPDX-License-Identifier: Apache-2.0
#include "tests/choices/Cell.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "compiler/Compile.h"
#include "passes/algorithms/CycleOf.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/core/Runtime.h"
#include "runtime/host/HostDevice.h"
#include "runtime/model/KvEncoding.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/plan/value/CacheMap.h"
#include "runtime/serve/engine/BatchEngine.h"
#include "runtime/sim/SimDevice.h"
#include "tests/choices/WatchedDevice.h"
#include "tests/support/LongRun.h"
#include "tests/support/TinyPlan.h"
#include "tests/unit/cuda/EmulatedGraphDevice.h"

namespace headrace::choices {
namespace {

constexpr std::string_view kModelNames[] = {"llama", "opt", "qwen"};
constexpr std::string_view kDeviceNames[] = {"host",         "hostPoisoned", "sim",
                                             "emulatedCuda", "packed",       "emulatedPackedKv"};

// Iterations that a run has in a placement before it changes to the next.
constexpr int64_t kStay = 2;

model::ModelSpec specOf(Model which) {
  if (which == Model::Opt) // biases, learned positions, a tied head, BF16
    return core::tinyOpt(kLayers);
  model::ModelSpec spec = core::tinyLlama(kLayers); // grouped queries, F32
  if (which == Model::Qwen) {
    spec.name = "tiny-qwen3";
    spec.family = model::Family::Qwen3;
    spec.qkNorm = true;
    spec.headDim = 18; // rows of q, 72, that are no whole panels of a matrix
    spec.dtype = model::DType::F16;
  }
  return spec;
}

// How weights and caches are held, as the text of a choice.
std::string_view encodingsOf(const Cell &cell) {
  if (cell.on == On::EmulatedPackedKv)
    return cell.model == Model::Opt ? "kv-dtype=q8" : "kv-dtype=q4";
  if (cell.on != On::Packed)
    return "";
  return cell.model == Model::Opt    ? "weight-encoding=q8:32 kv-dtype=q8"
         : cell.model == Model::Qwen ? "weight-encoding=qkv=q4,up=q8:32,head=q4:32 kv-dtype=q4"
                                     : "weight-encoding=qkv=q4:32,out=q8:32,up=q4:32,down=q4:32 kv-dtype=q4";
}

// As many rows of q, k and v of layers as all models have, in heads that groups of 32 divide, or of 64. Of CUDA heads
// of 32: these have one kernel of attention in all variants.
model::ModelSpec withLargerHeads(model::ModelSpec spec, Model which, On on) {
  spec.headDim = which == Model::Qwen && !isEmulated(on) ? 64 : 32;
  spec.heads = spec.hidden / spec.headDim;
  spec.kvHeads = which == Model::Opt ? spec.heads : 1;
  return spec;
}

model::DeviceKind plansFor(On on) { return isEmulated(on) ? model::DeviceKind::Cuda : model::DeviceKind::Host; }

std::unique_ptr<core::Device> deviceOf(On on) {
  switch (on) {
  case On::Host: // its link paced
    return host::makeHostDevice({});
  case On::HostPoisoned:
  case On::Packed:
    return host::makeHostDevice({.poison = true});
  case On::Sim:
    return sim::makeSimDevice();
  case On::EmulatedCuda:
  case On::EmulatedPackedKv:
    break;
  }
  return cuda::makeEmulatedGraphDevice({.order = 1, .cpu = {.threads = 2, .unitNs = 0}});
}

compiler::CompileRequest requestOf(const Cell &cell) {
  compiler::CompileRequest request;
  request.model = specOf(cell.model);
  if (cell.on == On::Packed || cell.on == On::EmulatedPackedKv)
    request.model = withLargerHeads(request.model, cell.model, cell.on);
  request.hardware = core::tinyPlan({.spec = core::tinyLlama(1), .kind = plansFor(cell.on)}).hardware;
  request.hardware.flopsF32 = request.hardware.flopsF16 = request.hardware.memoryBandwidth = 1e10;
  request.hardware.flopsEfficiency = request.hardware.memoryEfficiency = 0.5;
  request.policy.none = true;
  const Goal &goal = cell.row->goal;
  request.goal.batch = goal.batch;
  request.goal.context = goal.context;
  request.goal.blockTokens = goal.blockTokens;
  return request;
}

// Prefill in chunks of up to eight tokens a mini-batch, or a few more, beside decoding.
model::Buckets bucketsOf(const Goal &goal, int64_t miniBatches) {
  const int64_t sequences = goal.batch / miniBatches;
  const int64_t rows = std::max(int64_t{8}, sequences + 4);
  return {.newTokens = {sequences, rows}, .sequences = {sequences}, .contexts = {goal.context}};
}

serve::GenerateRequest promptsOf(const Cell &cell) {
  serve::GenerateRequest request;
  constexpr size_t kLengths[] = {13, 1, 3, 9, 12, 2, 7, 5}; // the first is the longest
  for (size_t p = 0; p < static_cast<size_t>(cell.row->goal.batch); ++p) {
    request.prompts.emplace_back();
    for (size_t i = 0; i < kLengths[p % std::size(kLengths)]; ++i)
      request.prompts.back().push_back(static_cast<int32_t>((7 * p + 3 * i + 1) % 150));
  }
  // An emulated row takes its time.
  const int64_t most = isEmulated(cell.on) ? (longRun() ? 14 : 7) : 18;
  request.maxNewTokens = std::min(most, cell.row->goal.context - static_cast<int64_t>(kLengths[0]));
  request.keepLogits = cell.on != On::Sim;
  return request;
}

// By a choice of one mini-batch.
absl::StatusOr<serve::GenerateResult> generateBy(const Cell &cell, const std::string &choice) {
  compiler::CompileRequest request = requestOf(cell);
  ASSIGN_OR_RETURN(placements, placementsOf(choice, encodingsOf(cell)));
  request.buckets = bucketsOf(cell.row->goal, 1);
  request.placements = std::move(placements);
  ASSIGN_OR_RETURN(plan, compiler::compile(request));
  const std::unique_ptr<core::Device> device = deviceOf(cell.on);
  const auto weights = model::syntheticWeights(1);
  ASSIGN_OR_RETURN(runtime, core::Runtime::load(plan, *device, {}, weights.get(), {}));
  return serve::generate(*runtime, promptsOf(cell));
}

// Made once for all rows of a goal.
const absl::StatusOr<serve::GenerateResult> &ranBy(const Cell &cell, const std::string &choice) {
  static std::map<std::tuple<Model, On, int64_t, int64_t, int64_t, std::string>, absl::StatusOr<serve::GenerateResult>>
      ran;
  const Goal &goal = cell.row->goal;
  const std::tuple key(cell.model, cell.on, goal.batch, goal.context, goal.blockTokens, choice);
  if (const auto at = ran.find(key); at != ran.end())
    return at->second;
  return ran.emplace(key, generateBy(cell, choice)).first->second;
}

// With nothing away.
const absl::StatusOr<serve::GenerateResult> &residentOf(const Cell &cell) { return ranBy(cell, ""); }

// Whose logits a cell has, to the bit: the resident run's; where the CPU attends beside CUDA, whose kernels add in
// another order, those of the run in which nothing else is away.
const absl::StatusOr<serve::GenerateResult> &sameLogits(const Cell &cell) {
  const bool onCpu = mechanismsOf(*cell.row).contains(model::Mechanism::AttentionOnCpu);
  return isEmulated(cell.on) && onCpu ? ranBy(cell, "kv=0-4 attention=cpu") : residentOf(cell);
}

class Findings {
public:
  template <typename... Text> void add(const Text &...text) {
    std::string what = absl::StrCat(text...);
    if (std::find(all_.begin(), all_.end(), what) == all_.end())
      all_.push_back(std::move(what));
  }
  template <typename T> void expectEqual(absl::string_view what, const T &found, const T &expected) {
    if (!(found == expected))
      add(what, " is ", found, ", expected ", expected);
  }
  std::vector<std::string> take() { return std::move(all_); }

private:
  std::vector<std::string> all_;
};

model::ModelSpec modelOf(const compiler::Choice &choice, model::ModelSpec spec) {
  spec.encodings = model::ofModel(choice.encodings.weights, spec);
  return spec;
}

// What a plan says of itself, against what was asked for.
void checkPlan(const std::vector<compiler::Candidate> &placements, const plan::Plan &plan, Findings &findings) {
  const compiler::Candidate &common = placements.front();
  findings.expectEqual("the number of placements", plan.placements.size(), placements.size());
  findings.expectEqual("the number of mini-batches", int64_t{plan.miniBatches}, common.miniBatches);
  findings.expectEqual("the share of activations", model::actRatioText(plan.actRatio),
                       model::actRatioText(common.actRatio));
  findings.expectEqual("the encoding of weights", model::weightEncodingText(plan.model),
                       model::weightEncodingText(modelOf(common, plan.model)));
  if (common.encodings.kv)
    findings.expectEqual("the encoding of caches", model::kvEncodingText(plan.kvEncoding),
                         model::kvEncodingText(*common.encodings.kv));
  findings.expectEqual("whether residuals leave", plan.residualsLeave(), common.residency.residualsLeave());
  for (size_t p = 0; p < std::min(plan.placements.size(), placements.size()); ++p) {
    const plan::Placement &made = plan.placements[p];
    const compiler::Candidate &asked = placements[p];
    std::vector<int32_t> weights;
    for (const plan::Extent &extent : made.extents)
      if (const plan::Buffer &buffer = plan.buffers[extent.buffer];
          buffer.kind == plan::BufferKind::Weight && extent.space == plan::Space::Host)
        weights.push_back(static_cast<int32_t>(buffer.index));
    std::sort(weights.begin(), weights.end());
    findings.expectEqual("what is away of weights", absl::StrJoin(weights, ","),
                         absl::StrJoin(asked.residency.weightsAway(), ","));
    findings.expectEqual("the start rule", static_cast<int>(made.startRule),
                         static_cast<int>(asked.residency.start.rule));
    uint32_t period = 1;
    bool entered = false; // with something in slots
    for (const plan::Schedule &schedule : plan.schedules)
      if (schedule.placement == p && schedule.iterationClass != plan::IterationClass::Transition) {
        period = std::max(period, schedule.period);
        entered |= !plan.states[schedule.entryState].contents.empty();
      }
    const int64_t tails = kLayers * common.miniBatches;
    findings.expectEqual("the period of a cycle", uint64_t{period},
                         asked.residency.cycles() ? algorithms::cyclePeriodOf(asked.residency, tails) : 1);
    // A cut that is planned may leave nothing there.
    const algorithms::Wrap &wrap = asked.residency.wrap;
    if (!asked.residency.wrapsAround() || wrap.decode || wrap.mixed)
      findings.expectEqual("whether iterations begin with something", entered, asked.residency.wrapsAround());
    if (asked.kvBlocks > 0)
      findings.expectEqual("the number of KV blocks", made.kvBlocks, asked.kvBlocks);
    findings.expectEqual("the number of KV blocks on the device", plan::CacheMap(plan, made).resident(),
                         asked.residency.firstKvBlockAway().value_or(made.kvBlocks));
  }
}

std::string describe(const std::vector<float> &found, const std::vector<float> &expected, size_t prompt) {
  for (size_t i = 0; i < found.size() && i < expected.size(); ++i)
    if (found[i] != expected[i])
      return absl::StrCat("prompt ", prompt, ", logit ", i, " of all is ", found[i], ", resident ", expected[i]);
  return absl::StrCat("prompt ", prompt, " has ", found.size(), " logits, resident ", expected.size());
}

std::string quoted(const std::set<std::string> &words) { return absl::StrCat("'", absl::StrJoin(words, " "), "'"); }
std::string quoted(std::string_view words) {
  return quoted(
      std::set<std::string>(absl::StrSplit(absl::string_view(words.data(), words.size()), ' ', absl::SkipEmpty())));
}

// One call of the engine, that goes round the placements.
absl::StatusOr<serve::GenerateResult> run(core::Runtime &runtime, serve::GenerateRequest asked,
                                          std::set<uint32_t> &placements) {
  const plan::Plan &plan = runtime.plan();
  int64_t composed = 0;
  asked.placementOf = [&](const serve::ComposedIteration &) {
    return static_cast<uint32_t>(composed++ / kStay % static_cast<int64_t>(plan.placements.size()));
  };
  asked.onIteration = [&](const serve::IterationSeen &seen) {
    placements.insert(plan.variants[seen.variant].placement);
  };
  return serve::generate(runtime, asked);
}

void compareTokens(const serve::GenerateResult &found, const serve::GenerateResult &expected, Findings &findings) {
  for (size_t p = 0; p < expected.tokens.size(); ++p)
    if (found.tokens[p] != expected.tokens[p])
      findings.add("tokens of prompt ", p, " are ", absl::StrJoin(found.tokens[p], ","), ", resident ",
                   absl::StrJoin(expected.tokens[p], ","));
}

// Of CUDA too: heads of 16, 18 and 32 have one kernel of attention in all variants.
void compareLogits(const serve::GenerateResult &found, const serve::GenerateResult &expected, Findings &findings) {
  for (size_t p = 0; p < expected.logits.size(); ++p)
    if (found.logits[p] != expected.logits[p])
      return findings.add("logits differ: ", describe(found.logits[p], expected.logits[p], p));
}

// Runs a plan on the cell's device under watch. `linkBandwidth`: 0 is that of the plan's hardware.
void check(const Cell &cell, const plan::Plan &plan, double linkBandwidth, Findings &findings) {
  const bool computes = cell.on != On::Sim;
  const absl::StatusOr<serve::GenerateResult> &expected = residentOf(cell);
  if (!expected.ok())
    return findings.add("the resident run: ", expected.status().ToString());
  WatchedDevice device(deviceOf(cell.on), {.sizesRows = !isEmulated(cell.on)});
  const auto weights = model::syntheticWeights(1);
  auto runtime = core::Runtime::load(plan, device, {.linkBandwidth = linkBandwidth}, weights.get(), {});
  if (!runtime.ok())
    return findings.add("loading: ", runtime.status().ToString());
  std::set<uint32_t> placements;
  serve::GenerateRequest asked = promptsOf(cell);
  asked.keepLogits &= plan.miniBatches == 1; // each mini-batch's are where the one before had its own
  const absl::StatusOr<serve::GenerateResult> found = run(**runtime, asked, placements);
  if (!found.ok())
    findings.add("running: ", found.status().ToString());
  if (found.ok() && computes) {
    compareTokens(*found, *expected, findings);
    if (asked.keepLogits) {
      if (const absl::StatusOr<serve::GenerateResult> &same = sameLogits(cell); same.ok())
        compareLogits(*found, *same, findings);
      else
        findings.add("the run of the same logits: ", same.status().ToString());
    }
  }
  // Once more with two iterations in flight, over what the first has left.
  if (found.ok() && cell.on != On::Sim && !isEmulated(cell.on)) {
    device.setEachLaunch(false);
    asked.keepLogits = false;
    const absl::StatusOr<serve::GenerateResult> again = run(**runtime, asked, placements);
    if (again.ok())
      compareTokens(*again, *expected, findings);
    else
      findings.add("running with two in flight: ", again.status().ToString());
    device.compareBytes("a run with two in flight");
  }
  for (const std::string &each : device.findings())
    findings.add(each);
  if (!found.ok())
    return;
  findings.expectEqual("what is brought", quoted(device.in()), quoted(cell.row->in));
  findings.expectEqual("what goes back", quoted(device.out()), quoted(cell.row->out));
  findings.expectEqual("the number of placements that ran", placements.size(), plan.placements.size());
  if (const Goal &goal = cell.row->goal; goal.growsFrom) { // in blocks beyond these, and the scratch block
    const int64_t asked = 1 + (*goal.growsFrom / plan.miniBatches + goal.blockTokens - 1) / goal.blockTokens;
    if (device.endOfUse() <= asked)
      findings.add("caches have not grown: of ", plan.kvBlocks, " blocks no more than ", asked, " were in use");
  }
  findings.expectEqual("the number of variants that were missing", (*runtime)->missingVariants(), uint64_t{0});
  for (uint32_t i = 0; i < plan.miniBatches; ++i)
    findings.expectEqual("the number of blocks in use behind the run", (*runtime)->kvBlocks(i).used(), int64_t{0});
}

} // namespace

std::string nameOf(const Cell &cell) {
  return absl::StrCat(absl::string_view(cell.row->name.data(), cell.row->name.size()), "_",
                      std::string(kModelNames[static_cast<size_t>(cell.model)]), "_",
                      std::string(kDeviceNames[static_cast<size_t>(cell.on)]));
}

std::ostream &operator<<(std::ostream &out, const Cell &cell) { return out << nameOf(cell); }

std::vector<Model> modelsOf(const Row &row) {
  std::vector<Model> out;
  for (const Model model : kModels)
    if (row.heads == Heads::Any || specOf(model).tiedEmbeddings == (row.heads == Heads::Tied))
      out.push_back(model);
  return out;
}

absl::StatusOr<std::vector<compiler::Candidate>> placementsOf(std::string_view choices, std::string_view encodings) {
  std::vector<compiler::Candidate> out;
  const std::vector<std::string> texts =
      absl::StrSplit(absl::string_view(choices.data(), choices.size()), absl::ByString(" | "));
  for (const std::string &own : texts) {
    const std::string text = absl::StrCat(own, encodings.empty() ? "" : " ", std::string(encodings));
    std::string error;
    const std::optional<compiler::Choice> choice = compiler::choiceFromText(text, error);
    if (!choice)
      return absl::InvalidArgumentError(absl::StrCat("'", text, "' ", error));
    compiler::Candidate &candidate = out.emplace_back();
    static_cast<compiler::Choice &>(candidate) = *choice;
    candidate.name = absl::StrCat("placement ", out.size() - 1);
    if (!alike(candidate, out.front()).samePlacement(candidate))
      return absl::InvalidArgumentError(
          absl::StrCat("'", text, "' differs from the first by what placements of a plan have in common"));
  }
  return out;
}

std::set<model::Mechanism> mechanismsOf(const Row &row) {
  using enum model::Mechanism;
  std::set<model::Mechanism> used;
  const auto add = [&](bool inUse, model::Mechanism what) {
    if (inUse)
      used.insert(what);
  };
  const auto placements = placementsOf(row.choices);
  if (!placements.ok())
    return used;
  add(row.goal.growsFrom.has_value(), ElasticKv);
  for (const compiler::Candidate &candidate : *placements) {
    const algorithms::Residency &residency = candidate.residency;
    const algorithms::Pool &kv = residency.kv();
    const auto is = [&](algorithms::WriteBack way) { return kv.decodeBack == way || kv.mixedBack == way; };
    add(residency.firstKvBlockAway().has_value(), KvOnHost);
    add(candidate.kvBlocks != placements->front().kvBlocks, Expansion);
    add(residency.cycles() && !kv.fifo(), KvPlaces);
    add(residency.cycles() && kv.fifo().has_value(), SwappedLayers);
    add(kv.decodeBack || kv.mixedBack, WriteBack);
    add(is(algorithms::WriteBack::Mirror) || is(algorithms::WriteBack::Dirty), WriteBackInPart);
    add(candidate.actRatio.any(), ActBlocks);
    add(!residency.actAway().empty(), ActsOnHost);
    add(residency.residualsLeave(), ResidualsOnHost);
    add(candidate.miniBatches > 1, MiniBatches);
    add(residency.weights().ringBytes() > 0, Ring);
    add(!residency.start.byMovable(), ItemByItem);
    add(candidate.attendsOnCpu, AttentionOnCpu);
  }
  return used;
}

absl::StatusOr<plan::Plan> compile(const Cell &cell) {
  ASSIGN_OR_RETURN(placements, placementsOf(cell.row->choices, encodingsOf(cell)));
  const compiler::Candidate &common = placements.front();
  compiler::CompileRequest request = requestOf(cell);
  request.goal.kvTokens = cell.row->goal.growsFrom;
  request.goal.elasticKv = cell.row->goal.growsFrom ? model::AutoOnOff::On : model::AutoOnOff::Off;
  request.goal.miniBatches = common.miniBatches;
  request.buckets = common.buckets;
  const model::Buckets byDefault = bucketsOf(cell.row->goal, common.miniBatches);
  for (const auto sizes : {&model::Buckets::newTokens, &model::Buckets::sequences, &model::Buckets::contexts})
    if ((request.buckets.*sizes).empty())
      request.buckets.*sizes = byDefault.*sizes;
  if (common.actRatio.any())
    request.policy.actRatio = common.actRatio;
  request.placements = placements;
  return compiler::compile(request);
}

std::vector<std::string> findingsIn(const Cell &cell, const std::function<void(plan::Plan &)> &change) {
  Findings findings;
  const auto placements = placementsOf(cell.row->choices, encodingsOf(cell));
  auto plan = placements.ok() ? compile(cell) : placements.status();
  if (!plan.ok()) {
    findings.add("the choice is refused: ", plan.status().ToString());
    return findings.take();
  }
  checkPlan(*placements, *plan, findings);
  if (change)
    change(*plan);
  check(cell, *plan, 0, findings);
  if (cell.on == On::Sim) // what waits for what shows where copies are slow, and where compute is
    for (const double linkBandwidth : {1e-2 * plan->hardware.h2dBandwidth, 1e2 * plan->hardware.h2dBandwidth})
      check(cell, *plan, linkBandwidth, findings);
  return findings.take();
}

} // namespace headrace::choices
