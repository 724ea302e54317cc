// SPDX-License-Identifier: Apache-2.0
//
// Pie's protocol read sentence by sentence from the paper (section 3.3), one tick of time after the other. It shares no
// code with ScheduleKvSwap.h: what is the hottest, who waits and when a swap is over is decided anew at every tick.
#pragma once

#include <string>
#include <vector>

namespace headrace::test {

struct TickedSwap {
  int layer, space;
  bool out;
  long begin;
  bool operator==(const TickedSwap &o) const {
    return layer == o.layer && space == o.space && out == o.out && begin == o.begin;
  }
};

struct Ticked {
  std::vector<TickedSwap> swaps;
  std::vector<long> starts; // of each layer's compute
};

// n layers, spaces for so many; ticks that a layer computes and that it takes in and out; so many layers are computed.
// In a tick in which both directions are at work each gets on by `both` thousandths of a tick.
Ticked swapByTicks(int n, int spaces, long compute, long in, long out, int visits, long both = 1000);

} // namespace headrace::test
