// SPDX-License-Identifier: Apache-2.0
//
// When the bytes of paced copies arrive: a fluid model of links that share a bus, in real time. Copies of one direction
// of a link run one after another, those of launches and, in a row of their own, those beside launches; what two such
// rows have of a direction they share half and half. Directions that run together get max-min fair rates under the
// limits of their link and of the bus: of each direction, and of both together.
//
//   byte k of a copy that runs alone is there at  start + latency + k / rate
//
// Times are absolute (CLOCK_MONOTONIC, ns), so lateness of the thread that asks never adds up: a copy started at the
// end of the one before it loses nothing. One thread at a time uses a bus. Nothing but addLink allocates.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "runtime/core/BusShare.h"

namespace headrace::host {

using core::Direction;

// Bytes per second.
struct LinkSpeed {
  double h2d = std::numeric_limits<double>::infinity();
  double d2h = std::numeric_limits<double>::infinity();
  double both = std::numeric_limits<double>::infinity(); // h2d + d2h
  int64_t latencyNs = 0;
};

// Which row of a direction's copies.
enum class CopyRow : uint8_t { Launches = 0, Beside = 1 };

class Bus {
public:
  explicit Bus(const core::PathLimits &limits = {}); // bytes/s that all links get together
  uint32_t addLink(const LinkSpeed &speed);
  // Of a link on which nothing is copied.
  void setLink(uint32_t link, const LinkSpeed &speed);
  // The bus's limit for copies to devices, from nowNs on.
  void setH2d(double bytesPerSecond, int64_t nowNs);

  // From atNs on, which is not before what the bus has been advanced to.
  void start(uint32_t link, Direction direction, uint64_t bytes, int64_t atNs, CopyRow row = CopyRow::Launches);
  // Lets time pass; never backwards, and not beyond the end of a copy that is not taken. So the copy behind it can
  // start at that end, however late the thread looks, and no copy gets of the bus what another one would have had.
  void advance(int64_t nowNs);
  // Whether the copy has ended.
  bool ended(uint32_t link, Direction direction, CopyRow row = CopyRow::Launches) const {
    return !flow(link, direction, row).active;
  }
  void takeEnd(uint32_t link, Direction direction, CopyRow row = CopyRow::Launches);
  // Whole bytes that have arrived; all of them once the copy has ended.
  uint64_t arrived(uint32_t link, Direction direction, CopyRow row = CopyRow::Launches) const;
  // When the first `bytes` of the copy will be (or, for all of them, were) there at the present rates.
  int64_t arrivalNs(uint32_t link, Direction direction, uint64_t bytes, CopyRow row = CopyRow::Launches) const;

  // While at least one copy to a device was slower than its link alone would have it: for how long, and what all copies
  // to devices brought in that time. So far.
  struct Slowed {
    double ns = 0, bytes = 0;
  };
  const Slowed &slowed() const { return slowed_; }

private:
  struct Flow {
    uint64_t bytes = 0;
    double arrived = 0;
    double rate = 0;       // bytes/ns while it flows
    int64_t flowsFrom = 0; // start + latency
    int64_t endNs = 0;     // once ended
    bool active = false;   // started, not ended
    bool taken = true;     // its end
  };
  struct Link {
    LinkSpeed speed;
    std::array<Flow, 4> flows; // by direction, then those beside launches
  };
  static size_t index(Direction direction, CopyRow row) {
    return static_cast<size_t>(direction) + 2 * static_cast<size_t>(row);
  }
  const Flow &flow(uint32_t link, Direction direction, CopyRow row) const {
    return links_[link].flows[index(direction, row)];
  }
  bool flows(const Flow &flow) const { return flow.active && flow.flowsFrom <= clockNs_; }
  void share();
  void pass(int64_t toNs);

  core::PathLimits limits_; // bytes/ns
  int64_t clockNs_ = 0;
  std::vector<Link> links_;
  std::vector<core::LinkShare> shares_; // scratch of share(), one a link
  size_t untaken_ = 0;                  // ends
  Slowed slowed_;
  bool slows_ = false;       // at the present rates, a copy to a device
  double h2dBytesPerNs_ = 0; // of all, at the present rates
};

} // namespace headrace::host
