// SPDX-License-Identifier: Apache-2.0
//
// What the parts of bench_host share: its flags, and how a figure is said and kept.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "runtime/host/HostDevice.h"

namespace headrace::host {

struct Settings {
  int iterations = 2000;
  HostOptions host;
  std::string json;

  HostOptions with(kernels::HostKernel kernel) const {
    HostOptions options = host;
    options.replaceKernels = kernel;
    return options;
  }
};

// Of values in ns, in us; sorts them. 0 of none.
double quantile(std::vector<int64_t> &values, double q);

// One figure; targetUs (of the median) 0: none.
void report(const char *name, const char *what, std::vector<int64_t> values, double targetUs = 0);
void reportShare(const char *name, const char *what, double share, double target);
const nlohmann::json &results(); // all figures so far

// Ends the program where something failed.
void check(const absl::Status &status);

// SignalsBench.cpp: what waking a sleeping thread takes.
void measureSignals(const Settings &settings);

} // namespace headrace::host
