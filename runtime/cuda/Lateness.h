// SPDX-License-Identifier: Apache-2.0
//
// When an iteration that is waited for takes far longer than what was predicted of it and of what is in flight before
// it.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace headrace::cuda {

class Lateness {
public:
  // A transition, before the iteration that is launched next; that iteration, behind the transitions since the last
  // one.
  void launchedTransition(uint64_t predictedNs) { transitionsNs_ += predictedNs; }
  void launched(uint64_t iteration, uint64_t predictedNs);

  // How long the iteration may be waited for; 0: it is not said (any more, or nothing was predicted). `beforeToo`: the
  // one before it is in flight as well.
  int64_t afterNs(uint64_t iteration, bool beforeToo) const;
  // What to say once it is; from then on nothing is.
  std::string say(uint64_t iteration, int64_t afterNs);

private:
  std::array<uint64_t, 2> predictedNs_{}; // of iteration n, the transitions before it with it: n % 2
  uint64_t transitionsNs_ = 0;            // since
  bool said_ = false;                     // once is enough: what it is does not change from iteration to iteration
};

} // namespace headrace::cuda
