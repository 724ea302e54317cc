// SPDX-License-Identifier: Apache-2.0
//
// The devices that there are, one entry each in a table in Devices.cpp: what --device may be, in commands and in their
// --help.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/core/BusShare.h"
#include "runtime/core/DeviceGroup.h"
#include "tools/commands/Commands.h"

namespace headrace::tools {

// "host, sim or cuda, or cuda:1 for the second GPU"; of groups on a bus of any
// bandwidth: "host or sim".
std::string deviceNames(bool groups = false);

// kInvalidArgument, naming the flag, for what none answers to, and for a flag that asks of a device what it has not.
// --pin: a core of those this process may use for each thread that computes, physical ones first, and of the host
// device the one after them for the transfer thread, as far as there are; the last one again where there are no more.
absl::StatusOr<std::unique_ptr<core::Device>> makeDevice(const std::string &name, const DeviceFlags &flags);
// --threads, or HEADRACE_THREADS, or all cores that this process may use. Warns once of more than these.
absl::StatusOr<int> threadsOf(const DeviceFlags &flags);
// bus: bytes/s; of GPUs none. "cuda" is the first GPUs, "cuda:2,0" those two in this order, a list as long as there are
// devices. kInvalidArgument naming both numbers where the machine has fewer GPUs.
absl::StatusOr<std::unique_ptr<core::DeviceGroup>> makeDeviceGroup(const std::string &name, const DeviceFlags &flags,
                                                                   size_t devices, const core::PathLimits &bus);
// What reports call it: `name`, or the device's kind, and how many threads compute, where that is more than one.
std::string describeDevice(const std::string &name, const core::Device &device);
absl::Status checkDeviceGroup(const std::string &name); // that there are groups of it on a bus of any bandwidth

} // namespace headrace::tools
