// SPDX-License-Identifier: Apache-2.0
#include <cstdio>

#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/base/Units.h"
#include "runtime/cost/RecordFile.h"
#include "tools/commands/Commands.h"
#include "tools/commands/InputErrors.h"
#include "tools/commands/Terminal.h"
#include "tools/report/RecordReport.h"

namespace headrace::tools {
namespace {

absl::StatusOr<std::optional<cost::Slo>> readSlo(const RecordOptions &options) {
  if (!options.slo.empty() && options.sloFactor)
    return badUsage("--slo beside --slo-factor: expected one of them");
  if (!options.slo.empty()) {
    absl::StatusOr<double> seconds = model::parseSeconds(options.slo, "command line: --slo");
    if (!seconds.ok())
      return seconds.status();
    const double ns = *seconds * 1e9;
    if (!(ns >= static_cast<double>(cost::kSloStepNs) && ns <= static_cast<double>(cost::kLongestStepNs)))
      return badFlag(
          "--slo", options.slo,
          model::cat("a time from 2 ms, the granularity of SLOs, to ", cost::kLongestStepNs / 1'000'000'000, " s"));
    return cost::Slo{.ns = ns};
  }
  if (!options.sloFactor)
    return std::nullopt;
  const cost::Slo slo{.factor = *options.sloFactor};
  RETURN_IF_ERROR(cost::checkSlo(slo, "command line: --slo-factor"));
  return slo;
}

} // namespace

absl::Status recordShowCommand(const RecordOptions &options) {
  absl::StatusOr<std::optional<cost::Slo>> slo = readSlo(options);
  if (!slo.ok())
    return slo.status();
  absl::StatusOr<cost::Record> record = cost::readRecord(options.record);
  if (!record.ok())
    return record.status();
  // Intervals are looked up anywhere on the axes: that takes a record without holes.
  if (*slo)
    if (absl::Status status = cost::checkComplete(*record, options.record); !status.ok())
      return absl::InvalidArgumentError(
          model::cat(status.message(), "; run the same headrace profile again to measure them"));
  show(options.json ? recordReportJson(*record, options.record, *slo) : recordReportText(*record, options.record, *slo),
       options.json);
  return absl::OkStatus();
}

} // namespace headrace::tools
