// SPDX-License-Identifier: Apache-2.0
#include "compiler/Compile.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/choose/LatencyChoice.h"
#include "compiler/choose/PolicyInputs.h"
#include "compiler/choose/policies/Policies.h"
#include "compiler/emit/CandidateCompiler.h"
#include "compiler/emit/CheckKernels.h"
#include "compiler/emit/ElasticKv.h"
#include "compiler/emit/PlaceHomes.h"
#include "compiler/emit/PlanTransitions.h"
#include "compiler/lower/CheckStated.h"
#include "compiler/lower/Explain.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/base/Units.h"
#include "runtime/cost/CostModel.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/plan/BlockRuns.h"
#include "runtime/plan/PlanVerifier.h"
#include "runtime/sim/TokenGaps.h"

namespace headrace::compiler {
namespace {

constexpr char kCompilerVersion[] = "headrace 0.1.0";

// Candidates for one placement of the plan, and the one that is tried.
struct Attempt {
  std::vector<Candidate> candidates;
  size_t chosen = 0;
  const Candidate &candidate() const { return candidates[chosen]; }
};

// A step that takes longer than a plan can say is due to a figure of the hardware that nobody meant.
absl::Status checkDurations(const plan::Plan &plan) {
  const model::Hardware &h = plan.hardware;
  constexpr double kLongestSeconds = static_cast<double>(cost::kLongestStepNs) * 1e-9;
  const auto check = [&](uint32_t schedule, absl::Span<const uint64_t> durationsNs) -> absl::Status {
    const plan::Schedule &of = plan.schedules[schedule];
    const auto at =
        std::find_if(durationsNs.begin(), durationsNs.end(), [](uint64_t ns) { return ns >= cost::kLongestStepNs; });
    if (at == durationsNs.end())
      return absl::OkStatus();
    const plan::Step &step = of.steps[static_cast<size_t>(at - durationsNs.begin())];
    const bool memory = static_cast<double>(step.deviceBytes) >= kLongestSeconds * h.memoryBandwidth;
    const auto [key, value] =
        plan::toHost(step.lane) || plan::directToHost(of, step)
            ? std::pair("hardware.d2h_bandwidth", model::bandwidthText(h.d2hBandwidth))
        : step.linkBytes > 0 ? std::pair("hardware.h2d_bandwidth", model::bandwidthText(h.h2dBandwidth))
        : memory             ? std::pair("hardware.memory_bandwidth", model::bandwidthText(h.memoryBandwidth))
        : plan.activationDtype == model::DType::F32 ? std::pair("hardware.flops_f32", model::flopsText(h.flopsF32))
                                                    : std::pair("hardware.flops_f16", model::flopsText(h.flopsF16));
    return absl::InvalidArgumentError(
        absl::StrCat(key, " = ", value, ": expected one by which every step takes less than ", kLongestSeconds, " s"));
  };
  for (const plan::Variant &variant : plan.variants)
    RETURN_IF_ERROR(check(variant.schedule, variant.durationsNs));
  for (const plan::Transition &transition : plan.transitions)
    RETURN_IF_ERROR(check(transition.schedule, transition.durationsNs));
  return absl::OkStatus();
}

class Compilation {
public:
  Compilation(const CompileRequest &request, const Policy &policy, Target target, model::WeightLayout layout,
              const cost::CostModel &costs)
      : request_(request), policy_(policy), target_(std::move(target)), layout_(std::move(layout)), prices_(costs),
        candidates_(request_, target_, layout_, prices_),
        family_(request.model, layout_, target_, candidates_.memoryUses()) {}

  absl::StatusOr<plan::Plan> run() {
    if (target_.kvResident)
      splitKv(*target_.kvResident);
    absl::StatusOr<plan::Plan> plan = choose();
    if (!lacksDeviceMemory(plan.status()) || !maySplitKv())
      return plan;
    const std::optional<int64_t> resident = mostResident();
    if (!resident)
      return plan;
    absl::Status least; // with as little on the device as can be
    for (const int64_t blocks : {*resident, *resident - 1, *resident / 4 * 3, *resident / 2, int64_t{1}}) {
      if (blocks < 1)
        continue;
      splitKv(blocks);
      latency_.reset();
      nested_ = false;
      absl::StatusOr<plan::Plan> split = choose();
      if (split.ok()) {
        absl::StrAppend(&split->reason, ". ", explainSplit(request_.model, target_, blocks));
        return split;
      }
      if (!lacksDeviceMemory(split.status()))
        return split; // memory would do, and something else does not
      least = split.status();
    }
    return least;
  }

private:
  struct OverBudget {
    size_t choice;
    uint64_t bytes;
  };

  // From now on blocks from this one on are at home on the host, in every candidate.
  void splitKv(int64_t resident) {
    kvAway_ = resident;
    family_.setKvAway(resident);
  }
  Candidate withKv(Candidate candidate) const {
    if (!kvAway_ || candidate.residency.firstKvBlockAway())
      return candidate;
    candidate.residency.setKvAway(request_.model->layers, *kvAway_);
    // Where the circle is cut was found for weights alone.
    candidate.residency.wrap.decode.reset();
    candidate.residency.wrap.mixed.reset();
    return candidate;
  }

  // What is stated stays as it is.
  bool maySplitKv() const {
    return policy_.traits.splitsCaches && !request_.goal.kvDeviceMemory && request_.placements.empty() &&
           !request_.policy.statesPlacement() && request_.policy.placements.value_or(1) == 1 && target_.kvBlocks > 1;
  }

  // The most blocks on the device with which the first candidate fits that fits at all: the one with the fewest weights
  // away, which are brought in every iteration, while of tails only what is in use is. 1 where none fits; none where
  // splitting saves nothing, or where the host has no room.
  std::optional<int64_t> mostResident() {
    const std::vector<PricedStep> steps = candidates_.pricedSteps();
    std::vector<Candidate> all = policy_.candidates({request_, target_, layout_, family_, steps});
    std::erase_if(all, [](const Candidate &c) { return c.residency.start != algorithms::kEager; });
    if (all.empty())
      return std::nullopt;
    const uint64_t whole = family_.need(all.back()).bytes;
    std::optional<int64_t> best;
    for (size_t i = 0; i < all.size() && !best; ++i) {
      const int64_t blocks = mostResident(all[i]);
      family_.setKvAway(std::max<int64_t>(blocks, 1));
      if (blocks >= 1 && family_.hostBytes(all[i]) <= hostMemory(blocks))
        best = blocks;
    }
    family_.setKvAway(1);
    if (!best && hostMemory(1) > 0 && family_.need(all.back()).bytes < whole)
      best = 1;
    family_.setKvAway(std::nullopt);
    return best;
  }
  // Of one candidate; 0 where it does not fit with any.
  int64_t mostResident(const Candidate &candidate) {
    int64_t low = 0, high = target_.kvBlocks; // fits; does not
    while (high - low > 1) {
      const int64_t middle = low + (high - low) / 2;
      family_.setKvAway(middle);
      (family_.fits(candidate, target_.deviceMemory) ? low : high) = middle;
    }
    return low;
  }
  // What may be pinned with so many blocks on the device; 0 where KV has less.
  uint64_t hostMemory(int64_t resident) const {
    const uint64_t kv = static_cast<uint64_t>(target_.kvBlocks - resident) * target_.kvBlockBytes *
                        static_cast<uint64_t>(request_.model->layers);
    return kv > request_.goal.kvHostMemory.value_or(request_.hardware.hostMemoryBytes)
               ? 0
               : request_.hardware.hostMemoryBytes;
  }

  absl::StatusOr<plan::Plan> choose() {
    std::vector<Attempt> choices;
    for (const Candidate &candidate : request_.placements)
      choices.push_back({{withKv(candidate)}, 0});
    if (choices.empty()) {
      if (LatencyChoice::applies(request_, policy_)) {
        latency_.emplace(LatencyChoice::Inputs{&policy_, &request_, &target_, &layout_, &family_, &prices_, emptyPlan(),
                                               candidates_.pricedSteps(),
                                               [this](const Candidate &candidate, plan::Plan &plan, bool gaps) {
                                                 return evaluate(candidate, plan, gaps);
                                               }});
        RETURN_IF_ERROR(chooseByLatency(choices));
      } else {
        choices.push_back(firstThatFits());
      }
    }
    for (;;) {
      absl::StatusOr<plan::Plan> plan = tryPlan(choices);
      if (!plan.ok())
        return plan.status();
      if (!overBudget_ && latency_ && latency_->mustServeTogether(*plan)) {
        RETURN_IF_ERROR(chooseByLatency(choices));
        continue;
      }
      if (!overBudget_) {
        RETURN_IF_ERROR(checkDurations(*plan));
        if (absl::Status status = plan::verifyPlan(*plan, "compiled plan"); !status.ok())
          return absl::InternalError(absl::StrCat("the compiler made a plan that breaks a rule: ", status.message()));
        return plan;
      }
      if (latency_ && choices.size() > 1) { // what fits each alone does not fit together
        // A range first with as many that are nested in the one that decides.
        const bool nest = request_.policy.placements && !std::exchange(nested_, true);
        RETURN_IF_ERROR(chooseByLatency(choices, choices.size() - (nest ? 0 : 1)));
        continue;
      }
      // Arithmetic said that it would fit, packing found otherwise: the next candidate offloads more.
      Attempt &choice = choices[overBudget_->choice];
      if (choice.chosen + 1 == choice.candidates.size())
        return exhausted(choice, overBudget_->bytes);
      ++choice.chosen;
    }
  }

  absl::Status chooseByLatency(std::vector<Attempt> &choices, size_t most = SIZE_MAX) {
    absl::StatusOr<std::vector<Candidate>> chosen = latency_->choose(most);
    if (!chosen.ok())
      return chosen.status();
    choices.clear();
    for (const Candidate &candidate : *chosen)
      choices.push_back({{withKv(candidate)}, 0});
    return absl::OkStatus();
  }

  // The first candidate that fits by arithmetic; the last if none does, since packing may do better than arithmetic.
  Attempt firstThatFits() {
    const std::vector<PricedStep> none;
    Attempt choice{policy_.candidates({request_, target_, layout_, family_, none}), 0};
    for (Candidate &candidate : choice.candidates)
      candidate = withKv(std::move(candidate));
    while (choice.chosen + 1 < choice.candidates.size() && !family_.fits(choice.candidate(), target_.deviceMemory))
      ++choice.chosen;
    return choice;
  }

  // Compiles one candidate alone into an empty plan, for what it takes.
  absl::StatusOr<Evaluation> evaluate(const Candidate &chosen, plan::Plan &plan, bool gaps) {
    const Candidate candidate = withKv(chosen);
    PlanEmitter emitter(layout_, target_, plan);
    std::vector<uint64_t> hostAddresses(layout_.units.size(), 0);
    for (size_t unit = 1; unit < hostAddresses.size(); ++unit)
      hostAddresses[unit] = hostAddresses[unit - 1] + layout_.units[unit - 1].bytes;
    const KvHomes kv = kvHomes({&candidate}, hostAddresses.back() + layout_.units.back().bytes);
    absl::StatusOr<Placed> placed = candidates_.place(candidate, {&hostAddresses, &kv, /*forThePlan=*/false});
    absl::Status status = placed.status();
    if (status.ok())
      status = candidates_.addTo(plan, emitter, *placed, nullptr);
    if (kv.mirror > 0)
      interleaveKv(plan);
    if (!status.ok())
      return status;
    Evaluation evaluation;
    evaluation.arenaBytes = placed->arenaBytes();
    std::vector<uint32_t> all; // with all blocks in use
    for (uint32_t v = 0; v < plan.variants.size(); ++v)
      if (plan.schedules[plan.variants[v].schedule].kvBlocks == 0)
        all.push_back(v);
    for (const uint32_t v : all) // decode, then mixed: in the order of the target
      evaluation.predictedNs.push_back(plan.variants[v].predictedNs);
    if (gaps) {
      addTransitions(emitter, prices_, plan);
      for (const sim::TokenGaps::Longest &longest : sim::TokenGaps(plan).longest(all))
        evaluation.gapNs.push_back(longest.ns);
    }
    return evaluation;
  }

  absl::Status exhausted(const Attempt &choice, uint64_t least) const {
    MemoryNeed need = family_.need(choice.candidate());
    need.transients = need.transients + least - need.bytes;
    need.bytes = least;
    return deviceMemoryExhausted(request_.model, target_, request_.policy, choice.candidate(), need);
  }

  // A plan of the chosen candidates. Sets overBudget_ where one of them needs more than there is; the plan is not
  // complete then.
  absl::StatusOr<plan::Plan> tryPlan(const std::vector<Attempt> &choices) {
    overBudget_.reset();
    plan::Plan plan = emptyPlan();
    PlanEmitter emitter(layout_, target_, plan);
    const std::vector<uint64_t> hostAddresses = layOutHost(choices, plan);
    std::vector<const Candidate *> chosen;
    for (const Attempt &choice : choices)
      chosen.push_back(&choice.candidate());
    const KvHomes kv = kvHomes(chosen, plan.hostBytes);
    if (kv.mirror > 0)
      plan.hostBytes = static_cast<uint64_t>(kv.hostAddresses.back()) + mirroredBytes(kv);
    if (const uint64_t bytes = mirroredBytes(kv) * static_cast<uint64_t>(request_.model->layers);
        kv.mirror > 0 && bytes > request_.goal.kvHostMemory.value_or(bytes))
      return absl::ResourceExhaustedError(explainKvHostExhausted(*request_.goal.kvHostMemory, bytes));
    if (plan.hostBytes > request_.hardware.hostMemoryBytes) {
      if (latency_ && choices.size() > 1) {
        overBudget_ = {0, plan.arenaBytes}; // each fits alone
        return plan;
      }
      return absl::ResourceExhaustedError(explainHostExhausted(request_.model, request_.hardware, plan.hostBytes));
    }
    const bool elastic = choices.size() > 1 && kv.mirror == 0 && growsKv() && mostKvBlocks() > target_.kvBlocks;
    std::vector<Placed> placed;
    std::vector<size_t> tried; // of each placed: its choice
    done_ = 0;
    total_ = static_cast<int>(choices.size() * (candidates_.classes() + target_.decode.size() + target_.mixed.size()));
    for (size_t i = 0; i < choices.size(); ++i) {
      const Candidate &candidate = choices[i].candidate();
      if (std::any_of(placed.begin(), placed.end(),
                      [&](const Placed &p) { return p.candidate->samePlacement(candidate); }))
        continue;
      absl::StatusOr<Placed> next = candidates_.place(candidate, {&hostAddresses, &kv});
      if (!next.ok())
        return next.status();
      placed.push_back(*std::move(next));
      tried.push_back(i);
      if (const uint64_t arena = placed.back().arenaBytes(); arena > target_.deviceMemory) {
        overBudget_ = {i, arena};
        return plan;
      }
    }
    // Each fits alone; homes that are the same in all of them may take more.
    std::vector<mlir::ModuleOp> modules;
    modules.reserve(placed.size());
    for (Placed &p : placed)
      modules.push_back(*p.module);
    plan.arenaBytes = placeHomes(modules);
    if (plan.arenaBytes > target_.deviceMemory) {
      overBudget_ = {mostDemanding(choices, tried, placed), plan.arenaBytes};
      return plan;
    }
    for (Placed &p : placed)
      if (absl::Status status = candidates_.addTo(plan, emitter, p, [this] { advance(); }); !status.ok())
        return status;
    if (kv.mirror > 0)
      interleaveKv(plan);
    if (elastic && placed.size() > 1)
      growKv(mostKvBlocks(), plan);
    addTransitions(emitter, prices_, plan);
    const auto key = [&](const plan::Variant &v) {
      return std::tuple(v.placement, v.newTokens, v.sequences, v.context,
                        plan::kvBlocksOf(plan, plan.schedules[v.schedule]));
    };
    std::sort(plan.variants.begin(), plan.variants.end(),
              [&](const plan::Variant &a, const plan::Variant &b) { return key(a) < key(b); });
    if (latency_)
      latency_->record(plan);
    else
      explain(choices.front(), plan);
    return plan;
  }

  plan::Plan emptyPlan() const {
    plan::Plan plan;
    plan.compilerVersion = kCompilerVersion;
    plan.model = request_.model;
    plan.modelHash = request_.modelHash;
    plan.modelPath = request_.modelPath;
    plan.hardware = request_.hardware;
    plan.goal = request_.goal;
    plan.goal.deviceMemory = target_.deviceMemory;
    plan.goal.batch = target_.batch;
    plan.goal.context = target_.context;
    plan.goal.kvTokens = target_.kvTokens;
    plan.goal.kvDtype = target_.kv;
    plan.policy = request_.policy;
    plan.policy.name = std::string(policy_.name);
    plan.activationDtype = target_.activation;
    plan.kvDtype = target_.kv;
    plan.blockTokens = target_.blockTokens;
    plan.kvBlocks = target_.kvBlocks;
    plan.metaLayout = target_.meta;
    plan.maxContext = target_.context;
    plan.deviceMemory = target_.deviceMemory;
    if (policy_.traits.allowsForSlowest)
      plan.slowestPermille = prices_.slowestPermille();
    return plan;
  }

  // Every unit that any placement offloads, one after another: the units of a layer are one run of bytes.
  std::vector<uint64_t> layOutHost(const std::vector<Attempt> &choices, plan::Plan &plan) const {
    std::vector<bool> away(layout_.units.size(), false);
    for (const Attempt &choice : choices)
      for (const int32_t unit : choice.candidate().residency.weightsAway())
        away[static_cast<size_t>(unit)] = true;
    std::vector<uint64_t> addresses(layout_.units.size(), 0);
    for (size_t unit = 0; unit < layout_.units.size(); ++unit) {
      addresses[unit] = plan.hostBytes;
      if (away[unit])
        plan.hostBytes += layout_.units[unit].bytes;
    }
    return addresses;
  }

  // Blocks that any of the placements has at home on the host are there in all of them, layer by layer from `begin` on.
  KvHomes kvHomes(const std::vector<const Candidate *> &candidates, uint64_t begin) const {
    KvHomes kv;
    kv.blocks = target_.kvBlocks;
    kv.blockBytes = target_.kvBlockBytes;
    for (const Candidate *candidate : candidates)
      if (const std::optional<int64_t> away = candidate->residency.firstKvBlockAway())
        kv.mirror = kv.mirror == 0 ? *away : std::min(kv.mirror, *away);
    for (int64_t layer = 0; layer < request_.model->layers && kv.mirror > 0; ++layer) {
      kv.hostAddresses.push_back(static_cast<int64_t>(begin));
      begin = model::alignUp(begin + mirroredBytes(kv));
    }
    return kv;
  }
  static uint64_t mirroredBytes(const KvHomes &kv) { // of a layer
    return static_cast<uint64_t>(kv.blocks - kv.mirror) * kv.blockBytes;
  }

  bool growsKv() const { return request_.goal.elasticKv != model::AutoOnOff::Off; }
  // More than the batch has use for are none.
  int64_t mostKvBlocks() const {
    return 1 + target_.batch * ((target_.context + target_.blockTokens - 1) / target_.blockTokens);
  }

  // The choice that ends highest among those that can still offload more; the first if none can.
  static size_t mostDemanding(const std::vector<Attempt> &choices, const std::vector<size_t> &tried,
                              std::vector<Placed> &placed) {
    size_t most = tried.front();
    uint64_t bytes = 0;
    for (size_t p = 0; p < placed.size(); ++p)
      if (choices[tried[p]].chosen + 1 < choices[tried[p]].candidates.size() && placed[p].arenaBytes() > bytes) {
        most = tried[p];
        bytes = placed[p].arenaBytes();
      }
    return most;
  }

  void explain(const Attempt &choice, plan::Plan &plan) const {
    // The numbers of the largest decode bucket of the chosen placement, the first in the plan.
    const plan::Variant *decisive = nullptr;
    for (const plan::Variant &variant : plan.variants)
      if (variant.placement == 0 && plan.schedules[variant.schedule].iterationClass == plan::IterationClass::Decode)
        decisive = &variant;
    if (!decisive)
      return; // no target is without a decode bucket
    std::optional<MemoryNeed> before;
    if (choice.chosen > 0)
      before = family_.need(choice.candidates[choice.chosen - 1]);
    const bool asked = request_.policy.statesPlacement() || !request_.placements.empty();
    plan.reason = explainChoice(request_.model, target_, asked, choice.candidate(), plan.arenaBytes,
                                choice.chosen > 0 ? &choice.candidates[choice.chosen - 1] : nullptr,
                                before ? before->bytes : 0, *decisive);
    plan.limitingResource = decisive->linkAloneNs > decisive->computeAloneNs ? "link h2d" : "compute";
  }

  void advance() {
    ++done_;
    if (request_.progress)
      request_.progress({.done = std::min(done_, total_), .total = total_});
  }

  const CompileRequest &request_;
  const Policy &policy_;
  Target target_;
  model::WeightLayout layout_;
  Prices prices_;
  CandidateCompiler candidates_;
  PlacementFamily family_;
  bool nested_ = false;                  // the range was asked for nested
  std::optional<int64_t> kvAway_;        // the first block that is at home on the host
  std::optional<LatencyChoice> latency_; // where placements are chosen by latency, or several
  std::optional<OverBudget> overBudget_;
  int done_ = 0, total_ = 0;
};

} // namespace

absl::StatusOr<plan::Plan> compile(const CompileRequest &request) {
  RETURN_IF_ERROR(model::validate(request.model, "model"));
  RETURN_IF_ERROR(model::validate(request.hardware, "hardware"));
  ASSIGN_OR_RETURN(policy, policyFor(request.policy, request.goal));
  RETURN_IF_ERROR(checkPolicy(request.policy, request.goal));
  if (request.goal.kvDeviceMemory && request.policy.placements.value_or(1) > 1)
    return absl::InvalidArgumentError(
        absl::StrCat("policy.placements = ", *request.policy.placements, ": expected 1 beside goal.kv_device_memory"));
  if (request.goal.kvDeviceMemory &&
      !(policy->traits.splitsCaches && request.policy.startRule == model::StartRule::Eager))
    return absl::InvalidArgumentError(
        absl::StrCat("goal.kv_device_memory = ", *request.goal.kvDeviceMemory, ": policy ", std::string(policy->name),
                     request.policy.startRule == model::StartRule::Eager ? "" : " under the rule paper",
                     " keeps caches on the device, expected policy interval and start rule eager"));
  RETURN_IF_ERROR(checkStated(request.policy, request.model));
  model::WeightLayout layout = model::layoutWeights(request.model);
  for (const Candidate &candidate : request.placements)
    RETURN_IF_ERROR(checkCandidate(candidate, request.model, layout));
  ASSIGN_OR_RETURN(target, resolveGoal(request));
  std::optional<cost::Roofline> roofline;
  const cost::CostModel &costs =
      request.costs ? *request.costs : roofline.emplace(request.model, request.hardware, target.activation, target.kv);
  ASSIGN_OR_RETURN(plan, Compilation(request, *policy, std::move(target), std::move(layout), costs).run());
  RETURN_IF_ERROR(checkKernels(plan));
  return plan;
}

} // namespace headrace::compiler
