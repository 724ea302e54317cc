// SPDX-License-Identifier: Apache-2.0
#include "runtime/sim/LaneRates.h"

#include <algorithm>
#include <cmath>

#include "runtime/core/BusShare.h"

namespace headrace::sim {

uint64_t slowedRate(double share, uint64_t most) {
  return std::clamp<uint64_t>(static_cast<uint64_t>(std::ceil(share * static_cast<double>(kFullRate))), 1, most);
}

LaneRates::LaneRates(const cost::Sharing &sharing) {
  const uint64_t both = sharedRate(sharing.duplexShare);
  for (size_t who = 0; who < rates_.size(); ++who) {
    const uint64_t ofLink = (who & 3) == 3 ? both : kFullRate;
    rates_[who] = {ofLink, ofLink, kFullRate};
  }
  const double most = sharing.asked[kH2D] + sharing.asked[kD2H] + sharing.asked[kCpu];
  for (size_t who = 1; who < rates_.size() && most > sharing.hostMemory; ++who) { // else nothing reaches its limit
    std::array<double, 3> asked{};                                                // as the link lets them
    for (size_t lane = 0; lane < asked.size(); ++lane)
      if ((who >> lane & 1) != 0)
        asked[lane] = sharing.asked[lane] * static_cast<double>(rates_[who][lane]) / static_cast<double>(kFullRate);
    const double level = core::memoryLevel(sharing.hostMemory, asked);
    for (size_t lane = 0; lane < asked.size(); ++lane) {
      if (asked[lane] <= level) // those that are not at work ask for nothing
        continue;
      rates_[who][lane] = slowedRate(level / sharing.asked[lane], rates_[who][lane]);
      cpuShares_ |= (who & 4) != 0;
    }
  }
  seeWhoSlows();
}

void LaneRates::seeWhoSlows() {
  for (size_t who = 0; who < rates_.size(); ++who)
    for (size_t some = 1; some <= who; ++some)
      for (size_t lane = 0; lane < rates_[some].size(); ++lane)
        slows_[who] = slows_[who] || ((some & ~who) == 0 && (some >> lane & 1) != 0 && rates_[some][lane] < kFullRate);
}

} // namespace headrace::sim
