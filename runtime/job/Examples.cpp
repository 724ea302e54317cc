// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/Examples.h"

#include <cstdlib>
#include <filesystem>
#include <set>
#include <system_error>

#include "absl/strings/str_join.h"
#include "runtime/base/FileIo.h"
#include "runtime/base/Nearest.h"
#include "runtime/base/Text.h"
#include "runtime/job/ShippedExamples.h"

namespace headrace::model {
namespace fs = std::filesystem;
namespace {

// No path of a file: nothing keeps its files there.
constexpr std::string_view kBuiltIn = "/built-in/";

std::string builtInPath(const ShippedExample &shipped) {
  return cat(kBuiltIn, shipped.kind, "/", shipped.name, ".toml");
}

const ShippedExample *builtIn(std::string_view path) {
  if (path.substr(0, kBuiltIn.size()) == kBuiltIn)
    for (const ShippedExample &shipped : shippedExamples())
      if (builtInPath(shipped) == path)
        return &shipped;
  return nullptr;
}

} // namespace

std::vector<std::string> exampleFolders(const std::string &kind) {
  std::vector<std::string> folders;
  if (const char *given = std::getenv("HEADRACE_EXAMPLES"); given != nullptr && *given != '\0')
    folders.push_back(joinPath(given, kind));
  std::error_code error;
  const fs::path binary = fs::read_symlink("/proc/self/exe", error);
  if (!error) {
    for (fs::path folder = binary.parent_path(); folder.has_relative_path(); folder = folder.parent_path()) {
      folders.push_back((folder / "examples" / kind).string());
      folders.push_back((folder / "share/headrace/examples" / kind).string());
    }
  }
  return folders;
}

std::vector<std::string> exampleNames(const std::string &kind) {
  std::set<std::string> names;
  for (const ShippedExample &shipped : shippedExamples())
    if (shipped.kind == kind)
      names.emplace(shipped.name);
  for (const std::string &folder : exampleFolders(kind)) {
    std::error_code error;
    for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
      if (at->path().extension() == ".toml")
        names.insert(at->path().stem().string());
  }
  return {names.begin(), names.end()};
}

absl::StatusOr<std::string> resolveExample(const std::string &folder, const std::string &pathOrName,
                                           const std::string &kind) {
  const std::string path = joinPath(folder, pathOrName);
  if (isDirectory(path) || isRegularFile(path) || builtIn(path) != nullptr)
    return path;
  if (const std::string type = fileTypeAt(path); !type.empty())
    return absl::InvalidArgumentError(
        cat("\"", escaped(pathOrName, 200), "\": ", type, ": expected a regular file or a folder"));
  if (isThere(path)) // a link to nothing, as reading it says
    return readTextFile(path).status();
  const bool bare =
      !pathOrName.empty() && pathOrName.find('/') == std::string::npos && pathOrName.find('\0') == std::string::npos;
  if (bare) {
    for (const std::string &shipped : exampleFolders(kind))
      for (const char *suffix : {".toml", ""}) {
        const std::string candidate = joinPath(shipped, cat(pathOrName, suffix));
        if (candidate.ends_with(".toml") && isRegularFile(candidate))
          return candidate;
      }
    for (const char *suffix : {".toml", ""})
      if (const std::string candidate = cat(kBuiltIn, kind, "/", pathOrName, suffix); builtIn(candidate) != nullptr)
        return candidate;
  }
  const std::vector<std::string> names = exampleNames(kind);
  const bool aPath = pathOrName.starts_with('.') || pathOrName.starts_with('/'); // and no name, "org/name" or other
  return absl::NotFoundError(cat("\"", escaped(pathOrName, 200), "\": no such file or folder",
                                 bare ? cat(", nor one of the shipped ", kind, ": ", absl::StrJoin(names, ", ")) : "",
                                 aPath ? "" : didYouMean(pathOrName.substr(pathOrName.rfind('/') + 1), names)));
}

absl::StatusOr<std::string> readExample(const std::string &path) {
  const ShippedExample *shipped = builtIn(path);
  return shipped != nullptr ? std::string(shipped->text) : readTextFile(path);
}

} // namespace headrace::model
