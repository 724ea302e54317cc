// SPDX-License-Identifier: Apache-2.0
#include "compiler/CompileStages.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/Compile.h"
#include "compiler/choice/AmountText.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::compiler {
namespace {

constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();

// An iteration of the largest bucket that decodes.
uint64_t decodeNs(const plan::Plan &plan) {
  const plan::Variant *largest = nullptr;
  const auto key = [](const plan::Variant &v) { return std::tuple(v.newTokens, v.sequences, v.context); };
  for (const plan::Variant &variant : plan.variants)
    if (const plan::Schedule &of = plan.schedules[variant.schedule];
        of.iterationClass == plan::IterationClass::Decode && of.kvBlocks == 0 && variant.placement == 0 &&
        (largest == nullptr || key(variant) > key(*largest)))
      largest = &variant;
  return largest == nullptr ? 0 : largest->predictedNs;
}

class Cut {
public:
  Cut(const CompileRequest &request, int64_t stages)
      : request_(request), whole_(*request.model), stages_(stages), layers_(static_cast<size_t>(stages)) {
    for (int64_t i = 0; i < stages; ++i) // as equal as they can be, the first ones longer
      layers_[static_cast<size_t>(i)] = (whole_.layers + stages - 1 - i) / stages;
  }

  absl::StatusOr<StagedPlans> run() {
    const std::vector<int64_t> equal = layers_;
    while (improve()) {
    }
    StagedPlans made;
    int64_t first = 0;
    for (size_t i = 0; i < layers_.size(); ++i) {
      absl::StatusOr<plan::Plan> plan = compile(requestOf(first, layers_[i]));
      if (!plan.ok())
        return absl::Status(plan.status().code(), absl::StrCat("stage ", i, " of ", stages_, ", layers ", first, " to ",
                                                               first + layers_[i] - 1, partText(), ": ",
                                                               std::string(plan.status().message())));
      made.plans.push_back(*std::move(plan));
      first += layers_[i];
    }
    made.reason = reason(equal);
    return made;
  }

private:
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
    return of;
  }

  std::string partText() const {
    return stages_ > 1 && (request_.goal.tpot || request_.goal.ttft)
               ? absl::StrCat(", which has 1/", stages_, " of each objective")
               : "";
  }

  // Of a stage, wherever among the middle ones it is; kNever: memory does not hold it, or it is refused.
  uint64_t timeOf(size_t stage, int64_t layers) {
    const bool embeds = stage == 0, head = stage + 1 == layers_.size();
    const auto [at, isNew] = times_.try_emplace(std::tuple(embeds, head, layers), kNever);
    if (isNew) {
      CompileRequest of = requestOf(embeds ? 0 : head ? whole_.layers - layers : 1, layers);
      of.onPhase = nullptr;
      of.onPass = nullptr;
      of.advise = nullptr;
      if (const absl::StatusOr<plan::Plan> plan = compile(of); plan.ok())
        at->second = decodeNs(*plan);
    }
    return at->second;
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
      return "One device holds it";
    return absl::StrCat("Cut by predicted time into ", absl::StrJoin(layers_, ", "), " layers: ", text(layers_),
                        " an iteration that decodes",
                        layers_ == equal ? std::string(", as many each")
                                         : absl::StrCat("; as many each would be ", text(equal)));
  }

  const CompileRequest &request_;
  const model::ModelSpec &whole_;
  const int64_t stages_;
  std::vector<int64_t> layers_;                               // by stage
  std::map<std::tuple<bool, bool, int64_t>, uint64_t> times_; // by what a stage has
};

} // namespace

absl::StatusOr<StagedPlans> compileStages(const CompileRequest &request, int64_t stages,
                                          const std::function<absl::Status(const plan::Plan &)> &holds) {
  const int64_t most = std::min(kMostStages, request.model->layers);
  if (stages < 0 || stages > most)
    return absl::InvalidArgumentError(absl::StrCat(
        "stages: ", stages, ": expected 1 to ", most,
        most < kMostStages ? absl::StrCat(", the layers of ", request.model->name) : std::string(", or auto")));
  absl::StatusOr<StagedPlans> made;
  for (int64_t count = std::max<int64_t>(stages, 1); count <= most; ++count) {
    absl::StatusOr<StagedPlans> cut = Cut(request, count).run();
    for (size_t i = 0; cut.ok() && i < cut->plans.size(); ++i)
      if (const absl::Status held = holds(cut->plans[i]); !held.ok())
        cut = absl::Status(held.code(), absl::StrCat("stage ", i, " of ", count, ": ", std::string(held.message())));
    if (cut.ok() && count > stages && stages > 0)
      return absl::ResourceExhaustedError(
          absl::StrCat(std::string(made.status().message()), "; ", count, " stages would do"));
    if (cut.ok() || !absl::IsResourceExhausted(cut.status()))
      return cut;
    if (count == std::max<int64_t>(stages, 1))
      made = std::move(cut);
  }
  return absl::ResourceExhaustedError(
      absl::StrCat(std::string(made.status().message()), "; no number of stages up to ", most, " would do"));
}

} // namespace headrace::compiler
