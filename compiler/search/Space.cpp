// SPDX-License-Identifier: Apache-2.0
#include "compiler/search/Space.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "compiler/choice/Packing.h"
#include "compiler/search/Generator.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::compiler {

namespace {
constexpr double kNever = std::numeric_limits<double>::infinity(); // of a choice that there is not
} // namespace

bool Space::isBetter(const Scored &a, const Scored &b) const {
  if (prefersMemory())
    return std::tie(a.overBytes, a.late, a.deviceBytes, a.comparedNs, a.movedBytes) <
           std::tie(b.overBytes, b.late, b.deviceBytes, b.comparedNs, b.movedBytes);
  return std::tie(a.overBytes, a.late, a.comparedNs, a.movedBytes, a.deviceBytes) <
         std::tie(b.overBytes, b.late, b.comparedNs, b.movedBytes, b.deviceBytes);
}

Space::Space(const CompileRequest &request, const cost::CostModel &costs, const Generator *inOrder)
    : request_(request), inOrder_(inOrder), objectives_(request.goal), layout_(model::layoutWeights(request.model)),
      choices_(request, layout_, inOrder),
      first_(std::make_shared<Alikes>(request, costs, std::vector<Limit>(), inOrder)), alikes_(first_) {}

Space::Space(const CompileRequest &request, const Space &other)
    : request_(request), objectives_(request.goal), layout_(model::layoutWeights(request.model)),
      choices_(request, layout_, /*inOrder=*/nullptr), first_(other.first_), alikes_(first_) {
  if (prefersMemory() || other.prefersMemory() || request.goal.deviceMemory != other.request_.goal.deviceMemory)
    return;
  choices_.listAs(other.choices_);
  beginnings_ = other.beginnings_;
  beginnings_.erase(kMostFreedGenerator.name);
}

const Space::Known *Space::knownOf(const Coordinates &at) {
  auto [it, fresh] = known_.try_emplace(
      {at.miniBatches, at.actParts, at.actAway, at.chunk, at.weightEncoding, at.kvEncoding, at.attendsOnCpu ? 1 : 0});
  if (!fresh)
    return it->second ? &*it->second : nullptr;
  const Choice common = commonOf(at);
  if (common.attendsOnCpu && common.actRatio.any()) // whose keys and values the CPU has not
    return nullptr;
  absl::StatusOr<Target> target =
      resolve(asChosen(request_, common), common, inOrder_ != nullptr && inOrder_->swapsLayers);
  if (!target.ok())
    return nullptr;
  if (at.chunk > kLargestChunk && // with half of it nothing would be cut
      at.chunk / 2 >= std::min(target->kvTokens, target->batch * request_.goal.promptLength(target->context)))
    return nullptr;
  Known &known = it->second.emplace(Known{.target = {}, .alike = alikes_->of(*target, common)});
  known.target = known.alike->target();
  known.target.deviceMemory = target->deviceMemory;
  return &known;
}

Alike *Space::alikeOf(const Coordinates &at) {
  const Known *const known = knownOf(at);
  return known != nullptr ? known->alike.get() : nullptr;
}

const std::vector<Limit> &Space::limits(const Coordinates &at) { return alikeOf(at)->limits(); }

void Space::addLimit(const Limit &limit) {
  std::vector<Limit> limits = alikes_->limits();
  limits.push_back(limit);
  alikes_ = std::make_shared<Alikes>(request_, alikes_->costs(), std::move(limits), inOrder_);
  verified_.clear(); // it is by limit
  forget();
}

const std::vector<Coordinates> &Space::beginnings(std::string_view generator, Seeds seeds) {
  const auto known = beginnings_.find(generator);
  if (known != beginnings_.end())
    return known->second;
  std::vector<Coordinates> found;
  for (const Coordinates &origin : origins()) {
    const std::vector<Coordinates> of = seeds(*this, origin);
    found.insert(found.end(), of.begin(), of.end());
  }
  return beginnings_.emplace(generator, std::move(found)).first->second;
}

bool Space::verify(Scored &scored) {
  Alike &alike = *alikeOf(scored.at);
  if (alike.limits().empty())
    return true;
  const std::vector<uint64_t> *const waits = alike.waits(scored.candidate, objectives_);
  if (waits == nullptr)
    return false;
  for (size_t i = 0; i < waits->size(); ++i) {
    scored.limitedNs[i] = std::max(scored.limitedNs[i], (*waits)[i]);
    raise(scored, i, (*waits)[i]);
  }
  setLate(alike, scored);
  if (scored.late > 0) // less may be asked of what is left to try
    beginnings_.erase(kMostFreedGenerator.name);
  return true;
}

void Space::raise(const Scored &scored, size_t limit, uint64_t ns) {
  std::vector<uint64_t> &known = verified_[toText(scored.candidate)];
  known.resize(std::max(known.size(), limit + 1), 0);
  known[limit] = std::max(known[limit], ns);
  for (auto &[at, of] : scored_)
    if (of && of->overBytes == 0 && of->candidate.samePlacement(scored.candidate)) {
      of->limitedNs[limit] = std::max(of->limitedNs[limit], ns);
      of->late = alikeOf(at)->lateOf(of->limitedNs, objectives_);
    }
}

void Space::setLate(const Alike &alike, Scored &scored) const {
  if (const auto known = verified_.find(toText(scored.candidate)); known != verified_.end())
    for (size_t i = 0; i < std::min(known->second.size(), scored.limitedNs.size()); ++i)
      scored.limitedNs[i] = std::max(scored.limitedNs[i], known->second[i]);
  scored.late = alike.lateOf(scored.limitedNs, objectives_);
}

void Space::forget() {
  known_.clear();
  scored_.clear();
  settled_.clear();
  beginnings_.clear();
}

void Space::hold(const model::Goal &objectives) {
  objectives_ = objectives;
  beginnings_.erase(kMostFreedGenerator.name);
  if (prefersMemory()) { // where it is the objectives that say how many blocks stay
    beginnings_.clear();
    scored_.clear();
  }
  for (auto &[at, scored] : scored_)
    if (scored && scored->overBytes == 0)
      scored->late = alikeOf(at)->lateOf(scored->limitedNs, objectives_);
}

const Aim &Space::aim(const Coordinates &at) {
  static const Aim none;
  const Alike *alike = alikeOf(at);
  return alike != nullptr ? alike->aim() : none;
}

bool Space::deviceHolds(const Coordinates &at, const Candidate &candidate, bool exactly) {
  const Alike &alike = *alikeOf(at);
  const uint64_t memory = target(at).deviceMemory;
  return exactly ? alike.family().fits(candidate, memory) : alike.family().need(candidate).bytes <= memory;
}

uint64_t Space::beyondHost(const Coordinates &at, const Candidate &candidate) {
  const Alike &alike = *alikeOf(at);
  const auto beyond = [](uint64_t bytes, uint64_t limit) { return bytes - std::min(bytes, limit); };
  const uint64_t host = alike.family().hostBytes(candidate), over = beyond(host, request_.hardware.hostLimit());
  if (!request_.goal.kvHostMemory || !candidate.residency.firstKvBlockAway())
    return over;
  Candidate weights = candidate;
  weights.residency.setNoKvAway();
  return std::max(over, beyond(host - alike.family().hostBytes(weights), *request_.goal.kvHostMemory));
}

bool Space::fill(const Coordinates &at, Candidate &candidate, bool exactly) {
  const Alike &alike = *alikeOf(at);
  Candidate tried = candidate;
  // Exactly: from what arithmetic has found, which leaves what transients may share with slots.
  int64_t fit = exactly ? *candidate.residency.firstKvBlockAway() : -1, doesNot = alike.target().kvBlocks;
  while (doesNot - fit > 1) {
    const int64_t middle = fit + (doesNot - fit) / 2;
    tried.residency.setKvAway(request_.model->layers, middle);
    (deviceHolds(at, tried, exactly) ? fit : doesNot) = middle;
  }
  if (fit < 0)
    return false;
  candidate.residency.setKvAway(request_.model->layers, fit);
  return true;
}

uint64_t Space::settle(const Coordinates &at, Candidate &candidate) {
  const Alike &alike = *alikeOf(at);
  if (alike.target().kvResident)
    choices_.setTails(at, *alike.target().residentBeside(at.kvSlots, request_.model->layers), candidate);
  if (deviceHolds(at, candidate, /*exactly=*/true))
    return beyondHost(at, candidate);
  if (!alike.target().kvResident && free().kv && alike.target().kvBlocks > 1) {
    choices_.setTails(at, 0, candidate);
    if (fill(at, candidate, /*exactly=*/false))
      return beyondHost(at, candidate);
    candidate.residency.setKvAway(request_.model->layers, 0);
    if (deviceHolds(at, candidate, /*exactly=*/true))
      return beyondHost(at, candidate);
  }
  return std::max<uint64_t>(1, alike.family().need(candidate).bytes -
                                   std::min(alike.family().need(candidate).bytes, target(at).deviceMemory));
}

uint64_t Space::settleInOrder(Scored &scored) {
  const Coordinates &at = scored.at;
  const Alike &alike = *alikeOf(at);
  const bool stated = alike.target().kvResident.has_value();
  const int64_t layers = request_.model->layers;
  uint64_t least = UINT64_MAX;
  const auto take = [&](size_t nth, const Candidate &candidate, uint64_t over) {
    if (over < least) {
      least = over;
      scored.candidate = candidate;
      scored.nth = nth;
    }
    return over == 0;
  };
  // Tails move under the rule eager only.
  const auto splits = [&](const Candidate &candidate) { return candidate.residency.start == algorithms::kEager; };
  for (size_t nth = 0; nth < alike.order().size(); ++nth) {
    Candidate candidate = alike.order()[nth];
    if (stated && !splits(candidate))
      continue;
    if (stated)
      setTails(at, *alike.target().residentBeside(at.kvSlots, layers), candidate);
    uint64_t over = beyondHost(at, candidate);
    if (const uint64_t memory = target(at).deviceMemory; over == 0 && !alike.family().fits(candidate, memory))
      over = std::max<uint64_t>(1, alike.family().need(candidate).bytes -
                                       std::min(alike.family().need(candidate).bytes, memory));
    if (take(nth, candidate, over))
      return 0;
  }
  for (size_t nth = 0; nth < alike.order().size() && !stated && free().kv && alike.target().kvBlocks > 1; ++nth) {
    Candidate candidate = alike.order()[nth];
    if (!splits(candidate))
      continue;
    setTails(at, 1, candidate);
    if (deviceHolds(at, candidate, /*exactly=*/true) && fill(at, candidate, /*exactly=*/true) &&
        take(nth, candidate, beyondHost(at, candidate)))
      return 0;
  }
  return least;
}

std::vector<int64_t> Space::actAwayBeside(const Coordinates &at) {
  Coordinates here = at;
  here.actAway = 0;
  const Alike *const alike = alikeOf(here);
  if (alike == nullptr || alike->order().empty())
    return {};
  std::vector<int64_t> found;
  for (Candidate candidate : {alike->order().front(), alike->order().back()}) {
    if (alike->target().kvResident)
      setTails(here, *alike->target().residentBeside(here.kvSlots, request_.model->layers), candidate);
    else if (free().kv && alike->target().kvBlocks > 1)
      setTails(here, 1, candidate);
    const uint64_t needed = alike->family().need(candidate).bytes, memory = target(here).deviceMemory;
    const uint64_t layer = static_cast<uint64_t>(at.miniBatches) * alike->target().actBytes;
    const uint64_t missing = needed - std::min(needed, memory) + algorithms::kActSlots * alike->target().actBytes;
    if (needed > memory)
      found.push_back(std::min<int64_t>(request_.model->layers, static_cast<int64_t>((missing + layer - 1) / layer)));
  }
  return found;
}

bool Space::play(Alike &alike, Scored &scored) {
  if (!alike.play(scored))
    return false;
  ++evaluated_;
  setLate(alike, scored);
  return true;
}

bool Space::drains(const Alike &alike) const {
  return !alike.target().kvResident && free().kv && alike.target().kvBlocks > 1;
}

double Space::ratioOf(const Alike &alike, const std::vector<uint64_t> &limitedNs) const {
  double most = 0;
  for (size_t i = 0; i < limitedNs.size(); ++i)
    if (const uint64_t ns = limitNs(objectives_, alike.limits()[i]); ns > 0)
      most = std::max(most, static_cast<double>(limitedNs[i]) / static_cast<double>(ns));
  return most;
}

void Space::drain(Alike &alike, Scored &scored) {
  if (!drains(alike) || scored.late > 0)
    return; // with fewer blocks nothing is faster
  const Scored full = scored;
  // What it takes of the limits with so many blocks; where what it brings is more than they allow, that.
  const auto ratioWith = [&](int64_t resident) {
    Scored tried = full;
    choices_.setTails(full.at, resident, tried.candidate);
    const double atLeast = ratioOf(alike, alike.atLeast(tried.candidate).limitedNs);
    if (atLeast > 1)
      return atLeast;
    if (beyondHost(full.at, tried.candidate) > 0 || !play(alike, tried))
      return kNever;
    if (tried.late <= 0) { // else it is not taken, whatever its bytes
      alike.setBytes(tried);
      if (isBetter(tried, scored))
        scored = tried;
    }
    return ratioOf(alike, tried.limitedNs);
  };
  int64_t missed = 0, held = full.candidate.residency.firstKvBlockAway().value_or(alike.target().kvBlocks);
  double missedRatio = ratioWith(0), heldRatio = ratioOf(alike, full.limitedNs);
  if (missedRatio <= 1)
    return;
  for (bool halve = false; held - missed > 1; halve = !halve) {
    // Time is nearly a line over blocks that are brought; where it is not, halves come closer.
    const double part = halve || missedRatio == kNever ? 0.5 : (missedRatio - 1) / (missedRatio - heldRatio);
    const int64_t next =
        missed + std::clamp<int64_t>(static_cast<int64_t>(std::ceil(part * static_cast<double>(held - missed))), 1,
                                     held - missed - 1);
    const double ratio = ratioWith(next);
    (ratio <= 1 ? held : missed) = next;
    (ratio <= 1 ? heldRatio : missedRatio) = ratio;
  }
}

bool Space::mayHold(const Scored &settled) {
  const Alike &alike = *alikeOf(settled.at);
  return alike.lateOf(alike.atLeast(settled.candidate).limitedNs, objectives_) <= 0;
}

Scored *Space::settled(const Coordinates &at) {
  const auto [it, fresh] = settled_.try_emplace(at);
  if (!fresh)
    return it->second ? &*it->second : nullptr;
  const Alike *const alike = alikeOf(at);
  if (alike == nullptr ||
      (alike->target().kvResident && !alike->target().residentBeside(at.kvSlots, request_.model->layers)))
    return nullptr;
  Scored scored{.at = at, .candidate = {}};
  if (inOrder_ != nullptr) {
    if (at.actAway > 0 && free().actAway) { // only what does not fit on the device
      Coordinates here = at;
      here.actAway = 0;
      if (const Scored *const held = settled(here); held != nullptr && held->overBytes == 0)
        return nullptr;
    }
    scored.overBytes = settleInOrder(scored);
  } else {
    scored.candidate = choices_.weights(at, commonOf(at));
    scored.overBytes = settle(at, scored.candidate);
  }
  alike->setBytes(scored);
  return &it->second.emplace(std::move(scored));
}

std::optional<Candidate> Space::withMostBlocks(const Coordinates &at) {
  const Alike &alike = *alikeOf(at);
  const uint64_t memory = target(at).deviceMemory;
  Candidate candidate = choices_.weights(at, commonOf(at));
  const auto holds = [&] { return alike.family().held(candidate).bytes <= memory; };
  if (alike.target().kvResident || holds())
    return candidate;
  if (!drains(alike))
    return std::nullopt;
  choices_.setTails(at, 0, candidate);
  int64_t fit = -1, doesNot = alike.target().kvBlocks;
  while (doesNot - fit > 1) {
    const int64_t middle = fit + (doesNot - fit) / 2;
    candidate.residency.setKvAway(request_.model->layers, middle);
    (holds() ? fit : doesNot) = middle;
  }
  if (fit < 0)
    return std::nullopt;
  candidate.residency.setKvAway(request_.model->layers, fit);
  return candidate;
}

bool Space::mayBeBetter(const Coordinates &at, const Candidate &candidate, const Scored &than) {
  const Alike &alike = *alikeOf(at);
  const Alike::AtLeast least = alike.atLeast(candidate);
  if (alike.lateOf(least.limitedNs, objectives_) > than.late)
    return false;
  return than.late > 0 || prefersMemory() || least.aimNs <= than.comparedNs * (1 + kTie);
}

uint64_t Space::leastBytes(const Scored &settled) {
  const Alike &alike = *alikeOf(settled.at);
  if (!drains(alike))
    return settled.deviceBytes;
  Candidate none = settled.candidate; // it is between all blocks and none
  choices_.setTails(settled.at, 0, none);
  return std::min(settled.deviceBytes, alike.family().need(none).bytes);
}

const Scored *Space::scoreIfBetter(const Coordinates &at, const Scored &than) {
  if (inOrder_ != nullptr || scored_.contains(at) || !exists(at) || than.overBytes > 0)
    return score(at);
  const std::optional<Candidate> most = withMostBlocks(at);
  if (!most || !mayBeBetter(at, *most, than))
    return nullptr;
  const Scored *const of = settled(at);
  if (of == nullptr || of->overBytes > 0 || !mayBeBetter(at, of->candidate, than) ||
      (prefersMemory() && than.late <= 0 && leastBytes(*of) > than.deviceBytes))
    return nullptr;
  return score(at);
}

const Scored *Space::score(const Coordinates &at) {
  const auto [it, fresh] = scored_.try_emplace(at);
  if (!fresh)
    return it->second ? &*it->second : nullptr;
  Scored *const of = settled(at);
  if (of == nullptr)
    return nullptr;
  Alike &alike = *alikeOf(at);
  Scored scored = *of;
  if (scored.overBytes == 0) {
    if (scored.played.empty() && !play(alike, scored))
      return nullptr;
    if (prefersMemory()) {
      *of = scored;
      setLate(alike, scored);
      drain(alike, scored);
    }
  }
  return &it->second.emplace(std::move(scored));
}

std::optional<Scored> Space::scored(const Coordinates &at, const Candidate &candidate) {
  Scored scored{.at = at, .candidate = candidate};
  Alike &alike = *alikeOf(at);
  alike.setBytes(scored);
  return play(alike, scored) ? std::optional(std::move(scored)) : std::nullopt;
}

bool Space::exists(const Coordinates &at) { return alikeOf(at) != nullptr; }
const Target &Space::target(const Coordinates &at) { return knownOf(at)->target; }

Candidate Space::candidate(const Coordinates &at, int64_t resident) {
  Candidate candidate = choices_.weights(at, commonOf(at));
  if (resident < alikeOf(at)->target().kvBlocks)
    choices_.setTails(at, resident, candidate);
  return candidate;
}

MemoryNeed Space::held(const Coordinates &at, const Candidate &candidate) {
  return alikeOf(at)->family().held(candidate);
}
MemoryNeed Space::need(const Coordinates &at, const Candidate &candidate) {
  return alikeOf(at)->family().need(candidate);
}
const absl::StatusOr<SearchedPlacement> &Space::searchUnits(const Coordinates &at, const SearchRequest &request) {
  return alikeOf(at)->searchUnits(request);
}
uint64_t Space::packed(const Coordinates &at, const Candidate &candidate) { return alikeOf(at)->packed(candidate); }
uint64_t Space::hostBytes(const Coordinates &at, const Candidate &candidate) {
  return alikeOf(at)->family().hostBytes(candidate);
}

const Scored *Space::plainest(const Scored &best) {
  if (prefersMemory())
    return score(best.at);
  const double most = best.comparedNs * (inOrder_ == nullptr ? 1 + kTie : 1);
  const auto key = [](const Scored &of) { // packed the least, where that is as good
    return std::tie(of.at.weightEncoding, of.at.kvEncoding, of.movedBytes, of.hostBytes, of.deviceBytes, of.comparedNs);
  };
  const Scored *found = nullptr;
  for (const auto &[at, scored] : scored_)
    if (scored && scored->overBytes == 0 && scored->late <= best.late && scored->comparedNs <= most &&
        (found == nullptr || key(*scored) < key(*found)))
      found = &*scored;
  return found;
}

std::vector<Played> Space::resident(const Coordinates &at) {
  std::vector<PlayPoint> points;
  for (const AimPoint &point : aim(at).points)
    points.push_back(point.at);
  return resident(at, points);
}

std::vector<Played> Space::resident(const Coordinates &at, const std::vector<PlayPoint> &points) {
  Alike &alike = *alikeOf(at);
  Coordinates nothing = at;
  nothing.layers = 0;
  nothing.embedding = nothing.head = false;
  nothing.listed = 0;
  absl::StatusOr<std::vector<Played>> played = alike.player().play(choices_.weights(nothing, commonOf(at)), points);
  return played.ok() ? *std::move(played) : std::vector<Played>(points.size());
}

uint64_t Space::leastLinkNs(const Coordinates &at, const PlayPoint &point) {
  return alikeOf(at)->leastLinkNs(point, target(at).deviceMemory);
}

absl::StatusOr<Candidate> Space::filled(const Scored &scored) {
  Candidate candidate = scored.candidate;
  Alike &alike = *alikeOf(scored.at);
  if (candidate.residency.firstKvBlockAway() && !alike.target().kvResident && !prefersMemory())
    (void)fill(scored.at, candidate, /*exactly=*/true);
  return candidate;
}

} // namespace headrace::compiler
