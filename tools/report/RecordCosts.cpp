// SPDX-License-Identifier: Apache-2.0
#include "tools/report/RecordCosts.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "runtime/base/Text.h"
#include "runtime/cost/RecordFile.h"
#include "runtime/job/TomlText.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/model/WeightLayout.h"
#include "tools/commands/ModelHash.h"

namespace headrace::tools {
namespace {

constexpr std::string_view kSimulated = " (sim)";

bool simulated(const cost::Record &record) { return record.identity.device.ends_with(kSimulated); }

} // namespace

cost::Identity recordIdentity(const model::Job &job, bool simulated) {
  const model::ModelSpec &spec = job.model->spec;
  const bool host = job.hardware->kind == model::DeviceKind::Host;
  cost::Identity identity;
  identity.model = spec.name;
  identity.modelHash = modelHash(*job.model);
  identity.device = simulated ? model::cat(job.hardware->name, kSimulated) : job.hardware->name;
  identity.kind = job.hardware->kind;
  identity.activation = host ? model::DType::F32 : spec.dtype;
  identity.kv = job.goal.kvDtype.value_or(identity.activation);
  identity.layers = spec.layers;
  identity.layerBytes = model::layoutWeights(spec).layerBytes(0);
  return identity;
}

absl::Status checkSameHardware(const cost::Record &record, const model::Hardware &expected, std::string_view where) {
  static const std::set<std::string> kMemories = {"name", "kind", "memory", "reserve", "host_memory"};
  static const std::set<std::string> kLink = {"h2d_bandwidth", "d2h_bandwidth", "duplex_bandwidth", "copy_latency",
                                              "link_efficiency"};
  const model::TomlEntries entries = model::hardwareEntries(record.hardware);
  std::map<std::string, std::string> measured(entries.begin(), entries.end());
  for (const auto &[key, wanted] : model::hardwareEntries(expected)) {
    const bool decides = simulated(record)                          ? !kMemories.contains(key)
                         : expected.kind == model::DeviceKind::Host ? kLink.contains(key)
                                                                    : false;
    if (decides && measured[key] != wanted)
      return absl::InvalidArgumentError(model::cat(where, ": hardware.", key, " = ", measured[key],
                                                   ": this record was measured under another profile, expected ",
                                                   wanted));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<cost::RecordCostModel>> openRecordCosts(const std::string &path, const model::Job &job) {
  absl::StatusOr<cost::Record> record = cost::readRecord(path);
  if (!record.ok())
    return record.status();
  absl::Status status = cost::checkIdentity(*record, recordIdentity(job, simulated(*record)), path);
  if (status.ok())
    status = checkSameHardware(*record, *job.hardware, path);
  if (status.ok())
    status = cost::checkComplete(*record, path);
  if (status.ok()) {
    absl::StatusOr<cost::RecordCostModel> costs =
        cost::RecordCostModel::create(*std::move(record), job.model->spec, path);
    if (costs.ok())
      return std::make_unique<cost::RecordCostModel>(*std::move(costs));
    status = costs.status();
  }
  if (status.code() == absl::StatusCode::kFailedPrecondition) // the wrong file: bad input
    return absl::InvalidArgumentError(model::cat(status.message(), "; headrace profile makes one"));
  return status;
}

} // namespace headrace::tools
