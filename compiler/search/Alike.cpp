// SPDX-License-Identifier: Apache-2.0
#include "compiler/search/Alike.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/choice/Packing.h"
#include "compiler/evaluate/Evaluate.h"
#include "compiler/search/GeneratorInputs.h"
#include "compiler/search/Waits.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/plan/value/PlacementTable.h"
#include "runtime/sim/TimedSchedule.h"

namespace headrace::compiler {
namespace {

// A policy in its own order has an aim of its own, but where it seeks a chunk of prompts.
Aim aimFor(const model::Goal &goal, const Target &target, const Generator *inOrder) {
  const bool byGoal = inOrder == nullptr || (inOrder->seeksChunk && hasPrompts(goal));
  return byGoal ? aimOf(goal, target) : aimInOrder(target);
}

constexpr double kCutUnit = 0.999; // a unit that is brought in two parts may be priced a little below one

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

Alike::Alike(const CompileRequest &request, Target target, const Choice &common, const model::WeightLayout &layout,
             const std::vector<Limit> &limits, Prices &prices, const Generator *inOrder)
    : request_(request), layout_(layout), prices_(prices), target_(std::move(target)), all_(target_),
      aim_(aimFor(request.goal, target_, inOrder)), limits_(limitsOf(request.goal, target_)) {
  limits_.insert(limits_.end(), limits.begin(), limits.end());
  points_ = aim_.at();
  for (const Limit &limit : limits_)
    for (const AimPoint &point : limit.points)
      points_.push_back(point.at);
  for (const PlayPoint &point : beforeDecode(request_.goal, target_))
    points_.push_back(point);
  keepDeciding(points_, plan::IterationClass::Decode, target_.decode);
  keepDeciding(points_, plan::IterationClass::Mixed, target_.mixed);
  iterations_.emplace(request_, target_, layout_, prices_);
  family_.emplace(request_.model, layout_, target_, iterations_->memoryUses(),
                  [this](const Candidate &of) { return packed(of); });
  player_.emplace(*iterations_);
  if (inOrder != nullptr) {
    steps_ = iterations_->pricedSteps();
    order_ = candidatesOf(*inOrder, {request_, target_, layout_, *family_, steps_, prices_});
    for (Candidate &candidate : order_)
      candidate = alike(std::move(candidate), common);
  }
  if (!request_.goal.sloFactor)
    return;
  const absl::StatusOr<std::vector<Played>> played = player_->play(alike({}, common), points_);
  size_t next = aim_.points.size();
  for (Limit &limit : limits_)
    for (size_t i = 0; played.ok() && i < limit.points.size(); ++i)
      limit.residentNs += (*played)[next++].ns;
}

bool Alike::play(Scored &scored) {
  const auto [it, fresh] = played_.try_emplace(toText(scored.candidate));
  if (fresh) {
    if (playAnew(scored))
      it->second = scored;
    return it->second.has_value();
  }
  if (!it->second)
    return false;
  const Scored &known = *it->second;
  scored.played = known.played;
  scored.aimNs = known.aimNs;
  scored.comparedNs = known.comparedNs;
  scored.movedBytes = known.movedBytes;
  scored.limitedNs = known.limitedNs;
  return true;
}

bool Alike::playAnew(Scored &scored) {
  const absl::StatusOr<std::vector<Played>> played = player_->play(scored.candidate, points_);
  if (!played.ok())
    return false;
  const auto ofAim = static_cast<std::ptrdiff_t>(aim_.points.size());
  scored.played.assign(played->begin(), played->begin() + ofAim);
  scored.aimNs = aim_.of(scored.played);
  scored.comparedNs = aim_.compared(scored.played);
  scored.movedBytes = 0;
  for (size_t i = 0; i < scored.played.size(); ++i)
    scored.movedBytes +=
        aim_.points[i].weight * static_cast<double>(scored.played[i].h2dBytes + scored.played[i].d2hBytes);
  scored.limitedNs.clear();
  size_t next = scored.played.size(), before = next;
  for (const Limit &limit : limits_)
    before += limit.points.size();
  uint64_t tailNs = 0; // behind the tokens of what decode follows
  for (; before < played->size(); ++before)
    tailNs = std::max(tailNs, (*played)[before].ns - (*played)[before].headNs);
  for (const Limit &limit : limits_) {
    double ns = 0;
    for (const AimPoint &point : limit.points) {
      const Played &of = (*played)[next++];
      ns += point.weight * static_cast<double>(limit.decode ? std::max(of.ns, tailNs + of.headNs) : of.ns);
    }
    scored.limitedNs.push_back(slowestNs(scored.candidate, ns));
  }
  return true;
}

void Alike::setBytes(Scored &scored) const {
  scored.deviceBytes = family_->need(scored.candidate).bytes;
  scored.hostBytes = family_->hostBytes(scored.candidate);
}

double Alike::lateOf(const std::vector<uint64_t> &limitedNs, const model::Goal &objectives) const {
  double late = 0;
  for (size_t i = 0; i < limitedNs.size(); ++i)
    if (const uint64_t ns = limitNs(objectives, limits_[i]); ns > 0 && limitedNs[i] > ns)
      late = std::max(late, static_cast<double>(limitedNs[i] - ns) / static_cast<double>(ns));
  return late;
}

uint64_t Alike::slowestNs(const Candidate &candidate, double ns) const {
  return plan::slowestNs(static_cast<uint64_t>(ns),
                         candidate.offloadsNothing() ? plan::kPredicted : prices_.slowestPermille());
}

Alike::AtLeast Alike::atLeast(const Candidate &candidate) const {
  const algorithms::Residency &residency = candidate.residency;
  double weightsNs = 0;
  for (const int32_t unit : residency.weightsAway())
    if (unit != layout_.embeddingUnit() || request_.model->tiedEmbeddings) // else its rows are read where they are
      weightsNs += static_cast<double>(prices_.copyNs(layout_.units[static_cast<size_t>(unit)].bytes, true));
  weightsNs *= kCutUnit;
  // Of tails that cycle some stay.
  const int64_t resident =
      residency.cycles() ? target_.kvBlocks : residency.firstKvBlockAway().value_or(target_.kvBlocks);
  double blockNs = 0; // of all caches
  if (const int64_t tail = target_.kvBlocks - resident; tail > 0) {
    const uint64_t ns = prices_.copyNs(static_cast<uint64_t>(tail) * target_.kvBlockBytes, true);
    const uint64_t latencyNs = sim::linkRates(request_.hardware, /*linkBandwidth=*/0).latencyNs;
    blockNs = static_cast<double>(target_.caches(request_.model->layers)) *
              static_cast<double>(ns - std::min(ns, latencyNs)) / static_cast<double>(tail);
  }
  const auto ns = [&](const AimPoint &point) {
    const bool stay = attendsOnCpu(target_.choice, point.at.iterationClass); // the CPU reads them where they are
    const int64_t brought = stay ? 0 : std::max<int64_t>(0, player_->inUse(point.at).kvBlocks - resident);
    return point.weight * (weightsNs + blockNs * static_cast<double>(brought));
  };
  AtLeast least;
  for (const AimPoint &point : aim_.points)
    least.aimNs += ns(point);
  for (const Limit &limit : limits_) {
    double sum = 0;
    for (const AimPoint &point : limit.points)
      sum += ns(point);
    least.limitedNs.push_back(slowestNs(candidate, sum));
  }
  return least;
}

const std::vector<uint64_t> *Alike::waits(const Candidate &candidate, const model::Goal &objectives) {
  const bool decodes = objectives.tpot || objectives.sloFactor;
  const auto [it, fresh] = waits_.try_emplace(
      absl::StrCat(decodes, objectives.tpot.has_value(), objectives.ttft.has_value(), toText(candidate)));
  std::optional<std::vector<uint64_t>> &known = it->second;
  if (!fresh)
    return known ? &*known : nullptr;
  const absl::StatusOr<Draft> draft = evaluate(*iterations_, {candidate});
  if (!draft.ok())
    return nullptr;
  std::vector<uint32_t> variants; // whatever is in use, decode and mixed; of a cycle all phases
  for (uint32_t v = 0; v < draft->variants.size(); ++v)
    if (draft->schedules[draft->variants[v].schedule].kvBlocks == 0)
      variants.push_back(v);
  const std::vector<uint64_t> waits = waitsFor(*draft, variants, request_.goal.instances == model::Instances::Together);
  known.emplace(limits_.size(), 0);
  for (size_t i = 0; i < variants.size(); ++i) {
    const plan::Variant &variant = draft->variants[variants[i]];
    const bool decode = draft->schedules[variant.schedule].iterationClass == plan::IterationClass::Decode;
    for (size_t l = 0; l < limits_.size(); ++l) {
      const Limit &limit = limits_[l];
      const cost::Bucket &of = limit.points.front().at.bucket;
      // A TPOT is of every bucket; a TTFT of a sum, which has no gaps.
      if (limit.decode == decode && (decode ? decodes : !objectives.ttft) &&
          (objectives.tpot ||
           (of.tokens == variant.newTokens && of.sequences == variant.sequences && of.context == variant.context)))
        (*known)[l] = std::max((*known)[l], waits[i]);
    }
  }
  return &*known;
}

const absl::StatusOr<SearchedPlacement> &Alike::searchUnits(const SearchRequest &request) {
  std::vector<int64_t> key = {request.embedding, static_cast<int64_t>(request.decode.size())};
  for (const std::vector<BucketGoal> *goals : {&request.decode, &request.mixed})
    for (const auto &[bucket, sloNs] : *goals)
      key.insert(key.end(), {bucket.tokens, bucket.sequences, bucket.context, static_cast<int64_t>(sloNs)});
  const auto known = searched_.find(key);
  return known != searched_.end() ? known->second
                                  : searched_.emplace(std::move(key), searchPlacement(request, prices_)).first->second;
}

uint64_t Alike::packed(const Candidate &candidate) {
  const auto [it, fresh] = packed_.try_emplace(toText(candidate), UINT64_MAX);
  if (!fresh)
    return it->second;
  if (!exact_)
    exact_.emplace(request_, all_, layout_, prices_);
  const HostLayout host = layOutHost({&candidate}, layout_, all_, request_.model, /*all=*/true);
  const absl::StatusOr<PlacedCandidate> placed = placeCandidate(*exact_, candidate, host);
  if (placed.ok())
    it->second = placed->arenaBytes();
  return it->second;
}

uint64_t Alike::leastLinkNs(const PlayPoint &point, uint64_t deviceMemory) const {
  const core::InUse inUse = player_->inUse(point);
  const auto caches = static_cast<uint64_t>(target_.caches(request_.model->layers));
  // The embedding's rows are read one by one wherever it is.
  uint64_t used = 0;
  for (size_t unit = request_.model->tiedEmbeddings ? 0 : 1; unit < layout_.units.size(); ++unit)
    used += layout_.units[unit].bytes;
  if (!attendsOnCpu(target_.choice, point.iterationClass)) // which reads them where they are
    used += caches * static_cast<uint64_t>(inUse.kvBlocks) * target_.kvBlockBytes;
  if (target_.actBlocks > 0)
    used +=
        caches * target_.actBytes / static_cast<uint64_t>(target_.actBlocks) * static_cast<uint64_t>(inUse.actBlocks);
  return used > deviceMemory ? prices_.copyNs(used - deviceMemory, /*hostToDevice=*/true) : 0;
}

Alikes::Encoded::Encoded(const CompileRequest &asked, const cost::CostModel &costs)
    : request(asked), layout(model::layoutWeights(request.model)), prices(costs) {}

Alikes::Encoded::Encoded(const CompileRequest &asked, const Target &target)
    : request(asked), layout(model::layoutWeights(request.model)),
      prices(roofline.emplace(request.model, request.hardware, target.activation, target.kv)) {}

Alikes::Alikes(const CompileRequest &request, const cost::CostModel &costs, std::vector<Limit> limits,
               const Generator *inOrder)
    : costs_(costs), request_(request), limits_(std::move(limits)), inOrder_(inOrder) {}

Alikes::Encoded &Alikes::encodedFor(const Target &target, const Choice &common) {
  for (const auto &of : encoded_)
    if (of->encodings == common.encodings && of->onCpu == common.attendsOnCpu)
      return *of;
  const CompileRequest request = asChosen(request_, common);
  encoded_.push_back(common.encodings.any() ? std::make_unique<Encoded>(request, target)
                                            : std::make_unique<Encoded>(request, costs_));
  encoded_.back()->encodings = common.encodings;
  encoded_.back()->onCpu = common.attendsOnCpu;
  return *encoded_.back();
}

std::shared_ptr<Alike> Alikes::of(const Target &target, const Choice &common) {
  std::shared_ptr<Alike> &alike = alikes_[absl::StrCat(target.mostKvBlocks, " ", toText(common))];
  if (alike != nullptr)
    return alike;
  std::vector<Limit> limits;
  for (const Limit &limit : limits_) // but of iterations larger than those of this chunk
    if (limit.decode || limit.points.front().at.bucket.tokens <= target.mostPromptRows())
      limits.push_back(limit);
  Encoded &of = encodedFor(target, common);
  alike = std::make_shared<Alike>(of.request, target, common, of.layout, limits, of.prices, inOrder_);
  return alike;
}

} // namespace headrace::compiler
