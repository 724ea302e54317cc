// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/Machine.h"

#include <sys/sysinfo.h>

#include <algorithm>
#include <cstdlib>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/base/Units.h"
#include "runtime/cuda/CudaDevice.h"
#include "runtime/cuda/HostMemory.h"
#include "runtime/job/Examples.h"
#include "runtime/job/JobFile.h"
#include "tools/commands/KeyFlags.h"
#include "tools/report/Format.h"

namespace headrace::tools {
namespace {

using model::cat;

constexpr uint64_t kMiB = uint64_t{1} << 20, kGiB = uint64_t{1} << 30;
constexpr uint64_t kSystem = 2 * kGiB;
// Of a GPU's memory, for the context, graphs and libraries: examples/hardware/rtx4090.toml has what it is made of.
constexpr uint64_t kContext = kGiB;

uint64_t machineBytes() {
  struct sysinfo info {};
  uint64_t bytes = ::sysinfo(&info) == 0 ? uint64_t{info.totalram} * info.mem_unit : 0;
  return std::min(bytes, cuda::controlGroupsLimit().value_or(bytes));
}

// Products a clock of one multiprocessor, of the widest of its kind.
int fusedF32(const cuda::Gpu &gpu) { return gpu.major == 8 && gpu.minor == 0 ? 64 : 128; }
int fusedF16(const cuda::Gpu &gpu) {
  const int wide = gpu.major == 8 && gpu.minor == 0 ? 1024 : gpu.major == 9 ? 2048 : gpu.major == 10 ? 4096 : 512;
  return gpu.name.find("GeForce") == std::string::npos ? wide : wide / 2; // which sum in F32 at half the rate
}

// The profile that says that it is this GPU's; unset: none does.
absl::StatusOr<std::optional<model::Hardware>> profileOf(const cuda::Gpu &gpu) {
  for (const std::string &name : model::exampleNames("hardware")) {
    ASSIGN_OR_RETURN(profile, model::openHardware(name));
    if (std::find(profile.gpus.begin(), profile.gpus.end(), gpu.name) != profile.gpus.end())
      return profile;
  }
  return std::nullopt;
}

struct Guess {
  model::Hardware hardware;
  std::string said;
};

// What the driver says of a GPU that no profile knows, and for the rest a profile of its generation.
absl::StatusOr<Guess> guessed(const cuda::Gpu &gpu) {
  ASSIGN_OR_RETURN(like, model::openHardware(gpu.major >= 9 ? "h100" : "a100-40"));
  Guess guess{like, cat(gpu.name, ", which no profile knows: by its driver ", formatBytes(gpu.memoryBytes))};
  guess.hardware.name = gpu.name;
  guess.hardware.gpus = {gpu.name};
  guess.hardware.memoryBytes = gpu.memoryBytes;
  std::vector<std::string> assumed = {"the link", "latencies", "efficiencies"};
  if (gpu.memoryBandwidth > 0) {
    guess.hardware.memoryBandwidth = gpu.memoryBandwidth;
    guess.said += cat(" at ", model::bandwidthText(gpu.memoryBandwidth));
  } else {
    assumed.insert(assumed.begin(), "its memory's bandwidth");
  }
  if (gpu.multiprocessors > 0 && gpu.clock > 0) {
    guess.hardware.flopsF32 = 2.0 * fusedF32(gpu) * gpu.multiprocessors * gpu.clock;
    guess.hardware.flopsF16 = 2.0 * fusedF16(gpu) * gpu.multiprocessors * gpu.clock;
    guess.said +=
        absl::StrFormat(", %d multiprocessors at %.0f MHz (%.3g TFLOP/s in F32, %.3g in F16)", gpu.multiprocessors,
                        gpu.clock / 1e6, guess.hardware.flopsF32 / 1e12, guess.hardware.flopsF16 / 1e12);
  } else {
    assumed.insert(assumed.begin(), "its FLOP/s");
  }
  guess.said += cat("; assumed as ", like.name, "'s: ", absl::StrJoin(assumed, ", "));
  return guess;
}

absl::StatusOr<MachineHardware> ofGpu(const Machine &machine, const cuda::Gpu &gpu) {
  MachineHardware found;
  ASSIGN_OR_RETURN(profile, profileOf(gpu));
  if (profile) {
    found.hardware = *std::move(profile);
    found.said = cat(found.hardware.name, ", the profile of ", gpu.name);
  } else {
    ASSIGN_OR_RETURN(guess, guessed(gpu));
    found.hardware = std::move(guess.hardware);
    found.said = std::move(guess.said);
  }
  model::Hardware &hardware = found.hardware;
  hardware.memoryBytes = std::min(hardware.memoryBytes, gpu.memoryBytes / kMiB * kMiB);
  if (hardware.memoryBytes <= kContext)
    return absl::FailedPreconditionError(cat("GPU ", gpu.index, ", ", gpu.name, ", has ", gpu.memoryBytes,
                                             " bytes of memory: expected more than the ", kContext,
                                             " of a context; --hardware names another"));
  if (hardware.memoryBytes + kContext > gpu.memoryBytes)
    hardware.reserveBytes = std::max(hardware.reserveBytes, hardware.memoryBytes + kContext - gpu.memoryBytes);
  hardware.reserveBytes = (hardware.reserveBytes + kMiB - 1) / kMiB * kMiB;
  hardware.hostMemoryBytes = memoryForPlans(machine.memoryBytes);
  found.device = gpu.index == 0 ? "cuda" : cat("cuda:", gpu.index);
  found.said = cat("GPU ", gpu.index, ": ", found.said, "; ", formatBytes(hardware.hostMemoryBytes),
                   " of the machine's ", formatBytes(machine.memoryBytes), " behind its link");
  return found;
}

absl::StatusOr<MachineHardware> ofHost(const Machine &machine) {
  MachineHardware found;
  ASSIGN_OR_RETURN(profile, model::openHardware("host"));
  found.hardware = std::move(profile);
  const uint64_t memory = memoryForPlans(machine.memoryBytes);
  found.hardware.memoryBytes = found.hardware.hostMemoryBytes = memory;
  found.hardware.reserveBytes = 0;
  found.sharedMemory = memory;
  found.device = "host";
  found.said = cat("host, ", formatBytes(memory), " of the machine's ", formatBytes(machine.memoryBytes),
                   " for weights and caches; its speed as the profile host has it, which headrace profile measures");
  if (!machine.gpusRefused.empty())
    found.said += cat("; no GPU: ", machine.gpusRefused);
  for (const cuda::Gpu &gpu : machine.gpus)
    if (!gpu.usable.ok())
      found.said += cat("; not GPU ", gpu.index, ": ", gpu.usable.message());
  return found;
}

absl::StatusOr<MachineHardware> chosen(const Machine &machine, const std::string &device) {
  if (device == "host")
    return ofHost(machine);
  const absl::StatusOr<int> wanted = cuda::deviceIndex(device);
  for (const cuda::Gpu &gpu : machine.gpus)
    if (wanted.ok() ? gpu.index == *wanted : gpu.usable.ok())
      return gpu.usable.ok() ? ofGpu(machine, gpu) : gpu.usable;
  if (wanted.ok()) // there is none: why, is the device's to say
    if (absl::Status refused = cuda::makeCudaDevice({.index = *wanted}).status(); !refused.ok())
      return refused;
  return ofHost(machine);
}

} // namespace

absl::StatusOr<Machine> thisMachine() {
  Machine machine;
  if (const char *stated = std::getenv(cuda::kHostMemoryVariable); stated != nullptr && *stated != '\0') {
    ASSIGN_OR_RETURN(bytes, model::parseBytes(stated, cuda::kHostMemoryVariable));
    machine.memoryBytes = bytes;
  } else {
    machine.memoryBytes = machineBytes();
  }
  absl::StatusOr<std::vector<cuda::Gpu>> gpus = cuda::gpus();
  if (gpus.ok())
    machine.gpus = *std::move(gpus);
  else
    machine.gpusRefused = std::string(gpus.status().message());
  return machine;
}

uint64_t memoryForPlans(uint64_t machineBytes) {
  const uint64_t left = machineBytes - std::min(kSystem, machineBytes / 2);
  return left >= kGiB ? left / kGiB * kGiB : std::max(kMiB, left / kMiB * kMiB);
}

absl::StatusOr<MachineHardware> machineHardware(const Machine &machine, const std::string &device) {
  ASSIGN_OR_RETURN(found, chosen(machine, device));
  found.said = cat("hardware: ", found.said, "; as flags:");
  for (const auto &[flag, value] : hardwareFlags(found.hardware))
    found.said += cat(" ", flag, " ", shellWord(value));
  return found;
}

} // namespace headrace::tools
