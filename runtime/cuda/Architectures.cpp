// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/Architectures.h"

#include <algorithm>
#include <cstdlib>

namespace headrace::cuda {

bool architectureBuiltIn(const std::string &built, int major, int minor) {
  const int wanted = 10 * major + minor;
  for (size_t begin = 0; begin < built.size();) {
    const size_t end = std::min(built.find(',', begin), built.size());
    const std::string one = built.substr(begin, end - begin);
    begin = end + 1;
    char *suffix = nullptr;
    const int arch = static_cast<int>(std::strtol(one.c_str(), &suffix, 10));
    const std::string kind(suffix);
    if (arch == 0)
      continue;
    if (arch == wanted)
      return true;
    const bool machineCode = kind.empty() || kind == "-real", ptx = kind.empty() || kind == "-virtual";
    if (wanted > arch && (ptx || (machineCode && arch / 10 == major)))
      return true;
  }
  return false;
}

} // namespace headrace::cuda
