// SPDX-License-Identifier: Apache-2.0
//
// KV caches that the device does not hold: how many of their blocks stay on it, beside which weights.
//
//                 weights           blocks on the device, of 400
//   none away     |||||||||||||||||||||||||||  60 |||
//   interval 8    |||||||||||||||||||||||  110 |||||||
//   interval 1    |||||  380 |||||||||||||||||||||||||
//
// Every placement fills the device: what weights leave becomes blocks. One placement is the one with the fewest weights
// away, since those are brought in every iteration, and of tails only what is in use. Several are spread over the list:
// one moves no weights and serves as long as few blocks are in use, another moves weights and hardly a block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "compiler/search/GeneratorInputs.h"

namespace headrace::compiler {

class SplitCaches {
public:
  // The inputs, and what they refer to, must outlive it.
  explicit SplitCaches(const GeneratorInputs &inputs) : in_(inputs) {}

  // How many slots tails take turns in; 0: algorithms::kKvSlots.
  void setSlots(int64_t slots) { slots_ = slots; }
  int64_t leastSlots() const; // that these are
  void setWriteBack(algorithms::WriteBack decode, algorithms::WriteBack mixed) {
    decodeWriteBack_ = decode;
    mixedWriteBack_ = mixed;
  }
  // False: as if the host held whatever is away.
  void setHostCounts(bool counts) { hostCounts_ = counts; }

  // Of these candidates, the first of which offloads least, at most `most`: each with the most blocks on the device
  // with which it fits. Without those that the host has no room for.
  std::vector<Candidate> filled(const std::vector<Candidate> &candidates, size_t most) const;
  // Each with as few blocks on the device as the host has room for the others, where that saves something.
  std::vector<Candidate> least(const std::vector<Candidate> &candidates) const;
  // Where it is stated what KV may take of the device: the blocks that stay beside these slots; none: not one.
  std::optional<int64_t> statedResident() const;
  // Each with so many blocks on the device, of which there is one.
  std::vector<Candidate> stated(const std::vector<Candidate> &candidates) const;

private:
  void setMovement(algorithms::Residency &residency) const; // slots, or places where these are stated
  Candidate with(Candidate candidate, int64_t resident) const;
  // 0: it does not fit with any. `beside` others it leaves what their homes take more together: its transients share
  // nothing with the tails' slots.
  int64_t mostResident(const Candidate &candidate, bool beside) const;
  bool hostHolds(const Candidate &split) const;
  int64_t leastResident(const Candidate &candidate) const; // that the host has room for the others; may be all

  const GeneratorInputs &in_;
  int64_t slots_ = 0;
  algorithms::WriteBack decodeWriteBack_ = algorithms::WriteBack::Mirror;
  algorithms::WriteBack mixedWriteBack_ = algorithms::WriteBack::Mirror;
  bool hostCounts_ = true;
};

} // namespace headrace::compiler
