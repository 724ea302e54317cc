// SPDX-License-Identifier: Apache-2.0
//
// Shared libraries that are opened when a CUDA device is, so that the program starts where they are not.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace headrace::cuda {

// Where CUDA's libraries may be, in the order they are tried:
//   1. `flag`, folders separated by colons, and HEADRACE_CUDA_LIBRARIES
//   2. "": the loader's own search (LD_LIBRARY_PATH, ld.so.cache)
//   3. $CUDA_HOME/lib64, /usr/local/cuda/lib64
//   4. nvidia/*/lib under the site-packages of $VIRTUAL_ENV, $CONDA_PREFIX, ~/.local, /usr/local and /usr
std::vector<std::string> librarySearchPath(const std::string &flag);
// For CUPTI: the same, then extras/CUPTI/lib64 in $CUDA_HOME and /usr/local/cuda.
std::vector<std::string> cuptiSearchPath(const std::string &flag);

class DynamicLibrary {
public:
  // The first of `names` ("libcublasLt.so.13") that a folder has. NotFound names all folders and what to do.
  static absl::StatusOr<DynamicLibrary> open(const std::vector<std::string> &names,
                                             const std::vector<std::string> &folders);
  const std::string &path() const { return path_; }

  // Sets `function` to the symbol, or fails naming it and the library.
  template <typename Function> absl::Status find(const char *symbol, Function *&function) const {
    void *found = nullptr;
    absl::Status status = findAddress(symbol, found);
    function = reinterpret_cast<Function *>(found);
    return status;
  }

private:
  DynamicLibrary(std::string path, void *handle) : path_(std::move(path)), handle_(handle) {}
  absl::Status findAddress(const char *symbol, void *&found) const;

  std::string path_;
  void *handle_ = nullptr; // never closed: CUDA's libraries do not like to be
};

} // namespace headrace::cuda
