// SPDX-License-Identifier: Apache-2.0
//
// Output files: written beside the target, then renamed, so that nobody ever sees half of one.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace headrace::tools {

// A path that cannot be written (a folder that is missing, no permission, a folder in the file's place) is
// InvalidArgument; a disk that is full is Unavailable. The message names the file and the system's reason; the target
// is as it was before.
absl::Status writeFile(const std::string &path, std::string_view content);

// What writeFile would refuse before the content is known, so that a long run does not end in it: the folder is there
// and can be written to, the target is not a folder.
absl::Status checkWritable(const std::string &path);

} // namespace headrace::tools
