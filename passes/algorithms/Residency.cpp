// SPDX-License-Identifier: Apache-2.0
#include "passes/algorithms/Residency.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "passes/algorithms/ParseNumber.h"

namespace headrace::algorithms {
namespace {

constexpr std::string_view kWriteBacks[] = {"mirror", "all", "dirty"};
constexpr std::string_view kAheadPrefix = "ahead-";

// "0,4-7": numbers and ranges, ascending.
bool parseList(std::string_view text, MovableKind kind, std::vector<Extent> &away) {
  int64_t before = -1;
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), part.size() + 1));
    const size_t dash = part.find('-'), at = part.find('@');
    const std::string_view numbers = part.substr(0, at);
    int32_t first = 0, last = 0;
    uint64_t begin = 0;
    if (!parseNumber(numbers.substr(0, dash), first) ||
        !(dash == std::string_view::npos ? (last = first, true) : parseNumber(numbers.substr(dash + 1), last)) ||
        (at != std::string_view::npos && (!traitsOf(kind).inBlocks || !parseNumber(part.substr(at + 1), begin))) ||
        first <= before || last < first || last - first > (1 << 20))
      return false;
    for (int32_t index = first; index <= last; ++index)
      away.push_back({.of = {kind, index}, .begin = begin});
    before = last;
  }
  return before >= 0;
}

std::string listText(const std::vector<Extent> &away, MovableKind kind) {
  std::string text;
  for (size_t i = 0; i < away.size(); ++i) {
    if (away[i].of.kind != kind)
      continue;
    size_t last = i;
    while (last + 1 < away.size() && away[last + 1].of.kind == kind &&
           away[last + 1].of.index == away[last].of.index + 1 && away[last + 1].begin == away[i].begin)
      ++last;
    text += (text.empty() ? "" : ",") + std::to_string(away[i].of.index);
    if (last > i)
      text += "-" + std::to_string(away[last].of.index);
    if (away[i].begin > 0)
      text += "@" + std::to_string(away[i].begin);
    i = last;
  }
  return text;
}

bool parseCut(std::string_view text, std::optional<Cut> &cut) {
  const size_t plus = text.find('+');
  Cut found;
  if (!parseNumber(text.substr(0, plus), found.units) ||
      (plus != std::string_view::npos && !parseNumber(text.substr(plus + 1), found.bytes)))
    return false;
  cut = found;
  return true;
}

std::string cutText(const Cut &cut) {
  return std::to_string(cut.units) + (cut.bytes > 0 ? "+" + std::to_string(cut.bytes) : "");
}

// "3/2"
bool parseVisits(std::string_view text, std::optional<SwapVisits> &visits) {
  const size_t slash = text.find('/'), both = text.find('/', slash + 1);
  SwapVisits found;
  if (slash == std::string_view::npos || !parseNumber(text.substr(0, slash), found.in) ||
      !parseNumber(text.substr(slash + 1, both - slash - 1), found.out) ||
      (both != std::string_view::npos && !parseNumber(text.substr(both + 1), found.both)))
    return false;
  visits = found;
  return true;
}

bool parseWriteBack(std::string_view text, std::optional<WriteBack> &writeBack) {
  const auto *const at = std::find(std::begin(kWriteBacks), std::end(kWriteBacks), text);
  if (at == std::end(kWriteBacks))
    return false;
  writeBack = static_cast<WriteBack>(at - std::begin(kWriteBacks));
  return true;
}

bool parseStart(std::string_view text, Start &start) {
  if (text == "paper")
    start = kPaper;
  else if (text == "eager")
    start = kEager;
  else if (text.substr(0, kAheadPrefix.size()) == kAheadPrefix) {
    start = ahead(0);
    return parseNumber(text.substr(kAheadPrefix.size()), start.items);
  } else {
    return false;
  }
  return true;
}

std::string startText(const Start &start) {
  switch (start.rule) {
  case StartRule::Paper:
    return "paper";
  case StartRule::Eager:
    return "eager";
  case StartRule::Ahead:
    return std::string(kAheadPrefix) + std::to_string(start.items);
  }
  return "";
}

std::string_view textOf(const std::optional<WriteBack> &writeBack) {
  return kWriteBacks[static_cast<size_t>(writeBack.value_or(WriteBack::Mirror))];
}

// Of tails that cycle through fewer places than there are of them.
std::string contradictionInPlaces(const Pool &kv, const Wrap &wrap) {
  if (kv.places() < 2)
    return "needs at least two places for tails of caches, one is filled while the other is in use, got " +
           std::to_string(kv.places());
  if (kv.fifo() && (kv.fifo()->in < 1 || kv.fifo()->out < 1))
    return "swaps tails while one layer computes, or more, got " + std::to_string(kv.fifo()->in) + " in and " +
           std::to_string(kv.fifo()->out) + " out";
  if (kv.fifo() && (kv.fifo()->both < 1 || kv.fifo()->both > 1000))
    return "swaps tails with 1 to 1000 thousandths of a direction's rate while both are at work, got " +
           std::to_string(kv.fifo()->both);
  if ((kv.decodeBack == WriteBack::All) != (kv.mixedBack == WriteBack::All))
    return "writes tails that cycle back as they are given up (all) in iterations of both classes or of none, got "
           "decode-write-back=" +
           std::string(textOf(kv.decodeBack)) + " and mixed-write-back=" + std::string(textOf(kv.mixedBack));
  if (wrap.decode && wrap.mixed && (wrap.decode->units != wrap.mixed->units || wrap.decode->bytes != wrap.mixed->bytes))
    return "is cut alike in all iterations of a cycle, got decode-cut=" + cutText(*wrap.decode) +
           " and mixed-cut=" + cutText(*wrap.mixed);
  return "";
}

// The pools' entries of a text, until it is known which belong together.
struct PoolTexts {
  std::array<int64_t, kMovableKinds> slots{};
  int64_t kvPlaces = 0;
  uint64_t ringBytes = 0;
  std::optional<SwapVisits> fifo;
};

// What contradicts itself; empty: nothing does.
std::string setPools(const PoolTexts &said, Residency &residency) {
  const int64_t slots = said.slots[static_cast<size_t>(MovableKind::Weight)],
                kvSlots = said.slots[static_cast<size_t>(MovableKind::Kv)];
  if (said.ringBytes > 0 && slots != 0)
    return "has either item-sized slots or a ring, got " + std::to_string(slots) + " slots and a ring of " +
           std::to_string(said.ringBytes) + " bytes";
  if (said.kvPlaces != 0 && kvSlots != 0)
    return "has either slots or places for tails of caches, got " + std::to_string(kvSlots) + " slots and " +
           std::to_string(said.kvPlaces) + " places";
  if (said.fifo && said.kvPlaces == 0)
    return "swaps tails first in, first out through places, got none";
  for (const MovableTraits &of : kMovables)
    residency.pool(of.kind).setSlots(said.slots[static_cast<size_t>(of.kind)]);
  if (said.ringBytes > 0)
    residency.weights().setRing(said.ringBytes);
  if (said.kvPlaces != 0)
    residency.kv().setPlaces(said.kvPlaces, said.fifo);
  return "";
}

// "weights=, kv= or act=", "slots=N, kv-slots=N"
std::string expected() {
  std::string away, slots;
  for (const MovableTraits &of : kMovables) {
    if (!of.awayKey.empty())
      away += (away.empty() ? "" : ", ") + std::string(of.awayKey) + "=";
    slots += std::string(of.slotsKey) + "=N, ";
  }
  away.replace(away.rfind(", "), 2, " or ");
  return "expected " + away +
         " with ascending numbers and ranges (0,4-7; of kv from a block on: 0-3@33), start=paper, eager or ahead-N, " +
         slots +
         "ring=BYTES, kv-places=N, kv-fifo=IN/OUT or IN/OUT/BOTH, decode-write-back= or mixed-write-back=mirror, all "
         "or "
         "dirty, decode-cut= or mixed-cut=N or N+BYTES, wrap, one-cut";
}

const MovableTraits *kindOf(std::string_view MovableTraits::*key, std::string_view text) {
  const auto *const at =
      std::find_if(kMovables.begin(), kMovables.end(), [&](const MovableTraits &of) { return of.*key == text; });
  return at == kMovables.end() || text.empty() ? nullptr : at;
}

} // namespace

bool Residency::isAway(Movable movable) const {
  const auto at = std::lower_bound(away.begin(), away.end(), movable,
                                   [](const Extent &extent, const Movable &m) { return extent.of < m; });
  return at != away.end() && at->of == movable;
}

bool Residency::isAway(MovableKind kind) const {
  return std::any_of(away.begin(), away.end(), [&](const Extent &extent) { return extent.of.kind == kind; });
}

std::vector<int32_t> Residency::awayOf(MovableKind kind) const {
  std::vector<int32_t> indices;
  indices.reserve(away.size());
  for (const Extent &extent : away)
    if (extent.of.kind == kind && (indices.empty() || indices.back() != extent.of.index))
      indices.push_back(extent.of.index);
  return indices;
}

void Residency::setAway(MovableKind kind, std::vector<int32_t> indices) {
  std::erase_if(away, [&](const Extent &extent) { return extent.of.kind == kind; });
  if (!std::is_sorted(indices.begin(), indices.end()))
    std::sort(indices.begin(), indices.end());
  indices.erase(std::unique(indices.begin(), indices.end()), indices.end());
  std::vector<Extent> extents;
  extents.reserve(indices.size());
  for (const int32_t index : indices)
    extents.push_back({.of = {kind, index}});
  const auto at = std::find_if(away.begin(), away.end(), [&](const Extent &extent) { return extent.of.kind > kind; });
  away.insert(at, extents.begin(), extents.end());
}

std::optional<int64_t> Residency::firstKvBlockAway() const {
  for (const Extent &extent : away)
    if (extent.of.kind == MovableKind::Kv)
      return static_cast<int64_t>(extent.begin);
  return std::nullopt;
}

bool Pool::writesBack() const {
  return decodeBack.value_or(WriteBack::Mirror) != WriteBack::Mirror ||
         mixedBack.value_or(WriteBack::Mirror) != WriteBack::Mirror;
}

int64_t Residency::slotsOf(MovableKind kind) const {
  return pool(kind).slots() > 0 ? pool(kind).slots() : traitsOf(kind).slots;
}

void Residency::setKvAway(int64_t layers, int64_t firstBlock) {
  std::vector<int32_t> all(static_cast<size_t>(layers));
  std::iota(all.begin(), all.end(), 0);
  setAway(MovableKind::Kv, std::move(all));
  for (Extent &extent : away)
    if (extent.of.kind == MovableKind::Kv)
      extent.begin = static_cast<uint64_t>(firstBlock);
}

std::string toText(const Residency &residency) {
  std::string text;
  const auto add = [&](std::string_view key, const std::string &value) {
    text += text.empty() ? "" : " ";
    text += key;
    text += value.empty() ? "" : "=" + value;
  };
  for (const MovableTraits &of : kMovables)
    if (const std::string list = listText(residency.away, of.kind); !list.empty())
      add(of.awayKey, list);
  add("start", startText(residency.start));
  const Pool &kv = residency.kv();
  for (const MovableTraits &of : kMovables) {
    const Pool &pool = residency.pool(of.kind);
    if (pool.slots() != 0)
      add(of.slotsKey, std::to_string(pool.slots()));
    if (pool.ringBytes() != 0)
      add("ring", std::to_string(pool.ringBytes()));
    if (pool.places() != 0)
      add("kv-places", std::to_string(pool.places()));
    if (pool.fifo())
      add("kv-fifo", std::to_string(pool.fifo()->in) + "/" + std::to_string(pool.fifo()->out) +
                         (pool.fifo()->both < 1000 ? "/" + std::to_string(pool.fifo()->both) : ""));
  }
  for (const auto &[key, writeBack] :
       {std::pair("decode-write-back", kv.decodeBack), std::pair("mixed-write-back", kv.mixedBack)})
    if (writeBack)
      add(key, std::string(textOf(writeBack)));
  const Wrap &wrap = residency.wrap;
  if (wrap.decode)
    add("decode-cut", cutText(*wrap.decode));
  if (wrap.mixed)
    add("mixed-cut", cutText(*wrap.mixed));
  if (wrap.around && !wrap.decode && !wrap.mixed)
    add("wrap", "");
  if (wrap.oneCut)
    add("one-cut", "");
  return text;
}

std::optional<Residency> residencyFromText(std::string_view text, std::string &error) {
  Residency residency;
  PoolTexts pools;
  std::set<std::string_view> seen;
  while (!text.empty()) {
    const std::string_view entry = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(text.size(), entry.size() + 1));
    if (entry.empty())
      continue;
    const size_t equals = entry.find('=');
    const std::string_view key = entry.substr(0, equals);
    const std::string_view value = equals == std::string_view::npos ? std::string_view() : entry.substr(equals + 1);
    const MovableTraits *const away = kindOf(&MovableTraits::awayKey, key);
    const MovableTraits *const slots = kindOf(&MovableTraits::slotsKey, key);
    bool good = true;
    if (!seen.insert(key).second) {
      error = "says '" + std::string(key) + "' twice";
      return std::nullopt;
    }
    if (away != nullptr)
      good = parseList(value, away->kind, residency.away);
    else if (slots != nullptr)
      good = parseNumber(value, pools.slots[static_cast<size_t>(slots->kind)]);
    else if (key == "start")
      good = parseStart(value, residency.start);
    else if (key == "ring")
      good = parseNumber(value, pools.ringBytes);
    else if (key == "kv-places")
      good = parseNumber(value, pools.kvPlaces);
    else if (key == "kv-fifo")
      good = parseVisits(value, pools.fifo);
    else if (key == "decode-write-back")
      good = parseWriteBack(value, residency.kv().decodeBack);
    else if (key == "mixed-write-back")
      good = parseWriteBack(value, residency.kv().mixedBack);
    else if (key == "decode-cut")
      good = parseCut(value, residency.wrap.decode);
    else if (key == "mixed-cut")
      good = parseCut(value, residency.wrap.mixed);
    else if (entry == "wrap")
      residency.wrap.around = true;
    else if (entry == "one-cut")
      residency.wrap.oneCut = true;
    else
      good = false;
    if (!good) {
      error = "has '" + std::string(entry) + "', " + expected();
      return std::nullopt;
    }
  }
  error = setPools(pools, residency);
  if (!error.empty())
    return std::nullopt;
  residency.wrap.around |= residency.wrap.decode || residency.wrap.mixed;
  std::sort(residency.away.begin(), residency.away.end(), [](const Extent &a, const Extent &b) { return a.of < b.of; });
  return residency;
}

std::string contradictionIn(const Residency &residency) {
  const bool eager = residency.start == kEager;
  for (const MovableTraits &of : kMovables) {
    const int64_t slots = residency.pool(of.kind).slots();
    if (slots < 0)
      return "needs a number of slots for " + std::string(of.plural) + " that is not negative, got " +
             std::to_string(slots);
    // Item by item is a rule for weights.
    const bool moved = residency.isAway(of.kind) || (of.awayKey.empty() && slots > 0);
    if (moved && !eager && of.turns != Turns::ByStart)
      return "moves " + std::string(of.plural) + " under the rule eager only, not under " + startText(residency.start);
  }
  if (const std::optional<int64_t> block = residency.firstKvBlockAway())
    for (const Extent &extent : residency.away)
      if (extent.of.kind == MovableKind::Kv && static_cast<int64_t>(extent.begin) != *block)
        return "splits all caches at one block, got " + std::to_string(*block) + " and " + std::to_string(extent.begin);
  if (residency.kv().how() == How::Places) {
    if (std::string wrong = contradictionInPlaces(residency.kv(), residency.wrap); !wrong.empty())
      return wrong;
    if (residency.residualsHaveHomes())
      return "keeps residual streams on the device where tails of caches cycle through places";
  }
  if (residency.weights().ringBytes() > 0 && !eager)
    return "has item-sized slots under the rule " + startText(residency.start) + ", not a ring";
  if (residency.wrap.around && !eager)
    return "states no cut under the rule " + startText(residency.start) +
           (residency.start.rule == StartRule::Ahead ? ", which says itself what is there on entry"
                                                     : ": nothing wraps around");
  return "";
}

} // namespace headrace::algorithms
