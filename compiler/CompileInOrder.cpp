// SPDX-License-Identifier: Apache-2.0
#include "compiler/CompileInOrder.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/CompileMostFreed.h"
#include "compiler/Drafting.h"
#include "compiler/choice/CheckStated.h"
#include "compiler/choice/Resolve.h"
#include "compiler/evaluate/LayOutHost.h"
#include "compiler/search/Allowance.h"
#include "compiler/search/BucketChoices.h"
#include "compiler/search/Explain.h"
#include "compiler/search/generators/InOrder.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/cost/CostModel.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::compiler {
namespace {

constexpr size_t kMostCompared = 32; // placements with caches that are split, of those that an objective chooses from

// Of so many ways, each with a time for every bucket, the one with the least worst ratio to the best of them, then with
// the least sum; the first among equals.
size_t fastestOf(const std::vector<std::vector<uint64_t>> &ways) {
  using Score = std::pair<double, uint64_t>; // worst ratio, sum
  size_t fastest = 0;
  std::optional<Score> least;
  for (size_t way = 0; way < ways.size(); ++way) {
    Score score{0, std::accumulate(ways[way].begin(), ways[way].end(), uint64_t{0})};
    for (size_t bucket = 0; bucket < ways[way].size(); ++bucket) {
      uint64_t best = ways[way][bucket];
      for (const std::vector<uint64_t> &other : ways)
        best = std::min(best, other[bucket]);
      score.first = std::max(score.first,
                             static_cast<double>(ways[way][bucket]) / static_cast<double>(std::max<uint64_t>(1, best)));
    }
    if (!least || score < *least) {
      least = score;
      fastest = way;
    }
  }
  return fastest;
}

class InOrder {
public:
  InOrder(const CompileRequest &request, const Generator &policy, const cost::CostModel &costs)
      : request_(request), policy_(policy), costs_(costs), space_(request, costs, &policy) {}

  absl::StatusOr<Draft> run() {
    return policy_.order == Order::First && request_.policy.placements.value_or(1) == 1 ? one() : several();
  }

private:
  bool stated() { return space_.target(space_.origin()).kvResident.has_value(); }

  // What placements with these coordinates are laid out and priced with.
  absl::StatusOr<std::unique_ptr<Drafting>> draftingOf(const Coordinates &at) {
    return Drafting::of(request_, policy_, space_.commonOf(at));
  }

  absl::StatusOr<std::optional<FoundInOrder>> search() {
    std::optional<FoundInOrder> found = searchInOrder(space_);
    if (found)
      RETURN_IF_ERROR(writeBack(found->best));
    return found;
  }

  // How rows get home, where tails are away and it is left open: by what every bucket takes one way and the other. Rows
  // that are mirrored cross the link while the step that appends them runs, a tail that is written back does so beside
  // other steps, but whole. Nothing is better by writing back all that is in use but what stays over iterations.
  absl::Status writeBack(Scored &best) {
    const std::optional<int64_t> resident = best.candidate.residency.firstKvBlockAway();
    if (!resident || !space_.free().writeBack)
      return absl::OkStatus();
    ASSIGN_OR_RETURN(drafting, draftingOf(best.at));
    const std::vector<PlayPoint> points = wholePoints(drafting->target());
    const size_t decodes = drafting->target().decode.size();
    struct Way {
      Scored scored;
      std::vector<uint64_t> ns; // by bucket, decode, then mixed
    };
    std::vector<Way> ways;
    const auto attempt = [&](bool decode, bool mixed, bool all) {
      Scored tried = best;
      tried.at.decodeDirty = decode;
      tried.at.mixedDirty = mixed;
      tried.at.allBack = all;
      space_.setTails(tried.at, *resident, tried.candidate);
      if (!space_.deviceHolds(tried.at, tried.candidate, /*exactly=*/true))
        return;
      const absl::StatusOr<std::vector<Played>> played = drafting->player().play(tried.candidate, points);
      if (!played.ok())
        return;
      ways.push_back({tried, {}});
      for (const Played &of : *played)
        ways.back().ns.push_back(of.slowestNs);
    };
    const auto secondIsFaster = [&](size_t begin, size_t end) {
      const auto part = [&](const Way &way) {
        return std::vector(way.ns.begin() + static_cast<std::ptrdiff_t>(begin),
                           way.ns.begin() + static_cast<std::ptrdiff_t>(end));
      };
      return fastestOf({part(ways[0]), part(ways[1])}) == 1;
    };
    attempt(false, false, false);
    attempt(true, true, false);
    if (ways.size() == 2 && decodes < points.size()) {
      const bool decode = secondIsFaster(0, decodes), mixed = secondIsFaster(decodes, points.size());
      if (decode != mixed)
        attempt(decode, mixed, false);
    }
    if (request_.policy.kvPlaces)
      attempt(false, false, true);
    std::vector<std::vector<uint64_t>> times;
    times.reserve(ways.size());
    for (const Way &way : ways)
      times.push_back(way.ns);
    if (!ways.empty())
      best = ways[fastestOf(times)].scored;
    return absl::OkStatus();
  }

  // Of placements that a plan has all of the first that memory holds; none: there is nothing of that kind.
  absl::StatusOr<std::optional<Draft>> together() {
    if (policy_.together == nullptr)
      return std::nullopt;
    ASSIGN_OR_RETURN(drafting, draftingOf(space_.origin()));
    absl::Status refused;
    for (size_t nth = 0;; ++nth) {
      ASSIGN_OR_RETURN(placements, policy_.together(drafting->inputs(), nth));
      if (placements.empty() && nth == 0)
        return std::nullopt;
      if (placements.empty())
        return refused;
      absl::StatusOr<Draft> draft = drafting->draft(placements);
      if (draft.ok()) {
        drafting->explain(*draft, draft->candidates.size() - 1, fixedBy(request_, policy_), nullptr);
        explainMore(*drafting, placements, *draft);
        return std::optional(*std::move(draft));
      }
      if (!lacksDeviceMemory(draft.status()))
        return draft.status();
      refused = draft.status(); // with more weights away
    }
  }

  // Behind why: what the policy adds, and of what cycles.
  void explainMore(const Drafting &drafting, const std::vector<Candidate> &placements, Draft &draft) {
    const auto add = [&](const std::string &text) { absl::StrAppend(&draft.reason, text.empty() ? "" : ". ", text); };
    add(policy_.why == nullptr ? "" : policy_.why(drafting.inputs(), placements));
    add(explainCycle(draft));
  }

  absl::StatusOr<Draft> one() {
    ASSIGN_OR_RETURN(several, together());
    if (several)
      return *std::move(several);
    if (policy_.check != nullptr) {
      ASSIGN_OR_RETURN(drafting, draftingOf(space_.origin()));
      RETURN_IF_ERROR(policy_.check(drafting->inputs()));
    }
    ASSIGN_OR_RETURN(found, search());
    if (!found)
      return nothing();
    const Scored &best = found->best;
    const bool away = best.candidate.residency.firstKvBlockAway().has_value();
    const Target &target = space_.target(best.at);
    if (request_.policy.kvPlaces && !away)
      return absl::InvalidArgumentError(
          absl::StrCat("policy.kv_places = ", *request_.policy.kvPlaces,
                       ": expected fewer KV blocks on the device than there are (", target.kvBlocks,
                       " a layer): all of them fit, and nothing cycles; goal.kv_device_memory states how many stay"));
    ASSIGN_OR_RETURN(drafting, draftingOf(best.at));
    ASSIGN_OR_RETURN(draft, drafting->draft({best.candidate}));
    const bool split = away && !target.kvResident && !policy_.swapsLayers;
    if (!policy_.statesPlacement || request_.goal.hasSlo() || request_.policy.placements) {
      RETURN_IF_ERROR(drafting->explainByBucket(draft));
    } else {
      std::optional<Candidate> before; // it offloads less
      if (best.nth > 0 && !split && !(away && policy_.swapsLayers)) {
        before = space_.candidates(best.at)[best.nth - 1];
        if (target.kvResident)
          space_.setTails(best.at, *target.residentBeside(best.at.kvSlots, request_.model->layers), *before);
      }
      drafting->explain(draft, 0, fixedBy(request_, policy_), before ? &*before : nullptr);
    }
    explainMore(*drafting, {best.candidate}, draft);
    if (target.kvResident && request_.goal.expansion)
      absl::StrAppend(&draft.reason, ". ", explainExpansion(request_.goal, target, request_.model->layers));
    if (split)
      absl::StrAppend(&draft.reason, ". ", explainSplit(draft));
    if (!policy_.swapsLayers)
      absl::StrAppend(&draft.reason, explainWriteBack(space_, best.at, best.candidate));
    absl::StrAppend(&draft.reason, explainFound(space_, policy_, *found));
    if (request_.advise)
      if (const std::string line = allowanceWouldBring(space_, best, costs_, &policy_); !line.empty())
        request_.advise(line);
    return draft;
  }

  absl::StatusOr<Draft> chooseFrom(const Coordinates &at, const ToChooseFrom &of) {
    ASSIGN_OR_RETURN(drafting, draftingOf(at));
    return compileMostFreed(*drafting, of);
  }

  // What all placements have alike is found in order, then these.
  absl::StatusOr<Draft> several() {
    const Space::Free &free = space_.free();
    const Coordinates origin = space_.origin();
    const bool acts = askedChoice(request_).actRatio.any();
    std::optional<FoundInOrder> found;
    if (free.act || free.miniBatches || free.encodings() || (free.actAway && acts) ||
        (space_.exists(origin) && stated())) {
      ASSIGN_OR_RETURN(searched, search());
      found = std::move(searched);
      if (!found)
        return nothing();
    }
    const Coordinates at = found ? found->best.at : origin;
    if (space_.exists(at) && stated())
      return explained(chooseFrom(at, {.candidates = withTails(at)}), *found);
    if (found && found->best.candidate.residency.firstKvBlockAway())
      return split(*found, absl::OkStatus());
    ToChooseFrom of;
    if (space_.free().kv && space_.exists(at) && space_.target(at).kvBlocks > 1)
      of.smallest = [&] { return least(at); };
    absl::StatusOr<Draft> whole = chooseFrom(at, of);
    if (whole.ok() && found)
      return explained(std::move(whole), *found);
    if (!lacksDeviceMemory(whole.status()) || !policy_.splitsCaches || request_.goal.kvDeviceMemory)
      return whole;
    if (!space_.free().kv)
      return refusalWith(whole.status(), ", KV blocks at home on the host (kv_device_memory)");
    ASSIGN_OR_RETURN(searched, search());
    return searched ? split(*searched, whole.status()) : nothing();
  }

  absl::StatusOr<Draft> explained(absl::StatusOr<Draft> draft, const FoundInOrder &found) {
    RETURN_IF_ERROR(draft.status());
    if (stated() && request_.goal.expansion)
      absl::StrAppend(&draft->reason, ". ", explainExpansion(request_.goal, draft->target, request_.model->layers));
    absl::StrAppend(&draft->reason, explainWriteBack(space_, found.best.at, draft->candidates.front()),
                    explainFound(space_, policy_, found));
    return draft;
  }

  // Every candidate filled: what weights leave becomes blocks.
  //
  //                 weights           blocks on the device, of 400
  //   none away     |||||||||||||||||||||||||||  60 |||
  //   interval 8    |||||||||||||||||||||||  110 |||||||
  //   interval 1    |||||  380 |||||||||||||||||||||||||
  //
  // Several are spread over the list: one moves no weights and serves as long as few blocks are in use, another moves
  // weights and hardly a block. `whole`: why not all blocks stay.
  absl::StatusOr<Draft> split(const FoundInOrder &found, const absl::Status &whole) {
    const Coordinates &at = found.best.at;
    const auto most =
        static_cast<size_t>(request_.policy.placements.value_or(policy_.order == Order::MostFreed ? kMostCompared : 1));
    absl::Status refused;
    for (const size_t count : most > 1 ? std::vector{most, size_t{1}} : std::vector{most}) {
      std::vector<Candidate> candidates = filled(at, count);
      if (candidates.empty())
        continue;
      absl::StatusOr<Draft> draft = chooseFrom(at, {.candidates = std::move(candidates), .inOrder = true});
      if (draft.ok())
        absl::StrAppend(&draft->reason, ". ", explainSplit(*draft));
      if (draft.ok())
        return explained(std::move(draft), found);
      if (!lacksDeviceMemory(draft.status())) // memory would do, and an objective does not
        return absl::IsResourceExhausted(draft.status()) && !whole.ok()
                   ? absl::ResourceExhaustedError(absl::StrCat(draft.status().message(),
                                                               ". With all KV blocks on the device: ", whole.message()))
                   : draft.status();
      refused = draft.status();
    }
    return nothing();
  }

  std::vector<Candidate> withTails(const Coordinates &at) {
    std::vector<Candidate> candidates;
    const std::optional<int64_t> resident = space_.target(at).residentBeside(at.kvSlots, request_.model->layers);
    for (Candidate candidate : space_.candidates(at))
      if (movesTails(candidate)) {
        space_.setTails(at, *resident, candidate);
        candidates.push_back(std::move(candidate));
      }
    return candidates;
  }

  // At most `most`: each with the most blocks on the device with which it fits, without those that the host has no room
  // for. Beside others each leaves what their homes take more together: its transients share nothing with slots.
  std::vector<Candidate> filled(const Coordinates &at, size_t most) {
    std::vector<Candidate> found;
    int64_t blocks = 0; // of the one before
    for (Candidate candidate : space_.candidates(at)) {
      if (!movesTails(candidate))
        continue;
      space_.setTails(at, 0, candidate);
      if (most > 1
              ? !space_.fill(at, candidate, /*exactly=*/false)
              : !(space_.deviceHolds(at, candidate, /*exactly=*/true) && space_.fill(at, candidate, /*exactly=*/true)))
        continue;
      const int64_t resident = *candidate.residency.firstKvBlockAway();
      if (resident <= blocks || space_.beyondHost(at, candidate) > 0) // moves more weights for nothing
        continue;
      blocks = resident;
      found.push_back(std::move(candidate));
      if (most == 1)
        return found;
    }
    if (found.size() <= most)
      return found;
    std::vector<Candidate> spread;
    for (size_t i = 0; i < most; ++i)
      spread.push_back(std::move(found[i * (found.size() - 1) / (most - 1)]));
    return spread;
  }

  // Each with as few blocks on the device as the host has room for the others, where that saves something.
  std::vector<Candidate> least(const Coordinates &at) {
    std::vector<Candidate> found;
    for (const Candidate &whole : space_.candidates(at)) {
      if (!movesTails(whole))
        continue;
      Candidate candidate = whole;
      int64_t holds = space_.target(at).kvBlocks, doesNot = 0;
      while (holds - doesNot > 1) {
        const int64_t middle = doesNot + (holds - doesNot) / 2;
        space_.setTails(at, middle, candidate);
        (space_.beyondHost(at, candidate) == 0 ? holds : doesNot) = middle;
      }
      if (holds == space_.target(at).kvBlocks)
        continue;
      candidate = whole;
      space_.setTails(at, holds, candidate);
      if (space_.held(at, candidate).bytes < space_.held(at, whole).bytes)
        found.push_back(std::move(candidate));
    }
    return found;
  }

  static bool movesTails(const Candidate &candidate) { return candidate.residency.start == algorithms::kEager; }

  // What would do: the least device memory of all that the order has, with what is left open at its ends; and where it
  // is the host that has no room, what it would have to have.
  absl::Status nothing() {
    const model::ModelSpec &spec = request_.model;
    struct Least {
      Coordinates at;
      Candidate candidate;
      uint64_t bytes = UINT64_MAX;
    };
    Least device;
    std::optional<HostLayout> host; // the least of those that the device holds
    absl::Status unresolved;
    for (const Coordinates &at : ends()) {
      if (!space_.exists(at)) {
        if (unresolved.ok())
          unresolved = resolve(request_, space_.commonOf(at), policy_.swapsLayers).status();
        continue;
      }
      const Target &target = space_.target(at);
      std::vector<Candidate> candidates = target.kvResident ? withTails(at) : space_.candidates(at);
      if (space_.free().kv && target.kvBlocks > 1)
        for (Candidate &candidate : least(at))
          candidates.push_back(std::move(candidate));
      for (const Candidate &candidate : candidates) {
        if (space_.beyondHost(at, candidate) > 0) {
          if (space_.deviceHolds(at, candidate, /*exactly=*/true))
            if (const HostLayout layout = layOutHost({&candidate}, space_.layout(at), target, spec);
                !host || layout.bytes < host->bytes)
              host = layout;
          continue;
        }
        if (space_.held(at, candidate).bytes >= device.bytes)
          continue;
        if (const uint64_t bytes = space_.packed(at, candidate); bytes < device.bytes)
          device = {at, candidate, bytes};
      }
    }
    if (device.bytes == UINT64_MAX && !host)
      return unresolved;
    const model::Hardware &hardware = request_.hardware;
    const std::optional<uint64_t> kvHost = request_.goal.kvHostMemory;
    const bool ofKv = host && kvHost && host->kvBytes > *kvHost;
    if (device.bytes == UINT64_MAX)
      return ofKv ? kvHostExhausted(*kvHost, host->kvBytes) : hostExhausted(spec, hardware, host->bytes);
    MemoryNeed need = space_.need(device.at, device.candidate);
    need.transients = need.transients + device.bytes - need.bytes;
    need.bytes = device.bytes;
    const absl::Status refused =
        deviceMemoryExhausted(spec, hardware, space_.target(device.at), request_.policy, device.candidate, need,
                              host ? std::optional(host->bytes) : std::nullopt);
    std::string more;
    if (!space_.free().kv && policy_.splitsCaches && !policy_.swapsLayers && !request_.goal.kvDeviceMemory &&
        !request_.goal.expansion)
      more = ", or KV blocks at home on the host (kv_device_memory)";
    if (ofKv)
      absl::StrAppend(&more, ", or a kv_host_memory of ", host->kvBytes, " bytes");
    return more.empty() ? refused : refusalWith(refused, more);
  }

  std::vector<Coordinates> ends() {
    std::vector<Coordinates> found = space_.origins();
    const auto either = [&](bool may, auto &&change) {
      for (size_t i = 0, n = found.size(); may && i < n; ++i) {
        Coordinates other = found[i];
        change(other);
        found.push_back(other);
      }
    };
    either(space_.free().act, [](Coordinates &c) { c.actParts = kActParts; });
    either(space_.free().actAway, [&](Coordinates &c) { c.actAway = request_.model->layers; });
    for (int64_t count = 1; space_.free().miniBatches;) {
      const int64_t next = space_.nextMiniBatches(count, 1);
      if (next == count)
        break;
      const size_t before = found.size();
      for (size_t i = 0; i < before; ++i)
        if (found[i].miniBatches == 1) {
          found.push_back(found[i]);
          found.back().miniBatches = next;
        }
      count = next;
    }
    return found;
  }

  const CompileRequest &request_;
  const Generator &policy_;
  const cost::CostModel &costs_;
  Space space_;
};

} // namespace

absl::StatusOr<Draft> compileInOrder(const CompileRequest &asked, const Generator &policy) {
  CompileRequest request = asked;
  if (request.goal.autoMiniBatches) {
    request.goal.miniBatches = 1;
    if (!request.goal.batch) // else buckets would be of another batch with each count
      request.goal.batch = request.buckets.sequences.empty() ? 1 : request.buckets.sequences.back();
  }
  const Choice choice = askedChoice(request);
  RETURN_IF_ERROR(checkStated(request, choice, !policy.swapsLayers));
  if (policy.swapsLayers)
    request.goal.autoMiniBatches = false; // it has one
  std::optional<cost::Roofline> roofline;
  if (request.costs == nullptr) {
    absl::StatusOr<Target> target = resolve(request, choice, policy.swapsLayers);
    for (int64_t count = 2; !target.ok() && request.goal.autoMiniBatches && count <= *request.goal.batch; ++count) {
      Choice other = choice; // what is stated may rule one out
      other.miniBatches = count;
      if (absl::StatusOr<Target> found = resolve(request, other); found.ok())
        target = std::move(found);
    }
    RETURN_IF_ERROR(target.status());
    roofline.emplace(request.model, request.hardware, target->activation, target->kv);
  }
  return InOrder(request, policy, request.costs ? *request.costs : *roofline).run();
}

} // namespace headrace::compiler
