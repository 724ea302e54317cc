// SPDX-License-Identifier: Apache-2.0
#include "compiler/search/generators/Generators.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/search/GeneratorInputs.h"
#include "compiler/search/Space.h"
#include "runtime/base/Nearest.h"
#include "runtime/base/StatusMacros.h"

namespace headrace::compiler {

// Each in its own file.
extern const Generator kAccelerateGenerator;
extern const Generator kCachesGenerator;
extern const Generator kDeepSpeedGenerator;
extern const Generator kFlexGenGenerator;
extern const Generator kFlexGenNoBusGenerator;
extern const Generator kFlexGenThroughputGenerator;
extern const Generator kHeadraceGenerator;
extern const Generator kHybridServeGenerator;
extern const Generator kIntervalGenerator;
extern const Generator kJointGenerator;
extern const Generator kLmOffloadGenerator;
extern const Generator kNoneGenerator;
extern const Generator kPieGenerator;
extern const Generator kVllmPrefetchGenerator;
extern const Generator kZeroInferenceGenerator;

namespace {

constexpr std::string_view kAuto = "auto";

std::string quoted(std::string_view text) { return absl::StrCat("\"", std::string(text), "\""); }

// What a search over all mechanisms does not vary is `interval`'s: a placement that is stated, several of them, a start
// rule, and KV by what it takes of the device; or, within objectives, `headrace`'s.
const Generator *autoPolicy(const model::Policy &asked, const model::Goal &goal) {
  if (asked.statesPlacement())
    return &kIntervalGenerator;
  const bool varied = asked.placements.value_or(1) == 1 && !asked.startRuleStated &&
                      asked.startRule == model::StartRule::Eager && !asked.kvPlaces && !goal.expansion &&
                      (!goal.hasSlo() || goal.instances == model::Instances::Together);
  return varied ? &kJointGenerator : goal.hasSlo() ? &kHeadraceGenerator : &kIntervalGenerator;
}

} // namespace

const std::vector<const Generator *> &allPolicies() {
  static const std::vector<const Generator *> policies = {&kIntervalGenerator,
                                                          &kNoneGenerator,
                                                          &kDeepSpeedGenerator,
                                                          &kAccelerateGenerator,
                                                          &kVllmPrefetchGenerator,
                                                          &kFlexGenGenerator,
                                                          &kFlexGenNoBusGenerator,
                                                          &kSelectNGenerator,
                                                          &kPieGenerator,
                                                          &kHybridServeGenerator,
                                                          &kFlexGenThroughputGenerator,
                                                          &kLmOffloadGenerator,
                                                          &kZeroInferenceGenerator,
                                                          &kHeadraceGenerator,
                                                          &kJointGenerator};
  return policies;
}

std::vector<const Generator *> searchedGenerators(const Space &space) {
  std::vector<const Generator *> generators = {&kCachesGenerator, &kIntervalGenerator, &kHeadraceGenerator,
                                               &kHybridServeGenerator};
  // Of what it decides; where none of that is open, what is left of it is `interval`'s.
  if (const Space::Free &free = space.free(); free.encodings() || free.attention || free.miniBatches)
    generators.push_back(&kLmOffloadGenerator);
  return generators;
}

std::vector<const Generator *> generatorsOf(const Generator &policy, const Space &space) {
  return policy.seeds != nullptr ? std::vector<const Generator *>{&policy} : searchedGenerators(space);
}

const Generator *findPolicy(std::string_view name) {
  const auto &all = allPolicies();
  const auto at = std::find_if(all.begin(), all.end(), [&](const Generator *policy) { return policy->name == name; });
  return at == all.end() ? nullptr : *at;
}

std::vector<Candidate> candidatesOf(const Generator &policy, const GeneratorInputs &inputs) {
  std::vector<Candidate> found;
  if (policy.candidates != nullptr)
    found = policy.candidates(inputs);
  for (Candidate &candidate : found)
    candidate = alike(std::move(candidate), inputs.target.choice);
  return found;
}

absl::StatusOr<const Generator *> policyFor(const model::Policy &asked, const model::Goal &goal) {
  if (asked.name == kAuto)
    return autoPolicy(asked, goal);
  if (const Generator *policy = findPolicy(asked.name))
    return policy;
  std::vector<std::string> names;
  for (const Generator *policy : allPolicies())
    names.emplace_back(policy->name);
  return absl::InvalidArgumentError(absl::StrCat("policy.name = \"", asked.name.substr(0, 80), "\": expected ",
                                                 policyNames(), model::didYouMean(asked.name, names)));
}

absl::Status checkPolicy(const model::Policy &asked, const model::Goal &goal) {
  ASSIGN_OR_RETURN(policy, policyFor(asked, goal));
  const auto refuse = [](absl::string_view key, const absl::AlphaNum &value, auto &&...expected) {
    return absl::InvalidArgumentError(absl::StrCat(key, " = ", value, ": expected ", expected...));
  };
  const std::string name = quoted(std::string_view(asked.name)), own = quoted(std::string_view(policy->name));
  if (policy->order == Order::MostFreed && !goal.hasSlo())
    return refuse("policy.name", name, "goal.ttft, goal.tpot or goal.slo_factor beside it: it chooses by latency");
  if (!policy->statesPlacement && asked.statesPlacement())
    return refuse("policy.name", name,
                  "\"interval\" where policy.interval or policy.offload_layers state the placement");
  if (!policy->statesPlacement && asked.startRuleStated)
    return refuse("policy.start_rule", quoted(model::startRuleName(asked.startRule)),
                  "policy.name \"interval\" beside it, or no start_rule: policy ", own, " has a rule of its own");
  if (!policy->takesPercent && asked.percent)
    return refuse("policy.percent", quoted(std::string_view(model::percentText(*asked.percent))),
                  "policy.name \"flexgen-throughput\" beside it: policy ", own, " has no shares");
  if (asked.attention == model::Attention::Auto && !policy->weighsAttention)
    return refuse("policy.attention", "\"auto\"",
                  "\"device\" or \"cpu\", or policy.name \"joint\" or \"lm-offload\" beside it: policy ", own,
                  " does not weigh it");
  if (asked.attention == model::Attention::Auto && goal.sloFactor)
    return refuse("policy.attention", "\"auto\"",
                  "\"device\" or \"cpu\" beside goal.slo_factor, which is of what the device takes, or goal.tpot");
  if (policy->onePlacement && asked.placements.value_or(1) > 1)
    return refuse("policy.placements", *asked.placements, "1: policy ", own, " has one setting for all iterations");
  if (policy->order != Order::LeastAim && asked.preferStated)
    return refuse("policy.prefer", quoted(model::preferName(asked.prefer)),
                  "policy.name \"joint\" beside it, or no prefer: policy ", own, " has an aim of its own");
  return absl::OkStatus();
}

const Generator &policyNamed(std::string_view name) {
  static const Generator kNothing;
  const Generator *policy = name == kAuto ? &kIntervalGenerator : findPolicy(name);
  return policy == nullptr ? kNothing : *policy;
}

std::string splittingPolicyNames() {
  std::vector<std::string> names;
  for (const Generator *policy : allPolicies())
    if (policy->splitsCaches)
      names.emplace_back(policy->name);
  const std::string last = names.back();
  names.pop_back();
  return absl::StrCat(absl::StrJoin(names, ", "), " or ", last);
}

std::string policyNames() {
  std::string list = absl::StrCat("\"", std::string(kAuto), "\"");
  for (const Generator *policy : allPolicies())
    absl::StrAppend(&list, policy == allPolicies().back() ? " or " : ", ", "\"", std::string(policy->name), "\"");
  return list;
}

} // namespace headrace::compiler
