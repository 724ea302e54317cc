// SPDX-License-Identifier: Apache-2.0
//
// What a search looks through: choices by their coordinates, and what each comes to.
//
//   coordinates   whole numbers that a search moves along: parts of the batch, sixteenths of blocks that keep
//                 activations, layers whose weights are on the host, ...
//   fill          the KV blocks that stay on the device are no coordinate: as many as there is room for
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

namespace headrace::compiler {

inline constexpr int64_t kActParts = 16; // a share is so many of them
inline constexpr double kTie = 1e-3;     // of the aim: a smaller difference is none

struct Coordinates {
  int64_t miniBatches = 1;
  int64_t actParts = 0; // of kActParts
  int64_t actAway = 0;  // layers whose activation blocks are on the host
  int64_t layers = 0;   // whose weights are
  bool embedding = false, head = false;
  int64_t slots = 2;                            // of weights
  int64_t kvSlots = 2;                          // of tails
  bool decodeDirty = false, mixedDirty = false; // rows of tails go home behind the step, not by it
  bool wraps = true; // iterations copy for the next; else transients may use slots that are empty

  auto key() const {
    return std::tie(miniBatches, actParts, actAway, layers, embedding, head, slots, kvSlots, decodeDirty, mixedDirty,
                    wraps);
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
  double movedBytes = 0; // over the link, by the aim's weights
  uint64_t deviceBytes = 0, hostBytes = 0;
  uint64_t overBytes = 0; // beyond what memory has: it was not played
};
// What memory holds, and of the rest what is the least beyond it; by the aim, then the fewest bytes moved, then the
// least memory.
bool isBetter(const Scored &a, const Scored &b);

class Space {
public:
  // Which coordinates a search may move along.
  struct Free {
    bool miniBatches = false, act = false, actAway = false, layers = true, embedding = true, head = true, slots = true,
         kvSlots = true, writeBack = true, kv = true; // kv: caches may be split
  };

  Space(const CompileRequest &request, const cost::CostModel &costs);
  ~Space();
  Space(const Space &) = delete;
  Space &operator=(const Space &) = delete;

  const CompileRequest &request() const { return request_; }
  const model::WeightLayout &layout() const { return layout_; }
  const Free &free() const { return free_; }
  Coordinates origin() const; // nothing on the host but what is stated
  const Aim &aim(const Coordinates &at);

  // None: there is no such choice. Worked out once.
  const Scored *score(const Coordinates &at);
  size_t evaluated() const { return evaluated_; } // choices that were played

  // Of a choice with nothing on the host, whatever memory there is; by point.
  std::vector<Played> resident(const Coordinates &at);
  // What bringing takes, alone, of all that an iteration uses at a point and the device has no room for.
  uint64_t leastLinkNs(const Coordinates &at, const PlayPoint &point);
  // Of all that were scored and are as good, to a thousandth: what moves the fewest bytes, then what has the least on
  // the host, then on the device.
  const Scored *plainest(const Scored &best) const;

  // Of a choice by its coordinates; all but `exists` only of one that there is.
  bool exists(const Coordinates &at);
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
  Choice commonOf(const Coordinates &at) const; // what of it all placements have alike

private:
  // What choices have alike, and what is worked out once for it.
  struct Alike;
  Alike *alikeOf(const Coordinates &at);
  Candidate candidateOf(const Coordinates &at, const Choice &common) const;
  // As many blocks as the device has room for; false: not even none.
  bool fill(const Coordinates &at, Candidate &candidate, bool exactly);
  // Splits caches where they have to be. Bytes that memory lacks.
  uint64_t hold(const Coordinates &at, Candidate &candidate);
  void setTails(const Coordinates &at, int64_t resident, Candidate &candidate) const;

  const CompileRequest &request_;
  const model::WeightLayout layout_;
  Prices prices_;
  Free free_;
  std::map<std::tuple<int64_t, int64_t, int64_t>, std::unique_ptr<Alike>> alike_;
  std::map<Coordinates, std::optional<Scored>> scored_;
  size_t evaluated_ = 0;
};

} // namespace headrace::compiler
