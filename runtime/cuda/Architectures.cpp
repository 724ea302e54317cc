// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/Architectures.h"

#include <algorithm>
#include <cstdlib>

namespace headrace::cuda {

// NVIDIA's guide: machine code is not shared between these and other GPUs.
static bool ofJetsonOrDrive(int architecture) {
  constexpr int kAll[] = {87, 88, 101, 110};
  return std::find(std::begin(kAll), std::end(kAll), architecture) != std::end(kAll);
}

KernelCode codeFor(const std::string &built, int major, int minor) {
  const int wanted = 10 * major + minor;
  KernelCode best = KernelCode::None;
  for (size_t begin = 0; begin < built.size();) {
    const size_t end = std::min(built.find(',', begin), built.size());
    const std::string one = built.substr(begin, end - begin);
    begin = end + 1;
    char *suffix = nullptr;
    const int architecture = static_cast<int>(std::strtol(one.c_str(), &suffix, 10));
    const std::string kind(suffix);
    if (architecture < kLeastArchitecture || wanted < architecture)
      continue;
    const bool plain = kind.empty() || kind.front() == '-'; // "90a" runs on that GPU alone
    const bool machineCode = !kind.ends_with("-virtual"), ptx = !kind.ends_with("-real");
    const bool shares =
        plain && architecture / 10 == major && !ofJetsonOrDrive(wanted) && !ofJetsonOrDrive(architecture);
    if (machineCode && (wanted == architecture || shares))
      return KernelCode::MachineCode;
    if (ptx && (plain || wanted == architecture))
      best = KernelCode::Ptx;
  }
  return best;
}

} // namespace headrace::cuda
