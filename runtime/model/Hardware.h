// SPDX-License-Identifier: Apache-2.0
//
// One device and its link, as a hardware TOML file describes them (examples/hardware/*.toml).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace headrace::model {

enum class DeviceKind : uint8_t { Host = 0, Cuda = 1 };

// Rates are per second, in decimal units (1 GB/s = 1e9 bytes/s, 1 TFLOP/s = 1e12). Efficiencies are the share of the
// peak that a well-tuned kernel is seen to reach; they are calibrated, and the file says where from.
struct Hardware {
  std::string name;
  DeviceKind kind = DeviceKind::Cuda;
  uint64_t memoryBytes = 0;          // device memory
  uint64_t hostMemoryBytes = 0;      // memory behind the link
  double flopsF32 = 0;               // dense, no sparsity
  double flopsF16 = 0;               // F16 and BF16 with F32 accumulation
  double memoryBandwidth = 0;        // device memory, bytes/s
  double h2dBandwidth = 0;           // bytes/s of a large pinned copy
  double d2hBandwidth = 0;
  double duplexBandwidth = 0;        // both directions together
  double copyLatency = 0;            // seconds before the first byte of a copy arrives
  double launchOverhead = 0;         // seconds per compute step
  double flopsEfficiency = 0;        // share of peak reached by large matrix products
  double memoryEfficiency = 0;       // share of memoryBandwidth reached by streaming kernels
  double linkEfficiency = 1;         // share of h2d/d2hBandwidth reached by the copies of a plan
};

// Refuses unknown and missing keys, and figures that are not positive and finite, by file and key.
absl::StatusOr<Hardware> readHardware(const std::string &path);
absl::StatusOr<Hardware> parseHardware(std::string_view text, const std::string &path);

} // namespace headrace::model
