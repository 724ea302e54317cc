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

// "host, sim or cuda, or cuda:1 for the second GPU"; of groups: "host or sim".
std::string deviceNames(bool groups = false);

// kInvalidArgument, naming the flag, for what none answers to, and for a flag that asks of a device what it has not.
// --pin: of the host device, two cores of those this process may use; the same one twice if there is only one.
absl::StatusOr<std::unique_ptr<core::Device>> makeDevice(const std::string &name, const DeviceFlags &flags);
absl::StatusOr<std::unique_ptr<core::DeviceGroup>> makeDeviceGroup(const std::string &name, size_t devices,
                                                                   const core::PathLimits &bus); // bytes/s
absl::Status checkDeviceGroup(const std::string &name); // that makeDeviceGroup() knows it

} // namespace headrace::tools
