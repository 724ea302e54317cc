// SPDX-License-Identifier: Apache-2.0
//
// Weights for programs that load a model again and again.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "runtime/model/WeightSource.h"

namespace headrace::bench {

// Fills each unit once, and copies it from then on: the plans of one model differ in where weights lie, not in what
// they are.
class KeptWeights final : public model::WeightSource {
public:
  absl::Status fill(const model::Unit &unit, model::MatrixOrder order, absl::Span<std::byte> out) const override {
    std::vector<std::byte> &kept = kept_[{static_cast<int>(unit.role), unit.layer}];
    if (kept.empty()) {
      kept.resize(out.size());
      if (absl::Status status = source_->fill(unit, order, absl::MakeSpan(kept)); !status.ok())
        return status;
    }
    std::copy(kept.begin(), kept.end(), out.begin());
    return absl::OkStatus();
  }

private:
  std::unique_ptr<model::WeightSource> source_ = model::syntheticWeights(1);
  mutable std::map<std::pair<int, int64_t>, std::vector<std::byte>> kept_;
};

} // namespace headrace::bench
