// SPDX-License-Identifier: Apache-2.0
#include "compiler/search/ExplainObjective.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "compiler/search/Explain.h"
#include "compiler/search/Generator.h"
#include "compiler/search/Objective.h"
#include "compiler/search/SearchPlacement.h"
#include "runtime/base/Units.h"
#include "runtime/cost/Record.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/plan/value/PlacementTable.h"
#include "runtime/sim/BucketTime.h"

namespace headrace::compiler {
namespace {

constexpr absl::string_view kLeastTtft = "headrace/least-ttft"; // a refusal's payload: nanoseconds

// Six decimals, rounded up: a factor that is met.
std::string factorText(double factor) {
  std::string text = absl::StrFormat("%.6f", std::ceil(factor * 1e6 - 1e-7) / 1e6);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.')
    text.pop_back();
  return text;
}

std::string bucketText(const Objective &objective, int64_t miniBatches) {
  const cost::Bucket &bucket = objective.bucket;
  return absl::StrCat(objective.decode ? std::string("decode") : absl::StrCat(bucket.tokens, " tokens"), " of ",
                      bucket.sequences, " at context ", bucket.context,
                      miniBatches == 1 ? "" : absl::StrCat(" in each of ", miniBatches, " mini-batches"));
}

std::string objectiveText(const model::Goal &goal) {
  if (goal.sloFactor)
    return absl::StrCat("an iteration of ", *goal.sloFactor, " times the one without offloading");
  std::string text;
  if (goal.ttft)
    absl::StrAppend(&text, "TTFT of ", model::durationText(*goal.ttft));
  if (goal.tpot)
    absl::StrAppend(&text, text.empty() ? "" : " and ", "TPOT of ", model::durationText(*goal.tpot));
  return text;
}

std::string missedText(const model::ModelSpec &spec, const Target &target, const model::Goal &goal,
                       const std::string &policy, const char *by) {
  return absl::StrCat(objectiveText(goal), " cannot be met ", by, "by policy ", policy, " for ", spec.name,
                      " at batch ", target.sequences(), " and context ", target.context, " with a device memory of ",
                      target.deviceMemory, " bytes (", bytesText(target.deviceMemory), ")");
}

// What a change between placements, or of what the ring holds, does to a gap.
std::string brokenText(const BrokenGap &gap) {
  return absl::StrCat("a token would come ", model::durationText(gap.ns), " after the one before it, objective ",
                      model::durationText(gap.sloNs), ", ", model::durationText(gap.wayNs), " of it for copies ",
                      gap.from == gap.to ? absl::StrCat("into the ring of '", gap.to, "'")
                                         : absl::StrCat("from '", gap.from, "' to '", gap.to, "'"));
}

} // namespace

std::string explainApart(const model::ModelSpec &spec, const Target &target, const model::Goal &goal,
                         const std::string &policy, const BrokenGap &apart, const TogetherMinima &minima) {
  std::string text = absl::StrCat(missedText(spec, target, goal, policy, "on one instance "),
                                  ": each is met in a placement of its own, but between them ", brokenText(apart),
                                  "; no placement for all of them fits");
  if (minima.factor)
    absl::StrAppend(&text, "; the minimum slo_factor of one is ", factorText(*minima.factor), " at this memory");
  const char *rest[] = {goal.ttft ? " with this TTFT" : "", goal.tpot ? " with this TPOT" : ""};
  if (minima.tpot)
    absl::StrAppend(&text, "; the minimum TPOT of one is ", model::durationText(*minima.tpot), " at this memory",
                    rest[0]);
  if (minima.ttft)
    absl::StrAppend(&text, "; the minimum TTFT of one is ", model::durationText(*minima.ttft), " at this memory",
                    rest[1]);
  if (minima.bytes)
    absl::StrAppend(&text, "; the minimum memory of one is ", *minima.bytes, " bytes (", bytesText(*minima.bytes),
                    ") at ", goal.sloFactor ? "this factor" : "these objectives");
  return absl::StrCat(text, "; on instances apart (--instances apart) they are met");
}

absl::Status missed(const std::string &text, std::chrono::nanoseconds leastTtft) {
  absl::Status status = absl::ResourceExhaustedError(text);
  if (leastTtft.count() > 0)
    status.SetPayload(kLeastTtft, absl::Cord(absl::StrCat(leastTtft.count())));
  return status;
}

std::optional<std::chrono::nanoseconds> leastTtft(const absl::Status &status) {
  const auto payload = status.GetPayload(kLeastTtft);
  return payload ? std::optional(std::chrono::nanoseconds(std::stoll(std::string(*payload)))) : std::nullopt;
}

std::string explainMissed(const model::ModelSpec &spec, const Target &target, const model::Goal &goal,
                          const std::string &policy, const ObjectiveMinima &minima) {
  std::string text = missedText(spec, target, goal, policy, "");
  const char *separator = ": ";
  const auto add = [&](const std::string &part) {
    absl::StrAppend(&text, separator, part);
    separator = "; ";
  };
  if (goal.sloFactor && (minima.decode.missed || minima.mixed.missed)) {
    const ClassMinimum &worst = minima.decode.factor >= minima.mixed.factor ? minima.decode : minima.mixed;
    add(absl::StrCat("the minimum slo_factor is ", factorText(worst.factor), " at this memory (",
                     bucketText(*worst.bucket, target.choice.miniBatches), " with ", describe(*worst.candidate, spec),
                     ")"));
  } else if (!goal.sloFactor) {
    for (const auto &[name, minimum] : {std::pair("TTFT", &minima.mixed), std::pair("TPOT", &minima.decode)})
      if (minimum->missed)
        add(absl::StrCat("the minimum ", name, " is ", model::durationText(minimum->ns), " at this memory (",
                         bucketText(*minimum->bucket, target.choice.miniBatches), " with ",
                         describe(*minimum->candidate, spec), ")"));
  }
  const std::string these = goal.sloFactor           ? "this factor"
                            : goal.ttft && goal.tpot ? "these objectives"
                            : goal.ttft              ? "this TTFT"
                                                     : "this TPOT";
  if (!minima.ofMemory)
    return text;
  if (minima.bytesAtObjective)
    add(absl::StrCat("the minimum memory is ", *minima.bytesAtObjective, " bytes (",
                     bytesText(*minima.bytesAtObjective), ") at ", these));
  else
    add(absl::StrCat("no memory would do at ", these, ": the iteration without offloading takes longer"));
  if (minima.bytesAtAny.candidate)
    add(absl::StrCat("the minimum memory at any latency is ", minima.bytesAtAny.bytes, " bytes (",
                     bytesText(minima.bytesAtAny.bytes), ") with ", describe(*minima.bytesAtAny.candidate, spec)));
  return text;
}

std::vector<std::string> missesOf(const plan::Plan &plan) {
  struct Miss {
    const plan::BucketChoice *choice = nullptr;
    uint64_t ns = 0;   // that it takes
    double factor = 1; // of the resident time
  };
  Miss decode, mixed; // the buckets that ask for the most
  for (const plan::BucketChoice &choice : plan.choices) {
    const plan::Variant &variant = plan.variants[choice.variant];
    const bool decodes = plan.schedules[variant.schedule].iterationClass == plan::IterationClass::Decode;
    if (choice.sloNs == 0 || variant.predictedNs <= choice.sloNs || (!decodes && plan.goal.ttft))
      continue;
    const uint64_t ns = sim::bucketNs(plan, choice.variant);
    if (ns <= choice.sloNs)
      continue;
    const double factor = static_cast<double>(ns) / static_cast<double>(choice.residentNs);
    Miss &of = decodes ? decode : mixed;
    if (of.choice == nullptr || (plan.goal.sloFactor ? factor > of.factor : ns > of.ns))
      of = {&choice, ns, factor};
  }
  std::vector<std::string> misses;
  for (const Miss *miss : {&mixed, &decode}) {
    if (miss->choice == nullptr)
      continue;
    const plan::Variant &variant = plan.variants[miss->choice->variant];
    const Objective bucket{.bucket = {variant.newTokens, variant.sequences, variant.context},
                           .decode = miss == &decode};
    misses.push_back(absl::StrCat(bucketText(bucket, plan.miniBatches), " takes ", model::durationText(miss->ns),
                                  " in placement '", plan.placements[variant.placement].name, "', so the minimum ",
                                  plan.goal.sloFactor ? absl::StrCat("slo_factor is ", factorText(miss->factor))
                                                      : absl::StrCat("TPOT is ", model::durationText(miss->ns))));
  }
  return misses;
}

absl::Status refuseMissed(const plan::Plan &plan, const Generator &policy, const std::vector<std::string> &misses) {
  return absl::ResourceExhaustedError(absl::StrCat(
      objectiveText(plan.goal), " is missed by policy ", plan.policy.name,
      policy.order == Order::MostFreed ? ", which has an estimate of its own" : ", which does not choose by it",
      " for ", plan.model->name, " with a device memory of ", plan.deviceMemory, " bytes (",
      bytesText(plan.deviceMemory), "): ", absl::StrJoin(misses, "; "),
      " with this policy; policy headrace chooses by it, and --allow-missed takes what misses it"));
}

std::string explainObjective(const Generator &policy, const Candidate &chosen, const Compared &of,
                             const Objective &bucket, const plan::Variant &variant, const plan::Plan &plan,
                             const std::optional<BrokenGap> &apart, const LinkUse *link) {
  std::string text = absl::StrCat(describe(chosen, *plan.model), " of ", plan.model->name, "'s ", plan.model->layers,
                                  " layers, by policy ", std::string(policy.name));
  if (const std::string_view opinion = policy.opinionText; !opinion.empty())
    absl::StrAppend(&text, ": ", std::string(opinion));
  else if (policy.order == Order::MostFreed && of.inOrder)
    absl::StrAppend(&text,
                    ": the fewest weights away that fit beside as many KV blocks as there is room for and meet the "
                    "objective");
  else if (policy.order == Order::MostFreed)
    absl::StrAppend(&text, ": frees the most device memory of ", of.placements, " placements (", of.played,
                    " evaluated) that fit and meet the objective");
  const auto freed = plan::freedBytes(plan, variant.placement);
  absl::StrAppend(&text, "; frees ", freed, " bytes, takes ", plan.arenaBytes, " of ", plan.deviceMemory, " bytes (",
                  bytesText(plan.arenaBytes), " of ", bytesText(plan.deviceMemory), "). ",
                  bucketText(bucket, plan.miniBatches), ": ", model::durationText(variant.predictedNs),
                  " an iteration, ", model::durationText(bucket.residentNs), " without offloading");
  if (bucket.sloNs > 0)
    absl::StrAppend(&text, ", objective ", model::durationText(bucket.sloNs),
                    variant.predictedNs <= bucket.sloNs ? "" : " (MISSED: this policy does not choose by it)");
  if (bucket.sloNs > 0 && policy.order == Order::MostFreed && plan.slowestPermille > plan::kPredicted)
    absl::StrAppend(
        &text, absl::StrFormat(", %.1f%% of it kept free for the slowest iterations that the record has seen",
                               cost::percentKeptFree(static_cast<double>(plan.slowestPermille) / plan::kPredicted)));
  if (link != nullptr && !link->full() && link->bound != SearchBound::Weights)
    absl::StrAppend(
        &text,
        absl::StrFormat("; moves %.1f%% of the bytes that the link can bring in that time: ",
                        100 * static_cast<double>(link->movedBytes) / static_cast<double>(link->limitBytes)),
        link->bound == SearchBound::Link   ? "the start-up of smaller units' copies takes the rest of it"
        : link->bound == SearchBound::Unit ? "what is left of it brings no further unit"
        : link->bound == SearchBound::Host ? "the host memory holds no more"
                                           : "a larger ring would take the memory that it frees");
  if (apart)
    absl::StrAppend(&text, "; one placement for all buckets: with one for each ", brokenText(*apart),
                    " (--instances apart: no such change)");
  else if (plan.placements.size() > 1)
    absl::StrAppend(&text, "; ", plan.placements.size(), " placements, one for each bucket below");
  return text;
}

} // namespace headrace::compiler
