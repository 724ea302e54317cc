// SPDX-License-Identifier: Apache-2.0
#include "compiler/search/Why.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "compiler/choice/AmountText.h"
#include "runtime/base/Units.h"
#include "runtime/model/KvEncoding.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::compiler {
namespace {

std::string ms(double ns) { return msText(static_cast<uint64_t>(ns)); }

// "1.23 times"
std::string times(double a, double b) { return absl::StrFormat("%.2f times", a / b); }

// " within TPOT 85ms"
std::string objectivesText(const model::Goal &goal) {
  std::string text;
  const auto add = [&](const std::string &one) { absl::StrAppend(&text, text.empty() ? " within " : " and ", one); };
  if (goal.ttft)
    add(absl::StrCat("a TTFT of ", model::durationText(*goal.ttft)));
  if (goal.tpot)
    add(absl::StrCat("a TPOT of ", model::durationText(*goal.tpot)));
  if (goal.sloFactor)
    add(absl::StrCat(*goal.sloFactor, " times the iteration without offloading"));
  return text;
}

double weighted(const Aim &aim, const std::vector<Played> &played, uint64_t Played::*of) {
  double sum = 0;
  for (size_t i = 0; i < played.size(); ++i)
    sum += aim.points[i].weight * static_cast<double>(played[i].*of);
  return sum;
}

} // namespace

namespace {

// Of one encoding.
Bound boundAt(Space &space, Coordinates at) {
  if (space.free().chunk)
    at.chunk = kLargestChunk;
  Bound least;
  for (bool first = true; space.exists(at) && (first || space.free().chunk); first = false, at.chunk *= 2) {
    const Aim &aim = space.aim(at);
    const std::vector<Played> resident = space.resident(at);
    Bound bound;
    for (size_t i = 0; i < aim.points.size(); ++i) {
      const double weight = aim.points[i].weight, compute = static_cast<double>(resident[i].computeNs),
                   link = static_cast<double>(space.leastLinkNs(at, aim.points[i].at));
      bound.computeNs += weight * compute;
      bound.linkNs += weight * link;
      bound.aimNs += weight * std::max(compute, link);
    }
    if (first || bound.aimNs < least.aimNs)
      least = bound;
  }
  return least;
}

// "weights q4 and KV q8", "as it is".
std::string encodingsName(Space &space, const Coordinates &at) {
  const Encodings encodings = space.commonOf(at).encodings;
  if (!encodings.any())
    return "as it is";
  const std::string weights = model::weightEncodingText(encodings.weights);
  return absl::StrCat(weights.empty() ? "" : "weights ", weights, !weights.empty() && encodings.kv ? " and " : "",
                      encodings.kv ? absl::StrCat("KV ", model::kvEncodingText(*encodings.kv)) : "");
}

} // namespace

Bound boundOf(Space &space, const Searched &searched) {
  Bound least = boundAt(space, searched.best.at);
  for (const Coordinates &origin : space.origins()) {
    Coordinates at = searched.best.at;
    at.weightEncoding = origin.weightEncoding;
    at.kvEncoding = origin.kvEncoding;
    at.attendsOnCpu = origin.attendsOnCpu;
    if (space.exists(at))
      if (const Bound bound = boundAt(space, at); bound.aimNs < least.aimNs)
        least = bound;
  }
  return least;
}

std::string explainEncodings(Space &space, const Scored &best) {
  if (!space.free().encodings())
    return "";
  std::map<std::pair<int64_t, int64_t>, const Scored *> tried;
  for (const auto &[at, scored] : space.tried())
    if (scored && scored->at.miniBatches == best.at.miniBatches) {
      const Scored *&of = tried[{at.weightEncoding, at.kvEncoding}];
      if (of == nullptr || space.isBetter(*scored, *of))
        of = &*scored;
    }
  std::string list;
  for (const auto &[encoding, of] : tried)
    absl::StrAppend(&list, list.empty() ? "" : ", ", encodingsName(space, of->at), " ",
                    of->overBytes > 0       ? "does not fit"
                    : of->late > 0          ? "is too late"
                    : space.prefersMemory() ? bytesText(of->deviceBytes)
                                            : ms(of->aimNs));
  return absl::StrCat(". Encodings that are allowed, the best of each that was tried: ", list);
}

FlagThatHelps flagThatHelps(Space &space, const Searched &searched, const Generator &policy,
                            const cost::CostModel &costs) {
  constexpr double kHelps = 0.98;
  const CompileRequest &request = space.request();
  const Scored &best = searched.best;
  FlagThatHelps helps;
  if (best.at.listed > 0 || space.prefersMemory())
    return helps;
  const auto attempt = [&](const std::string &flag, const CompileRequest &with, auto &&change) {
    Space other(with, costs);
    for (int64_t parts = 1; parts <= 4; ++parts) {
      Coordinates at = best.at;
      change(at, parts);
      const Scored *const scored = at == best.at ? nullptr : other.score(at);
      if (scored == nullptr || scored->overBytes > 0 || scored->late > best.late)
        continue;
      // Of other mini-batches the points are of other buckets, but of the same batch.
      const double ratio = scored->aimNs / best.aimNs;
      if (ratio < std::min(kHelps, helps.ratio))
        helps = {flag, ratio};
    }
  };
  const bool keepsKv = policy.requests != nullptr || best.at.attendsOnCpu; // and nothing in its place
  if (!space.free().act && !keepsKv && (!request.policy.actRatio || !request.policy.actRatio->any())) {
    CompileRequest with = request;
    with.policy.actRatio.reset(); // where they may stand beside what is stated
    attempt("--act-ratio auto", with, [](Coordinates &at, int64_t part) { at.actParts = part * kActParts / 4; });
  }
  if (!space.free().miniBatches && request.goal.miniBatches == 1 && request.goal.batch.value_or(1) > 1) {
    CompileRequest with = request;
    with.goal.autoMiniBatches = true;
    attempt("--mini-batches auto", with, [](Coordinates &at, int64_t part) { at.miniBatches = int64_t{1} << part; });
  }
  return helps;
}

std::string why(Space &space, const Searched &searched, const Candidate &chosen, const FlagThatHelps &flag) {
  const Scored &best = searched.best;
  const Aim &aim = space.aim(best.at);
  const model::ModelSpec &spec = space.request().model;
  if (searched.atEnd)
    return absl::StrCat(describe(chosen, spec), " of ", spec.name, ": what takes the least memory");
  if (chosen.offloadsNothing() && !chosen.residency.movesBack() && !chosen.actRatio.any())
    return absl::StrCat("offload nothing of ", spec.name, ": everything fits; takes ", best.deviceBytes, " of ",
                        space.target(best.at).deviceMemory, " bytes; ", aim.what, ": ", ms(best.aimNs),
                        aim.points.size() == 1 || hasPrompts(space.request().goal) ? "" : " in the mean");
  const Bound bound = boundOf(space, searched);
  const double compute = weighted(aim, best.played, &Played::computeNs),
               link = weighted(aim, best.played, &Played::linkNs), cpu = weighted(aim, best.played, &Played::cpuNs);
  const model::ActRatio &share = best.candidate.actRatio;
  const std::string acts = !share.any() ? ""
                           : share.num == share.den
                               ? ", activations in all blocks"
                               : absl::StrCat(", activations in ", model::actRatioText(share), " of the blocks");
  std::string text =
      absl::StrCat(describe(chosen, spec), acts, " of ", spec.name,
                   space.prefersMemory() ? ": the least memory of " : ": the least time of ", searched.evaluated,
                   " choices that were played", objectivesText(space.request().goal), ", ",
                   space.prefersMemory() ? absl::StrCat(best.deviceBytes, " bytes; ") : "by the aim of ", aim.what,
                   ": ", ms(best.aimNs), "; compute alone ", ms(compute), ", link alone ", ms(link),
                   cpu > 0 ? absl::StrCat(", CPU alone ", ms(cpu)) : "", ". No choice takes less than ",
                   ms(bound.aimNs), " (compute ", ms(bound.computeNs), ", bringing what the device cannot hold ",
                   ms(bound.linkNs), "): this one ", times(best.aimNs, bound.aimNs), " as long. ",
                   cpu > std::max(link, compute) ? "The CPU limits it: "
                   : link > compute              ? "The link limits it: "
                                                 : "Compute limits it: ",
                   bytesText(static_cast<uint64_t>(best.movedBytes)), " cross it");
  for (const BestOf &of : searched.of) {
    absl::StrAppend(&text, ". Of ", std::string(of.generator), " alone: ");
    if (!of.best)
      absl::StrAppend(&text, "nothing fits");
    else
      absl::StrAppend(&text, describe(of.best->candidate, spec), ", ",
                      space.prefersMemory() ? bytesText(of.best->deviceBytes) : ms(of.best->aimNs),
                      of.best->late > 0 ? ", too late" : "");
  }
  if (searched.runnerUp)
    absl::StrAppend(&text, ". The runner-up takes ",
                    space.prefersMemory() ? bytesText(searched.runnerUp->deviceBytes)
                                          : absl::StrCat(times(searched.runnerUp->aimNs, best.aimNs), " as long"));
  if (!flag.flag.empty())
    absl::StrAppend(&text, ". With ", flag.flag, " it would take ", times(flag.ratio, 1), " as long or less");
  return text;
}

} // namespace headrace::compiler
