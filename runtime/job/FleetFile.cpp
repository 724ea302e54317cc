// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/FleetFile.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "runtime/base/FileIo.h"
#include "runtime/base/Text.h"
#include "runtime/base/TomlReader.h"
#include "runtime/base/Units.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/model/Shape.h"

namespace headrace::model {
namespace {

constexpr int64_t kMaxDevices = 64;
constexpr int64_t kMaxRequests = 1 << 24;
constexpr int64_t kMaxBatch = 1 << 20;
constexpr double kMaxSeconds = 1e6;

class Reader {
public:
  explicit Reader(std::string path) : path_(std::move(path)) {}

  absl::StatusOr<FleetSpec> read(const TomlValue &document) {
    TomlReader file(document, path_, "");
    if (const TomlValue *bus = file.value("bus"))
      readBus(*bus);
    else
      file.refuse("bus", "a table with the bandwidth that all devices share");
    if (const TomlValue *coordinator = file.value("coordinator"))
      readCoordinator(*coordinator);
    forEach(file, "device", "at least one [[device]]", [&](TomlReader &table) { readDevice(table); });
    forEach(file, "requests", "at least one [[requests]]", [&](TomlReader &table) { readLoad(table); });
    keep(file.finish());
    if (!status_.ok())
      return status_;
    return std::move(spec_);
  }

private:
  void keep(const absl::Status &status) {
    if (status_.ok())
      status_ = status;
  }

  // Every table of an array of tables; `expected` where there is none.
  template <class Read> void forEach(TomlReader &owner, std::string_view key, std::string_view expected, Read read) {
    const TomlValue *array = owner.value(key);
    if (array == nullptr || array->kind != TomlValue::Kind::Array || array->items.empty()) {
      if (array != nullptr || !expected.empty())
        owner.refuse(key, expected.empty() ? "an array of tables" : expected);
      return;
    }
    for (const TomlValue &item : array->items) {
      TomlReader table(item, path_, key);
      if (table.ok())
        read(table);
      keep(table.finish());
    }
  }

  std::optional<std::chrono::nanoseconds> time(TomlReader &table, std::string_view key, bool zero) {
    const std::optional<double> seconds = table.seconds(key);
    if (!seconds)
      return std::nullopt;
    const double least = zero ? 0 : 0.5e-9;
    if (!(*seconds >= least && *seconds <= kMaxSeconds)) {
      table.refuse(key,
                   zero ? "a time such as \"2s\", at most 1e6 s" : "a time above zero such as \"50ms\", at most 1e6 s");
      return std::nullopt;
    }
    return std::chrono::nanoseconds(std::llround(*seconds * 1e9));
  }

  template <class T>
  T required(TomlReader &table, std::string_view key, std::optional<T> value, std::string_view what) {
    if (!value && !table.has(key))
      table.refuse(key, what);
    return value.value_or(T{});
  }

  void readBus(const TomlValue &value) {
    TomlReader bus(value, path_, "bus");
    if (bus.ok()) {
      spec_.busBandwidth = required(bus, "bandwidth", bus.bandwidth("bandwidth"), "a bandwidth such as \"24GB/s\"");
      spec_.busD2hBandwidth = bus.bandwidth("d2h_bandwidth").value_or(spec_.busD2hBandwidth);
      spec_.busDuplexBandwidth = bus.bandwidth("duplex_bandwidth").value_or(spec_.busDuplexBandwidth);
      double larger = spec_.busBandwidth;
      if (std::isfinite(spec_.busD2hBandwidth))
        larger = std::max(larger, spec_.busD2hBandwidth);
      if (spec_.busDuplexBandwidth < larger)
        bus.refuse("duplex_bandwidth", "at least the larger of bandwidth and d2h_bandwidth");
      forEach(bus, "change", "", [&](TomlReader &table) {
        FleetBusChange change;
        change.at = required(table, "at", time(table, "at", true), "a time such as \"2s\"");
        change.bandwidth = required(table, "bandwidth", table.bandwidth("bandwidth"), "a bandwidth such as \"12GB/s\"");
        if (!spec_.changes.empty() && change.at < spec_.changes.back().at)
          table.refuse("at", "a time that is not before the change above it");
        spec_.changes.push_back(change);
      });
    }
    keep(bus.finish());
  }

  void readCoordinator(const TomlValue &value) {
    TomlReader table(value, path_, "coordinator");
    if (table.ok()) {
      const std::optional<std::string> objective = table.text("objective");
      if (objective && *objective != "freed-memory" && *objective != "throughput")
        table.refuse("objective", "\"freed-memory\" or \"throughput\"");
      spec_.throughput = objective == "throughput";
      spec_.queue = table.boolean("queue").value_or(true);
    }
    keep(table.finish());
  }

  std::string beside(const std::string &file) const { return joinPath(folderOf(path_), file); }

  void readDevice(TomlReader &table) {
    FleetDevice device;
    device.name = table.text("name").value_or(cat("device", spec_.devices.size()));
    if (std::any_of(spec_.devices.begin(), spec_.devices.end(),
                    [&](const FleetDevice &other) { return other.name == device.name; }))
      table.refuse("name", "a name that no other device has");
    const std::optional<std::string> role = table.text("role");
    if (role && *role != "prefill" && *role != "decode" && *role != "both")
      table.refuse("role", "\"prefill\", \"decode\" or \"both\"");
    device.role = role == "prefill" ? FleetRole::Prefill : role == "decode" ? FleetRole::Decode : FleetRole::Both;
    const std::optional<std::string> plan = table.text("plan"), job = table.text("job");
    if (plan.has_value() == job.has_value())
      table.refuse(plan ? "plan" : "job", "either plan or job, a file's path");
    if (plan)
      device.plan = beside(*plan);
    if (job)
      device.job = beside(*job);
    device.link = table.bandwidth("link").value_or(0);
    spec_.devices.push_back(std::move(device));
    if (spec_.devices.size() > kMaxDevices)
      table.refuse("name", cat("at most ", kMaxDevices, " devices"));
  }

  FleetRange range(TomlReader &table, std::string_view key, int64_t most) {
    FleetRange out;
    const TomlValue *value = table.value(key);
    if (value != nullptr && value->kind == TomlValue::Kind::Array) {
      const std::optional<std::vector<int64_t>> ends = table.integers(key, 1, most);
      if (!ends)
        return out;
      if (ends->size() != 2 || (*ends)[0] > (*ends)[1])
        table.refuse(key, "[least, most]");
      else
        out = {(*ends)[0], (*ends)[1]};
      return out;
    }
    out.least = out.most = required(table, key, table.integer(key, 1, most), "a number, or [least, most]");
    return out;
  }

  void readLoad(TomlReader &table) {
    FleetLoad load;
    load.model = required(table, "model", table.text("model"), "a model's name");
    load.count = table.integer("count", 1, kMaxRequests).value_or(1);
    load.start = time(table, "start", true).value_or(load.start);
    load.every = time(table, "every", true).value_or(load.every);
    load.random = table.boolean("random").value_or(false);
    load.batch = range(table, "batch", kMaxBatch);
    load.inputLength = range(table, "input_len", kMaxDimension);
    load.outputLength = range(table, "output_len", kMaxDimension);
    load.ttft = required(table, "ttft", time(table, "ttft", false), "a time above zero such as \"2s\"");
    load.tpot = required(table, "tpot", time(table, "tpot", false), "a time above zero such as \"50ms\"");
    load.seed = static_cast<uint64_t>(table.integer("seed", 0, INT64_MAX).value_or(0));
    spec_.loads.push_back(std::move(load));
  }

  const std::string path_;
  FleetSpec spec_;
  absl::Status status_;
};

} // namespace

absl::StatusOr<FleetSpec> parseFleet(std::string_view text, const std::string &path) {
  absl::StatusOr<TomlValue> document = parseToml(text, path);
  if (!document.ok())
    return document.status();
  return Reader(path).read(*document);
}

absl::StatusOr<FleetSpec> readFleet(const std::string &path) {
  absl::StatusOr<std::string> text = readTextFile(path);
  if (!text.ok())
    return text.status();
  return parseFleet(*text, path);
}

} // namespace headrace::model
