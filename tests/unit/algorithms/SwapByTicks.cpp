// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/algorithms/SwapByTicks.h"

#include <deque>
#include <set>

namespace headrace::test {
namespace {

struct Link { // one direction
  int layer = -1;
  long left = 0; // thousandths of ticks
  bool idle() const { return layer < 0; }
};

// Who of these layers comes first, in the order in which layers compute from `next` on; -1: nobody.
int firstInTurn(const std::set<int> &layers, int n, int next) {
  for (int i = 0; i < n; ++i)
    if (layers.count((next + i) % n) > 0)
      return (next + i) % n;
  return -1;
}
// Who comes last.
int lastInTurn(const std::set<int> &layers, int n, int next) {
  int last = -1;
  for (int i = 0; i < n; ++i)
    if (layers.count((next + i) % n) > 0)
      last = (next + i) % n;
  return last;
}

} // namespace

Ticked swapByTicks(int n, int spaces, long compute, long in, long out, int visits, long both) {
  Ticked seen;
  std::set<int> gpu, cpu; // neither: on its way
  std::vector<int> spaceOf(static_cast<size_t>(n), -1);
  std::deque<int> empty;
  for (int layer = 0; layer < n; ++layer)
    if (layer < spaces) {
      gpu.insert(layer);
      spaceOf[static_cast<size_t>(layer)] = layer;
    } else {
      cpu.insert(layer);
    }
  Link toGpu, toCpu;
  long now = 0, busy = 0; // ticks that the layer still computes
  int visit = 0;
  const auto swapIn = [&](int layer) {
    cpu.erase(layer);
    spaceOf[static_cast<size_t>(layer)] = empty.front();
    empty.pop_front();
    toGpu = {layer, in * 1000};
    seen.swaps.push_back({layer, spaceOf[static_cast<size_t>(layer)], false, now});
  };
  const auto swapOut = [&](int layer) {
    gpu.erase(layer);
    toCpu = {layer, out * 1000};
    seen.swaps.push_back({layer, spaceOf[static_cast<size_t>(layer)], true, now});
  };
  while (true) {
    if (busy == 0) {
      if (visit == visits)
        return seen;
      const int layer = visit % n;
      if (gpu.count(layer) > 0) { // it begins, and swaps are looked at
        seen.starts.push_back(now);
        busy = compute;
        ++visit;
        if (toGpu.idle() && !empty.empty() && !cpu.empty())
          swapIn(firstInTurn(cpu, n, layer));
        std::set<int> others = gpu;
        others.erase(layer);
        if (toCpu.idle() && !others.empty()) {
          const int coldest = lastInTurn(others, n, layer);
          // Every layer on the CPU is colder: none computes before the coldest.
          std::set<int> both = cpu;
          both.insert(coldest);
          if (cpu.empty() || firstInTurn(both, n, layer) != coldest)
            swapOut(coldest);
        }
      } else if (cpu.count(layer) > 0 && toGpu.idle()) { // nobody else would bring it
        if (!empty.empty()) {
          swapIn(layer);
        } else if (toCpu.idle()) {
          swapOut(lastInTurn(gpu, n, layer));
        }
      }
    }
    ++now;
    if (busy > 0)
      --busy;
    const long done = toCpu.idle() || toGpu.idle() ? 1000 : both;
    if (!toCpu.idle() && (toCpu.left -= done) <= 0) {
      cpu.insert(toCpu.layer);
      empty.push_back(spaceOf[static_cast<size_t>(toCpu.layer)]);
      spaceOf[static_cast<size_t>(toCpu.layer)] = -1;
      toCpu = {};
    }
    if (!toGpu.idle() && (toGpu.left -= done) <= 0) {
      gpu.insert(toGpu.layer);
      toGpu = {};
    }
  }
}

} // namespace headrace::test
