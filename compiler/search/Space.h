// SPDX-License-Identifier: Apache-2.0
//
// What a search looks through: choices by their coordinates, and what each comes to.
//
//   coordinates   whole numbers that a search moves along: parts of the batch, 64ths of blocks that keep activations,
//                 layers whose weights are on the host, ...
//   fill          the KV blocks that stay on the device are no coordinate: as many as there is room for
//   in order      nor are weights where a policy has candidates in an order: of these the first that memory holds
//
// Coordinates that the request states, or that its model or policy does not have, stay where they are.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/search/Alike.h"
#include "compiler/search/Choices.h"

namespace headrace::compiler {

class Space {
public:
  using Free = Choices::Free;

  // `inOrder`: a policy whose candidates are taken in their order.
  Space(const CompileRequest &request, const cost::CostModel &costs, const Generator *inOrder = nullptr);
  // Of a request that differs from another space's in memory, in how long its objectives are, or in what is preferred:
  // as if it were the first, but that what is played, packed and evaluated there is known here.
  Space(const CompileRequest &request, const Space &other);
  Space(const Space &) = delete;
  Space &operator=(const Space &) = delete;

  const CompileRequest &request() const { return request_; }
  bool prefersMemory() const { return request_.policy.prefer == model::Prefer::Memory; }
  const Free &free() const { return choices_.free(); }
  Coordinates origin() const { return choices_.origin(); }                // nothing on the host but what is stated
  std::vector<Coordinates> origins() const { return choices_.origins(); } // of each encoding that is allowed
  int64_t nextMiniBatches(int64_t count, int64_t way) const { return choices_.nextMiniBatches(count, way); }
  bool actsMayLeave(const Coordinates &at) const { return choices_.actsMayLeave(at); }
  // In order: of how many layers, about, so that the first candidate fits, and so that the last does; of each that does
  // not with none.
  std::vector<int64_t> actAwayBeside(const Coordinates &at);
  const Aim &aim(const Coordinates &at);

  // What memory holds, and of the rest what is the least beyond it; what holds the objectives, and of the rest what
  // misses them the least. Of what does: by the aim, then the fewest bytes moved, then the least memory; where memory
  // is preferred by that first.
  bool isBetter(const Scored &a, const Scored &b) const;

  // None: there is no such choice. Worked out once.
  const Scored *score(const Coordinates &at);
  // The same, but none as well where it is seen without playing it that it is not better than another, by more than
  // kTie.
  const Scored *scoreIfBetter(const Coordinates &at, const Scored &than);
  const model::Goal &objectives() const { return objectives_; }
  // Of a candidate that memory holds, whatever the space would make of its coordinates; none: it cannot be played.
  std::optional<Scored> scored(const Coordinates &at, const Candidate &candidate);
  // Another goal's objectives in place of the request's; of each kind that it has.
  void hold(const model::Goal &objectives);
  // One more limit, of a bucket; all is played anew.
  void addLimit(const Limit &limit);
  // Lays a choice that was played out and evaluates it with all transitions: what a sequence then waits for is known of
  // all its kind, and `late` is right. False: it cannot be laid out.
  bool verify(Scored &scored);
  // A choice has turned out to take so long where a limit holds it, whatever was known of it.
  void raise(const Scored &scored, size_t limit, uint64_t ns);
  // By limit, of a choice that was played.
  const std::vector<Limit> &limits(const Coordinates &at);

  // Whether what a choice brings, alone, takes no longer than the objectives allow.
  bool mayHold(const Scored &settled);

  // Where a generator begins, worked out once for the same objectives; where latency is preferred, whatever they are.
  const std::vector<Coordinates> &beginnings(std::string_view generator, Seeds seeds);

  // One more placement of weights; its number among those that are listed.
  int64_t list(Candidate weights) { return choices_.list(std::move(weights)); }
  size_t evaluated() const { return evaluated_; } // choices that were played
  // All that was scored.
  const std::map<Coordinates, std::optional<Scored>> &tried() const { return scored_; }

  // Of a choice with nothing on the host, whatever memory there is; by point.
  std::vector<Played> resident(const Coordinates &at); // of the aim's
  std::vector<Played> resident(const Coordinates &at, const std::vector<PlayPoint> &points);
  // What bringing takes, alone, of all that an iteration uses at a point and the device has no room for.
  uint64_t leastLinkNs(const Coordinates &at, const PlayPoint &point);
  // Of all that were scored and are as good, to a thousandth: what moves the fewest bytes, then what has the least on
  // the host, then on the device.
  const Scored *plainest(const Scored &best);

  // Of a choice by its coordinates; all but `exists` only of one that there is.
  bool exists(const Coordinates &at);
  // In the policy's order; each as it is without tails.
  const std::vector<Candidate> &candidates(const Coordinates &at) { return alikeOf(at)->order(); }
  // So many blocks of each cache on the device, of a candidate, under the movement of these coordinates.
  void setTails(const Coordinates &at, int64_t resident, Candidate &candidate) const {
    choices_.setTails(at, resident, candidate);
  }
  // As many blocks as the device has room for; false: not even none.
  bool fill(const Coordinates &at, Candidate &candidate, bool exactly);
  const CompileRequest &request(const Coordinates &at) { return alikeOf(at)->request(); } // with its encodings
  const model::WeightLayout &layout(const Coordinates &at) { return alikeOf(at)->layout(); }
  Prices &prices(const Coordinates &at) { return alikeOf(at)->prices(); }
  const Target &target(const Coordinates &at); // its buckets those that a search looks at
  // So many blocks of each cache on the device; all where it is as many as there are.
  Candidate candidate(const Coordinates &at, int64_t resident);
  MemoryNeed held(const Coordinates &at, const Candidate &candidate); // by sums, transients left out
  MemoryNeed need(const Coordinates &at, const Candidate &candidate); // by sums, transients apart from all else
  // Single units of weights within goals (Alike.h).
  const absl::StatusOr<SearchedPlacement> &searchUnits(const Coordinates &at, const SearchRequest &request);
  uint64_t packed(const Coordinates &at, const Candidate &candidate); // of the device; the largest number: of none
  uint64_t hostBytes(const Coordinates &at, const Candidate &candidate);
  bool deviceHolds(const Coordinates &at, const Candidate &candidate, bool exactly); // packed where sums do not tell
  uint64_t beyondHost(const Coordinates &at, const Candidate &candidate);            // bytes
  // The candidate with its KV blocks filled to the last that packing has room for.
  absl::StatusOr<Candidate> filled(const Scored &scored);
  Choice commonOf(const Coordinates &at) const { return choices_.common(at); } // what all its placements have alike

private:
  struct Known {
    Target target; // with this space's memory
    std::shared_ptr<Alike> alike;
  };
  const Known *knownOf(const Coordinates &at);
  // Plays a choice that memory holds; false: it cannot be.
  bool play(Alike &alike, Scored &scored);
  void forget(); // what was played
  // As memory holds it; none: there is no such choice.
  Scored *settled(const Coordinates &at);
  // As if nothing took memory but what stays; none: not even without blocks it would be held.
  std::optional<Candidate> withMostBlocks(const Coordinates &at);
  // What memory holds, than another; by what it brings with so many blocks, whatever it takes of memory.
  bool mayBeBetter(const Coordinates &at, const Candidate &candidate, const Scored &than);
  uint64_t leastBytes(const Scored &settled); // of the device, whatever blocks leave
  bool drains(const Alike &alike) const;      // blocks of caches may leave, memory or not
  // Of what a choice takes by limit the most, as a part of the limit.
  double ratioOf(const Alike &alike, const std::vector<uint64_t> &limitedNs) const;
  // As few blocks on the device as the objectives allow, of one that has been filled.
  void drain(Alike &alike, Scored &scored);
  void setLate(const Alike &alike, Scored &scored) const; // with what was verified
  Alike *alikeOf(const Coordinates &at);
  // Splits caches where they have to be. Bytes that memory lacks.
  uint64_t settle(const Coordinates &at, Candidate &candidate);
  // The same of the first candidate in order that memory holds, with all KV on the device before one that splits it.
  uint64_t settleInOrder(Scored &scored);

  const CompileRequest &request_;
  const Generator *const inOrder_ = nullptr;
  model::Goal objectives_;
  std::map<std::string, std::vector<uint64_t>> verified_; // by a candidate's text: the limits' times, at least
  const model::WeightLayout layout_;                      // as it is: which units there are
  Choices choices_;
  std::map<std::string_view, std::vector<Coordinates>> beginnings_; // by generator
  const std::shared_ptr<Alikes> first_;                             // with no limits but those of the objectives
  std::shared_ptr<Alikes> alikes_;
  std::map<std::array<int64_t, 7>, std::optional<Known>> known_;
  std::map<Coordinates, std::optional<Scored>> scored_;
  std::map<Coordinates, std::optional<Scored>> settled_; // with as many blocks as memory holds; played where some leave
  size_t evaluated_ = 0;
};

} // namespace headrace::compiler
