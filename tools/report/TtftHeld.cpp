// SPDX-License-Identifier: Apache-2.0
#include "tools/report/TtftHeld.h"

#include <algorithm>

#include "absl/strings/str_format.h"

namespace headrace::tools {
namespace {

double msOf(int64_t ns) { return static_cast<double>(ns) * 1e-6; }

} // namespace

void TtftHeld::add(int64_t ns) {
  ++count_;
  late_ += objective_ && ns > objective_->count();
  longestNs_ = std::max(longestNs_, ns);
}

std::string TtftHeld::text() const {
  if (!any())
    return "";
  return absl::StrFormat("longest %.3f ms, %.3f x its objective of %.3f ms; ", msOf(longestNs_),
                         msOf(longestNs_) / msOf(objective_->count()), msOf(objective_->count())) +
         (late_ == 0 ? absl::StrFormat("all %d held it", count_)
                     : absl::StrFormat("%d of %d were longer", late_, count_));
}

std::string TtftHeld::shareText() const {
  return any() ? absl::StrFormat("%.0f%%", 100 * static_cast<double>(count_ - late_) / static_cast<double>(count_))
               : "-";
}

nlohmann::ordered_json TtftHeld::json() const {
  if (!any())
    return nullptr;
  return {{"objective_ms", msOf(objective_->count())},
          {"longest_ms", msOf(longestNs_)},
          {"requests", count_},
          {"late", late_}};
}

} // namespace headrace::tools
