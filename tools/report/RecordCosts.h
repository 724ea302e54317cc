// SPDX-License-Identifier: Apache-2.0
//
// Which performance record a job may be priced with: one of the same model, element types and device, over the same
// link.
//
//   absl::StatusOr<std::unique_ptr<cost::RecordCostModel>> costs = openRecordCosts("record.toml", job);
//   request.costs = costs->get();
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/cost/RecordCostModel.h"
#include "runtime/job/JobFile.h"

namespace headrace::tools {

// What a record of this job's model on its hardware is of; job.model and job.hardware must be set. The device is the
// hardware's name, with " (sim)" behind it for a record of virtual time: such a record is never continued on a real
// device, but prices plans as any other.
cost::Identity recordIdentity(const model::Job &job, bool simulated);

// Refuses a record that was measured under other figures than these, as far as they decide what was measured: those of
// the link, which the host device is paced to; in virtual time all of them but the sizes of memories. InvalidArgument
// naming the figure.
absl::Status checkSameHardware(const cost::Record &record, const model::Hardware &expected, std::string_view where);

// A complete record of this job's model and hardware, to price plans with. Every refusal is InvalidArgument (or
// NotFound) and names the file, what it has and what was expected.
absl::StatusOr<std::unique_ptr<cost::RecordCostModel>> openRecordCosts(const std::string &path, const model::Job &job);

} // namespace headrace::tools
