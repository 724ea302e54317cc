// SPDX-License-Identifier: Apache-2.0
//
// Durations of a schedule's steps for a bucket. Steps of the same op and unit role cost the same in every layer, so a
// bucket is priced once per kind of step and then looked up.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "runtime/cost/CostModel.h"
#include "runtime/plan/value/Plan.h"

namespace headrace::compiler {

// A compute step of an iteration, as cost models know it.
struct PricedStep {
  cost::OpSite site;
  bool inLayer = false;
};

class Prices {
public:
  explicit Prices(const cost::CostModel &costs) : costs_(costs) {}

  // A step that is no kernel (publish) has no site and costs nothing.
  uint64_t computeNs(const std::optional<cost::OpSite> &site, const cost::Bucket &bucket, bool direct);
  uint64_t cpuNs(const cost::OpSite &site, const cost::Bucket &bucket); // of a step of the cpu lane
  uint64_t copyNs(uint64_t bytes, bool hostToDevice);
  // One a step, each alone on its lane. Copies are of all that they may bring, but of residual streams and of rows for
  // the cpu lane: of the bucket's rows.
  std::vector<uint64_t> durations(const plan::Plan &plan, const plan::Schedule &schedule,
                                  const std::vector<std::optional<cost::OpSite>> &sites, const cost::Bucket &bucket);
  double duplexShare() const { return costs_.duplexShare(); }
  cost::Sharing sharing() const { return costs_.sharing(); }
  cost::Interference interference() const { return costs_.interference(); }
  uint32_t slowestPermille() const; // Plan::slowestPermille

private:
  using Table = std::vector<uint64_t>; // by op, unit role, how; kUnknown: not asked for yet
  static constexpr uint64_t kUnknown = ~uint64_t{0};

  struct Copied {
    uint64_t bytes = 0;
    bool hostToDevice = false;
    uint64_t ns = kUnknown;
  };

  Table &tableOf(const cost::Bucket &bucket);
  uint64_t computeNs(Table &table, const cost::OpSite &site, const cost::Bucket &bucket, cost::How how) const;

  const cost::CostModel &costs_;
  std::map<std::array<int64_t, 4>, Table> tables_; // by bucket
  std::map<std::pair<uint64_t, bool>, uint64_t> copies_;
  std::array<Copied, 64> recent_; // by bytes and direction
};

} // namespace headrace::compiler
