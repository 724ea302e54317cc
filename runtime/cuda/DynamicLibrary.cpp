// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/DynamicLibrary.h"

#include <dlfcn.h>
#include <glob.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace headrace::cuda {
namespace {

void addFolders(const std::string &list, std::vector<std::string> &folders) {
  for (const auto &folder : absl::StrSplit(list, ':', absl::SkipEmpty()))
    folders.emplace_back(folder);
}

std::string environment(const char *name) {
  const char *value = std::getenv(name);
  return value == nullptr ? "" : value;
}

void addMatches(const std::string &pattern, std::vector<std::string> &folders) {
  glob_t found{};
  if (::glob(pattern.c_str(), 0, nullptr, &found) == 0)
    folders.insert(folders.end(), found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
}

} // namespace

std::vector<std::string> librarySearchPath(const std::string &flag) {
  std::vector<std::string> folders;
  addFolders(flag, folders);
  addFolders(environment("HEADRACE_CUDA_LIBRARIES"), folders);
  folders.push_back("");
  if (const std::string home = environment("CUDA_HOME"); !home.empty())
    folders.push_back(home + "/lib64");
  folders.push_back("/usr/local/cuda/lib64");
  const std::string user = environment("HOME");
  for (const std::string &root :
       {environment("VIRTUAL_ENV"), environment("CONDA_PREFIX"), user.empty() ? user : user + "/.local",
        std::string("/usr/local"), std::string("/usr")})
    if (!root.empty())
      for (const char *packages : {"site-packages", "dist-packages"})
        addMatches(absl::StrCat(root, "/lib/python3*/", packages, "/nvidia/*/lib"), folders);
  return folders;
}

std::vector<std::string> cuptiSearchPath(const std::string &flag) {
  std::vector<std::string> folders = librarySearchPath(flag);
  for (const std::string &home : {environment("CUDA_HOME"), std::string("/usr/local/cuda")})
    if (!home.empty())
      folders.push_back(home + "/extras/CUPTI/lib64");
  return folders;
}

absl::StatusOr<DynamicLibrary> DynamicLibrary::open(const std::vector<std::string> &names,
                                                    const std::vector<std::string> &folders) {
  std::string reason;
  for (const std::string &folder : folders)
    for (const std::string &name : names) {
      const std::string path = folder.empty() ? name : absl::StrCat(folder, "/", name);
      // Global: cuBLAS finds cublasLt by its name among what is loaded.
      if (void *handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL))
        return DynamicLibrary(path, handle);
      const char *error = ::dlerror();
      const std::string text = error == nullptr ? "" : error;
      if (text.find("No such file") == std::string::npos)
        reason = text; // it is there and cannot be loaded: worth more than the rest
    }
  std::vector<std::string> tried;
  tried.reserve(folders.size());
  for (const std::string &folder : folders)
    tried.push_back(folder.empty() ? "LD_LIBRARY_PATH" : folder);
  return absl::UnavailableError(
      absl::StrCat(absl::StrJoin(names, " or "), " not found in ", absl::StrJoin(tried, ", "),
                   reason.empty() ? "" : absl::StrCat(" (", reason, ")"),
                   ": install CUDA 13's libraries, or name their folder in HEADRACE_CUDA_LIBRARIES"));
}

absl::Status DynamicLibrary::findAddress(const char *symbol, void *&found) const {
  found = ::dlsym(handle_, symbol);
  if (found == nullptr)
    return absl::UnavailableError(absl::StrCat(path_, " has no ", symbol, ": expected the library of CUDA 13"));
  return absl::OkStatus();
}

} // namespace headrace::cuda
