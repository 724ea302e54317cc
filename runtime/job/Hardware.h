// SPDX-License-Identifier: Apache-2.0
//
// One device and its link, as a hardware TOML file describes them (examples/hardware/*.toml).
//
//   name = "a10"                      # default: the file's name without .toml
//   kind = "cuda"                     # or "host"
//   gpus = ["NVIDIA A10"]             # default: none; names that CUDA gives devices that this is the profile of
//   memory = "24GB"                   # memoryBytes; host_memory, h2d_bandwidth, ... as the fields below
//   reserve = "1GiB"                  # default 0B
//   host_memory = "512GiB"            # default: unknown, a card's profile is of no machine
//   flops_f32 = "31.2TFLOP/s"
//   flops_f16 = "125TFLOP/s"
//   memory_bandwidth = "600GB/s"
//   h2d_bandwidth = "24GB/s"
//   d2h_bandwidth = "24GB/s"
//   duplex_bandwidth = "36GB/s"
//   copy_latency = "5us"
//   launch_overhead = "1us"
//   flops_efficiency = 0.69
//   memory_efficiency = 0.57
//   link_efficiency = 1.0             # default 1
//
// and by class of op, each of which may be missing: then the figure of all ops above holds (OpClasses).
//
//   product_flops_efficiency = 0.77
//   product_memory_efficiency = 0.83
//   prefill_attention_flops_efficiency = 0.35
//   prefill_attention_ramp = "64us"
//   decode_attention_memory_efficiency = 0.81
//   attention_overhead = "12.5us"
//   plain_attention_flops_efficiency = 0.03
//   row_memory_efficiency = 0.31
//   unpack_flops_efficiency = 0.38
//
// and of kind cuda the CPU beside the device, all four keys or none of them (Cpu):
//
//   cpu_cores = 56
//   cpu_flops = "3TFLOP/s"
//   cpu_memory_bandwidth = "375GB/s"
//   cpu_core_bandwidth = "6GB/s"
//
// and how fast a copy from one such device to another is, where they reach each other without the host:
//
//   peer_bandwidth = "50GB/s"         # default: none is known
//
// Amounts are strings with a unit (Units.h); a time may be a plain number of seconds.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace headrace::model {

class TomlReader;

enum class DeviceKind : uint8_t { Host = 0, Cuda = 1 };
std::string_view deviceKindName(DeviceKind kind); // "host", "cuda"
std::optional<DeviceKind> deviceKindFromName(std::string_view name);

// Rates are per second, in decimal units (1 GB/s = 1e9 bytes/s, 1 TFLOP/s = 1e12). Efficiencies are the share of the
// peak that a well-tuned kernel is seen to reach; they are calibrated, and the file says where from.
inline constexpr int64_t kMostThreads = 1024;

// What classes of ops reach where it is not what all do: shares of the peaks, and seconds. 0: as all ops.
struct OpClasses {
  double productFlopsEfficiency = 0, productMemoryEfficiency = 0; // matrix products
  double prefillAttentionFlopsEfficiency = 0;                     // of long prompts
  // An attention step of prompts whose arithmetic takes t at that efficiency takes t + sqrt(t x ramp): the blocks that
  // walk most of a context end alone. With t = ramp it takes twice as long.
  double prefillAttentionRamp = 0;
  double decodeAttentionMemoryEfficiency = 0; // keys and values of long contexts
  double attentionOverhead = 0;               // of an attention step, in launchOverhead's place
  double plainAttentionFlopsEfficiency = 0;   // of flopsF32: attention that no tensor core computes (AttentionSizes.h)
  double rowMemoryEfficiency = 0;             // what is neither: norms, rotation, activations, rows that are gathered
  double readKvFlopsEfficiency = 0;           // K and V of a step of attention, two flops a value, whoever reads them
  double unpackFlopsEfficiency = 0;           // codes made values, two flops each, beside what is computed with them
  bool operator==(const OpClasses &) const = default;
};
struct ClassKey {
  std::string_view key;
  double OpClasses::*field;
  std::string_view of; // the key of all ops that it stands in for
  bool time = false;   // seconds; else a share
};
absl::Span<const ClassKey> classKeys(); // in the order above

// The CPU beside a device, as far as it computes there (attention to caches in host memory).
struct Cpu {
  int64_t cores = 0; // that compute together; 0: nothing is known of it
  double flops = 0;  // F32, what all of them reach together
  double memoryBandwidth =
      0;                    // bytes/s of host memory, for all that reads and writes it: the cores and the link's copies
  double coreBandwidth = 0; // bytes/s of it that attention reaches on one core
  bool known() const { return cores > 0; }
  // What attention on all cores reaches of host memory.
  double bandwidth() const { return std::min(coreBandwidth * static_cast<double>(cores), memoryBandwidth); }
  bool operator==(const Cpu &) const = default;
};

struct Hardware {
  std::string name;
  DeviceKind kind = DeviceKind::Cuda;
  std::vector<std::string> gpus;
  uint64_t memoryBytes = 0;  // device memory
  uint64_t reserveBytes = 0; // of it, for the context, graphs and libraries; a plan's budget that is stated may have it
  uint64_t hostMemoryBytes = 0; // memory behind the link; 0: unknown
  double flopsF32 = 0;          // dense, no sparsity
  double flopsF16 = 0;          // F16 and BF16 with F32 accumulation
  double memoryBandwidth = 0;   // device memory, bytes/s
  double h2dBandwidth = 0;      // bytes/s of a large pinned copy
  double d2hBandwidth = 0;
  double duplexBandwidth = 0;  // both directions together: from the larger of the two to their sum
  double copyLatency = 0;      // seconds before the first byte of a copy arrives
  double launchOverhead = 0;   // seconds per compute step
  double flopsEfficiency = 0;  // share of peak reached by large matrix products
  double memoryEfficiency = 0; // share of memoryBandwidth reached by streaming kernels
  double linkEfficiency = 1;   // share of h2d/d2hBandwidth reached by the copies of a plan
  OpClasses classes;
  Cpu cpu;                  // of kind cuda
  double peerBandwidth = 0; // bytes/s of a copy from one device to another, of kind cuda; 0: none is known
  // Of kind host: how many threads compute together. The figures above are one thread's; so many have their flops, and
  // their bandwidth up to a limit.
  int64_t threads = 1;
  double memoryBandwidthLimit = 0; // bytes/s of all threads; 0: none

  // What a plan has of the device where nothing else is said.
  uint64_t defaultBudget() const { return memoryBytes - reserveBytes; }
  // What may be offloaded; all there can be where it is unknown.
  uint64_t hostLimit() const { return hostMemoryBytes > 0 ? hostMemoryBytes : uint64_t{1} << 62; }
  double flops(bool f32) const { return (f32 ? flopsF32 : flopsF16) * static_cast<double>(threads); }
  double bandwidth() const {
    const double all = memoryBandwidth * static_cast<double>(threads);
    return memoryBandwidthLimit > 0 ? std::min(all, memoryBandwidthLimit) : all;
  }
  // duplexBandwidth by the faster direction's: 2 where directions do not disturb each other, 1 where together they get
  // what one gets alone.
  double duplexShare() const { return duplexBandwidth / std::max(h2dBandwidth, d2hBandwidth); }
};

// Refuses unknown and missing keys, and figures that are not positive and finite, by file and key. Latency and launch
// overhead may be zero; efficiencies are at most 1. plain_attention_flops_efficiency, peer_bandwidth and the CPU's keys
// are of kind cuda alone.
absl::StatusOr<Hardware> readHardware(const std::string &path);
absl::StatusOr<Hardware> parseHardware(std::string_view text, const std::string &path,
                                       const std::optional<Hardware> &base = std::nullopt);
// The keys of one table; `where` (a file) begins the messages of validate(). With a base, keys that are missing keep
// its figures; but where h2d_bandwidth stands without d2h_bandwidth, that is scaled with it, and duplex_bandwidth with
// their sum; a memory that stands without a reserve has none; and where flops_efficiency, memory_efficiency or
// launch_overhead stands, it is of all classes of ops but those whose own figure stands beside it.
absl::StatusOr<Hardware> parseHardwareTable(TomlReader &table, const std::string &where, const std::string &defaultName,
                                            const std::optional<Hardware> &base);

// The profile over another link: d2h and duplex scaled with h2d.
Hardware withH2dBandwidth(Hardware hardware, double h2dBandwidth);

// What keys over `base` that give `wanted` need not say of classes of ops: where a figure of all ops has to stand, as
// it differs or a class's own goes, another figure for it and none of its classes.
Hardware impliedClasses(Hardware base, const Hardware &wanted);

// The same refusals for a profile that was changed after it was read (a flag that sets the link's bandwidth, say).
absl::Status validate(const Hardware &hardware, std::string_view where);

} // namespace headrace::model
