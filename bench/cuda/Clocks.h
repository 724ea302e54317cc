// SPDX-License-Identifier: Apache-2.0
//
// The GPU's clock and power while something is measured, by the driver's management library: a product that draws all
// the power there is runs at a lower clock than one behind which nothing else draws any.
#pragma once

#include <functional>
#include <string>

#include "bench/figures/Report.h"

namespace headrace::bench {

class Clocks {
public:
  explicit Clocks(int device);
  const std::string &whyNot() const { return whyNot_; } // empty: it can

  // What was seen while `work` ran, a sample every 10 ms: median clock in MHz, mean power in W, and the shares of
  // samples in which power or heat held the clock down. Without fields where there is nothing to ask.
  Json during(const std::function<void()> &work);

private:
  struct Sample {
    unsigned mhz = 0, milliwatts = 0;
    unsigned long long reasons = 0;
  };
  bool sample(Sample &out) const;

  std::string whyNot_;
  void *device_ = nullptr;
  // NVML's functions of these names; 0 is success.
  int (*clockInfo_)(void *, int, unsigned *) = nullptr;
  int (*powerUsage_)(void *, unsigned *) = nullptr;
  int (*clocksReasons_)(void *, unsigned long long *) = nullptr;
};

} // namespace headrace::bench
