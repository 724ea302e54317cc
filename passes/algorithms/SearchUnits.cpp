// SPDX-License-Identifier: Apache-2.0
#include "passes/algorithms/SearchUnits.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

namespace headrace::algorithms {
namespace {

constexpr uint64_t roundUp(uint64_t bytes) { return (bytes + kRingAlign - 1) / kRingAlign * kRingAlign; }

using UnitSet = std::vector<uint32_t>;

class Search {
public:
  Search(const UnitProblem &problem, const SearchLimits &limits) : problem_(problem), limits_(limits), times_(problem) {
    may_.assign(problem.units.size(), limits.only.empty());
    for (const uint32_t unit : limits.only)
      may_[unit] = true;
    kept_.assign(problem.units.size(), false);
    for (const uint32_t unit : limits.kept)
      may_[unit] = kept_[unit] = true;
    std::map<std::pair<int32_t, uint64_t>, uint32_t> kinds; // by role and size
    for (const OffloadableUnit &unit : problem.units)
      kinds.try_emplace({unit.role, unit.bytes}, 0);
    for (auto &[key, kind] : kinds) {
      kind = static_cast<uint32_t>(kindBytes_.size());
      kindBytes_.push_back(roundUp(key.second));
    }
    kindTotal_.assign(kindBytes_.size(), 0);
    for (size_t i = 0; i < problem.units.size(); ++i) {
      kindOf_.push_back(kinds.at({problem.units[i].role, problem.units[i].bytes}));
      if (may_[i])
        kindTotal_[kindOf_.back()] += problem.units[i].bytes;
    }
    findBinding();
  }

  std::optional<UnitPlacement> run() {
    if (!best_ && !tryKept())
      return std::nullopt;
    construct();
    improve();
    return best_;
  }

  // The fewest bytes of ring for a set: more laps as long as they do. Keeps the best.
  bool offer(const UnitSet &units, size_t fewestLaps) {
    bool found = false;
    for (size_t laps = std::max<size_t>(1, fewestLaps); laps <= units.size() && times_.evaluations() < budget_;
         ++laps) {
      const RingAssignment ring = ringOf(units, laps);
      if (!keep(units, ring))
        break;
      found = true;
    }
    return found;
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

  // Whether it meets the SLOs and frees more than the best; kept if so.
  bool keep(const UnitSet &units, const RingAssignment &ring) {
    const uint64_t bytes = sum(units);
    if (bytes > limits_.mostBytes || bytes <= ring.bytes + (best_ ? best_->freedBytes : 0) ||
        linkNs(units) > shortestSlo_ || !times_.meets(units, ring))
      return false;
    best_ = placement(units, ring);
    return true;
  }

  // The shapes that decide: the shortest SLO is what limits the link, the least slack what limits waiting.
  void findBinding() {
    shortestSlo_ = std::numeric_limits<uint64_t>::max();
    double least = 0;
    for (size_t schedule = 0; schedule < problem_.schedules.size(); ++schedule)
      for (size_t shape = 0; shape < problem_.schedules[schedule].shapes.size(); ++shape) {
        const uint64_t slo = problem_.schedules[schedule].shapes[shape].sloNs;
        const auto compute = static_cast<double>(times_.computeNs(schedule, shape));
        const double slack = static_cast<double>(slo) / std::max(1.0, compute);
        if (binding_.empty() || slack < least) {
          least = slack;
          if (binding_.empty())
            binding_.emplace_back();
          binding_[0] = {schedule, shape};
        }
        shortestSlo_ = std::min(shortestSlo_, slo);
      }
    for (size_t schedule = 0; schedule < problem_.schedules.size() && binding_.size() == 1; ++schedule)
      for (size_t shape = 0; shape < problem_.schedules[schedule].shapes.size(); ++shape)
        if (problem_.schedules[schedule].shapes[shape].sloNs == shortestSlo_ &&
            problem_.schedules[binding_[0].first].shapes[binding_[0].second].sloNs > shortestSlo_) {
          binding_.emplace_back(schedule, shape);
          break;
        }
  }

  bool tryKept() {
    const UnitSet kept(limits_.kept);
    if (kept.empty()) {
      if (!times_.meets(kept, {}))
        return false;
      best_ = placement(kept, {});
      return true;
    }
    best_ = place(kept);
    return best_.has_value();
  }

  struct Start {
    uint64_t bound; // on what is freed
    uint64_t ring;
    uint32_t kinds; // a bit each
    bool operator<(const Start &o) const {
      return bound != o.bound ? bound > o.bound : std::tie(ring, kinds) < std::tie(o.ring, o.kinds);
    }
  };

  // All sets of kinds with the rings that two to four of their units make.
  std::vector<Start> starts() const {
    std::vector<Start> found;
    const uint64_t fits = bytesWithin(shortestSlo_);
    uint32_t all = 0;
    for (const uint32_t unit : limits_.kept)
      all |= 1u << kindOf_[unit];
    const uint32_t kinds = 1u << std::min<size_t>(kindBytes_.size(), 8);
    for (uint32_t mask = 1; mask < kinds; ++mask) {
      if ((mask & all) != all)
        continue;
      uint64_t bytes = 0, largest = 0;
      for (uint32_t kind = 0; kind < kindBytes_.size(); ++kind)
        if (mask >> kind & 1) {
          bytes += kindTotal_[kind];
          largest = std::max(largest, kindBytes_[kind]);
        }
      std::set<uint64_t> rings{largest};
      std::vector<uint64_t> last{0};
      for (int count = 0; count < 4; ++count) {
        std::vector<uint64_t> next;
        for (const uint64_t so : last)
          for (uint32_t kind = 0; kind < kindBytes_.size(); ++kind)
            if (mask >> kind & 1)
              next.push_back(so + kindBytes_[kind]);
        std::sort(next.begin(), next.end());
        next.erase(std::unique(next.begin(), next.end()), next.end());
        rings.insert(next.begin(), next.end());
        last = std::move(next);
      }
      const uint64_t most = std::min({bytes, fits, limits_.mostBytes});
      for (const uint64_t ring : rings)
        if (ring >= largest && ring <= 4 * largest && ring < most)
          found.push_back({most - ring, ring, mask});
    }
    std::sort(found.begin(), found.end());
    return found;
  }

  // What copies of the units' mean size move in a time.
  uint64_t bytesWithin(uint64_t ns) const {
    double bytes = 0, time = 0;
    for (size_t unit = 0; unit < problem_.units.size(); ++unit)
      bytes = std::max(bytes, static_cast<double>(problem_.units[unit].bytes) /
                                  std::max<double>(1, static_cast<double>(times_.copyNs(unit))));
    (void)time;
    return static_cast<uint64_t>(bytes * static_cast<double>(ns));
  }

  void construct() {
    budget_ = limits_.evaluations / 2;
    for (const Start &start : starts()) {
      if (start.bound <= best_->freedBytes || times_.evaluations() >= budget_)
        break;
      for (const auto &[schedule, shape] : binding_)
        for (const uint64_t lead : {4, 2, 3, 1})
          stretch(start, schedule, shape, start.ring / 4 * lead);
    }
  }

  // The longest stretched time with which what is taken meets the SLOs.
  void stretch(const Start &start, size_t schedule, size_t shape, uint64_t leadBytes) {
    const uint64_t slo = problem_.schedules[schedule].shapes[shape].sloNs;
    uint64_t low = slo / 2, high = slo + slo / 32;
    UnitSet last;
    for (int round = 0; round < 8 && times_.evaluations() < budget_; ++round) {
      const uint64_t time = round == 0 ? slo : low + (high - low) / 2;
      UnitSet units = take(start, schedule, shape, time, leadBytes);
      bool met = false;
      if (!units.empty() && units != last) {
        const std::optional<RingAssignment> ring = assignRingWithin(bytesOf(units), start.ring);
        met = linkNs(units) <= shortestSlo_ && times_.meets(units, *ring);
        if (met) {
          keep(units, *ring);
          offer(units, ring->lapBegin.size() + 1);
        }
      }
      if (met)
        low = time;
      else
        high = time;
      if (sum(units) <= best_->freedBytes + start.ring && !met)
        break; // less would free too little
    }
  }

  // Goes through the iteration once and offloads what the link can bring in time.
  UnitSet take(const Start &start, size_t schedule, size_t shape, uint64_t time, uint64_t leadBytes) const {
    const double factor =
        static_cast<double>(time) / std::max(1.0, static_cast<double>(times_.computeNs(schedule, shape)));
    const ScheduleTimes &uses = problem_.schedules[schedule];
    UnitSet taken;
    std::vector<double> useEnd;
    std::vector<std::pair<uint64_t, size_t>> before, now;
    size_t first = 0;
    uint64_t offset = 0, bytes = 0;
    double lead = 0, link = 0, late = 0;
    for (uint32_t unit = 0; unit < problem_.units.size(); ++unit) {
      if (!(start.kinds >> kindOf_[unit] & 1) || !may_[unit])
        continue;
      const uint64_t size = roundUp(problem_.units[unit].bytes);
      const auto copy = static_cast<double>(times_.copyNs(unit));
      if (taken.empty()) {
        lead = copy * static_cast<double>(leadBytes) / static_cast<double>(size);
        link = -lead;
      }
      // Where it would lie, and until when that is in use.
      const bool wraps = offset + size > start.ring;
      const uint64_t begin = wraps ? 0 : offset, end = begin + size;
      const std::vector<std::pair<uint64_t, size_t>> &over = wraps ? now : before;
      double from = link;
      for (size_t run = wraps ? 0 : first; run < over.size(); ++run)
        if (over[run].first > begin) {
          from = std::max(from, useEnd[over[run].second]);
          if (over[run].first >= end)
            break;
        }
      if (wraps) // beyond this lap's end lies what was there before
        for (size_t run = first; run < before.size() && end > now.back().first; ++run)
          if (before[run].first > now.back().first) {
            from = std::max(from, useEnd[before[run].second]);
            if (before[run].first >= end)
              break;
          }
      const double done = from + copy;
      const double needed = static_cast<double>(times_.computeNs(schedule, shape, uses.uses[unit].first));
      const double most = std::min(needed * factor, static_cast<double>(time) - lead);
      if (!kept_[unit] && (done > most || bytes + problem_.units[unit].bytes > limits_.mostBytes))
        continue;
      if (wraps) {
        for (; first < before.size(); ++first)
          if (before[first].first > now.back().first)
            now.push_back(before[first]);
        std::swap(before, now);
        now.clear();
        first = 0;
      }
      while (first < before.size() && before[first].first <= begin)
        ++first;
      now.emplace_back(end, taken.size());
      offset = end;
      link = done;
      bytes += problem_.units[unit].bytes;
      late = std::max(late, done - needed);
      useEnd.push_back(static_cast<double>(times_.computeNs(schedule, shape, uses.uses[unit].last + 1)) + late);
      taken.push_back(unit);
    }
    return taken;
  }

  // Changes of the best, one after another, as long as any frees more.
  void improve() {
    budget_ = limits_.evaluations;
    for (bool better = true; better && times_.evaluations() < budget_;)
      better = add() || exchange() || drop();
  }
  size_t lapsOfBest() const { return assignRingWithin(bytesOf(best_->units), best_->ringBytes)->lapBegin.size(); }
  // With as many laps as the best has, one less or one more.
  bool attempt(const UnitSet &units, size_t laps) {
    bool better = false;
    for (size_t n = laps > 1 ? laps - 1 : 1; n <= std::min(laps + 1, units.size()); ++n) {
      const uint64_t bytes = sum(units);
      if (bytes <= best_->freedBytes || linkNs(units) > shortestSlo_)
        return better;
      better |= keep(units, ringOf(units, n));
    }
    return better;
  }
  bool add() {
    const UnitSet from = best_->units;
    if (from.empty())
      return false;
    const size_t laps = lapsOfBest();
    bool better = false;
    for (uint32_t unit = 0; unit < problem_.units.size() && times_.evaluations() < budget_ && !better; ++unit) {
      if (!may_[unit] || std::binary_search(from.begin(), from.end(), unit))
        continue;
      UnitSet more = from;
      more.insert(std::lower_bound(more.begin(), more.end(), unit), unit);
      better = attempt(more, laps);
    }
    return better;
  }
  bool exchange() {
    const UnitSet from = best_->units;
    const size_t laps = from.empty() ? 0 : lapsOfBest();
    for (const uint32_t out : from) {
      if (kept_[out])
        continue;
      for (uint32_t in = out > 12 ? out - 12 : 0; in < std::min<size_t>(out + 13, problem_.units.size()); ++in) {
        if (times_.evaluations() >= budget_)
          return false;
        if (!may_[in] || std::binary_search(from.begin(), from.end(), in))
          continue;
        UnitSet other;
        for (const uint32_t unit : from)
          if (unit != out)
            other.push_back(unit);
        other.insert(std::lower_bound(other.begin(), other.end(), in), in);
        if (attempt(other, laps))
          return true;
      }
    }
    return false;
  }
  bool drop() {
    const UnitSet from = best_->units;
    const size_t laps = from.empty() ? 0 : lapsOfBest();
    for (const uint32_t out : from) {
      if (kept_[out] || from.size() < 2 || times_.evaluations() >= budget_)
        continue;
      UnitSet less;
      for (const uint32_t unit : from)
        if (unit != out)
          less.push_back(unit);
      if (attempt(less, laps))
        return true;
    }
    return false;
  }

  const UnitProblem &problem_;
  const SearchLimits &limits_;
  UnitTimes times_;
  std::vector<bool> may_, kept_;
  std::vector<uint32_t> kindOf_;
  std::vector<uint64_t> kindBytes_, kindTotal_;
  std::vector<std::pair<size_t, size_t>> binding_; // schedule, shape
  uint64_t shortestSlo_ = 0;
  uint64_t budget_ = std::numeric_limits<uint64_t>::max();
  std::optional<UnitPlacement> best_;
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
