// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/Lateness.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace headrace::cuda {
namespace {

// An iteration that takes so many times longer than predicted is said, but not before so long: what is less may be the
// system's.
constexpr uint64_t kLateFactor = 30;
constexpr int64_t kLeastLateNs = 250'000'000;

} // namespace

void Lateness::launched(uint64_t iteration, uint64_t predictedNs) {
  predictedNs_[iteration % 2] = transitionsNs_ + predictedNs;
  transitionsNs_ = 0;
}

int64_t Lateness::afterNs(uint64_t iteration, bool beforeToo) const {
  constexpr uint64_t kMost = uint64_t{1} << 55; // a year of ns, and 30 of them are no overflow
  const uint64_t predicted = predictedNs_[iteration % 2] + (beforeToo ? predictedNs_[(iteration + 1) % 2] : 0);
  if (said_ || predicted == 0)
    return 0;
  return std::max(kLeastLateNs, static_cast<int64_t>(kLateFactor * std::min(predicted, kMost)));
}

std::string Lateness::say(uint64_t iteration, int64_t afterNs) {
  said_ = true;
  return absl::StrCat("cuda device: iteration ", iteration, " is waited for since ", afterNs / 1'000'000,
                      " ms, more than ", kLateFactor,
                      " times what was predicted: another process may have the GPU, or it is slowed down or stuck "
                      "(`nvidia-smi`, `nvidia-smi -q -d PERFORMANCE`); it is waited for all the same");
}

} // namespace headrace::cuda
