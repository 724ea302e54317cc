// SPDX-License-Identifier: Apache-2.0
#include "tools/report/RecordCosts.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "runtime/base/Text.h"
#include "runtime/base/Units.h"
#include "runtime/cost/RecordFile.h"
#include "runtime/job/TomlText.h"
#include "runtime/model/KvEncoding.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/model/WeightLayout.h"
#include "tools/commands/ModelHash.h"

namespace headrace::tools {
namespace {

constexpr const char *kLimit = "memory_bandwidth_limit";
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
  const model::Encoding kv = job.goal.kvEncoding.value_or(identity.activation);
  identity.kv = model::kvEncodingFor(kv, spec.headDim).value_or(kv); // what it cannot have is refused as it is compiled
  identity.layers = spec.layers;
  identity.layerBytes = model::layoutWeights(spec).layerBytes(0);
  return identity;
}

absl::Status checkSameHardware(const cost::Record &record, const model::Hardware &expected, std::string_view where) {
  static const std::set<std::string> kMemories = {"name", "kind", "memory", "reserve", "host_memory", kLimit};
  if (expected.kind == model::DeviceKind::Host && record.hardware.threads != expected.threads)
    return absl::InvalidArgumentError(model::cat(where, ": hardware.threads = ", record.hardware.threads,
                                                 ": this record was measured with so many threads, expected ",
                                                 expected.threads, " (--threads); --threads ", record.hardware.threads,
                                                 " plans with it"));
  // What a limit leaves of all threads' bandwidth is what counts.
  if (simulated(record) && record.hardware.bandwidth() != expected.bandwidth())
    return absl::InvalidArgumentError(model::cat(
        where, ": hardware.memory_bandwidth of all threads = ", model::bandwidthText(record.hardware.bandwidth()),
        ": this record was measured under another profile, expected ", model::bandwidthText(expected.bandwidth())));
  static const std::set<std::string> kLink = {"h2d_bandwidth", "d2h_bandwidth", "duplex_bandwidth", "copy_latency",
                                              "link_efficiency"};
  std::map<std::string, std::string> measured;
  for (const auto &[key, value] : model::hardwareEntries(record.hardware))
    measured[key] = value;
  for (const auto &[key, value] : model::hardwareEntries(expected)) {
    const bool decides = simulated(record)                          ? !kMemories.contains(key)
                         : expected.kind == model::DeviceKind::Host ? kLink.contains(key)
                                                                    : false;
    const bool ofCpu = key.starts_with("cpu_"); // beside a card: no record measures it
    if (const auto had = measured.find(key); decides && !ofCpu && (had == measured.end() || had->second != value))
      return absl::InvalidArgumentError(
          model::cat(where, ": hardware.", key, " = ", had == measured.end() ? "none" : had->second,
                     ": this record was measured under another profile, expected ", value));
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
    record->hardware.cpu = job.hardware->cpu;
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
