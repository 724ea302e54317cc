// SPDX-License-Identifier: Apache-2.0
#include "compiler/search/generators/InOrder.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/choice/AmountText.h"
#include "compiler/search/Why.h"
#include "compiler/search/generators/HybridShare.h"
#include "compiler/search/generators/PackedBatch.h"
#include "runtime/cost/HybridAllocation.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::compiler {
namespace {

constexpr int64_t kMostMiniBatches = 16; // that a search begins at
constexpr size_t kBeginnings = 2;

std::optional<HybridShare> shareOf(Space &space, Coordinates at, std::string &text) {
  at.actParts = 0;
  at.actAway = space.origin().actAway;
  const Scored *const kvAlone = space.score(at);
  if (kvAlone == nullptr || kvAlone->overBytes > 0) {
    text = "Algorithm 1 was not asked: memory does not hold keys and values alone";
    return std::nullopt;
  }
  const absl::StatusOr<HybridShare> share = hybridShare(space.request(), space.commonOf(at), roomOf(space, *kvAlone));
  text =
      share.ok() ? explainHybridShare(*share) : absl::StrCat("Algorithm 1 has no answer: ", share.status().message());
  return share.ok() ? std::optional(*share) : std::nullopt;
}

// That a search begins at.
std::vector<int64_t> countsOf(const Space &space) {
  std::vector<int64_t> counts = {space.origin().miniBatches};
  while (space.free().miniBatches) {
    const int64_t next = space.nextMiniBatches(counts.back(), 1);
    if (next == counts.back() || next > kMostMiniBatches)
      break;
    counts.push_back(next);
  }
  return counts;
}

std::vector<Coordinates> seeds(Space &of, const Coordinates &origin) {
  std::vector<Coordinates> found;
  for (const int64_t count : countsOf(of)) {
    Coordinates at = origin;
    at.miniBatches = count;
    std::vector<int64_t> shares = {at.actParts};
    if (of.free().act && of.exists(at)) {
      shares = {0, 16, 32, 48, 64};
      std::string text;
      if (const std::optional<HybridShare> share = shareOf(of, at, text))
        shares.push_back(share->partOf(kActParts));
    }
    for (const int64_t parts : shares) {
      Coordinates seed = at;
      seed.actParts = parts;
      found.push_back(seed);
      if (!of.actsMayLeave(seed))
        continue;
      for (const int64_t away : of.actAwayBeside(seed)) {
        seed.actAway = away;
        found.push_back(seed);
      }
    }
  }
  return found;
}

const Scored *better(const Space &space, const Scored *a, const Scored *b) {
  return a == nullptr || (b != nullptr && space.isBetter(*b, *a)) ? b : a;
}

// The best of its share of activation blocks; how rows get home is decided by all buckets, when all else is.
const Scored *ofShare(Space &space, const Scored *from) {
  return climb(space, from, [at = from->at](const Coordinates &to) {
    return to.actParts == at.actParts && to.decodeDirty == at.decodeDirty && to.mixedDirty == at.mixedDirty &&
           to.allBack == at.allBack;
  });
}

// From share to share as long as one is better, each with what is best beside it.
const Scored *withOtherShares(Space &space, const Scored *best) {
  for (int64_t step = 16; step > 0; step /= 4)
    for (const int64_t by : {step, -step})
      for (;;) {
        Coordinates at = best->at;
        at.actParts += by;
        if (at.actParts < 0 || at.actParts > kActParts)
          break;
        const Scored *from = space.score(at);
        if (space.actsMayLeave(at))
          for (const int64_t away : space.actAwayBeside(at)) {
            at.actAway = away;
            from = better(space, from, space.score(at));
          }
        const Scored *const found = from == nullptr ? nullptr : ofShare(space, from);
        if (found == nullptr || !space.isBetter(*found, *best))
          break;
        best = found;
      }
  return best;
}

// The best that was scored with each value of a coordinate, all others left open or as in `like`; of what memory does
// not hold the least beyond it.
template <class Value>
std::map<int64_t, const Scored *> bestBy(Space &space, Value &&value, const std::optional<Coordinates> &like) {
  std::map<int64_t, const Scored *> best;
  for (const auto &[at, scored] : space.tried()) {
    if (!scored || (like && at.miniBatches != like->miniBatches))
      continue;
    const Scored *&of = best[value(at)];
    if (of == nullptr || space.isBetter(*scored, *of))
      of = &*scored;
  }
  return best;
}

template <class Name> std::string listOf(const std::map<int64_t, const Scored *> &tried, Name &&name) {
  std::string list;
  for (const auto &[value, scored] : tried)
    absl::StrAppend(&list, list.empty() ? "" : ", ", name(value),
                    scored->overBytes > 0 ? " does not fit"
                                          : absl::StrCat(" ", msText(static_cast<uint64_t>(scored->aimNs))));
  return list;
}

// The ends, one value and those next to it.
std::map<int64_t, const Scored *> around(std::map<int64_t, const Scored *> tried, int64_t value) {
  const auto at = tried.find(value);
  std::map<int64_t, const Scored *> kept = {*tried.begin(), *tried.rbegin(), *at};
  if (at != tried.begin())
    kept.insert(*std::prev(at));
  if (std::next(at) != tried.end())
    kept.insert(*std::next(at));
  return kept;
}

// "; what is stated rules out 2, 4 (buckets.new_tokens = 2048: ...)".
std::string ruledOut(Space &space) {
  std::string counts, why;
  for (const int64_t count : countsOf(space)) {
    Coordinates at = space.origin();
    at.miniBatches = count;
    if (space.exists(at))
      continue;
    absl::StrAppend(&counts, counts.empty() ? "" : ", ", count);
    if (why.empty())
      why = std::string(resolve(space.request(), space.commonOf(at)).status().message());
  }
  return counts.empty() ? "" : absl::StrCat("; what is stated rules out ", counts, " (", why, ")");
}

std::string shareName(int64_t parts) { return model::actRatioText(model::actRatioOf(parts, kActParts - parts)); }

} // namespace

std::optional<FoundInOrder> searchInOrder(Space &space) {
  std::vector<const Scored *> begin;
  for (const Coordinates &origin : space.origins())
    for (const Coordinates &seed : seeds(space, origin))
      if (const Scored *const scored = space.score(seed))
        begin.push_back(scored);
  std::stable_sort(begin.begin(), begin.end(),
                   [&](const Scored *a, const Scored *b) { return space.isBetter(*a, *b); });
  const Scored *best = nullptr;
  for (size_t i = 0; i < std::min(begin.size(), kBeginnings); ++i)
    best = better(space, best, ofShare(space, begin[i]));
  if (best != nullptr && space.free().act)
    best = withOtherShares(space, best);
  if (best == nullptr || best->overBytes > 0)
    return std::nullopt;
  FoundInOrder found{.best = *space.plainest(*best), .algorithm1 = {}};
  if (space.free().act)
    shareOf(space, found.best.at, found.algorithm1);
  return found;
}

std::string explainFound(Space &space, const Generator &policy, const FoundInOrder &found) {
  const Scored &best = found.best;
  const Played &played = best.played.front();
  std::string text;
  if (space.free().act) {
    const auto tried = bestBy(
        space, [](const Coordinates &at) { return at.actParts; }, best.at);
    absl::StrAppend(&text, ". Activation blocks: the share of ", shareName(best.at.actParts), " takes the least of ",
                    tried.size(), " tried (", listOf(around(tried, best.at.actParts), shareName), "); compute alone ",
                    msText(played.computeNs), ", link alone ", msText(played.linkNs), ": ",
                    cost::balanced({.pcieNs = static_cast<double>(played.linkNs),
                                    .computeNs = static_cast<double>(played.computeNs)})
                        ? "balanced"
                    : played.linkNs > played.computeNs ? "the link is the longer"
                                                       : "compute is the longer",
                    ". ", found.algorithm1);
  }
  if (space.free().miniBatches) {
    CompileRequest one = space.request();
    one.goal.miniBatches = 1;
    const absl::StatusOr<int64_t> packed = packedMiniBatches(one, policy);
    absl::StrAppend(&text, ". Mini-batches: the batch packs into ",
                    packed.ok() ? absl::StrCat(*packed) : absl::StrCat("none (", packed.status().message(), ")"),
                    "; of those tried (",
                    listOf(bestBy(
                               space, [](const Coordinates &at) { return at.miniBatches; }, std::nullopt),
                           [](int64_t count) { return absl::StrCat(count); }),
                    ") ", best.at.miniBatches, " takes the least", ruledOut(space));
  }
  absl::StrAppend(&text, explainEncodings(space, best));
  if (best.at.chunk > kLargestChunk)
    absl::StrAppend(&text, ". Prompts: up to ", best.at.chunk, " tokens an iteration; with each of those tried ",
                    space.aim(best.at).what, ": ",
                    listOf(bestBy(
                               space, [](const Coordinates &at) { return at.chunk; }, best.at),
                           [](int64_t chunk) { return absl::StrCat(chunk); }));
  return text;
}

std::string explainWriteBack(Space &space, const Coordinates &at, const Candidate &candidate) {
  const std::optional<int64_t> resident = candidate.residency.firstKvBlockAway();
  const std::optional<Scored> chosen = resident ? space.scored(at, candidate) : std::nullopt;
  if (!chosen)
    return "";
  const Aim &aim = space.aim(at);
  const auto largest = [&](plan::IterationClass iterationClass) {
    std::optional<size_t> found;
    for (size_t i = 0; i < aim.points.size(); ++i)
      if (aim.points[i].at.iterationClass == iterationClass &&
          (!found || aim.points[i].at.context >= aim.points[*found].at.context))
        found = i;
    return found;
  };
  std::string text;
  const auto add = [&](const char *name, plan::IterationClass iterationClass, bool Coordinates::*dirty) {
    const std::optional<size_t> point = largest(iterationClass);
    if (!point)
      return;
    const bool mirrors = !at.allBack && !(at.*dirty);
    absl::StrAppend(&text, text.empty() ? ". Rows of KV on the host: " : "; ", name,
                    mirrors      ? " mirrors"
                    : at.allBack ? " writes back all that is in use"
                                 : " writes back what was written");
    if (!space.free().writeBack)
      return;
    Coordinates other = at;
    other.*dirty = !(at.*dirty);
    other.allBack = false;
    Candidate otherwise = candidate;
    space.setTails(other, *resident, otherwise);
    if (!space.deviceHolds(other, otherwise, /*exactly=*/true))
      return;
    if (const std::optional<Scored> played = space.scored(other, otherwise))
      absl::StrAppend(&text, ": ", msText(chosen->played[*point].ns), " against ", msText(played->played[*point].ns),
                      mirrors ? " written back" : " mirrored");
  };
  add("decode", plan::IterationClass::Decode, &Coordinates::decodeDirty);
  add("prefill", plan::IterationClass::Mixed, &Coordinates::mixedDirty);
  return text;
}

} // namespace headrace::compiler
