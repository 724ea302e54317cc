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

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/choice/Candidate.h"
#include "compiler/choice/CompileRequest.h"
#include "compiler/choice/Resolve.h"
#include "compiler/evaluate/Placements.h"
#include "compiler/evaluate/PlayChoice.h"
#include "compiler/search/Aim.h"
#include "compiler/search/Generator.h"
#include "compiler/search/Limits.h"

namespace headrace::compiler {

inline constexpr int64_t kActParts = 64; // a share is so many of them
inline constexpr int64_t kShallow = 8;   // layers: a model of no more is searched more closely
inline constexpr double kTie = 1e-3;     // of the aim: a smaller difference is none

struct Coordinates {
  int64_t listed = 0; // of the space's list of placements of weights (from 1), which then says all that is said below
                      // of weights; 0: none of it
  int64_t miniBatches = 1;
  int64_t actParts = 0; // of kActParts
  int64_t actAway = 0;  // layers whose activation blocks are on the host
  int64_t layers = 0;   // whose weights are
  bool embedding = false, head = false;
  int64_t slots = 2;                            // of weights
  int64_t kvSlots = 2;                          // of tails
  bool decodeDirty = false, mixedDirty = false; // rows of tails go home behind the step, not by it
  bool allBack = false;                         // all that is in use goes home, when it leaves its place
  bool wraps = true;             // iterations copy for the next; else transients may use slots that are empty
  int64_t chunk = kLargestChunk; // Choice::largestChunk

  auto key() const {
    return std::tie(listed, miniBatches, actParts, actAway, layers, embedding, head, slots, kvSlots, decodeDirty,
                    mixedDirty, allBack, wraps, chunk);
  }
  bool operator==(const Coordinates &other) const { return key() == other.key(); }
  bool operator<(const Coordinates &other) const { return key() < other.key(); }
};

// What a choice comes to.
struct Scored {
  Coordinates at;
  Candidate candidate;
  std::vector<Played> played; // by point of the aim
  double aimNs = 0;
  double comparedNs = 0;           // Aim::compared
  double movedBytes = 0;           // over the link, by the aim's weights
  std::vector<uint64_t> limitedNs; // of each of the space's limits, in its slowest iterations
  double late = 0;                 // of the limit that is missed by most: the part of it that is missed; 0: all hold
  uint64_t deviceBytes = 0, hostBytes = 0;
  uint64_t overBytes = 0; // beyond what memory has: it was not played
  size_t nth = 0;         // of the candidates in their order
};
class Space {
public:
  // Which coordinates a search may move along.
  struct Free {
    bool miniBatches = false, act = false, actAway = false, layers = true, embedding = true, head = true, slots = true,
         kvSlots = true, writeBack = true, kv = true, chunk = false; // kv: caches may be split
    int64_t actStep = 4;                                             // parts of a share
  };

  // `inOrder`: a policy whose candidates are taken in their order.
  Space(const CompileRequest &request, const cost::CostModel &costs, const Generator *inOrder = nullptr);
  ~Space();
  Space(const Space &) = delete;
  Space &operator=(const Space &) = delete;

  const CompileRequest &request() const { return request_; }
  const model::WeightLayout &layout() const { return layout_; }
  bool inOrder() const { return inOrder_ != nullptr; }
  bool prefersMemory() const { return request_.policy.prefer == model::Prefer::Memory; }
  Prices &prices() { return prices_; }
  const Free &free() const { return free_; }
  Coordinates origin() const; // nothing on the host but what is stated
  // The next larger or smaller number of mini-batches that divides the batch; itself where there is none.
  int64_t nextMiniBatches(int64_t count, int64_t way) const;
  const Aim &aim(const Coordinates &at);

  // What memory holds, and of the rest what is the least beyond it; what holds the objectives, and of the rest what
  // misses them the least. Of what does: by the aim, then the fewest bytes moved, then the least memory; where memory
  // is preferred by that first.
  bool isBetter(const Scored &a, const Scored &b) const;

  // None: there is no such choice. Worked out once.
  const Scored *score(const Coordinates &at);
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
  // The limits of another space, and what has turned out there.
  void like(const Space &other);
  // By limit, of a choice that was played.
  const std::vector<Limit> &limits(const Coordinates &at);

  // Where a generator begins, worked out once for the same objectives; where latency is preferred, whatever they are.
  const std::vector<Coordinates> &beginnings(std::string_view generator, std::vector<Coordinates> (*seeds)(Space &));

  // One more placement of weights; its number among those that are listed.
  int64_t list(Candidate weights);
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
  const std::vector<Candidate> &candidates(const Coordinates &at);
  // So many blocks of each cache on the device, of a candidate, under the movement of these coordinates.
  void setTails(const Coordinates &at, int64_t resident, Candidate &candidate) const;
  // As many blocks as the device has room for; false: not even none.
  bool fill(const Coordinates &at, Candidate &candidate, bool exactly);
  const Target &target(const Coordinates &at); // its buckets those that a search looks at
  // So many blocks of each cache on the device; all where it is as many as there are.
  Candidate candidate(const Coordinates &at, int64_t resident);
  MemoryNeed held(const Coordinates &at, const Candidate &candidate); // by sums, transients left out
  MemoryNeed need(const Coordinates &at, const Candidate &candidate); // by sums, transients apart from all else
  uint64_t packed(const Coordinates &at, const Candidate &candidate); // of the device; the largest number: of none
  uint64_t hostBytes(const Coordinates &at, const Candidate &candidate);
  bool deviceHolds(const Coordinates &at, const Candidate &candidate, bool exactly); // packed where sums do not tell
  uint64_t beyondHost(const Coordinates &at, const Candidate &candidate);            // bytes
  // The candidate with its KV blocks filled to the last that packing has room for.
  absl::StatusOr<Candidate> filled(const Scored &scored);
  Choice commonOf(const Coordinates &at) const;   // what of it all placements have alike
  bool actsMayLeave(const Coordinates &at) const; // for the host: activation blocks, of which it has some
  // In order: of how many layers, about, so that the first candidate fits, and so that the last does; of each that does
  // not with none.
  std::vector<int64_t> actAwayBeside(const Coordinates &at);

private:
  // What choices have alike, and what is worked out once for it.
  struct Alike;
  // Plays a choice that memory holds; false: it cannot be.
  bool play(Alike &alike, Scored &scored);
  void forget(); // what was played
  // As few blocks on the device as the objectives allow, of one that has been filled.
  void drain(Alike &alike, Scored &scored);
  double lateOf(const Alike &alike, const Scored &scored) const;
  static void setBytes(const Alike &alike, Scored &scored);
  void setLate(const Alike &alike, Scored &scored) const; // with what was verified
  Alike *alikeOf(const Coordinates &at);
  Candidate candidateOf(const Coordinates &at, const Choice &common) const;
  // Splits caches where they have to be. Bytes that memory lacks.
  uint64_t settle(const Coordinates &at, Candidate &candidate);
  // The same of the first candidate in order that memory holds, with all KV on the device before one that splits it.
  uint64_t settleInOrder(Scored &scored);

  const CompileRequest &request_;
  const Generator *const inOrder_;
  model::Goal objectives_;
  std::vector<Limit> moreLimits_;
  std::map<std::string, std::vector<uint64_t>> verified_; // by a candidate's text: the limits' times, at least
  const bool oneCut_; // the circles of all classes are cut alike, so that nothing is brought between them
  const model::WeightLayout layout_;
  Prices prices_;
  Free free_;
  std::map<std::string_view, std::vector<Coordinates>> beginnings_; // by generator
  std::vector<Candidate> listed_;
  std::map<std::tuple<int64_t, int64_t, int64_t, int64_t>, std::unique_ptr<Alike>> alike_;
  std::map<Coordinates, std::optional<Scored>> scored_;
  std::map<Coordinates, Scored> filled_; // where memory is preferred: as it was played before blocks left
  size_t evaluated_ = 0;
};

} // namespace headrace::compiler
