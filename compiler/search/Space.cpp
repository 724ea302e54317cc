// SPDX-License-Identifier: Apache-2.0
#include "compiler/search/Space.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "passes/algorithms/PickLayers.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::compiler {

using algorithms::WriteBack;

struct Space::Alike {
  Target target; // with the buckets that decide
  Aim aim;
  std::optional<Iterations> iterations;
  std::optional<PlacementFamily> family;
  std::optional<Player> player;
  // With all buckets: where the circle is cut, and so what lies where, they have a say in.
  Target all;
  std::optional<Iterations> exact; // made where something is packed

  uint64_t packed(const Candidate &candidate, const CompileRequest &request, Prices &prices) {
    if (!exact)
      exact.emplace(request, all, iterations->layout(), prices);
    const HostLayout host = layOutHost({&candidate}, iterations->layout(), all, request.model, /*all=*/true);
    const absl::StatusOr<PlacedCandidate> placed = placeCandidate(*exact, candidate, host);
    return placed.ok() ? placed->arenaBytes() : UINT64_MAX;
  }
};

namespace {

// Buckets that a search looks at: the points', and those with the most of anything, for which memory is set aside.
void keepDeciding(const Aim &aim, plan::IterationClass iterationClass, std::vector<cost::Bucket> &buckets) {
  if (buckets.empty())
    return;
  std::vector<cost::Bucket> kept;
  const auto keep = [&](const cost::Bucket &bucket) {
    if (std::find(kept.begin(), kept.end(), bucket) == kept.end())
      kept.push_back(bucket);
  };
  const cost::Bucket limits = Target::limits(buckets);
  for (const cost::Bucket &bucket : buckets) {
    const bool played = std::any_of(aim.points.begin(), aim.points.end(), [&](const AimPoint &point) {
      return point.at.iterationClass == iterationClass && point.at.bucket == bucket;
    });
    if (played || bucket == buckets.back())
      keep(bucket);
  }
  for (const auto member :
       {&cost::Bucket::tokens, &cost::Bucket::sequences, &cost::Bucket::context, &cost::Bucket::actRows})
    if (std::none_of(kept.begin(), kept.end(), [&](const cost::Bucket &of) { return of.*member == limits.*member; }))
      keep(*std::find_if(buckets.begin(), buckets.end(),
                         [&](const cost::Bucket &of) { return of.*member == limits.*member; }));
  std::stable_sort(kept.begin(), kept.end(), [&](const cost::Bucket &a, const cost::Bucket &b) {
    return std::find(buckets.begin(), buckets.end(), a) < std::find(buckets.begin(), buckets.end(), b);
  });
  buckets = std::move(kept);
}

} // namespace

bool isBetter(const Scored &a, const Scored &b) {
  return std::tie(a.overBytes, a.aimNs, a.movedBytes, a.deviceBytes) <
         std::tie(b.overBytes, b.aimNs, b.movedBytes, b.deviceBytes);
}

Space::Space(const CompileRequest &request, const cost::CostModel &costs)
    : request_(request), layout_(model::layoutWeights(request.model)), prices_(costs) {
  const model::Policy &policy = request.policy;
  const bool tied = request.model->tiedEmbeddings;
  free_.embedding =
      policy.offloadEmbedding == model::AutoOnOff::Auto && (!tied || policy.offloadHead == model::AutoOnOff::Auto);
  free_.head = policy.offloadHead == model::AutoOnOff::Auto && !tied; // else it is the embedding
  free_.slots = !policy.slots;
  free_.kvSlots = !policy.kvPlaces && !request.goal.expansion;
  free_.writeBack = policy.kvWriteBack == model::KvWriteBack::Auto;
  free_.kv = !request.goal.kvDeviceMemory && !request.goal.expansion;
  free_.miniBatches = request.goal.autoMiniBatches;
  const model::Goal &goal = request.goal;
  // Where they may stand beside what is stated (Capabilities.h), and are smaller than keys and values.
  const bool actsMay = !goal.expansion && !policy.kvPlaces && goal.elasticKv != model::AutoOnOff::On &&
                       goal.instances == model::Instances::Together &&
                       request.model->hidden < 2 * request.model->kvRows();
  free_.act = policy.actRatio ? policy.actRatio->isAuto() : actsMay;
  free_.actAway = policy.actHome == model::ActHome::Auto;
}

Space::~Space() = default;

Coordinates Space::origin() const {
  const model::Policy &policy = request_.policy;
  Coordinates at;
  at.miniBatches = request_.goal.autoMiniBatches ? 1 : request_.goal.miniBatches;
  at.embedding = policy.offloadEmbedding == model::AutoOnOff::On ||
                 (request_.model->tiedEmbeddings && policy.offloadHead == model::AutoOnOff::On);
  at.head = policy.offloadHead == model::AutoOnOff::On && !request_.model->tiedEmbeddings;
  at.slots = policy.slots.value_or(2);
  at.decodeDirty = at.mixedDirty = policy.kvWriteBack == model::KvWriteBack::Dirty;
  if (policy.actHome == model::ActHome::Host)
    at.actAway = request_.model->layers;
  return at;
}

Choice Space::commonOf(const Coordinates &at) const {
  Choice choice = askedChoice(request_);
  choice.miniBatches = at.miniBatches;
  if (free_.act)
    choice.actRatio = model::actRatioOf(at.actParts, kActParts - at.actParts);
  if (choice.actRatio.any())
    choice.residency.setActAway(algorithms::evenLayers(request_.model->layers, at.actAway));
  return choice;
}

Space::Alike *Space::alikeOf(const Coordinates &at) {
  auto [it, fresh] = alike_.try_emplace({at.miniBatches, at.actParts, at.actAway});
  if (!fresh)
    return it->second.get();
  absl::StatusOr<Target> target = resolve(request_, commonOf(at));
  if (!target.ok())
    return nullptr;
  it->second = std::make_unique<Alike>();
  Alike &alike = *it->second;
  alike.target = *std::move(target);
  alike.all = alike.target;
  alike.aim = aimOf(request_.goal, alike.target);
  keepDeciding(alike.aim, plan::IterationClass::Decode, alike.target.decode);
  keepDeciding(alike.aim, plan::IterationClass::Mixed, alike.target.mixed);
  alike.iterations.emplace(request_, alike.target, layout_, prices_);
  alike.family.emplace(request_.model, layout_, alike.target, alike.iterations->memoryUses(),
                       [this, &alike](const Candidate &of) { return alike.packed(of, request_, prices_); });
  alike.player.emplace(*alike.iterations);
  return &alike;
}

const Aim &Space::aim(const Coordinates &at) {
  static const Aim none;
  const Alike *alike = alikeOf(at);
  return alike != nullptr ? alike->aim : none;
}

Candidate Space::candidateOf(const Coordinates &at, const Choice &common) const {
  const int64_t layers = request_.model->layers;
  Candidate candidate;
  if (at.layers == 0) {
    candidate.name = at.embedding || at.head ? "layers 0" : "none";
  } else if (layers % at.layers == 0) {
    candidate.interval = static_cast<int32_t>(layers / at.layers);
    candidate.name = absl::StrCat("interval ", candidate.interval);
  } else {
    candidate.name = absl::StrCat("layers ", at.layers);
  }
  std::vector<int32_t> units =
      unitsOfLayers(layout_, candidate.interval > 0 ? algorithms::intervalLayers(layers, candidate.interval)
                                                    : algorithms::spreadLayers(layers, at.layers));
  const bool tied = request_.model->tiedEmbeddings;
  if (at.embedding)
    units.insert(units.begin(), layout_.embeddingUnit());
  if (at.head && !tied)
    units.push_back(layout_.headUnit());
  algorithms::Residency &residency = candidate.residency;
  residency.setWeightsAway(units);
  if (at.layers > 0 || at.head || (at.embedding && tied)) { // something moves
    residency.wrap.around = at.wraps;
    residency.weights().setSlots(at.slots);
  }
  return alike(std::move(candidate), common);
}

void Space::setTails(const Coordinates &at, int64_t resident, Candidate &candidate) const {
  algorithms::Residency &residency = candidate.residency;
  residency.wrap.around = at.wraps;
  residency.setKvAway(request_.model->layers, resident);
  if (request_.policy.kvPlaces)
    residency.kv().setPlaces(*request_.policy.kvPlaces);
  else
    residency.kv().setSlots(at.kvSlots > algorithms::kKvSlots ? at.kvSlots : 0);
  const auto back = [&](bool dirty) -> std::optional<WriteBack> {
    if (request_.policy.kvWriteBack == model::KvWriteBack::All)
      return WriteBack::All;
    return dirty ? std::optional(WriteBack::Dirty) : std::nullopt;
  };
  residency.kv().decodeBack = back(at.decodeDirty);
  residency.kv().mixedBack = back(at.mixedDirty);
}

bool Space::deviceHolds(const Coordinates &at, const Candidate &candidate, bool exactly) {
  const Alike &alike = *alikeOf(at);
  const uint64_t memory = alike.target.deviceMemory;
  return exactly ? alike.family->fits(candidate, memory) : alike.family->need(candidate).bytes <= memory;
}

uint64_t Space::beyondHost(const Coordinates &at, const Candidate &candidate) {
  const Alike &alike = *alikeOf(at);
  const auto beyond = [](uint64_t bytes, uint64_t limit) { return bytes - std::min(bytes, limit); };
  const uint64_t host = alike.family->hostBytes(candidate), over = beyond(host, request_.hardware.hostLimit());
  if (!request_.goal.kvHostMemory || !candidate.residency.firstKvBlockAway())
    return over;
  Candidate weights = candidate;
  weights.residency.setNoKvAway();
  return std::max(over, beyond(host - alike.family->hostBytes(weights), *request_.goal.kvHostMemory));
}

bool Space::fill(const Coordinates &at, Candidate &candidate, bool exactly) {
  const Alike &alike = *alikeOf(at);
  Candidate tried = candidate;
  // Exactly: from what arithmetic has found, which leaves what transients may share with slots.
  int64_t fit = exactly ? *candidate.residency.firstKvBlockAway() : -1, doesNot = alike.target.kvBlocks;
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

uint64_t Space::hold(const Coordinates &at, Candidate &candidate) {
  const Alike &alike = *alikeOf(at);
  if (alike.target.kvResident)
    setTails(at, *alike.target.residentBeside(at.kvSlots, request_.model->layers), candidate);
  if (deviceHolds(at, candidate, /*exactly=*/true))
    return beyondHost(at, candidate);
  if (!alike.target.kvResident && free_.kv && alike.target.kvBlocks > 1) {
    setTails(at, 0, candidate);
    if (fill(at, candidate, /*exactly=*/false))
      return beyondHost(at, candidate);
  }
  return std::max<uint64_t>(1, alike.family->need(candidate).bytes -
                                   std::min(alike.family->need(candidate).bytes, alike.target.deviceMemory));
}

const Scored *Space::score(const Coordinates &at) {
  const auto [it, fresh] = scored_.try_emplace(at);
  if (!fresh)
    return it->second ? &*it->second : nullptr;
  Alike *const alike = alikeOf(at);
  if (alike == nullptr ||
      (alike->target.kvResident && !alike->target.residentBeside(at.kvSlots, request_.model->layers)))
    return nullptr;
  Scored scored{.at = at, .candidate = candidateOf(at, commonOf(at))};
  scored.overBytes = hold(at, scored.candidate);
  scored.deviceBytes = alike->family->need(scored.candidate).bytes;
  scored.hostBytes = alike->family->hostBytes(scored.candidate);
  if (scored.overBytes > 0)
    return &it->second.emplace(std::move(scored));
  std::vector<PlayPoint> points;
  for (const AimPoint &point : alike->aim.points)
    points.push_back(point.at);
  absl::StatusOr<std::vector<Played>> played = alike->player->play(scored.candidate, points);
  if (!played.ok())
    return nullptr;
  ++evaluated_;
  scored.played = *std::move(played);
  scored.aimNs = alike->aim.of(scored.played);
  for (size_t i = 0; i < points.size(); ++i)
    scored.movedBytes +=
        alike->aim.points[i].weight * static_cast<double>(scored.played[i].h2dBytes + scored.played[i].d2hBytes);
  return &it->second.emplace(std::move(scored));
}

bool Space::exists(const Coordinates &at) { return alikeOf(at) != nullptr; }
const Target &Space::target(const Coordinates &at) { return alikeOf(at)->target; }

Candidate Space::candidate(const Coordinates &at, int64_t resident) {
  Candidate candidate = candidateOf(at, commonOf(at));
  if (resident < alikeOf(at)->target.kvBlocks)
    setTails(at, resident, candidate);
  return candidate;
}

MemoryNeed Space::held(const Coordinates &at, const Candidate &candidate) {
  return alikeOf(at)->family->held(candidate);
}
MemoryNeed Space::need(const Coordinates &at, const Candidate &candidate) {
  return alikeOf(at)->family->need(candidate);
}
uint64_t Space::packed(const Coordinates &at, const Candidate &candidate) {
  return alikeOf(at)->packed(candidate, request_, prices_);
}
uint64_t Space::hostBytes(const Coordinates &at, const Candidate &candidate) {
  return alikeOf(at)->family->hostBytes(candidate);
}

const Scored *Space::plainest(const Scored &best) const {
  const double most = best.aimNs * (1 + kTie);
  const auto key = [](const Scored &of) { return std::tie(of.movedBytes, of.hostBytes, of.deviceBytes, of.aimNs); };
  const Scored *found = nullptr;
  for (const auto &[at, scored] : scored_)
    if (scored && scored->overBytes == 0 && scored->aimNs <= most && (found == nullptr || key(*scored) < key(*found)))
      found = &*scored;
  return found;
}

std::vector<Played> Space::resident(const Coordinates &at) {
  Alike &alike = *alikeOf(at);
  Coordinates nothing = at;
  nothing.layers = 0;
  nothing.embedding = nothing.head = false;
  std::vector<PlayPoint> points;
  for (const AimPoint &point : alike.aim.points)
    points.push_back(point.at);
  absl::StatusOr<std::vector<Played>> played = alike.player->play(candidateOf(nothing, commonOf(at)), points);
  return played.ok() ? *std::move(played) : std::vector<Played>(points.size());
}

uint64_t Space::leastLinkNs(const Coordinates &at, const PlayPoint &point) {
  Alike &alike = *alikeOf(at);
  const core::InUse inUse = alike.player->inUse(point);
  const auto caches = static_cast<uint64_t>(alike.target.caches(request_.model->layers));
  // The embedding's rows are read one by one wherever it is.
  uint64_t used = 0;
  for (size_t unit = request_.model->tiedEmbeddings ? 0 : 1; unit < layout_.units.size(); ++unit)
    used += layout_.units[unit].bytes;
  used += caches * static_cast<uint64_t>(inUse.kvBlocks) * alike.target.kvBlockBytes;
  if (alike.target.actBlocks > 0)
    used += caches * alike.target.actBytes / static_cast<uint64_t>(alike.target.actBlocks) *
            static_cast<uint64_t>(inUse.actBlocks);
  return used > alike.target.deviceMemory ? prices_.copyNs(used - alike.target.deviceMemory, /*hostToDevice=*/true) : 0;
}

absl::StatusOr<Candidate> Space::filled(const Scored &scored) {
  Candidate candidate = scored.candidate;
  Alike &alike = *alikeOf(scored.at);
  if (candidate.residency.firstKvBlockAway() && !alike.target.kvResident)
    (void)fill(scored.at, candidate, /*exactly=*/true);
  return candidate;
}

} // namespace headrace::compiler
