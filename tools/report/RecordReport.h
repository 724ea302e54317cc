// SPDX-License-Identifier: Apache-2.0
//
// A performance record for people and for programs: what it is of, its grid, what copies take, and Select-N's Table 1.
#pragma once

#include <optional>
#include <string>

#include "runtime/cost/SelectN.h"

namespace headrace::tools {

// Without an SLO no tables of intervals. The tables need a complete record: an incomplete one is shown without.
std::string recordReportText(const cost::Record &record, const std::string &path, const std::optional<cost::Slo> &slo);
std::string recordReportJson(const cost::Record &record, const std::string &path, const std::optional<cost::Slo> &slo);

} // namespace headrace::tools
