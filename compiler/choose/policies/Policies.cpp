// SPDX-License-Identifier: Apache-2.0
#include "compiler/choose/policies/Policies.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/choose/PolicyInputs.h"
#include "runtime/base/Nearest.h"
#include "runtime/base/StatusMacros.h"

namespace headrace::compiler {
namespace {

constexpr std::string_view kAuto = "auto";

std::string quoted(std::string_view text) { return absl::StrCat("\"", std::string(text), "\""); }

// What a search over all mechanisms does not vary is `interval`'s: a placement that is stated, several of them, a start
// rule, and KV by what it takes of the device; or, within objectives, `headrace`'s.
const Policy *autoPolicy(const model::Policy &asked, const model::Goal &goal) {
  if (asked.statesPlacement())
    return &kIntervalPolicy;
  const bool varied = asked.placements.value_or(1) == 1 && !asked.startRuleStated &&
                      asked.startRule == model::StartRule::Eager && !asked.kvPlaces && !goal.expansion &&
                      (!goal.hasSlo() || goal.instances == model::Instances::Together);
  return varied ? &kJointPolicy : goal.hasSlo() ? &kHeadracePolicy : &kIntervalPolicy;
}

} // namespace

const std::vector<const Policy *> &allPolicies() {
  static const std::vector<const Policy *> policies = {&kIntervalPolicy,     &kNonePolicy,         &kDeepSpeedPolicy,
                                                       &kAcceleratePolicy,   &kVllmPrefetchPolicy, &kFlexGenPolicy,
                                                       &kFlexGenNoBusPolicy, &kSelectNPolicy,      &kPiePolicy,
                                                       &kHybridServePolicy,  &kHeadracePolicy,     &kJointPolicy};
  return policies;
}

const Policy *findPolicy(std::string_view name) {
  const auto &all = allPolicies();
  const auto at = std::find_if(all.begin(), all.end(), [&](const Policy *policy) { return policy->name == name; });
  return at == all.end() ? nullptr : *at;
}

std::vector<Candidate> candidatesOf(const Policy &policy, const PolicyInputs &inputs) {
  std::vector<Candidate> found = policy.candidates(inputs);
  for (Candidate &candidate : found)
    candidate = alike(std::move(candidate), inputs.target.choice);
  return found;
}

absl::StatusOr<const Policy *> policyFor(const model::Policy &asked, const model::Goal &goal) {
  if (asked.name == kAuto)
    return autoPolicy(asked, goal);
  if (const Policy *policy = findPolicy(asked.name))
    return policy;
  std::vector<std::string> names;
  for (const Policy *policy : allPolicies())
    names.emplace_back(policy->name);
  return absl::InvalidArgumentError(absl::StrCat("policy.name = \"", asked.name.substr(0, 80), "\": expected ",
                                                 policyNames(), model::didYouMean(asked.name, names)));
}

absl::Status checkPolicy(const model::Policy &asked, const model::Goal &goal) {
  ASSIGN_OR_RETURN(policy, policyFor(asked, goal));
  const PolicyTraits &traits = policy->traits;
  const auto refuse = [](absl::string_view key, const absl::AlphaNum &value, auto &&...expected) {
    return absl::InvalidArgumentError(absl::StrCat(key, " = ", value, ": expected ", expected...));
  };
  const std::string name = quoted(std::string_view(asked.name)), own = quoted(std::string_view(policy->name));
  if (traits.byObjective && !goal.hasSlo())
    return refuse("policy.name", name, "goal.ttft, goal.tpot or goal.slo_factor beside it: it chooses by latency");
  if (!traits.statesPlacement && asked.statesPlacement())
    return refuse("policy.name", name,
                  "\"interval\" where policy.interval or policy.offload_layers state the placement");
  if (!traits.statesPlacement && asked.startRuleStated)
    return refuse("policy.start_rule", quoted(model::startRuleName(asked.startRule)),
                  "policy.name \"interval\" beside it, or no start_rule: policy ", own, " has a rule of its own");
  if (traits.onePlacement && asked.placements.value_or(1) > 1)
    return refuse("policy.placements", *asked.placements, "1: policy ", own, " has one setting for all iterations");
  if (!traits.searches && asked.preferStated)
    return refuse("policy.prefer", quoted(model::preferName(asked.prefer)),
                  "policy.name \"joint\" beside it, or no prefer: policy ", own, " has an aim of its own");
  return absl::OkStatus();
}

PolicyTraits traitsOf(std::string_view name) {
  const Policy *policy = name == kAuto ? &kIntervalPolicy : findPolicy(name);
  return policy == nullptr ? PolicyTraits() : policy->traits;
}

std::string splittingPolicyNames() {
  std::vector<std::string> names;
  for (const Policy *policy : allPolicies())
    if (policy->traits.splitsCaches)
      names.emplace_back(policy->name);
  const std::string last = names.back();
  names.pop_back();
  return absl::StrCat(absl::StrJoin(names, ", "), " or ", last);
}

std::string policyNames() {
  std::string list = absl::StrCat("\"", std::string(kAuto), "\"");
  for (const Policy *policy : allPolicies())
    absl::StrAppend(&list, policy == allPolicies().back() ? " or " : ", ", "\"", std::string(policy->name), "\"");
  return list;
}

} // namespace headrace::compiler
