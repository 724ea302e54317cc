// SPDX-License-Identifier: Apache-2.0
#include "runtime/sim/BusShare.h"

#include <algorithm>
#include <cassert>

namespace headrace::sim {
namespace {

constexpr double kUnlimited = std::numeric_limits<double>::infinity();

// A limit on the sum of some flows' rates.
struct Constraint {
  double left = 0;             // not yet given out
  std::vector<uint32_t> flows; // into the flows
  size_t growing = 0;          // of them not yet stopped
};

// The six kinds of limit, those that no flow is under and those that do not limit left out.
std::vector<Constraint> constraintsOf(const PathLimits &bus, absl::Span<const PathLimits> links,
                                      absl::Span<const Flow> flows) {
  std::vector<Constraint> all;
  auto add = [&](double limit, auto &&applies) {
    if (limit == kUnlimited)
      return;
    Constraint c{std::max(limit, 0.0), {}, 0};
    for (uint32_t f = 0; f < flows.size(); ++f) {
      if (applies(f))
        c.flows.push_back(f);
    }
    c.growing = c.flows.size();
    if (c.growing != 0)
      all.push_back(std::move(c));
  };
  auto addPath = [&](const PathLimits &path, auto &&onPath) {
    add(path.h2d, [&](uint32_t f) { return onPath(f) && flows[f].direction == Direction::HostToDevice; });
    add(path.d2h, [&](uint32_t f) { return onPath(f) && flows[f].direction == Direction::DeviceToHost; });
    add(path.both, onPath);
  };
  addPath(bus, [](uint32_t) { return true; });
  for (uint32_t l = 0; l < links.size(); ++l)
    addPath(links[l], [&](uint32_t f) { return flows[f].link == l; });
  for (uint32_t f = 0; f < flows.size(); ++f)
    add(flows[f].limit, [&](uint32_t g) { return g == f; });
  return all;
}

// What flows of one direction ask for, each at most `most`.
struct Asked {
  absl::Span<const double> rates;
  double most = kUnlimited;
};

// The level at which they stop who ask for more than their share of `limit`. From round to round those are set aside
// who get all that they ask for.
template <size_t N> double fairLevel(const std::array<Asked, N> &all, double limit) {
  const auto forEach = [&](auto &&visit) {
    for (const Asked &asked : all)
      for (const double rate : asked.rates)
        visit(std::min(rate, asked.most));
  };
  double largest = 0;
  forEach([&](double asked) { largest = std::max(largest, asked); });
  double level = 0;
  for (;;) {
    double left = limit;
    size_t rising = 0;
    forEach([&](double asked) {
      if (asked <= level)
        left -= asked;
      else
        ++rising;
    });
    if (rising == 0)
      return kUnlimited;
    const double next = left / static_cast<double>(rising);
    if (next * (1 + 1e-12) >= largest) // enough for all, to within rounding
      return kUnlimited;
    bool more = false; // that get all they ask for
    forEach([&](double asked) { more = more || (asked > level && asked <= next); });
    level = std::max(level, next);
    if (!more)
      return level;
  }
}

} // namespace

std::array<double, 2> fairLevels(const PathLimits &bus, absl::Span<const double> h2d, absl::Span<const double> d2h) {
  std::array<double, 2> levels = {fairLevel<1>({{{h2d}}}, bus.h2d), fairLevel<1>({{{d2h}}}, bus.d2h)};
  const double together = fairLevel<2>({{{h2d, levels[0]}, {d2h, levels[1]}}}, bus.both);
  for (double &level : levels)
    level = std::min(level, together);
  return levels;
}

std::vector<double> fairRates(const PathLimits &bus, absl::Span<const PathLimits> links, absl::Span<const Flow> flows) {
  std::vector<Constraint> constraints = constraintsOf(bus, links, flows);
  std::vector<double> rates(flows.size(), 0.0);
  std::vector<bool> stopped(flows.size(), false);
  // Each round the tightest limit stops all that still grow under it, so there are at most as many rounds as limits.
  for (;;) {
    double step = kUnlimited;
    for (const Constraint &c : constraints) {
      if (c.growing != 0)
        step = std::min(step, c.left / static_cast<double>(c.growing));
    }
    if (step == kUnlimited)
      break;
    for (size_t f = 0; f < flows.size(); ++f) {
      if (!stopped[f])
        rates[f] += step;
    }
    std::vector<bool> stops(flows.size(), false);
    for (Constraint &c : constraints) {
      if (c.growing == 0)
        continue;
      // The limit that gave the step, and those within rounding of it.
      const bool reached = c.left / static_cast<double>(c.growing) <= step * (1 + 1e-12);
      c.left = reached ? 0 : c.left - step * static_cast<double>(c.growing);
      for (uint32_t f : c.flows)
        stops[f] = stops[f] || (reached && !stopped[f]);
    }
    for (uint32_t f = 0; f < flows.size(); ++f)
      stopped[f] = stopped[f] || stops[f];
    for (Constraint &c : constraints) {
      c.growing =
          static_cast<size_t>(std::count_if(c.flows.begin(), c.flows.end(), [&](uint32_t f) { return !stopped[f]; }));
    }
  }
  assert(std::all_of(stopped.begin(), stopped.end(), [](bool s) { return s; }));
  return rates;
}

std::vector<double> transferEnds(const PathLimits &bus, absl::Span<const PathLimits> links,
                                 absl::Span<const Transfer> transfers) {
  std::vector<double> left, ends(transfers.size(), 0.0);
  for (const Transfer &t : transfers)
    left.push_back(t.bytes);
  std::vector<bool> done(transfers.size(), false);
  double now = 0;
  for (;;) {
    std::vector<uint32_t> active;
    std::vector<Flow> flows;
    double nextStart = kUnlimited;
    for (uint32_t i = 0; i < transfers.size(); ++i) {
      if (done[i])
        continue;
      if (transfers[i].startSeconds > now) {
        nextStart = std::min(nextStart, transfers[i].startSeconds);
      } else if (left[i] <= 0) {
        done[i] = true;
        ends[i] = std::max(now, transfers[i].startSeconds);
      } else {
        active.push_back(i);
        flows.push_back(transfers[i].flow);
      }
    }
    if (active.empty()) {
      if (nextStart == kUnlimited)
        return ends;
      now = nextStart;
      continue;
    }
    const std::vector<double> rates = fairRates(bus, links, flows);
    double next = nextStart;
    for (size_t k = 0; k < active.size(); ++k)
      next = std::min(next, now + left[active[k]] / rates[k]);
    if (next == kUnlimited) { // a limit of zero: these never end
      for (uint32_t i : active) {
        ends[i] = kUnlimited;
        done[i] = true;
      }
      continue;
    }
    for (size_t k = 0; k < active.size(); ++k) {
      // What ends at `next` is set to exactly nothing, so that rounding cannot leave a last byte behind.
      const bool ended = now + left[active[k]] / rates[k] <= next;
      left[active[k]] = ended ? 0 : left[active[k]] - rates[k] * (next - now);
    }
    now = next;
  }
}

} // namespace headrace::sim
