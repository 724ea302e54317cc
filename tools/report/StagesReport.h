// SPDX-License-Identifier: Apache-2.0
//
// Plans of a model's stages, one beside the other: which layers, what is away, bytes, predicted iterations.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/types/span.h"
#include "runtime/plan/value/Plan.h"

namespace headrace::tools {

// Model and hardware, `why` and `plans` (lines; left out where empty), a table.
std::string stagesReportText(absl::Span<const plan::Plan *const> plans, const std::string &why,
                             const std::string &where);
// The same; `files`: of each plan, or none.
nlohmann::ordered_json stagesReportJson(absl::Span<const plan::Plan *const> plans, const std::string &why,
                                        absl::Span<const std::string> files);

} // namespace headrace::tools
