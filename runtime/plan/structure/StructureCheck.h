// SPDX-License-Identifier: Apache-2.0
//
// The walk over a plan behind findStructureFault, for the files that are parts of it: PlanStructure.cpp (the header),
// StructureHomes.cpp (buffers, placements, states), StructureSchedules.cpp (schedules and what refers to them). The
// first fault ends it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/EnumCount.h"
#include "runtime/model/WeightLayout.h"
#include "runtime/plan/structure/PlanStructure.h"
#include "runtime/plan/value/BufferIndex.h"

namespace headrace::plan {

template <typename E> constexpr int value(E e) { return static_cast<int>(e); }
template <typename E> constexpr bool known(E e) { return value(e) < model::enumCount<E>(); }

class StructureCheck {
public:
  explicit StructureCheck(const Plan &plan) : plan_(plan) {}

  std::optional<StructureFault> run() {
    checkHeader();
    checkBuffers();
    findSplit();
    for (size_t i = 0; i < plan_.placements.size() && ok(); ++i)
      checkPlacement(plan_.placements[i], absl::StrCat("placements[", i, "]"));
    checkTails();
    for (size_t i = 0; i < plan_.states.size() && ok(); ++i)
      checkState(plan_.states[i], absl::StrCat("states[", i, "]"));
    for (size_t i = 0; i < plan_.schedules.size() && ok(); ++i)
      checkSchedule(static_cast<uint32_t>(i));
    checkCycles();
    for (size_t i = 0; i < plan_.variants.size() && ok(); ++i)
      checkVariant(i);
    for (size_t i = 0; i < plan_.choices.size() && ok(); ++i)
      checkChoice(i);
    for (size_t i = 0; i < plan_.transitions.size() && ok(); ++i)
      checkTransition(plan_.transitions[i], absl::StrCat("transitions[", i, "]"));
    return std::move(fault_);
  }

private:
  bool ok() const { return !fault_; }

  template <typename... Parts> bool fail(const Parts &...parts) {
    if (ok())
      fault_ = StructureFault{schedule_, step_, absl::StrCat(parts...)};
    return false;
  }

  template <typename E, typename... Path> bool enumerator(E e, const Path &...path) {
    return known(e) || fail(path..., " is ", value(e), ", expected 0 to ", model::enumCount<E>() - 1);
  }
  template <typename... Path> bool index(uint64_t i, uint64_t count, const Path &...path) {
    return i < count || fail(path..., " is ", i, ", expected less than ", count);
  }
  template <typename... Path> bool within(int64_t x, int64_t low, int64_t high, const Path &...path) {
    return (x >= low && x <= high) || fail(path..., " is ", x, ", expected ", low, " to ", high);
  }
  template <typename... Path> bool atMost(uint64_t x, uint64_t high, const Path &...path) {
    return x <= high || fail(path..., " is ", x, ", expected at most ", high);
  }
  template <typename... Path> bool aligned(uint64_t x, const Path &...path) {
    return x % model::kAlign == 0 || fail(path..., " is ", x, ", expected a multiple of ", model::kAlign);
  }
  // Text that is printed: short, and nothing that a terminal would obey. Lines may end only where `lines` says so.
  template <typename... Path> bool text(const std::string &s, size_t longest, bool lines, const Path &...path) {
    if (s.size() > longest)
      return fail(path..., " has ", s.size(), " bytes, expected at most ", longest);
    for (const char c : s)
      if ((static_cast<unsigned char>(c) < 0x20 && !(lines && c == '\n')) || c == 0x7f)
        return fail(path..., " has a control character, ", static_cast<int>(c));
    return true;
  }
  // A state of that placement, or one that holds nothing.
  template <typename... Path> bool ofPlacement(uint32_t state, uint32_t placement, const Path &...path) {
    const State &s = plan_.states[state];
    return s.contents.empty() || s.placement == placement ||
           fail(path..., " is ", state, ", a state of placement ", s.placement, ", expected one of ", placement);
  }
  // A range inside a buffer of `size` bytes, at an address; the address of byte 0 is aligned unless `anywhere`.
  template <typename... Path>
  bool range(uint64_t offset, uint64_t bytes, uint64_t size, uint64_t address, bool anywhere, const Path &...path) {
    if (bytes == 0 || bytes > size || offset > size - bytes)
      return fail(path..., " has bytes [", offset, ", ", offset, " + ", bytes, ") of a buffer of ", size);
    return atMost(address, kMaxBytes, path..., ".address") &&
           (anywhere || (address - offset) % model::kAlign == 0 ||
            fail(path..., ".address is ", address, " for offset ", offset, ", expected to differ by a multiple of ",
                 model::kAlign));
  }

  void checkHeader();
  void checkActBlocks();
  void checkBuffers();
  void checkWeights(const BufferIndex &index);
  void checkResiduals(const BufferIndex &index);
  void findSplit();
  // A cache that is split by block number: its ranges are of blocks of any size.
  bool splits(const Buffer &buffer) const { return split_ && buffer.kind == BufferKind::Kv; }
  uint64_t bytesToTile(const Placement &placement, const Buffer &buffer, const std::string &path);
  void checkPlacement(const Placement &placement, const std::string &path);
  void checkBlocksInUse(const Schedule &schedule, const std::string &path);
  bool checkCacheExtent(const Extent &extent, uint64_t end, std::optional<uint64_t> &resident, const std::string &at);
  bool checkResidualExtent(const Extent &extent, const std::string &at);
  void checkRegion(const Placement &placement, const std::string &path);
  void checkTails();
  void checkState(const State &state, const std::string &path);
  void checkSchedule(uint32_t i);
  void checkPhase(const Schedule &schedule, const std::string &path);
  void checkCycles();
  bool checkStep(const Schedule &schedule, uint32_t i, const std::string &path);
  bool checkCopy(const Schedule &schedule, uint32_t i, const std::string &path);
  bool checkCopyDown(const Schedule &s, const Step &step, const std::string &at);
  bool checkOperand(const Schedule &schedule, uint32_t i, const std::string &path);
  bool checkBlocks(const Schedule &schedule, uint32_t i, const std::string &path);
  void checkEdges(const Schedule &schedule, const std::string &path);
  bool checkDurations(const std::vector<uint64_t> &durations, uint32_t schedule, const std::string &path);
  void checkVariant(size_t i);
  void checkChoice(size_t i);
  void checkTransition(const Transition &transition, const std::string &path);

  const Plan &plan_;
  bool split_ = false; // the caches, by block number: all in all placements, or none in any
  // Of caches that are split: where each one's first block is on the device, in all placements that have one there;
  // and the bytes of each that are there, by placement.
  std::vector<uint64_t> cacheAddress_, resident_;
  std::map<uint32_t, uint64_t> residualAddress_; // by buffer, in the host slab
  uint32_t schedule_ = kNone, step_ = kNone;     // what is being checked, for the fault
  std::optional<StructureFault> fault_;
};

} // namespace headrace::plan
