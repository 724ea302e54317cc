// SPDX-License-Identifier: Apache-2.0
//
// What choices have alike that differ only in where weights and caches are: a target, its aim and limits, and what is
// worked out once for all of them, or once for each. How much memory there is has no say in it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compiler/choice/CompileRequest.h"
#include "compiler/evaluate/Placements.h"
#include "compiler/search/Generator.h"
#include "compiler/search/Limits.h"
#include "compiler/search/Scored.h"
#include "compiler/search/SearchPlacement.h"

namespace headrace::compiler {

class Alike {
public:
  // All but the target and the choice outlive it. `limits`: beside those of the request's objectives.
  Alike(const CompileRequest &request, Target target, const Choice &common, const model::WeightLayout &layout,
        const std::vector<Limit> &limits, Prices &prices, const Generator *inOrder = nullptr);
  Alike(const Alike &) = delete;
  Alike &operator=(const Alike &) = delete;

  const CompileRequest &request() const { return request_; } // with its encodings
  const model::WeightLayout &layout() const { return layout_; }
  Prices &prices() { return prices_; }
  const Target &target() const {
    return target_;
  } // its buckets those that decide; its memory whatever it was made with
  const Aim &aim() const { return aim_; }
  const std::vector<Limit> &limits() const { return limits_; }
  const PlacementFamily &family() const { return *family_; }
  Iterations &iterations() { return *iterations_; }
  const std::vector<Candidate> &order() const { return order_; } // of the policy that has one
  Player &player() { return *player_; }

  // Sets what playing a choice that memory holds tells of it, but not how late it is; false: it cannot be played.
  bool play(Scored &scored);
  void setBytes(Scored &scored) const;
  // Of what a choice takes by limit: of the one that is missed by most the part that it is missed by; 0: all hold.
  double lateOf(const std::vector<uint64_t> &limitedNs, const model::Goal &objectives) const;
  // What a choice takes at least, by what it brings alone: no play of it takes less.
  struct AtLeast {
    double aimNs = 0;
    std::vector<uint64_t> limitedNs;
  };
  AtLeast atLeast(const Candidate &candidate) const;
  // By limit how long a sequence waits in the plan of a choice, with all transitions; null: it cannot be laid out.
  const std::vector<uint64_t> *waits(const Candidate &candidate, const model::Goal &objectives);
  // What searchPlacement() finds; of the same goals once.
  const absl::StatusOr<SearchedPlacement> &searchUnits(const SearchRequest &request);
  uint64_t packed(const Candidate &candidate); // bytes of the device; the largest number of one that cannot be
  // What bringing takes, alone, of all that an iteration uses at a point and the device has no room for.
  uint64_t leastLinkNs(const PlayPoint &point, uint64_t deviceMemory) const;

private:
  bool playAnew(Scored &scored);
  uint64_t slowestNs(const Candidate &candidate, double ns) const; // in its slowest iterations

  const CompileRequest &request_;
  const model::WeightLayout &layout_;
  Prices &prices_;
  Target target_;
  const Target all_; // with all buckets: where the circle is cut, and so what lies where, they have a say in
  Aim aim_;
  std::vector<Limit> limits_;
  std::vector<PlayPoint> points_; // of the aim, then of the limits, then those that decode may follow
  std::optional<Iterations> iterations_;
  std::optional<Iterations> exact_; // made where something is packed
  std::optional<PlacementFamily> family_;
  std::optional<Player> player_;
  std::vector<PricedStep> steps_;
  std::vector<Candidate> order_;
  std::map<std::string, std::optional<Scored>> played_; // by a candidate's text; none: it cannot be played
  std::map<std::string, std::optional<std::vector<uint64_t>>> waits_;          // by objectives, and the same
  std::map<std::string, uint64_t> packed_;                                     // the same
  std::map<std::vector<int64_t>, absl::StatusOr<SearchedPlacement>> searched_; // by goals
};

// Of one request, beside whatever memory, what its choices have alike.
class Alikes {
public:
  Alikes(const CompileRequest &request, const cost::CostModel &costs, std::vector<Limit> limits,
         const Generator *inOrder = nullptr);

  // Of a target that a choice was resolved to.
  std::shared_ptr<Alike> of(const Target &target, const Choice &common);
  const std::vector<Limit> &limits() const { return limits_; }
  const cost::CostModel &costs() const { return costs_; }

private:
  // What is laid out and priced alike.
  struct Encoded {
    Encoded(const CompileRequest &asked, const cost::CostModel &costs);
    Encoded(const CompileRequest &asked, const Target &target); // by the roofline
    Encodings encodings;
    bool onCpu = false;
    const CompileRequest request;
    const model::WeightLayout layout;
    std::optional<cost::Roofline> roofline;
    Prices prices;
  };
  Encoded &encodedFor(const Target &target, const Choice &common);

  const cost::CostModel &costs_;
  const CompileRequest request_;
  std::vector<std::unique_ptr<Encoded>> encoded_;
  const std::vector<Limit> limits_; // beside those of the request's objectives
  const Generator *const inOrder_;
  std::map<std::string, std::shared_ptr<Alike>> alikes_; // by the choice's text and the caches' most blocks
};

} // namespace headrace::compiler
