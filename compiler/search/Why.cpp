// SPDX-License-Identifier: Apache-2.0
#include "compiler/search/Why.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "compiler/choice/AmountText.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::compiler {
namespace {

std::string ms(double ns) { return msText(static_cast<uint64_t>(ns)); }

// "1.23 times"
std::string times(double a, double b) { return absl::StrFormat("%.2f times", a / b); }

double weighted(const Aim &aim, const std::vector<Played> &played, uint64_t Played::*of) {
  double sum = 0;
  for (size_t i = 0; i < played.size(); ++i)
    sum += aim.points[i].weight * static_cast<double>(played[i].*of);
  return sum;
}

} // namespace

Bound boundOf(Space &space, const Searched &searched) {
  const Coordinates &at = searched.best.at;
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
  return bound;
}

std::string why(Space &space, const Searched &searched, const Candidate &chosen) {
  const Scored &best = searched.best;
  const Aim &aim = space.aim(best.at);
  const model::ModelSpec &spec = space.request().model;
  if (chosen.offloadsNothing() && !chosen.residency.movesBack() && !chosen.actRatio.any())
    return absl::StrCat("offload nothing of ", spec.name, ": everything fits; takes ", best.deviceBytes, " of ",
                        space.target(best.at).deviceMemory, " bytes; ", aim.what, ": ", ms(best.aimNs),
                        aim.points.size() == 1 ? "" : " in the mean");
  const Bound bound = boundOf(space, searched);
  const double compute = weighted(aim, best.played, &Played::computeNs),
               link = weighted(aim, best.played, &Played::linkNs);
  const model::ActRatio &share = best.candidate.actRatio;
  const std::string acts = !share.any() ? ""
                           : share.num == share.den
                               ? ", activations in all blocks"
                               : absl::StrCat(", activations in ", model::actRatioText(share), " of the blocks");
  std::string text = absl::StrCat(
      describe(chosen, spec), acts, " of ", spec.name, ": the least time of ", searched.evaluated,
      " choices that were played, by the aim of ", aim.what, ": ", ms(best.aimNs), "; compute alone ", ms(compute),
      ", link alone ", ms(link), ". No choice takes less than ", ms(bound.aimNs), " (compute ", ms(bound.computeNs),
      ", bringing what the device cannot hold ", ms(bound.linkNs), "): this one ", times(best.aimNs, bound.aimNs),
      " as long. ", link > compute ? "The link limits it: " : "Compute limits it: ",
      bytesText(static_cast<uint64_t>(best.movedBytes)), " cross it");
  for (const BestOf &of : searched.of) {
    absl::StrAppend(&text, ". Of ", std::string(of.generator), " alone: ");
    if (!of.best)
      absl::StrAppend(&text, "nothing fits");
    else
      absl::StrAppend(&text, describe(of.best->candidate, spec), ", ", ms(of.best->aimNs));
  }
  if (searched.runnerUp)
    absl::StrAppend(&text, ". The runner-up takes ", times(searched.runnerUp->aimNs, best.aimNs), " as long");
  return text;
}

} // namespace headrace::compiler
