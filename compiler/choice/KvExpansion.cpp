// SPDX-License-Identifier: Apache-2.0
#include "compiler/choice/KvExpansion.h"

#include <algorithm>

namespace headrace::compiler {
namespace {

constexpr double kMostAuto = 4;
constexpr double kLonger = 3; // than what is read takes

} // namespace

double mostExpansion(int64_t caches, int64_t slots) {
  return std::max(1.0, static_cast<double>(caches) / static_cast<double>(slots));
}

double mostAutoExpansion(int64_t caches, int64_t slots) {
  return std::min(kMostAuto, (1 + mostExpansion(caches, slots)) / 2);
}

double linkExpansion(double weightBytes, double kvBytes, double memoryBandwidth, double linkBandwidth) {
  const double seconds = (weightBytes + kvBytes) / memoryBandwidth;
  return 1 + kLonger * seconds * linkBandwidth / kvBytes;
}

} // namespace headrace::compiler
