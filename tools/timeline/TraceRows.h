// SPDX-License-Identifier: Apache-2.0
//
// What ran of a bucket, in a timeline's file: otherData.measured.rows, an object for each mini-batch.
//
//   [{"tokens": 2, "sampled": 2, "contexts": 20, "pairs": 20, "home": 0, "kept": 0, "rebuilt": 0}]
//
// "recomputed", as it was called, is read as "rebuilt".
#pragma once

#include <optional>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "runtime/cost/CostModel.h"
#include "runtime/plan/value/Plan.h"

namespace headrace::tools {

inline constexpr const char *kRowsKey = "rows";

nlohmann::ordered_json rowsJson(const std::vector<cost::Rows> &byMiniBatch);
// Nothing where it is no such list, or where more ran than the variant's bucket holds.
std::optional<std::vector<cost::Rows>> readRows(const nlohmann::ordered_json &json, const plan::Plan &plan,
                                                const plan::Variant &variant);

} // namespace headrace::tools
