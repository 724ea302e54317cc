// SPDX-License-Identifier: Apache-2.0
//
// The steps of a schedule played one by one over the device's memory and what is written of the host's: who holds each
// byte, who wrote it, who has read it.
//
// Any order of execution that lanes and edges allow gives every step the contents it finds here, if all accesses to a
// common byte of which one writes are ordered: so those pairs are collected (`Need`), and the contents are looked at.
//
// Homes of weights on the device are never written (VerifyPlaces.cpp refuses plans that do), so a weight that is read
// at its home needs no more. Everything else is in the map from the start: caches and io at their homes, and what the
// entry state says the slots hold. A transition between placements is the exception: it starts with the homes of the
// one and must end with those of the other, so they are in the map.
//
// An interleaved cache is tracked as one run behind all addresses: no other buffer has
// bytes among its blocks (VerifyCaches.cpp, VerifyPlaces.cpp), and nobody uses it elsewhere. The homes of caches in the
// host slab are written, by appends and by copies, so they are in the map, too, behind all others; weights there are
// only read.
//
// Activation blocks at home on the host are written there, and current there at the start.
//
// The home of a residual is written, too, by copies, and nothing is there at the start, unless another stage's rows
// are (Plan::receives); nor is anything of it in a slot. A publish reads it there. The same is true of what steps of
// the cpu lane work on in the slab: rows of transients, iteration buffers.
//
// Bytes of a cache, of a residual or of a transient may be in several places: on the device at home or in slots, and in
// the host slab.
// A step that writes them in some of these makes those in all others stale. A write that a copy might meet is of bytes
// that the copy reads or writes, so the two are ordered, and the steps' own order tells what is stale. A copy leaves
// what it writes as current as what it reads; but one of what a launch's own rows are written to (Step::dirtyOnly)
// brings nothing that was written before the schedule: a home that was behind on entry (Content::dirty) stays so.
#pragma once

#include <set>
#include <vector>

#include "runtime/plan/proof/Clocks.h"
#include "runtime/plan/proof/ExtentIndex.h"
#include "runtime/plan/proof/HeldRanges.h"
#include "runtime/plan/proof/VerifyParts.h"

namespace headrace::plan {

// `to` must start after `from` of another lane has ended. Of several with one `to`, lane and kind the last is kept: the
// others follow.
struct Need {
  uint32_t from = 0, to = 0;
  EdgeKind kind = EdgeKind::Raw;
};

// One content of a slot: from the step that writes it (-1: there on entry) to its last reader in each lane. What rows
// are added to in place stays one content.
struct Life {
  uint64_t bytes = 0;
  int32_t writer = -1;
  Clock readers{};
  bool atExit = false;
};

class Playback {
public:
  Playback(const Plan &plan, const CacheHomes &caches, uint32_t schedule, const Clocks &clocks);

  // Plays all steps. With a report: violations of order and contents go there, until it is full.
  void run(Report *report);

  const std::vector<Need> &needs() const { return needs_; } // sorted by `to`
  const std::vector<Life> &lives() const { return lives_; }

private:
  void enter();
  void read(uint32_t step, const Operand &operand);
  void write(uint32_t step, const Operand &operand);
  void leave();
  void leaveHome(const Extent &extent, uint64_t bytes);
  // Caches that are split, and residuals that leave (PlaybackCaches.cpp).
  void enterMirrors();
  void enterBehind(const Content &content);
  void writeRun(const Operand &destination, uint64_t base, const HeldRange &node);
  void update(uint32_t step, const Operand &operand);
  bool updates(uint32_t step, const Operand &operand) const;
  void spoilCopies(uint32_t step);
  void spoilCopy(const Operand &destination);
  void readStale(uint32_t step, const Operand &operand, uint64_t begin, uint64_t end, const HeldRange &node);
  void leaveCaches();
  void leaveStale(const std::string &what, uint64_t begin, uint64_t end, const HeldRange &node);
  uint64_t slabBase(uint32_t buffer) const; // where byte 0 of a mirrored cache's home is tracked
  bool isTracked(const Operand &operand) const;
  bool movesWritten(uint32_t buffer) const;
  void addPlace(uint32_t buffer, uint64_t base);
  // Where byte 0 of a run of a buffer is tracked that lies at an address.
  uint64_t trackedBase(uint32_t buffer, Space space, uint64_t offset, uint64_t address, bool interleaved) const;
  uint64_t trackedBase(const Operand &o) const {
    return trackedBase(o.buffer, o.space, o.bufferOffset, o.address, o.interleaved);
  }
  std::string placeOf(uint64_t tracked) const; // for messages: "at 512"
  bool isWeight(const Operand &operand) const;
  bool isResidual(uint32_t buffer) const;
  bool isReceived(uint32_t buffer) const;
  bool isActOnHost(uint32_t buffer) const;
  void found(uint32_t step, const Operand &operand, uint64_t begin, uint64_t end, const HeldRange *node);
  std::string contentOf(const HeldRange *node, uint64_t begin, uint64_t end) const; // for messages
  void need(uint32_t from, uint32_t to, EdgeKind kind);
  uint32_t newLife(uint64_t bytes, int32_t writer);
  const Operand *copied(const Step &step) const;
  size_t writtenAt(const Operand &transient) const {
    return 2 * (transient.buffer - plan_.buffers.size()) + static_cast<size_t>(transient.space);
  }

  const Plan &plan_;
  const CacheHomes &caches_;
  const uint32_t index_;
  const Schedule &schedule_;
  const Placement &placement_;
  const Clocks &clocks_;
  Report *report_ = nullptr;
  const ExtentIndex extents_;
  HeldRanges memory_;
  std::vector<bool> written_; // by local and space: some step before has written it there
  // By buffer, of those for which movesWritten(): where its byte 0 is tracked, by where copies of it may be. Without
  // any such buffer there are none, and of transients only where some are staged.
  std::vector<std::set<uint64_t>> places_;
  // Of the step being played: what it has read that was stale, since that step.
  struct StaleBytes {
    uint64_t offset = 0, bytes = 0;
    int32_t since = -1;
  };
  std::vector<StaleBytes> staleRead_;
  std::vector<Need> needs_;
  std::vector<Life> lives_;
};

} // namespace headrace::plan
