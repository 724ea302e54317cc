// SPDX-License-Identifier: Apache-2.0
#include "compiler/CompileStages.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/Compile.h"
#include "compiler/choice/AmountText.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/sim/StagedTime.h"

namespace headrace::compiler {
namespace {

constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();

// An iteration of the largest bucket that decodes.
uint64_t decodeNs(const plan::Plan &plan) {
  const plan::Variant *const largest = sim::largestDecode(plan);
  return largest == nullptr ? 0 : largest->predictedNs;
}

// What a stage has, wherever among the middle ones it is: embedding, head, layers.
using StageKind = std::tuple<bool, bool, int64_t>;
using StageTimes = std::map<StageKind, uint64_t>;

// What a stage that is refused so has a part of.
std::string partText(const CompileRequest &request, int64_t stages, int64_t layers, absl::string_view refusal) {
  if (stages > 1 && absl::StrContains(refusal, "host memory of "))
    return absl::StrCat(", which has ", layers, "/", request.model->layers, " of the machine's host memory");
  return stages > 1 && (request.goal.tpot || request.goal.ttft)
             ? absl::StrCat(", which has 1/", stages, " of each objective")
             : "";
}

class Cut {
public:
  // `times`: known from other cuts into stages that are asked for the same.
  Cut(const CompileRequest &request, int64_t stages, StageTimes &times)
      : request_(request), whole_(*request.model), stages_(stages), layers_(static_cast<size_t>(stages)),
        times_(times) {
    for (int64_t i = 0; i < stages; ++i) // as equal as they can be, the first ones longer
      layers_[static_cast<size_t>(i)] = (whole_.layers + stages - 1 - i) / stages;
  }

  absl::StatusOr<StagedPlans> run() {
    const std::vector<int64_t> equal = layers_;
    while (improve())
      keepThose();
    StagedPlans made;
    int64_t first = 0;
    for (size_t i = 0; i < layers_.size(); ++i) {
      const absl::StatusOr<plan::Plan> &plan = planOf(i, layers_[i]);
      if (!plan.ok())
        return absl::Status(plan.status().code(),
                            absl::StrCat("stage ", i, " of ", stages_, ", layers ", first, " to ",
                                         first + layers_[i] - 1,
                                         partText(request_, stages_, layers_[i], plan.status().message()), ": ",
                                         std::string(plan.status().message())));
      made.plans.push_back(*plan);
      made.plans.back().model->stage.first = first; // a middle one's place is in nothing else
      made.plans.back().hardware.hostMemoryBytes = request_.hardware.hostMemoryBytes; // the machine's
      first += layers_[i];
    }
    made.reason = reason(equal);
    return made;
  }

private:
  uint64_t hostShare(uint64_t bytes, int64_t layers) const {
    return bytes * static_cast<uint64_t>(layers) / static_cast<uint64_t>(whole_.layers);
  }

  CompileRequest requestOf(int64_t first, int64_t layers) const {
    CompileRequest of = request_;
    of.model = model::stageOf(whole_, first, layers);
    if (request_.hashOf)
      of.hashOf = [this](const model::ModelSpec &spec) { return request_.hashOf(model::wholeOf(spec)); };
    if (!of.model->embeds() && of.policy.offloadEmbedding == model::AutoOnOff::On) // of the first
      of.policy.offloadEmbedding = model::AutoOnOff::Auto;
    if (!of.model->hasHead() && of.policy.offloadHead == model::AutoOnOff::On)
      of.policy.offloadHead = model::AutoOnOff::Auto;
    const auto part = [&](auto &objective) {
      if (objective)
        *objective /= stages_;
    };
    part(of.goal.tpot);
    part(of.goal.ttft);
    // There is one host: each has its layers' share.
    of.hardware.hostMemoryBytes = hostShare(of.hardware.hostMemoryBytes, layers);
    if (of.goal.kvHostMemory)
      *of.goal.kvHostMemory = hostShare(*of.goal.kvHostMemory, layers);
    return of;
  }

  StageKind kindOf(size_t stage, int64_t layers) const { return {stage == 0, stage + 1 == layers_.size(), layers}; }
  const absl::StatusOr<plan::Plan> &planOf(size_t stage, int64_t layers) {
    const StageKind kind = kindOf(stage, layers);
    const auto [embeds, head, count] = kind;
    const auto [at, isNew] = made_.try_emplace(kind, absl::UnknownError("not compiled yet"));
    if (isNew) {
      CompileRequest of = requestOf(embeds ? 0 : head ? whole_.layers - count : 1, count);
      of.onPhase = nullptr;
      of.onPass = nullptr;
      of.advise = nullptr;
      at->second = compile(of);
    }
    return at->second;
  }
  // kNever: memory does not hold it, or it is refused.
  uint64_t timeOf(size_t stage, int64_t layers) {
    const auto [at, isNew] = times_.try_emplace(kindOf(stage, layers), kNever);
    if (isNew)
      if (const absl::StatusOr<plan::Plan> &plan = planOf(stage, layers); plan.ok())
        at->second = decodeNs(*plan);
    return at->second;
  }
  // Plans of other cuts are let go.
  void keepThose() {
    std::map<StageKind, absl::StatusOr<plan::Plan>> kept;
    for (size_t i = 0; i < layers_.size(); ++i)
      if (const auto at = made_.find(kindOf(i, layers_[i])); at != made_.end())
        kept.insert(made_.extract(at));
    made_ = std::move(kept);
  }
  std::vector<uint64_t> times(const std::vector<int64_t> &layers) {
    std::vector<uint64_t> out;
    for (size_t i = 0; i < layers.size(); ++i)
      out.push_back(timeOf(i, layers[i]));
    return out;
  }

  // A layer of the longest stage goes to another, if the longest is shorter then.
  bool improve() {
    const std::vector<uint64_t> now = times(layers_);
    const auto longest = static_cast<size_t>(std::max_element(now.begin(), now.end()) - now.begin());
    if (stages_ == 1 || layers_[longest] == 1)
      return false;
    std::vector<size_t> others(layers_.size());
    std::iota(others.begin(), others.end(), size_t{0});
    std::stable_sort(others.begin(), others.end(), [&](size_t a, size_t b) { return now[a] < now[b]; });
    for (const size_t other : others) {
      if (other == longest)
        continue;
      if (std::max(timeOf(other, layers_[other] + 1), timeOf(longest, layers_[longest] - 1)) >= now[longest])
        continue;
      ++layers_[other];
      --layers_[longest];
      return true;
    }
    return false;
  }

  std::string reason(const std::vector<int64_t> &equal) {
    const auto text = [&](const std::vector<int64_t> &layers) {
      return absl::StrJoin(times(layers), ", ", [](std::string *out, uint64_t ns) {
        absl::StrAppend(out, ns == kNever ? "does not fit" : msText(ns));
      });
    };
    if (stages_ == 1)
      return "One device does: what it has no room for is brought in every iteration";
    return absl::StrCat("Cut by predicted time into ", absl::StrJoin(layers_, ", "), " layers: ", text(layers_),
                        " an iteration that decodes",
                        layers_ == equal ? std::string(", as many each")
                                         : absl::StrCat("; as many each would be ", text(equal)));
  }

  const CompileRequest &request_;
  const model::ModelSpec &whole_;
  const int64_t stages_;
  std::vector<int64_t> layers_; // by stage
  StageTimes &times_;
  std::map<StageKind, absl::StatusOr<plan::Plan>> made_; // what was compiled of the present cut, and since
};

sim::StagedDecode predicted(const StagedPlans &made) {
  std::vector<const plan::Plan *> plans;
  for (const plan::Plan &plan : made.plans)
    plans.push_back(&plan);
  return sim::predictDecode(plans);
}

// A stage weighs attention on the CPU as if it had that to itself. Where stages that share it took it, they are held
// against those that attend on their devices, and the faster all in all are it; of equal ones the former.
absl::StatusOr<StagedPlans> cutInto(const CompileRequest &request, int64_t stages, StageTimes &times,
                                    StageTimes &onDeviceTimes) {
  absl::StatusOr<StagedPlans> made = Cut(request, stages, times).run();
  const auto onCpu = [](const plan::Plan &plan) {
    return plan.hardware.kind != model::DeviceKind::Host && plan.attendsOnCpu();
  };
  if (stages == 1 || request.policy.attention != model::Attention::Auto || !made.ok() ||
      std::none_of(made->plans.begin(), made->plans.end(), onCpu))
    return made;
  CompileRequest onDevice = request;
  onDevice.policy.attention = model::Attention::Device;
  absl::StatusOr<StagedPlans> other = Cut(onDevice, stages, onDeviceTimes).run();
  if (!other.ok()) // no room there
    return made;
  const uint64_t cpuNs = predicted(*made).tokenNs, deviceNs = predicted(*other).tokenNs;
  StagedPlans &best = deviceNs < cpuNs ? *other : *made;
  absl::StrAppend(&best.reason, ". Attention, a token of all micro-batches: on the CPU that stages share ",
                  msText(cpuNs), ", on the devices ", msText(deviceNs));
  return std::move(best);
}

} // namespace

absl::StatusOr<StagedPlans> compileStages(const CompileRequest &request, int64_t stages,
                                          const std::function<absl::Status(const plan::Plan &)> &holds) {
  const int64_t most = std::min(kMostStages, request.model->layers);
  if (stages < 0 || stages > most)
    return absl::InvalidArgumentError(absl::StrCat(
        "stages: ", stages, ": expected 1 to ", most,
        most < kMostStages ? absl::StrCat(", the layers of ", request.model->name) : std::string(", or auto")));
  StageTimes times, onDeviceTimes;
  const auto cutToHold = [&](int64_t count) -> absl::StatusOr<StagedPlans> {
    if (request.goal.tpot || request.goal.ttft) { // each has another part of them
      times.clear();
      onDeviceTimes.clear();
    }
    ASSIGN_OR_RETURN(made, cutInto(request, count, times, onDeviceTimes));
    for (size_t i = 0; i < made.plans.size(); ++i)
      if (const absl::Status held = holds(made.plans[i]); !held.ok())
        return absl::Status(held.code(),
                            absl::StrCat("stage ", i, " of ", count,
                                         partText(request, count, made.plans[i].model->layers, held.message()), ": ",
                                         std::string(held.message())));
    return made;
  };
  int64_t fails = std::max<int64_t>(stages, 1);
  absl::StatusOr<StagedPlans> made = cutToHold(fails);
  if (made.ok() || !absl::IsResourceExhausted(made.status()))
    return made;
  // The fewest that would do: twice as many each time, then between those that do not and those that do.
  const std::string refusal(made.status().message());
  std::string last = refusal;
  int64_t does = 0;
  while (does > 0 ? does - fails > 1 : fails < most) {
    const int64_t count = does > 0 ? (fails + does) / 2 : std::min(2 * fails, most);
    absl::StatusOr<StagedPlans> cut = cutToHold(count);
    if (cut.ok()) {
      does = count;
      made = std::move(cut);
      continue;
    }
    if (!absl::IsResourceExhausted(cut.status()))
      return cut;
    fails = count;
    if (does == 0)
      last = std::string(cut.status().message());
  }
  if (does > 0 && stages == 0)
    return made;
  return absl::ResourceExhaustedError(
      does > 0 ? absl::StrCat(refusal, "; ", does, " stages would do")
               : absl::StrCat(refusal, stages == 0 && last != refusal ? absl::StrCat("; ", last) : std::string(),
                              stages > 0 && stages < most
                                  ? absl::StrCat("; nor would more of them do, up to ", most)
                                  : absl::StrCat("; no number of stages up to ", most, " would do")));
}

} // namespace headrace::compiler
