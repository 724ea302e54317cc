// SPDX-License-Identifier: Apache-2.0
#include "tools/WriteFile.h"

#include <cerrno>
#include <cstring>

#include <unistd.h>

#include "runtime/model/FileIo.h"
#include "runtime/model/ReplaceFile.h"
#include "runtime/model/Text.h"

namespace headrace::tools {
namespace {

absl::Status refuse(const std::string &path, int error) {
  return absl::InvalidArgumentError(model::cat(path, ": cannot write: ", std::strerror(error)));
}

} // namespace

absl::Status checkWritable(const std::string &path) {
  if (path.empty())
    return absl::InvalidArgumentError("an output file's name is empty");
  if (model::isDirectory(path))
    return refuse(path, EISDIR);
  const std::string folder = model::folderOf(path);
  if (::access(folder.empty() ? "." : folder.c_str(), W_OK | X_OK) != 0)
    return refuse(path, errno);
  return absl::OkStatus();
}

absl::Status writeFile(const std::string &path, std::string_view content) {
  if (absl::Status status = checkWritable(path); !status.ok())
    return status;
  return model::replaceFile(path, content);
}

} // namespace headrace::tools
