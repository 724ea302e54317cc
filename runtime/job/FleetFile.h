// SPDX-License-Identifier: Apache-2.0
//
// Devices on one bus and what is asked of them, as a TOML file: what `headrace fleet` runs.
//
//   [bus]
//   bandwidth = "24GB/s"              # host to device, of all devices together
//   d2h_bandwidth = "24GB/s"          # device to host; default: the links alone limit it
//   duplex_bandwidth = "36GB/s"       # both directions together; default: their sum
//   [[bus.change]]                    # others' traffic: from `at` on there is so much left
//   at = "2s"
//   bandwidth = "12GB/s"
//
//   [coordinator]
//   objective = "freed-memory"        # or "throughput"
//   queue = true                      # a request waits for a free instance while its ttft lasts
//
//   [[device]]
//   name = "gpu0"
//   role = "both"                     # or "prefill", "decode"
//   job = "opt-13b.toml"              # or plan = "opt-13b.plan"; relative to this file
//   link = "24GB/s"                   # default: the plan's hardware
//
//   [[requests]]                      # `count` requests of one kind
//   model = "opt-13b"                 # the name in its shape
//   count = 100
//   start = "0s"                      # of the first one
//   every = "500ms"                   # between one and the next
//   random = true                     # exponential gaps of that mean (Poisson arrivals); default false
//   batch = 8                         # prompts; or [least, most], drawn evenly
//   input_len = [32, 128]             # tokens of each prompt
//   output_len = 32
//   ttft = "2s"
//   tpot = "200ms"
//   seed = 1                          # of what is drawn here, and of the prompts
#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace headrace::model {

enum class FleetRole : uint8_t { Prefill = 0, Decode = 1, Both = 2 };

struct FleetDevice {
  std::string name;
  FleetRole role = FleetRole::Both;
  std::string plan, job; // a path; exactly one is not empty
  double link = 0;       // bytes/s; 0: the plan's hardware
};

struct FleetRange {
  int64_t least = 1, most = 1;
};

struct FleetLoad {
  std::string model;
  int64_t count = 1;
  std::chrono::nanoseconds start{0}, every{0};
  bool random = false;
  FleetRange batch, inputLength, outputLength;
  std::chrono::nanoseconds ttft{0}, tpot{0}; // both above zero
  uint64_t seed = 0;
};

struct FleetBusChange {
  std::chrono::nanoseconds at{0};
  double bandwidth = 0; // bytes/s
};

struct FleetSpec {
  double busBandwidth = 0; // bytes/s
  double busD2hBandwidth = std::numeric_limits<double>::infinity();
  double busDuplexBandwidth = std::numeric_limits<double>::infinity();
  std::vector<FleetBusChange> changes; // by time
  bool throughput = false;             // the coordinator's objective; else freed memory
  bool queue = true;
  std::vector<FleetDevice> devices;
  std::vector<FleetLoad> loads;
};

// Refuses, by file, line and key: unknown and missing keys, no device, two of one name, figures that are not positive
// and finite, a bus with less for both directions together than for one, changes out of order, a range whose least is
// above its most, no requests.
absl::StatusOr<FleetSpec> parseFleet(std::string_view text, const std::string &path);
absl::StatusOr<FleetSpec> readFleet(const std::string &path);

} // namespace headrace::model
