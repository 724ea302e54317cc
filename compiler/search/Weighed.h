// SPDX-License-Identifier: Apache-2.0
//
// A policy's placements as the choice by latency weighs them (MostFreed.h): times by playing them, bytes by sums and by
// packing. Times are those of the slowest iterations where the policy allows for these.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "compiler/evaluate/PlayChoice.h"
#include "compiler/search/GeneratorInputs.h"
#include "compiler/search/MostFreed.h"
#include "compiler/search/SearchPlacement.h"

namespace headrace::compiler {

class Weighed : public Choosable {
public:
  // All outlive it but the candidates: what there is to choose from, each better than those behind it where they are
  // `inOrder`. `searches`: single units beside them.
  Weighed(const GeneratorInputs &in, const Generator &policy, Iterations &iterations, Player &player,
          const std::vector<Objective> &buckets, std::vector<Candidate> candidates, bool inOrder, bool searches);

  const Candidate &candidate(size_t placement) const { return placements_[placement].candidate; }
  uint32_t slowest() const { return slowest_; } // permille, of placements that move weights
  // Bytes that a candidate gives back (MostFreed.h).
  int64_t freedBytes(const Candidate &candidate) const;
  // What the link does in a bucket's time, where a placement was searched for; none where nothing is.
  std::optional<LinkUse> linkUseOf(size_t placement, size_t bucket) const;

  size_t stated() const override { return stated_; }
  int64_t freed(size_t placement) override { return placements_[placement].freed; }
  bool offloadsNothing(size_t placement) override { return candidate(placement).offloadsNothing(); }
  uint64_t heldBytes(size_t placement) override { return placements_[placement].heldBytes; }
  uint64_t needBytes(size_t placement) override { return in_.family.need(candidate(placement)).bytes; }
  uint64_t bytes(size_t placement) override { return in_.family.packed(candidate(placement)); }
  bool fits(size_t placement, uint64_t deviceMemory) override {
    return in_.family.fits(candidate(placement), deviceMemory);
  }
  uint64_t movedBytes(size_t placement) override { return placements_[placement].movedBytes; }
  uint64_t copiesNs(size_t placement) override { return placements_[placement].copiesNs; }
  uint64_t ns(size_t placement, size_t bucket) override;
  uint64_t gapNs(size_t placement, size_t bucket) override;
  std::optional<size_t> search(const std::vector<uint64_t> &sloNs) override;
  bool searches() const override { return searches_; }
  std::vector<size_t> chain(size_t bucket, const std::vector<RangeStep> &steps, std::optional<size_t> within) override;
  std::optional<size_t> inOneCut(size_t placement) override;

private:
  struct Placement {
    Candidate candidate;
    int64_t freed = 0;
    uint64_t heldBytes = 0, movedBytes = 0, copiesNs = 0;
    std::vector<uint64_t> ns, gapNs; // by bucket; empty: not worked out
  };
  size_t add(Candidate candidate); // its number, whether or not it is new
  SearchRequest requestOf(const std::vector<uint64_t> &sloNs, bool embedding) const;
  std::optional<Candidate> searchAnew(const std::vector<uint64_t> &sloNs) const;
  void report(); // to CompileRequest::progress
  void lookFor(const std::vector<uint64_t> &sloNs);

  const GeneratorInputs in_;
  Iterations &iterations_;
  Player &player_;
  const std::vector<Objective> &buckets_;
  const uint32_t slowest_;
  const bool inOrder_, searches_;
  size_t stated_ = 0;
  std::vector<Placement> placements_;
  std::map<std::vector<uint64_t>, std::optional<size_t>> searched_;
  CompileProgress progress_{.choosing = true};
};

} // namespace headrace::compiler
