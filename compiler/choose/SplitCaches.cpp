// SPDX-License-Identifier: Apache-2.0
#include "compiler/choose/SplitCaches.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "runtime/model/ModelSpec.h"

namespace headrace::compiler {
namespace {

// Tails move under the rule eager only.
bool movesTails(const Candidate &candidate) { return candidate.residency.start == algorithms::kEager; }

} // namespace

void SplitCaches::setMovement(algorithms::Residency &residency) const {
  const auto unlessMirrored = [](algorithms::WriteBack writeBack) {
    return writeBack == algorithms::WriteBack::Mirror ? std::nullopt : std::optional(writeBack);
  };
  if (const std::optional<int64_t> places = in_.request.policy.kvPlaces)
    residency.kv().setPlaces(*places);
  else
    residency.kv().setSlots(slots_);
  residency.kv().decodeBack = unlessMirrored(decodeWriteBack_);
  residency.kv().mixedBack = unlessMirrored(mixedWriteBack_);
}

int64_t SplitCaches::leastSlots() const {
  algorithms::Residency residency;
  setMovement(residency);
  residency.kv().setSlots(0);
  return residency.slotsOf(algorithms::MovableKind::Kv);
}

Candidate SplitCaches::with(Candidate candidate, int64_t resident) const {
  if (candidate.offloadsNothing()) // nothing yet to carry over an edge
    candidate.residency.wrap.around = true;
  candidate.residency.setKvAway(in_.request.model->layers, resident);
  setMovement(candidate.residency);
  // Where the circle is cut was found for weights alone.
  candidate.residency.wrap.decode.reset();
  candidate.residency.wrap.mixed.reset();
  return candidate;
}

std::optional<int64_t> SplitCaches::statedResident() const {
  return in_.target.residentBeside(slots_ > 0 ? slots_ : algorithms::kKvSlots, in_.request.model->layers);
}

std::vector<Candidate> SplitCaches::stated(const std::vector<Candidate> &candidates) const {
  const int64_t resident = slots_ > 0 ? *statedResident() : *in_.target.kvResident;
  std::vector<Candidate> split;
  for (const Candidate &candidate : candidates)
    if (movesTails(candidate))
      split.push_back(with(candidate, resident));
  return split;
}

int64_t SplitCaches::mostResident(const Candidate &candidate, bool beside) const {
  Candidate tried = candidate;
  setMovement(tried.residency);
  int64_t fits = 0, doesNot = in_.target.kvBlocks;
  while (doesNot - fits > 1) {
    const int64_t middle = fits + (doesNot - fits) / 2;
    tried.residency.setKvAway(in_.request.model->layers, middle);
    const uint64_t memory = in_.target.deviceMemory;
    (beside ? in_.family.need(tried).bytes <= memory : in_.family.fits(tried, memory)) ? fits = middle
                                                                                       : doesNot = middle;
  }
  return fits;
}

int64_t SplitCaches::leastResident(const Candidate &candidate) const {
  Candidate tried = candidate;
  int64_t holds = in_.target.kvBlocks, doesNot = 0;
  while (holds - doesNot > 1) {
    const int64_t middle = doesNot + (holds - doesNot) / 2;
    tried.residency.setKvAway(in_.request.model->layers, middle);
    (hostHolds(tried) ? holds : doesNot) = middle;
  }
  return holds;
}

bool SplitCaches::hostHolds(const Candidate &split) const {
  if (!hostCounts_)
    return true;
  const uint64_t host = in_.request.hardware.hostLimit();
  Candidate weights = split;
  weights.residency.setNoKvAway();
  const uint64_t all = in_.family.hostBytes(split), kv = all - in_.family.hostBytes(weights);
  return all <= host && kv <= in_.request.goal.kvHostMemory.value_or(host);
}

std::vector<Candidate> SplitCaches::filled(const std::vector<Candidate> &candidates, size_t most) const {
  std::vector<Candidate> split;
  int64_t blocks = 0; // of the one before
  for (const Candidate &candidate : candidates) {
    if (!movesTails(candidate))
      continue;
    const int64_t resident = mostResident(candidate, /*beside=*/most > 1);
    if (resident <= blocks) // moves more weights for nothing
      continue;
    Candidate filled = with(candidate, resident);
    if (!hostHolds(filled))
      continue;
    blocks = resident;
    split.push_back(std::move(filled));
    if (most == 1)
      return split;
  }
  if (split.size() <= most)
    return split;
  std::vector<Candidate> spread;
  const size_t gaps = std::max<size_t>(1, most - 1);
  for (size_t i = 0; i < most; ++i)
    spread.push_back(std::move(split[i * (split.size() - 1) / gaps]));
  return spread;
}

std::vector<Candidate> SplitCaches::least(const std::vector<Candidate> &candidates) const {
  std::vector<Candidate> split;
  for (const Candidate &candidate : candidates) {
    if (!movesTails(candidate))
      continue;
    const int64_t resident = leastResident(candidate);
    if (resident == in_.target.kvBlocks)
      continue;
    Candidate one = with(candidate, resident);
    if (in_.family.held(one).bytes < in_.family.held(candidate).bytes)
      split.push_back(std::move(one));
  }
  return split;
}

} // namespace headrace::compiler
