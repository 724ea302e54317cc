// SPDX-License-Identifier: Apache-2.0
#include "passes/algorithms/SearchUnits.h"

#include <algorithm>

#include "passes/algorithms/FillLink.h"
#include "passes/algorithms/LapsOfChanges.h"
#include "passes/algorithms/PickLayers.h"
#include "passes/algorithms/SpreadUnits.h"
#include "passes/algorithms/UnitKinds.h"

namespace headrace::algorithms {
namespace {

using UnitSet = std::vector<uint32_t>;

class Search {
public:
  Search(const UnitProblem &problem, const SearchLimits &limits) : problem_(problem), limits_(limits), times_(problem) {
    for (size_t unit = 0; unit < problem.units.size(); ++unit)
      ringBytes_.push_back(times_.ringBytes(unit));
    may_.assign(problem.units.size(), limits.only.empty());
    for (const uint32_t unit : limits.only)
      may_[unit] = true;
    kept_.assign(problem.units.size(), false);
    for (const uint32_t unit : limits.kept)
      may_[unit] = kept_[unit] = true;
    kinds_ = kindsOf(problem, times_, may_);
    findBinding();
    full_.leastBytes = limits.full;
  }

  std::optional<UnitPlacement> run() {
    if (!tryKept())
      return std::nullopt;
    spreadLayersWhole();
    if (!isEnough())
      construct();
    if (!isEnough())
      spreadKinds();
    if (!isEnough())
      improve();
    // Nearly as much freed, and the link filled: see SearchLimits.
    const bool enough =
        full_.placed && static_cast<double>(full_.freed()) >= limits_.enough * static_cast<double>(best_.freed());
    return enough ? full_.placed : best_.placed;
  }

  // Smaller and smaller rings for a set that meets the SLOs with one, as long as they do.
  void shrink(const UnitSet &units, RingAssignment ring) {
    const std::vector<uint64_t> bytes = bytesOf(units);
    while (times_.evaluations() < budget_) {
      std::optional<RingAssignment> smaller = assignRingWithin(bytes, ring.bytes - 1);
      if (!smaller || !keep(units, *smaller))
        return;
      ring = *std::move(smaller);
    }
  }

  std::optional<UnitPlacement> place(const UnitSet &units) {
    const auto attempt = [&](size_t laps) {
      const RingAssignment ring = ringOf(units, laps);
      return times_.meets(units, ring);
    };
    size_t low = 1, high = units.size(); // more laps: a smaller ring
    if (units.empty() || !attempt(1))
      return std::nullopt;
    while (low < high) {
      const size_t middle = low + (high - low + 1) / 2;
      if (attempt(middle))
        low = middle;
      else
        high = middle - 1;
    }
    const RingAssignment ring = ringOf(units, low);
    if (!times_.meets(units, ring))
      return std::nullopt;
    return placement(units, ring);
  }

private:
  RingAssignment ringOf(const UnitSet &units, size_t laps) const { return assignRing(bytesOf(units), laps); }
  std::vector<uint64_t> bytesOf(const UnitSet &units) const {
    std::vector<uint64_t> bytes;
    bytes.reserve(units.size());
    for (const uint32_t unit : units)
      bytes.push_back(problem_.units[unit].bytes);
    return bytes;
  }
  uint64_t sum(const UnitSet &units) const {
    uint64_t bytes = 0;
    for (const uint32_t unit : units)
      bytes += problem_.units[unit].bytes;
    return bytes;
  }
  uint64_t linkNs(const UnitSet &units) const {
    uint64_t ns = 0;
    for (const uint32_t unit : units)
      ns += times_.copyNs(unit);
    return ns;
  }

  UnitPlacement placement(const UnitSet &units, const RingAssignment &ring) {
    UnitPlacement placed;
    placed.units = units;
    placed.ringBytes = ring.bytes;
    placed.offloadedBytes = sum(units);
    placed.freedBytes = placed.offloadedBytes - std::min(placed.offloadedBytes, ring.bytes);
    placed.timing = times_.timing(units, ring);
    return placed;
  }

  // The most that is freed by sets of at least so many bytes.
  struct Leader {
    uint64_t leastBytes = 0;
    std::optional<UnitPlacement> placed;
    uint64_t freed() const { return placed ? placed->freedBytes : 0; }
    bool wants(uint64_t bytes, uint64_t freedBytes) const { return bytes >= leastBytes && freedBytes > freed(); }
  };

  // Whether it meets the SLOs and frees more than a leader; kept if so.
  bool keep(const UnitSet &units, const RingAssignment &ring, Leader *local = nullptr) {
    const uint64_t bytes = sum(units), freed = bytes - std::min(bytes, ring.bytes);
    const bool wanted = best_.wants(bytes, freed) || full_.wants(bytes, freed) || (local && local->wants(bytes, freed));
    if (!wanted || bytes > limits_.mostBytes || linkNs(units) > shortestSlo_ || !times_.meets(units, ring))
      return false;
    record(placement(units, ring), local);
    return true;
  }
  void record(const UnitPlacement &placed, Leader *local = nullptr) {
    for (Leader *leader : {&best_, &full_, local})
      if (leader && leader->wants(placed.offloadedBytes, placed.freedBytes))
        leader->placed = placed;
    pool_.push_back(placed);
    std::stable_sort(pool_.begin(), pool_.end(),
                     [](const UnitPlacement &a, const UnitPlacement &b) { return a.freedBytes > b.freedBytes; });
    if (pool_.size() > kPool)
      pool_.pop_back();
  }

  // The buckets that decide: the shortest SLO is what limits the link, the least slack what limits waiting.
  void findBinding() {
    shortestSlo_ = std::numeric_limits<uint64_t>::max();
    double least = 0;
    for (size_t schedule = 0; schedule < problem_.schedules.size(); ++schedule)
      for (size_t bucket = 0; bucket < problem_.schedules[schedule].buckets.size(); ++bucket) {
        const uint64_t slo = problem_.schedules[schedule].buckets[bucket].sloNs;
        const auto compute = static_cast<double>(times_.computeNs(schedule, bucket));
        const double slack = static_cast<double>(slo) / std::max(1.0, compute);
        if (binding_.empty() || slack < least) {
          least = slack;
          if (binding_.empty())
            binding_.emplace_back();
          binding_[0] = {schedule, bucket};
        }
        shortestSlo_ = std::min(shortestSlo_, slo);
      }
    for (size_t schedule = 0; schedule < problem_.schedules.size() && binding_.size() == 1; ++schedule)
      for (size_t bucket = 0; bucket < problem_.schedules[schedule].buckets.size(); ++bucket)
        if (problem_.schedules[schedule].buckets[bucket].sloNs == shortestSlo_ &&
            problem_.schedules[binding_[0].first].buckets[binding_[0].second].sloNs > shortestSlo_) {
          binding_.emplace_back(schedule, bucket);
          break;
        }
  }

  bool tryKept() {
    const UnitSet kept(limits_.kept);
    if (kept.empty() && times_.meets(kept, {}))
      best_.placed = placement(kept, {});
    if (!kept.empty())
      best_.placed = place(kept);
    if (best_.placed && best_.placed->offloadedBytes >= full_.leastBytes)
      full_.placed = best_.placed;
    return best_.placed.has_value();
  }

  // Whole layers, evenly spread, from the most that the link can copy down.
  void spreadLayersWhole() {
    std::vector<UnitSet> layers;
    for (uint32_t unit = 0; unit < problem_.units.size(); ++unit) {
      if (problem_.units[unit].layer < 0 || !may_[unit])
        continue;
      if (layers.empty() || problem_.units[layers.back()[0]].layer != problem_.units[unit].layer)
        layers.emplace_back();
      layers.back().push_back(unit);
    }
    for (size_t count = layers.size(); count > 0; --count) {
      UnitSet units(limits_.kept);
      for (const int64_t layer : spreadLayers(static_cast<int64_t>(layers.size()), static_cast<int64_t>(count)))
        units.insert(units.end(), layers[static_cast<size_t>(layer)].begin(), layers[static_cast<size_t>(layer)].end());
      std::sort(units.begin(), units.end());
      units.erase(std::unique(units.begin(), units.end()), units.end());
      if (linkNs(units) > shortestSlo_)
        continue;
      if (sum(units) <= best_.freed())
        break;
      const std::optional<UnitPlacement> placed = place(units);
      if (placed && placed->offloadedBytes <= limits_.mostBytes)
        record(*placed);
    }
  }

  // Counts of kinds, spread evenly; each with the largest ring with which it would free more than is known.
  void spreadKinds() {
    budget_ = times_.evaluations() + limits_.evaluations / 4;
    std::vector<UnitKind> kinds = kinds_.kinds;
    // The kinds of single units (the head) stay: a ring for one of them frees nothing that the others need.
    kinds.erase(std::remove_if(kinds.begin(), kinds.end(), [](const UnitKind &kind) { return kind.units.size() < 2; }),
                kinds.end());
    const size_t steps = kinds.size() <= 4 ? 6 : 2;
    if (kinds.size() > 6)
      return;
    forEachCounts(kinds, steps, shortestSlo_, [&](const KindCounts &counts) {
      uint64_t bytes = 0, largest = 0;
      for (size_t kind = 0; kind < kinds.size(); ++kind) {
        bytes += counts[kind] * kinds[kind].bytes;
        largest = std::max(largest, counts[kind] ? kinds[kind].bytes : 0);
      }
      if (bytes <= worstLeader() + largest && limits_.kept.empty())
        return;
      for (const size_t shift : {0, 2, 5}) {
        UnitSet units = spreadUnits(kinds, counts, shift);
        if (!limits_.kept.empty()) {
          units.insert(units.end(), limits_.kept.begin(), limits_.kept.end());
          std::sort(units.begin(), units.end());
          units.erase(std::unique(units.begin(), units.end()), units.end());
        }
        const uint64_t freed = sum(units);
        if (freed <= worstLeader() || times_.evaluations() >= budget_)
          continue;
        const std::optional<RingAssignment> ring = assignRingWithin(bytesOf(units), freed - worstLeader() - 1);
        if (ring && keep(units, *ring))
          shrink(units, *ring);
      }
    });
  }

  // What copies of the units that are copied best move in a time.
  uint64_t bytesAtBest(uint64_t ns) const {
    double bytes = 0;
    for (size_t unit = 0; unit < problem_.units.size(); ++unit)
      bytes = std::max(bytes, static_cast<double>(problem_.units[unit].bytes) /
                                  std::max<double>(1, static_cast<double>(times_.copyNs(unit))));
    return static_cast<uint64_t>(bytes * static_cast<double>(ns));
  }

  void construct() {
    budget_ = limits_.evaluations / 2;
    uint32_t needed = 0;
    for (const uint32_t unit : limits_.kept)
      needed |= kinds_.kindOf[unit] < 32 ? 1u << kinds_.kindOf[unit] : 0;
    for (const KindRing &start : kindRings(kinds_, needed, std::min(bytesAtBest(shortestSlo_), limits_.mostBytes))) {
      if (start.bound <= worstLeader() || isEnough() || times_.evaluations() >= budget_)
        break;
      // Of these kinds' own copies the link may bring less than of the largest.
      if (kinds_.kinds.size() <= 8 && bytesWithin(kinds_, start.kinds, shortestSlo_) <= worstLeader() + start.ringBytes)
        continue;
      for (const auto &[schedule, bucket] : binding_)
        for (const uint64_t lead : {4, 2, 3, 1})
          stretch(start, schedule, bucket, start.ringBytes / 4 * lead);
    }
  }

  // The longest stretched time with which what is taken meets the SLOs.
  void stretch(const KindRing &start, size_t schedule, size_t bucket, uint64_t leadBytes) {
    const uint64_t slo = problem_.schedules[schedule].buckets[bucket].sloNs;
    uint64_t low = slo / 2, high = slo + slo / 32;
    LinkFill fill;
    fill.schedule = schedule;
    fill.bucket = bucket;
    fill.ringBytes = start.ringBytes;
    fill.leadBytes = leadBytes;
    fill.mostBytes = limits_.mostBytes;
    for (size_t unit = 0; unit < kinds_.kindOf.size(); ++unit)
      fill.may.push_back(may_[unit] && (start.kinds >> kinds_.kindOf[unit] & 1));
    fill.must = kept_;
    UnitSet last;
    for (int round = 0; round < 8 && times_.evaluations() < budget_; ++round) {
      const uint64_t time = round == 0 ? slo : low + (high - low) / 2;
      fill.timeNs = time;
      const UnitSet units = fillLink(problem_, times_, fill);
      bool met = false;
      if (!units.empty() && units != last) {
        const std::optional<RingAssignment> ring =
            linkNs(units) <= shortestSlo_ ? assignRingWithin(bytesOf(units), start.ringBytes) : std::nullopt;
        met = ring && times_.meets(units, *ring);
        if (met) {
          keep(units, *ring);
          shrink(units, *ring);
        }
      }
      if (met)
        low = time;
      else
        high = time;
      if (sum(units) <= worstLeader() + start.ringBytes && !met)
        break; // less would free too little
    }
  }

  bool isEnough() const { return best_.freed() >= limits_.enoughFreed; }
  uint64_t worstLeader() const { return full_.leastBytes ? full_.freed() : best_.freed(); }

  // Changes of the best placements found so far, one after another, as long as any frees more.
  void improve() {
    const std::vector<UnitPlacement> starts = pool_;
    for (const UnitPlacement &start : starts) {
      budget_ = times_.evaluations() + limits_.evaluations / (4 * kPool);
      Leader local{0, start};
      while (times_.evaluations() < budget_ && (add(local) || exchange(local) || drop(local)))
        continue;
    }
    for (Leader *leader : {&best_, &full_}) {
      budget_ = times_.evaluations() + limits_.evaluations / 8;
      Leader local = *leader;
      while (local.placed && !local.placed->units.empty() && times_.evaluations() < budget_ &&
             (add(local) || exchange(local) || drop(local)))
        continue;
    }
  }
  // What changes begin with.
  struct Origin {
    UnitSet units;
    size_t laps = 1;
    uint64_t bytes = 0, linkNs = 0;
    std::vector<bool> has; // by unit
    LapsOfChanges lapsOf;
  };
  Origin originOf(const Leader &leader) const {
    const UnitPlacement &placed = *leader.placed;
    const size_t laps = assignRingWithin(bytesOf(placed.units), placed.ringBytes)->lapBegin.size();
    Origin origin{placed.units, laps, placed.offloadedBytes, linkNs(placed.units), {}, LapsOfChanges({}, {})};
    origin.lapsOf = LapsOfChanges(origin.units, ringBytes_);
    origin.has.assign(problem_.units.size(), false);
    for (const uint32_t unit : placed.units)
      origin.has[unit] = true;
    return origin;
  }
  // Without `out` and with `in`, with as many laps as there are, one less or one more; either may be
  // LapsOfChanges::kNone.
  bool attempt(Origin &from, uint32_t out, uint32_t in, Leader &leader) {
    uint64_t bytes = from.bytes, link = from.linkNs;
    if (out != LapsOfChanges::kNone) {
      bytes -= problem_.units[out].bytes;
      link -= times_.copyNs(out);
    }
    if (in != LapsOfChanges::kNone) {
      bytes += problem_.units[in].bytes;
      link += times_.copyNs(in);
    }
    const uint64_t before = leader.freed();
    if (bytes <= before || bytes < leader.leastBytes || bytes > limits_.mostBytes || link > shortestSlo_)
      return false;
    // Before a ring is laid out: in how many laps one that is small enough would do.
    const uint64_t mostRing = bytes - before - 1;
    const size_t most =
        std::min(from.laps + 1, from.units.size() + (in != LapsOfChanges::kNone) - (out != LapsOfChanges::kNone));
    const size_t least = std::max(std::max<size_t>(1, from.laps - 1), from.lapsOf.least(out, in, mostRing));
    if (least > most)
      return false;
    change(from.units, out, in);
    for (size_t n = least; n <= most; ++n)
      keep(changed_, assignRing(bytesOf(changed_), n, mostRing), &leader);
    return leader.freed() > before;
  }
  // changed_ without `out` and with `in`.
  void change(const UnitSet &units, uint32_t out, uint32_t in) {
    changed_.assign(units.begin(), units.end());
    if (out != LapsOfChanges::kNone)
      changed_.erase(std::lower_bound(changed_.begin(), changed_.end(), out));
    if (in != LapsOfChanges::kNone)
      changed_.insert(std::lower_bound(changed_.begin(), changed_.end(), in), in);
  }
  bool add(Leader &leader) {
    Origin from = originOf(leader);
    for (uint32_t unit = 0; unit < problem_.units.size() && times_.evaluations() < budget_; ++unit)
      if (may_[unit] && !from.has[unit] && attempt(from, LapsOfChanges::kNone, unit, leader))
        return true;
    return false;
  }
  bool exchange(Leader &leader) {
    Origin from = originOf(leader);
    for (const uint32_t out : from.units) {
      if (kept_[out])
        continue;
      for (uint32_t in = out > 12 ? out - 12 : 0; in < std::min<size_t>(out + 13, problem_.units.size()); ++in) {
        if (times_.evaluations() >= budget_)
          return false;
        if (may_[in] && !from.has[in] && attempt(from, out, in, leader))
          return true;
      }
    }
    return false;
  }
  bool drop(Leader &leader) {
    Origin from = originOf(leader);
    for (const uint32_t out : from.units)
      if (!kept_[out] && from.units.size() > 1 && times_.evaluations() < budget_ &&
          attempt(from, out, LapsOfChanges::kNone, leader))
        return true;
    return false;
  }

  const UnitProblem &problem_;
  const SearchLimits &limits_;
  UnitTimes times_;
  std::vector<uint64_t> ringBytes_; // by unit
  std::vector<bool> may_, kept_;
  UnitKinds kinds_;
  std::vector<std::pair<size_t, size_t>> binding_; // schedule, bucket
  uint64_t shortestSlo_ = 0;
  uint64_t budget_ = std::numeric_limits<uint64_t>::max();
  UnitSet changed_; // the set of the change at hand
  static constexpr size_t kPool = 8;
  std::vector<UnitPlacement> pool_; // the best, whatever they hold
  Leader best_, full_;
};

} // namespace

std::optional<UnitPlacement> searchUnits(const UnitProblem &problem, const SearchLimits &limits) {
  return Search(problem, limits).run();
}

std::optional<UnitPlacement> placeUnits(const UnitProblem &problem, const std::vector<uint32_t> &units) {
  const SearchLimits limits;
  return Search(problem, limits).place(units);
}

} // namespace headrace::algorithms
