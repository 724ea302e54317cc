// SPDX-License-Identifier: Apache-2.0
#include "compiler/search/Space.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/evaluate/Evaluate.h"
#include "compiler/search/GeneratorInputs.h"
#include "compiler/search/Waits.h"
#include "passes/algorithms/PickLayers.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/plan/PlacementTable.h"

namespace headrace::compiler {

using algorithms::WriteBack;

namespace {
constexpr int64_t kDrainParts = 32; // of a cache: so near to the fewest blocks that objectives allow
} // namespace

struct Space::Alike {
  Target target; // with the buckets that decide
  Aim aim;
  std::vector<Limit> limits;
  std::vector<PlayPoint> points; // of the aim, then of the limits, then those that decode may follow
  std::optional<Iterations> iterations;
  std::optional<PlacementFamily> family;
  std::optional<Player> player;
  // With all buckets: where the circle is cut, and so what lies where, they have a say in.
  Target all;
  std::optional<Iterations> exact; // made where something is packed
  std::vector<PricedStep> steps;
  std::vector<Candidate> order; // of a policy's

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
void keepDeciding(const std::vector<PlayPoint> &points, plan::IterationClass iterationClass,
                  std::vector<cost::Bucket> &buckets) {
  if (buckets.empty())
    return;
  std::vector<cost::Bucket> kept;
  const auto keep = [&](const cost::Bucket &bucket) {
    if (std::find(kept.begin(), kept.end(), bucket) == kept.end())
      kept.push_back(bucket);
  };
  const cost::Bucket limits = Target::limits(buckets);
  for (const cost::Bucket &bucket : buckets) {
    const bool played = std::any_of(points.begin(), points.end(), [&](const PlayPoint &point) {
      return point.iterationClass == iterationClass && point.bucket == bucket;
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

bool Space::isBetter(const Scored &a, const Scored &b) const {
  if (prefersMemory())
    return std::tie(a.overBytes, a.late, a.deviceBytes, a.comparedNs, a.movedBytes) <
           std::tie(b.overBytes, b.late, b.deviceBytes, b.comparedNs, b.movedBytes);
  return std::tie(a.overBytes, a.late, a.comparedNs, a.movedBytes, a.deviceBytes) <
         std::tie(b.overBytes, b.late, b.comparedNs, b.movedBytes, b.deviceBytes);
}

Space::Space(const CompileRequest &request, const cost::CostModel &costs, const Generator *inOrder)
    : request_(request), inOrder_(inOrder), objectives_(request.goal),
      oneCut_(inOrder == nullptr && (request.goal.tpot || request.goal.sloFactor) &&
              request.goal.instances == model::Instances::Together),
      layout_(model::layoutWeights(request.model)), prices_(costs) {
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
  free_.chunk = hasPrompts(goal) && request.buckets.newTokens.empty();
  if (inOrder == nullptr)
    return;
  free_.layers = free_.embedding = free_.head = free_.slots = false;
  free_.kv &= inOrder->splitsCaches && !policy.statesPlacement();
  free_.act = policy.actRatio && policy.actRatio->isAuto();
  free_.chunk &= inOrder->seeksChunk;
  free_.actStep = 1;
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
  at.allBack = policy.kvWriteBack == model::KvWriteBack::All;
  if (policy.actHome == model::ActHome::Host)
    at.actAway = request_.model->layers;
  return at;
}

int64_t Space::nextMiniBatches(int64_t count, int64_t way) const {
  const std::vector<int64_t> &sequences = request_.buckets.sequences;
  const int64_t batch = request_.goal.batch.value_or(sequences.empty() ? 1 : sequences.back());
  for (int64_t next = count + way; next >= 1 && next <= batch; next += way)
    if (batch % next == 0)
      return next;
  return count;
}

bool Space::actsMayLeave(const Coordinates &at) const {
  return free_.actAway && (free_.act || inOrder_ != nullptr) && commonOf(at).actRatio.any();
}

Choice Space::commonOf(const Coordinates &at) const {
  Choice choice = askedChoice(request_);
  choice.miniBatches = at.miniBatches;
  choice.largestChunk = at.chunk;
  if (free_.act)
    choice.actRatio = model::actRatioOf(at.actParts, kActParts - at.actParts);
  if (choice.actRatio.any())
    choice.residency.setActAway(algorithms::evenLayers(request_.model->layers, at.actAway));
  return choice;
}

Space::Alike *Space::alikeOf(const Coordinates &at) {
  auto [it, fresh] = alike_.try_emplace({at.miniBatches, at.actParts, at.actAway, at.chunk});
  if (!fresh)
    return it->second.get();
  absl::StatusOr<Target> target = resolve(request_, commonOf(at));
  if (!target.ok())
    return nullptr;
  if (at.chunk > kLargestChunk && // with half of it nothing would be cut
      at.chunk / 2 >= std::min(target->kvTokens, target->batch * request_.goal.promptLength(target->context)))
    return nullptr;
  it->second = std::make_unique<Alike>();
  Alike &alike = *it->second;
  alike.target = *std::move(target);
  alike.all = alike.target;
  const bool byGoal = inOrder_ == nullptr || (inOrder_->seeksChunk && hasPrompts(request_.goal));
  alike.aim = byGoal ? aimOf(request_.goal, alike.target) : aimInOrder(alike.target);
  alike.limits = limitsOf(request_.goal, alike.target);
  for (const Limit &limit : moreLimits_) // but of iterations larger than those of this chunk
    if (!free_.chunk || limit.decode || limit.points.front().at.bucket.tokens <= alike.target.mostPromptRows())
      alike.limits.push_back(limit);
  alike.points = alike.aim.at();
  for (const Limit &limit : alike.limits)
    for (const AimPoint &point : limit.points)
      alike.points.push_back(point.at);
  for (const PlayPoint &point : beforeDecode(request_.goal, alike.target))
    alike.points.push_back(point);
  keepDeciding(alike.points, plan::IterationClass::Decode, alike.target.decode);
  keepDeciding(alike.points, plan::IterationClass::Mixed, alike.target.mixed);
  alike.iterations.emplace(request_, alike.target, layout_, prices_);
  alike.family.emplace(request_.model, layout_, alike.target, alike.iterations->memoryUses(),
                       [this, &alike](const Candidate &of) { return alike.packed(of, request_, prices_); });
  alike.player.emplace(*alike.iterations);
  if (inOrder_ != nullptr) {
    alike.steps = alike.iterations->pricedSteps();
    alike.order = candidatesOf(*inOrder_, {request_, alike.target, layout_, *alike.family, alike.steps});
    for (Candidate &candidate : alike.order)
      candidate = compiler::alike(std::move(candidate), commonOf(at));
  }
  if (request_.goal.sloFactor) {
    const absl::StatusOr<std::vector<Played>> played =
        alike.player->play(compiler::alike({}, commonOf(at)), alike.points);
    size_t next = alike.aim.points.size();
    for (Limit &limit : alike.limits)
      for (size_t i = 0; played.ok() && i < limit.points.size(); ++i)
        limit.residentNs += (*played)[next++].ns;
  }
  return &alike;
}

const std::vector<Limit> &Space::limits(const Coordinates &at) { return alikeOf(at)->limits; }

int64_t Space::list(Candidate weights) {
  const auto same =
      std::find_if(listed_.begin(), listed_.end(), [&](const Candidate &of) { return of.samePlacement(weights); });
  if (same != listed_.end())
    return same - listed_.begin() + 1;
  listed_.push_back(std::move(weights));
  return static_cast<int64_t>(listed_.size());
}

void Space::addLimit(const Limit &limit) {
  moreLimits_.push_back(limit);
  verified_.clear(); // it is by limit
  forget();
}

const std::vector<Coordinates> &Space::beginnings(std::string_view generator,
                                                  std::vector<Coordinates> (*seeds)(Space &)) {
  const auto known = beginnings_.find(generator);
  return known != beginnings_.end() ? known->second : beginnings_.emplace(generator, seeds(*this)).first->second;
}

bool Space::verify(Scored &scored) {
  Alike &alike = *alikeOf(scored.at);
  if (alike.limits.empty())
    return true;
  const std::string text = toText(scored.candidate);
  auto known = verified_.find(text);
  if (known == verified_.end()) {
    const absl::StatusOr<Draft> draft = evaluate(*alike.iterations, {scored.candidate});
    if (!draft.ok())
      return false;
    std::vector<uint32_t> variants; // whatever is in use, decode and mixed; of a cycle all phases
    for (uint32_t v = 0; v < draft->variants.size(); ++v)
      if (draft->schedules[draft->variants[v].schedule].kvBlocks == 0)
        variants.push_back(v);
    const std::vector<uint64_t> waits =
        waitsFor(*draft, variants, request_.goal.instances == model::Instances::Together);
    std::vector<uint64_t> ofLimits(alike.limits.size(), 0);
    for (size_t i = 0; i < variants.size(); ++i) {
      const plan::Variant &variant = draft->variants[variants[i]];
      const bool decode = draft->schedules[variant.schedule].iterationClass == plan::IterationClass::Decode;
      for (size_t l = 0; l < alike.limits.size(); ++l) {
        const Limit &limit = alike.limits[l];
        const cost::Bucket &of = limit.points.front().at.bucket;
        // A TPOT is of every bucket; a TTFT of a sum, which has no gaps.
        if (limit.decode == decode && (decode ? objectives_.tpot || objectives_.sloFactor : !objectives_.ttft) &&
            (objectives_.tpot ||
             (of.tokens == variant.newTokens && of.sequences == variant.sequences && of.context == variant.context)))
          ofLimits[l] = std::max(ofLimits[l], waits[i]);
      }
    }
    known = verified_.emplace(text, std::move(ofLimits)).first;
  }
  for (size_t i = 0; i < known->second.size(); ++i)
    scored.limitedNs[i] = std::max(scored.limitedNs[i], known->second[i]);
  scored.late = lateOf(alike, scored);
  for (size_t i = 0; i < known->second.size(); ++i)
    raise(scored, i, known->second[i]);
  return true;
}

void Space::raise(const Scored &scored, size_t limit, uint64_t ns) {
  std::vector<uint64_t> &known = verified_[toText(scored.candidate)];
  known.resize(std::max(known.size(), limit + 1), 0);
  known[limit] = std::max(known[limit], ns);
  for (auto &[at, of] : scored_)
    if (of && of->overBytes == 0 && of->candidate.samePlacement(scored.candidate)) {
      of->limitedNs[limit] = std::max(of->limitedNs[limit], ns);
      of->late = lateOf(*alikeOf(at), *of);
    }
}

void Space::like(const Space &other) {
  if (moreLimits_ != other.moreLimits_) {
    moreLimits_ = other.moreLimits_;
    verified_.clear();
    forget();
  }
  for (const auto &[text, ns] : other.verified_) {
    std::vector<uint64_t> &known = verified_[text];
    known.resize(std::max(known.size(), ns.size()), 0);
    for (size_t i = 0; i < ns.size(); ++i)
      known[i] = std::max(known[i], ns[i]);
  }
  scored_.clear();
}

void Space::setLate(const Alike &alike, Scored &scored) const {
  if (const auto known = verified_.find(toText(scored.candidate)); known != verified_.end())
    for (size_t i = 0; i < std::min(known->second.size(), scored.limitedNs.size()); ++i)
      scored.limitedNs[i] = std::max(scored.limitedNs[i], known->second[i]);
  scored.late = lateOf(alike, scored);
}

void Space::forget() {
  alike_.clear();
  scored_.clear();
  filled_.clear();
  beginnings_.clear();
}

void Space::hold(const model::Goal &objectives) {
  objectives_ = objectives;
  if (prefersMemory()) { // where it is the objectives that say how many blocks stay
    beginnings_.clear();
    scored_.clear();
  }
  for (auto &[at, scored] : scored_)
    if (scored && scored->overBytes == 0)
      scored->late = lateOf(*alikeOf(at), *scored);
}

double Space::lateOf(const Alike &alike, const Scored &scored) const {
  double late = 0;
  for (size_t i = 0; i < scored.limitedNs.size(); ++i)
    if (const uint64_t ns = limitNs(objectives_, alike.limits[i]); ns > 0 && scored.limitedNs[i] > ns)
      late = std::max(late, static_cast<double>(scored.limitedNs[i] - ns) / static_cast<double>(ns));
  return late;
}

const Aim &Space::aim(const Coordinates &at) {
  static const Aim none;
  const Alike *alike = alikeOf(at);
  return alike != nullptr ? alike->aim : none;
}

Candidate Space::candidateOf(const Coordinates &at, const Choice &common) const {
  if (at.listed > 0) {
    Candidate listed = alike(listed_[static_cast<size_t>(at.listed - 1)], common);
    if (algorithms::Wrap &wrap = listed.residency.wrap; oneCut_ && wrap.around) {
      wrap.oneCut = true;
      if (wrap.decode && !wrap.mixed) // cut for decode alone
        wrap.mixed = wrap.decode;
    }
    return listed;
  }
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
    residency.wrap.oneCut = at.wraps && oneCut_;
    residency.weights().setSlots(at.slots);
  }
  return alike(std::move(candidate), common);
}

void Space::setTails(const Coordinates &at, int64_t resident, Candidate &candidate) const {
  algorithms::Residency &residency = candidate.residency;
  // Where a sequence takes a new block, what the iteration before has brought of a tail is not all of it: it is brought
  // again, which a gap that is held to an objective has no time for.
  if (inOrder_ == nullptr)
    residency.wrap.around = at.wraps && !oneCut_;
  else if (candidate.offloadsNothing()) // nothing yet to carry over an edge
    residency.wrap.around = true;
  residency.wrap.oneCut = false;
  residency.wrap.decode.reset(); // of caches that stay
  residency.wrap.mixed.reset();
  residency.setKvAway(request_.model->layers, resident);
  if (request_.policy.kvPlaces)
    residency.kv().setPlaces(*request_.policy.kvPlaces);
  else
    residency.kv().setSlots(at.kvSlots > algorithms::kKvSlots ? at.kvSlots : 0);
  const auto back = [&](bool dirty) -> std::optional<WriteBack> {
    if (at.allBack)
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

uint64_t Space::settle(const Coordinates &at, Candidate &candidate) {
  const Alike &alike = *alikeOf(at);
  if (alike.target.kvResident)
    setTails(at, *alike.target.residentBeside(at.kvSlots, request_.model->layers), candidate);
  if (deviceHolds(at, candidate, /*exactly=*/true))
    return beyondHost(at, candidate);
  if (!alike.target.kvResident && free_.kv && alike.target.kvBlocks > 1) {
    setTails(at, 0, candidate);
    if (fill(at, candidate, /*exactly=*/false))
      return beyondHost(at, candidate);
    candidate.residency.setKvAway(request_.model->layers, 0);
    if (deviceHolds(at, candidate, /*exactly=*/true))
      return beyondHost(at, candidate);
  }
  return std::max<uint64_t>(1, alike.family->need(candidate).bytes -
                                   std::min(alike.family->need(candidate).bytes, alike.target.deviceMemory));
}

uint64_t Space::settleInOrder(Scored &scored) {
  const Coordinates &at = scored.at;
  const Alike &alike = *alikeOf(at);
  const bool stated = alike.target.kvResident.has_value();
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
  for (size_t nth = 0; nth < alike.order.size(); ++nth) {
    Candidate candidate = alike.order[nth];
    if (stated && !splits(candidate))
      continue;
    if (stated)
      setTails(at, *alike.target.residentBeside(at.kvSlots, layers), candidate);
    uint64_t over = beyondHost(at, candidate);
    if (const uint64_t memory = alike.target.deviceMemory; over == 0 && !alike.family->fits(candidate, memory))
      over = std::max<uint64_t>(1, alike.family->need(candidate).bytes -
                                       std::min(alike.family->need(candidate).bytes, memory));
    if (take(nth, candidate, over))
      return 0;
  }
  for (size_t nth = 0; nth < alike.order.size() && !stated && free_.kv && alike.target.kvBlocks > 1; ++nth) {
    Candidate candidate = alike.order[nth];
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
  if (alike == nullptr || alike->order.empty())
    return {};
  std::vector<int64_t> found;
  for (Candidate candidate : {alike->order.front(), alike->order.back()}) {
    if (alike->target.kvResident)
      setTails(here, *alike->target.residentBeside(here.kvSlots, request_.model->layers), candidate);
    else if (free_.kv && alike->target.kvBlocks > 1)
      setTails(here, 1, candidate);
    const uint64_t needed = alike->family->need(candidate).bytes, memory = alike->target.deviceMemory;
    const uint64_t layer = static_cast<uint64_t>(at.miniBatches) * alike->target.actBytes;
    const uint64_t missing = needed - std::min(needed, memory) + algorithms::kActSlots * alike->target.actBytes;
    if (needed > memory)
      found.push_back(std::min<int64_t>(request_.model->layers, static_cast<int64_t>((missing + layer - 1) / layer)));
  }
  return found;
}

bool Space::play(Alike &alike, Scored &scored) {
  const absl::StatusOr<std::vector<Played>> played = alike.player->play(scored.candidate, alike.points);
  if (!played.ok())
    return false;
  ++evaluated_;
  const auto ofAim = static_cast<std::ptrdiff_t>(alike.aim.points.size());
  scored.played.assign(played->begin(), played->begin() + ofAim);
  scored.aimNs = alike.aim.of(scored.played);
  scored.comparedNs = alike.aim.compared(scored.played);
  scored.movedBytes = 0;
  for (size_t i = 0; i < scored.played.size(); ++i)
    scored.movedBytes +=
        alike.aim.points[i].weight * static_cast<double>(scored.played[i].h2dBytes + scored.played[i].d2hBytes);
  const uint32_t slowest = scored.candidate.offloadsNothing() ? plan::kPredicted : prices_.slowestPermille();
  scored.limitedNs.clear();
  size_t next = scored.played.size(), before = next;
  for (const Limit &limit : alike.limits)
    before += limit.points.size();
  uint64_t tailNs = 0; // behind the tokens of what decode follows
  for (; before < played->size(); ++before)
    tailNs = std::max(tailNs, (*played)[before].ns - (*played)[before].headNs);
  for (const Limit &limit : alike.limits) {
    double ns = 0;
    for (const AimPoint &point : limit.points) {
      const Played &of = (*played)[next++];
      ns += point.weight * static_cast<double>(limit.decode ? std::max(of.ns, tailNs + of.headNs) : of.ns);
    }
    scored.limitedNs.push_back(plan::slowestNs(static_cast<uint64_t>(ns), slowest));
  }
  setLate(alike, scored);
  return true;
}

void Space::setBytes(const Alike &alike, Scored &scored) {
  scored.deviceBytes = alike.family->need(scored.candidate).bytes;
  scored.hostBytes = alike.family->hostBytes(scored.candidate);
}

void Space::drain(Alike &alike, Scored &scored) {
  if (alike.target.kvResident || !free_.kv || alike.target.kvBlocks < 2 || scored.late > 0)
    return; // with fewer blocks nothing is faster
  const Scored full = scored;
  const auto with = [&](int64_t resident) {
    Scored tried = full;
    setTails(full.at, resident, tried.candidate);
    if (beyondHost(full.at, tried.candidate) > 0 || !play(alike, tried))
      return std::optional<Scored>();
    if (tried.late <= 0) // else it is not taken, whatever its bytes
      setBytes(alike, tried);
    return std::optional(tried);
  };
  const auto consider = [&](const std::optional<Scored> &tried) {
    if (tried && isBetter(*tried, scored))
      scored = *tried;
    return tried && tried->late <= 0;
  };
  if (consider(with(0)))
    return;
  int64_t missed = 0, held = full.candidate.residency.firstKvBlockAway().value_or(alike.target.kvBlocks);
  for (const int64_t least = std::max<int64_t>(1, held / kDrainParts); held - missed > least;) {
    const int64_t middle = missed + (held - missed) / 2;
    (consider(with(middle)) ? held : missed) = middle;
  }
}

const Scored *Space::score(const Coordinates &at) {
  const auto [it, fresh] = scored_.try_emplace(at);
  if (!fresh)
    return it->second ? &*it->second : nullptr;
  Alike *const alike = alikeOf(at);
  if (alike == nullptr ||
      (alike->target.kvResident && !alike->target.residentBeside(at.kvSlots, request_.model->layers)))
    return nullptr;
  if (const auto filled = filled_.find(at); filled != filled_.end()) {
    Scored scored = filled->second;
    setLate(*alike, scored);
    drain(*alike, scored);
    return &it->second.emplace(std::move(scored));
  }
  Scored scored{.at = at, .candidate = {}};
  if (inOrder_ != nullptr) {
    if (at.actAway > 0 && free_.actAway) { // only what does not fit on the device
      Coordinates here = at;
      here.actAway = 0;
      if (const Scored *const held = score(here); held != nullptr && held->overBytes == 0)
        return nullptr;
    }
    scored.overBytes = settleInOrder(scored);
  } else {
    scored.candidate = candidateOf(at, commonOf(at));
    scored.overBytes = settle(at, scored.candidate);
  }
  setBytes(*alike, scored);
  if (scored.overBytes == 0) {
    if (!play(*alike, scored))
      return nullptr;
    if (prefersMemory()) {
      filled_.emplace(at, scored);
      drain(*alike, scored);
    }
  }
  return &it->second.emplace(std::move(scored));
}

std::optional<Scored> Space::scored(const Coordinates &at, const Candidate &candidate) {
  Scored scored{.at = at, .candidate = candidate};
  Alike &alike = *alikeOf(at);
  setBytes(alike, scored);
  return play(alike, scored) ? std::optional(std::move(scored)) : std::nullopt;
}

bool Space::exists(const Coordinates &at) { return alikeOf(at) != nullptr; }
const std::vector<Candidate> &Space::candidates(const Coordinates &at) { return alikeOf(at)->order; }
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

const Scored *Space::plainest(const Scored &best) {
  if (prefersMemory())
    return score(best.at);
  const double most = best.comparedNs * (inOrder_ == nullptr ? 1 + kTie : 1);
  const auto key = [](const Scored &of) {
    return std::tie(of.movedBytes, of.hostBytes, of.deviceBytes, of.comparedNs);
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
  if (candidate.residency.firstKvBlockAway() && !alike.target.kvResident && !prefersMemory())
    (void)fill(scored.at, candidate, /*exactly=*/true);
  return candidate;
}

} // namespace headrace::compiler
