// SPDX-License-Identifier: Apache-2.0
//
// Writing files so that nobody ever sees half of one.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace headrace::model {

// Writes `content` beside the target, flushes it to the disk, then renames it over the target in one step: after a
// crash the file is the old one or the new one, whole. Where the target is a link, the file it leads to is replaced. A
// path that cannot be written is kInvalidArgument (kNotFound without its folder), a full or failing disk kUnavailable;
// the target is then as it was. Every message begins with the path. One file at a time: callers on several threads
// wait for each other.
absl::Status replaceFile(const std::string &path, std::string_view content);

// Removes what stands beside a target half written, if anything does. For handlers of signals that end the process:
// nothing but async-signal-safe calls.
void removePartFile();

} // namespace headrace::model
