// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/ModelPath.h"

#include <filesystem>

namespace headrace::tools {
namespace {

namespace fs = std::filesystem;

// The folder of the file itself, where links to it are followed.
fs::path folderOfFile(const std::string &file, std::error_code &error) {
  return fs::weakly_canonical(fs::absolute(file, error), error).parent_path();
}

} // namespace

std::string pathInPlan(const std::string &path, const std::string &planFile) {
  if (path.empty() || path.front() == '/')
    return path;
  std::error_code error;
  const fs::path folder = folderOfFile(planFile, error);
  const fs::path model = error ? fs::path() : fs::canonical(path, error);
  return error ? path : model.lexically_relative(folder).string();
}

std::string pathFromPlan(const std::string &path, const std::string &planFile) {
  if (path.empty() || path.front() == '/')
    return path;
  std::error_code error;
  const fs::path folder = folderOfFile(planFile, error);
  return error ? path : (folder / path).lexically_normal().string();
}

} // namespace headrace::tools
