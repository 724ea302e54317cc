// SPDX-License-Identifier: Apache-2.0
//
// The parts of the verifier, in the order in which findViolations asks them. Each relies on a plan without a structure
// fault (PlanStructure.h) and on nothing else; none trusts what another has found.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/model/WeightLayout.h"
#include "runtime/plan/proof/CacheHomes.h"
#include "runtime/plan/proof/PlanVerifier.h"
#include "runtime/plan/value/BufferIndex.h"

namespace headrace::plan {

// Violations found so far, at most `limit`.
class Report {
public:
  explicit Report(size_t limit) : limit_(limit) {}
  bool full() const { return found_.size() >= limit_; }
  bool empty() const { return found_.empty(); }
  void add(Rule rule, uint32_t schedule, uint32_t step, std::string message) {
    if (!full())
      found_.push_back({rule, schedule, step, std::move(message)});
  }
  std::vector<Violation> take() { return std::move(found_); }

private:
  size_t limit_;
  std::vector<Violation> found_;
};

// Buffers are the model's units, caches and io of the right sizes, residuals if they leave (VerifyBuffers.cpp).
void verifyBuffers(const Plan &plan, const model::WeightLayout &layout, const BufferIndex &buffers, Report &report);
// The operands of each step are those its op takes, as large as it touches at the schedule's limits (VerifySizes.cpp).
void verifyOperands(const Plan &plan, const model::WeightLayout &layout, const BufferIndex &buffers,
                    const CacheHomes &caches, uint32_t schedule, Report &report);
// A layer's attention follows the append of its iteration's rows, which are rotated once (VerifyCaches.cpp).
void verifyRowsAppended(const Plan &plan, uint32_t schedule, Report &report);
// Of caches that are interleaved, that a schedule writes and keeps nothing else in their range of the device
// (VerifyCaches.cpp). Where it does, there is no telling what steps find there: false.
bool verifyCachesApart(const Plan &plan, const CacheHomes &caches, uint32_t schedule, Report &report);
// Each byte of the host slab is one buffer's (VerifyHost.cpp).
void verifyHostSlab(const Plan &plan, const CacheHomes &caches, Report &report);
// Extents, slots, states, transient buffers and operands keep to their spaces and apart (VerifyPlaces.cpp).
void verifyPlaces(const Plan &plan, const CacheHomes &caches, Report &report);
void verifyPlaces(const Plan &plan, const CacheHomes &caches, uint32_t schedule, Report &report);
// Order and contents; then, in a plan that is right so far, that no edge is idle (VerifyMovement.cpp).
void verifyMovement(const Plan &plan, const CacheHomes &caches, uint32_t schedule, Report &report);
// Totals and predictions (VerifyTotals.cpp).
void verifyTotals(const Plan &plan, const CacheHomes &caches, Report &report);

// What follows what: transitions, cycles, entry states that can be reached (VerifyStates.cpp).
void verifyStates(const Plan &plan, Report &report);

// "x [0, 512)", "layers.3.qkv [256, 1024)": bytes of a buffer, for messages.
std::string describe(const Plan &plan, const Schedule &schedule, uint32_t buffer, uint64_t offset, uint64_t bytes);

} // namespace headrace::plan
