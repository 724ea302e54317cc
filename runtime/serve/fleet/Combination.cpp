// SPDX-License-Identifier: Apache-2.0
#include "runtime/serve/fleet/Combination.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace headrace::serve {
namespace {

constexpr double kNs = 1e9;
constexpr uint32_t kOpen = 0xffffffffu;
constexpr size_t kEnumeratedSets = 8; // devices: 256 sets of those that copy

double placementValue(const BusPlacement &p, double ns, Maximise objective) {
  if (objective == Maximise::FreedMemory)
    return static_cast<double>(p.freedBytes);
  return ns > 0 ? p.tokens / ns * kNs : 0;
}

// A placement as the search sees it.
struct Option {
  uint32_t index = 0;  // into the load's placements
  bool copies = false; // anything to the device, in any stage
  bool copiesBack = false;
  double bytes = 0; // of an iteration
  double value = 0; // with the time alone: no combination gives more
};

// What must hold of a load: its iterations within their SLO, its first stage within its own.
struct Constraint {
  size_t load = 0;
  Stage stage = Stage::Iteration;
  double sloNs = 0;
  size_t at = 0; // of the load's options, in what is kept for each constraint and option
  // Devices that may copy nothing meanwhile although they do copy: the other one of a pair. What is searched does not
  // count on their part of the bus; offer() does.
  uint64_t apart = 0;
};

class Search {
public:
  Search(const Bus &bus, absl::Span<const BusLoad> loads, Maximise objective, const SearchLimits &limits);
  Combination run();

private:
  struct Node {
    std::vector<double> delayNs; // [constraint][option]: by the devices decided so far
    uint64_t copying = 0;
    double value = 0;             // of those decided
    std::vector<BusRates> levels; // as a set's, where it does not know them
  };
  // Which devices copy to theirs, and what follows from that alone. From theirs those copy that always do: who copies
  // more in a combination only adds contention.
  struct Set {
    uint64_t copying = 0;
    bool known = true;            // false: any set, of more devices than sets are enumerated for
    double bound = 0;             // no combination of this set has a larger value
    std::vector<BusRates> levels; // fair rates of each constraint's device
  };
  const BusPlacement &placement(size_t load, const Option &o) const { return loads_[load].placements[o.index]; }
  bool allowed(size_t load, const Option &o) const;
  bool holds(size_t load, size_t option, const Node &node) const;
  std::vector<BusRates> levelsOf(uint64_t copying) const;
  double leastDelayNs(size_t constraint, size_t option) const;
  bool copiesIn(size_t at) const { return bytes_[at].h2d > 0 || bytes_[at].d2h > 0; }
  bool alwaysHolds(size_t load, size_t option, bool byDelay) const;
  absl::Span<const Constraint> constraintsOf(size_t load) const {
    return absl::MakeConstSpan(constraints_)
        .subspan(firstConstraint_[load], firstConstraint_[load + 1] - firstConstraint_[load]);
  }
  double bestOpen(size_t load, const Node &node) const; // below 0: none is admissible
  void decide(size_t load, size_t option, const Node &from, Node &to) const;
  bool decidedHold(const Node &node) const;
  void dropDominated(size_t load);
  void offer();
  void offerByShare();
  double boundOfSet() const;
  void search(const Set &set);
  void visit(size_t depth);

  const Bus &bus_;
  absl::Span<const BusLoad> loads_;
  const Maximise objective_;
  uint64_t nodeLimit_;
  std::vector<std::vector<Option>> options_; // by falling value
  std::vector<size_t> first_;                // option of a load in most_
  std::vector<Constraint> constraints_;      // by load
  std::vector<size_t> firstConstraint_;      // of a load
  std::vector<double> aloneNs_;              // [constraint][option] of the stage: delayableNs()
  std::vector<OwnBytes> bytes_;              // the same: all it copies
  std::vector<MostBytes> most_;              // [constraint c][load o][option of o]: what o moves in c's window
  std::vector<MostBytes> least_;             // [constraint c][load o]: the least of most_ over o's options that copy
  uint64_t alwaysBack_ = 0;                  // devices that copy from theirs with every option
  size_t total_ = 0;                         // options of all loads
  std::vector<size_t> order_;                // in which loads are decided
  std::vector<uint32_t> decided_;            // option, or kOpen
  std::vector<Node> nodes_;                  // one a depth
  Set set_;                                  // that is searched
  Combination best_;
  double left_ = -1; // largest bound of what was not searched
};

Search::Search(const Bus &bus, absl::Span<const BusLoad> loads, Maximise objective, const SearchLimits &limits)
    : bus_(bus), loads_(loads), objective_(objective), nodeLimit_(limits.nodes), options_(loads.size()),
      order_(loads.size()), decided_(loads.size(), kOpen), nodes_(loads.size() + 1) {
  double combinations = 1;
  for (size_t l = 0; l < loads.size(); ++l) {
    for (uint32_t i = 0; i < loads[l].placements.size(); ++i) {
      const BusPlacement &p = loads[l].placements[i];
      const double alone = aloneNs(bus, loads[l].device, p);
      if (alone <= loads[l].sloNs && aloneNs(bus, loads[l].device, p.first) <= loads[l].firstSloNs)
        options_[l].push_back({i, copies(p), copies(p, Direction::DeviceToHost), static_cast<double>(movedBytes(p)),
                               placementValue(p, alone, objective)});
    }
    std::stable_sort(options_[l].begin(), options_[l].end(), [](const Option &a, const Option &b) {
      return a.value != b.value ? a.value > b.value : a.bytes < b.bytes;
    });
    dropDominated(l);
    first_.push_back(total_);
    total_ += options_[l].size();
    const bool back = std::all_of(options_[l].begin(), options_[l].end(), [](const Option &o) { return o.copiesBack; });
    alwaysBack_ |= (back ? uint64_t{1} : 0) << loads[l].device;
    combinations *= static_cast<double>(options_[l].size());
  }
  if (combinations <= limits.exactCombinations)
    nodeLimit_ = std::numeric_limits<uint64_t>::max();
  for (size_t l = 0; l < loads.size(); ++l) {
    firstConstraint_.push_back(constraints_.size());
    uint64_t apart = 0;
    for (const BusLoad &other : loads)
      if (isPair(loads[l], other) || isPair(other, loads[l]))
        apart |= uint64_t{1} << other.device;
    constraints_.push_back({l, Stage::Iteration, loads[l].sloNs, 0, apart});
    if (std::isfinite(loads[l].firstSloNs))
      constraints_.push_back({l, Stage::First, loads[l].firstSloNs, 0, 0});
  }
  firstConstraint_.push_back(constraints_.size());
  for (Constraint &c : constraints_) {
    c.at = aloneNs_.size();
    for (const Option &option : options_[c.load]) {
      const BusStage stage = stageOf(placement(c.load, option), c.stage);
      aloneNs_.push_back(delayableNs(stage, aloneRates(bus, loads[c.load].device, stage)));
      bytes_.push_back(ownBytes(placement(c.load, option), c.stage));
    }
    for (size_t o = 0; o < loads.size(); ++o) {
      constexpr double kMost = std::numeric_limits<double>::max();
      MostBytes least{kMost, kMost};
      for (const Option &option : options_[o]) {
        most_.push_back(mostBytesBeside(loads[c.load], c.stage, loads[o], placement(o, option)));
        if (option.copies)
          least = {std::min(least.h2d, most_.back().h2d), std::min(least.d2h, most_.back().d2h)};
      }
      least_.push_back(least);
    }
  }
  // The tightest first: what it can take decides most about the others.
  std::iota(order_.begin(), order_.end(), size_t{0});
  const auto slack = [&](size_t l) {
    return options_[l].empty() ? 0 : loads_[l].sloNs / aloneNs_[constraintsOf(l).front().at];
  };
  std::stable_sort(order_.begin(), order_.end(), [&](size_t a, size_t b) { return slack(a) < slack(b); });
  for (Node &node : nodes_)
    node.delayNs.assign(aloneNs_.size(), 0);
}

// Leaves out options that another one of no less value beats or equals in all that counts for any device: bytes, times
// at every rate, how often it can interfere.
void Search::dropDominated(size_t load) {
  std::vector<Option> kept;
  for (const Option &o : options_[load]) {
    const BusPlacement &p = placement(load, o);
    const bool dominated = std::any_of(kept.begin(), kept.end(), [&](const Option &k) {
      const BusPlacement &q = placement(load, k);
      // Nothing copied interferes with nothing, however short its iterations are.
      return k.value >= o.value && noWorse(stageOf(q, Stage::Iteration), stageOf(p, Stage::Iteration)) &&
             noWorse(q.first, p.first) && q.besideBytes <= p.besideBytes && q.besideD2hBytes <= p.besideD2hBytes &&
             (k.bytes == 0 || q.shortestNs >= p.shortestNs) && q.tokens >= p.tokens;
    });
    if (!dominated)
      kept.push_back(o);
  }
  options_[load] = std::move(kept);
}

bool Search::holds(size_t load, size_t option, const Node &node) const {
  for (size_t k = firstConstraint_[load]; k < firstConstraint_[load + 1]; ++k) {
    const Constraint &c = constraints_[k];
    if (!copiesIn(c.at + option))
      continue; // alone within the SLO, and nothing of it can be delayed
    // Sums in another order than contendedNs() makes them, which has the last word in offer().
    const double slo = c.sloNs * (1 + 1e-12);
    if (aloneNs_[c.at + option] + node.delayNs[c.at + option] > slo &&
        timeAtRate(stageOf(placement(load, options_[load][option]), c.stage),
                   set_.known ? set_.levels[k] : node.levels[k]) > slo)
      return false;
  }
  return true;
}

bool Search::allowed(size_t load, const Option &o) const {
  return !set_.known || ((set_.copying >> loads_[load].device) & 1) == static_cast<uint64_t>(o.copies);
}

std::vector<BusRates> Search::levelsOf(uint64_t copying) const {
  std::vector<BusRates> levels;
  FairRates rates(bus_);
  for (const Constraint &c : constraints_) {
    // Its own copies back are not those of every stage of every option.
    const uint64_t own = uint64_t{1} << loads_[c.load].device;
    levels.push_back(rates.of({copying & ~c.apart, alwaysBack_ & ~c.apart & ~own}, loads_[c.load].device));
  }
  return levels;
}

// What the set alone delays an option by: the least that each other member moves.
double Search::leastDelayNs(size_t constraint, size_t option) const {
  const Constraint &c = constraints_[constraint];
  double lost = 0;
  for (size_t o = 0; set_.known && o < loads_.size(); ++o) {
    if (o != c.load && ((set_.copying >> loads_[o].device) & 1) != 0)
      lost += lostNs(bus_, bytes_[c.at + option], least_[constraint * loads_.size() + o]);
  }
  return lost;
}

// Whether an option holds by what the set says alone: at its fair rate, or (byDelay) with the least delays.
bool Search::alwaysHolds(size_t load, size_t option, bool byDelay) const {
  for (size_t k = firstConstraint_[load]; k < firstConstraint_[load + 1]; ++k) {
    const Constraint &c = constraints_[k];
    const double slo = byDelay ? c.sloNs * (1 + 1e-12) : c.sloNs;
    if (copiesIn(c.at + option) &&
        timeAtRate(stageOf(placement(load, options_[load][option]), c.stage), set_.levels[k]) > slo &&
        !(byDelay && aloneNs_[c.at + option] + leastDelayNs(k, option) <= slo))
      return false;
  }
  return true;
}

double Search::bestOpen(size_t load, const Node &node) const {
  for (size_t i = 0; i < options_[load].size(); ++i) {
    if (allowed(load, options_[load][i]) && holds(load, i, node))
      return options_[load][i].value;
  }
  return -1;
}

void Search::decide(size_t load, size_t option, const Node &from, Node &to) const {
  const Option &o = options_[load][option];
  to.copying = from.copying | (o.copies ? uint64_t{1} << loads_[load].device : 0);
  to.value = from.value + o.value;
  to.delayNs = from.delayNs;
  if (!set_.known)
    to.levels = levelsOf(to.copying);
  if (!o.copies && !o.copiesBack)
    return;
  for (size_t k = 0; k < constraints_.size(); ++k) {
    const Constraint &c = constraints_[k];
    if (c.load == load)
      continue;
    const MostBytes &most = most_[k * total_ + first_[load] + option];
    const MostBytes counted = set_.known && o.copies ? least_[k * loads_.size() + load] : MostBytes{}; // since search()
    for (size_t i = c.at; i < c.at + options_[c.load].size(); ++i)
      to.delayNs[i] += lostNs(bus_, bytes_[i], most) - lostNs(bus_, bytes_[i], counted);
  }
}

bool Search::decidedHold(const Node &node) const {
  for (size_t l = 0; l < loads_.size(); ++l) {
    if (decided_[l] != kOpen && !holds(l, decided_[l], node))
      return false;
  }
  return true;
}

// Takes the combination in decided_ if it is admissible and better.
void Search::offer() {
  std::vector<uint32_t> choice;
  for (size_t l = 0; l < loads_.size(); ++l)
    choice.push_back(options_[l][decided_[l]].index);
  if (!admissible(bus_, loads_, choice))
    return;
  std::vector<double> times = contendedNs(bus_, loads_, choice);
  const double value = valueOf(loads_, choice, times, objective_);
  if (best_.feasible && value <= best_.value)
    return;
  best_.feasible = true;
  best_.choice = std::move(choice);
  best_.iterationNs = std::move(times);
  best_.value = value;
}

// Each device's best option that holds by the share bound alone, which the set decides: an admissible combination
// without a search, to prune by and to answer with where nodes run out.
void Search::offerByShare() {
  double sum = 0;
  for (size_t l = 0; l < loads_.size(); ++l) {
    const auto at = std::find_if(options_[l].begin(), options_[l].end(), [&](const Option &o) {
      return allowed(l, o) && alwaysHolds(l, static_cast<size_t>(&o - options_[l].data()), false);
    });
    if (at == options_[l].end())
      return;
    decided_[l] = static_cast<uint32_t>(at - options_[l].begin());
    sum += at->value;
  }
  if (!best_.feasible || sum > best_.value)
    offer();
}

// The sum of every device's best in the set; below 0 if one has none.
double Search::boundOfSet() const {
  double sum = 0;
  for (size_t l = 0; l < loads_.size(); ++l) {
    const auto at = std::find_if(options_[l].begin(), options_[l].end(), [&](const Option &o) {
      return allowed(l, o) && (!set_.known || alwaysHolds(l, static_cast<size_t>(&o - options_[l].data()), true));
    });
    if (at == options_[l].end())
      return -1;
    sum += at->value;
  }
  return sum;
}

// Searches one set: nodes_[0] has nothing decided, and the delays that the set alone makes.
void Search::search(const Set &set) {
  set_ = set;
  std::fill(decided_.begin(), decided_.end(), kOpen);
  for (size_t k = 0; k < constraints_.size(); ++k) {
    for (size_t i = 0; i < options_[constraints_[k].load].size(); ++i)
      nodes_[0].delayNs[constraints_[k].at + i] = leastDelayNs(k, i);
  }
  if (!set.known)
    nodes_[0].levels = levelsOf(0);
  visit(0);
}

void Search::visit(size_t depth) {
  const Node &node = nodes_[depth];
  if (depth == loads_.size()) {
    offer();
    return;
  }
  const size_t load = order_[depth];
  double rest = 0; // of the loads that come after this one
  for (size_t k = depth + 1; k < order_.size(); ++k) {
    const double best = bestOpen(order_[k], node);
    if (best < 0)
      return;
    rest += best;
  }
  for (size_t i = 0; i < options_[load].size(); ++i) {
    const double bound = node.value + options_[load][i].value + rest;
    if (best_.feasible && bound <= best_.value)
      return; // and no later option has more
    if (!allowed(load, options_[load][i]) || !holds(load, i, node))
      continue;
    if (best_.nodes >= nodeLimit_) {
      left_ = std::max(left_, bound);
      return;
    }
    ++best_.nodes;
    decided_[load] = static_cast<uint32_t>(i);
    decide(load, i, node, nodes_[depth + 1]);
    if (decidedHold(nodes_[depth + 1]))
      visit(depth + 1);
    decided_[load] = kOpen;
  }
}

Combination Search::run() {
  for (const std::vector<Option> &options : options_) {
    if (options.empty())
      return best_;
  }
  std::vector<Set> sets;
  const size_t n = loads_.size();
  for (uint64_t s = 0; s < (n <= kEnumeratedSets ? uint64_t{1} << n : 2); ++s) {
    Set set;
    for (size_t l = 0; l < n; ++l)
      set.copying |= (n <= kEnumeratedSets ? (s >> l) & 1 : s) << loads_[l].device;
    set.levels = levelsOf(set.copying);
    set_ = set;
    offerByShare();
    set.bound = boundOfSet();
    sets.push_back(std::move(set));
  }
  if (n > kEnumeratedSets) {
    set_ = Set{0, false, 0, {}};
    set_.bound = boundOfSet();
    sets = {set_};
  }
  std::stable_sort(sets.begin(), sets.end(), [](const Set &a, const Set &b) { return a.bound > b.bound; });
  for (const Set &set : sets) {
    if (set.bound < 0 || (best_.feasible && set.bound <= best_.value))
      break;
    if (best_.nodes >= nodeLimit_) {
      left_ = std::max(left_, set.bound);
      break;
    }
    search(set);
  }
  best_.exact = left_ < 0 || (best_.feasible && left_ <= best_.value);
  best_.bound = std::max(best_.value, left_);
  return best_;
}

} // namespace

Combination chooseCombination(const Bus &bus, absl::Span<const BusLoad> loads, Maximise objective,
                              const SearchLimits &limits) {
  return Search(bus, loads, objective, limits).run();
}

double valueOf(absl::Span<const BusLoad> loads, absl::Span<const uint32_t> choice, absl::Span<const double> contended,
               Maximise objective) {
  double sum = 0;
  for (size_t i = 0; i < loads.size(); ++i)
    sum += placementValue(loads[i].placements[choice[i]], contended[i], objective);
  return sum;
}

} // namespace headrace::serve
