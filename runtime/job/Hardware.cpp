// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/Hardware.h"

#include <algorithm>
#include <cmath>

#include "runtime/base/FileIo.h"
#include "runtime/base/Names.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/base/TomlReader.h"
#include "runtime/base/Units.h"

namespace headrace::model {
namespace {

// Each figure's key, field and unit; the order is the order in which missing keys are reported.
struct BytesKey {
  std::string_view key;
  uint64_t Hardware::*field;
  bool optional;
};
constexpr uint64_t kMostBytes = uint64_t{1} << 62;
constexpr BytesKey kBytes[] = {{"memory", &Hardware::memoryBytes, false},
                               {"reserve", &Hardware::reserveBytes, true},
                               {"host_memory", &Hardware::hostMemoryBytes, true}};

struct RateKey {
  std::string_view key;
  double Hardware::*field;
  std::optional<double> (TomlReader::*read)(std::string_view);
  std::string_view expected;
  bool zeroAllowed;
};
constexpr std::string_view kFlops = "a positive finite rate such as \"125TFLOP/s\"";
constexpr std::string_view kBandwidth = "a positive finite bandwidth such as \"24GB/s\"";
constexpr std::string_view kTime = "a finite time of 0 or more such as \"5us\"";
constexpr RateKey kRates[] = {
    {"flops_f32", &Hardware::flopsF32, &TomlReader::flops, kFlops, false},
    {"flops_f16", &Hardware::flopsF16, &TomlReader::flops, kFlops, false},
    {"memory_bandwidth", &Hardware::memoryBandwidth, &TomlReader::bandwidth, kBandwidth, false},
    {"h2d_bandwidth", &Hardware::h2dBandwidth, &TomlReader::bandwidth, kBandwidth, false},
    {"d2h_bandwidth", &Hardware::d2hBandwidth, &TomlReader::bandwidth, kBandwidth, false},
    {"duplex_bandwidth", &Hardware::duplexBandwidth, &TomlReader::bandwidth, kBandwidth, false},
    {"copy_latency", &Hardware::copyLatency, &TomlReader::seconds, kTime, true},
    {"launch_overhead", &Hardware::launchOverhead, &TomlReader::seconds, kTime, true},
};

constexpr RateKey kLimit = {"memory_bandwidth_limit", &Hardware::memoryBandwidthLimit, &TomlReader::bandwidth,
                            kBandwidth, true}; // may be missing

constexpr RateKey kPeer = {"peer_bandwidth", &Hardware::peerBandwidth, &TomlReader::bandwidth, kBandwidth,
                           true}; // likewise
constexpr std::string_view kPeerOfCuda = "no such key: hardware of kind host has one memory";

struct CpuRateKey {
  std::string_view key;
  double Cpu::*field;
  std::optional<double> (TomlReader::*read)(std::string_view);
  std::string_view expected;
};
constexpr std::string_view kCores = "cpu_cores";
constexpr CpuRateKey kCpuRates[] = {
    {"cpu_flops", &Cpu::flops, &TomlReader::flops, kFlops},
    {"cpu_memory_bandwidth", &Cpu::memoryBandwidth, &TomlReader::bandwidth, kBandwidth},
    {"cpu_core_bandwidth", &Cpu::coreBandwidth, &TomlReader::bandwidth, kBandwidth},
};
constexpr std::string_view kCpuOfCuda =
    "no such key: hardware of kind host computes on the CPU, as its other figures have it";

struct ShareKey {
  std::string_view key;
  double Hardware::*field;
};
constexpr std::string_view kShare = "a share above 0 and at most 1";
constexpr ShareKey kShares[] = {{"flops_efficiency", &Hardware::flopsEfficiency},
                                {"memory_efficiency", &Hardware::memoryEfficiency},
                                {"link_efficiency", &Hardware::linkEfficiency}};

constexpr ShareKey kFlopsOf = {"flops_efficiency", &Hardware::flopsEfficiency},
                   kMemoryOf = {"memory_efficiency", &Hardware::memoryEfficiency},
                   kLaunchOf = {"launch_overhead", &Hardware::launchOverhead};
constexpr ClassKey kClasses[] = {
    {"product_flops_efficiency", &OpClasses::productFlopsEfficiency, kFlopsOf.key},
    {"product_memory_efficiency", &OpClasses::productMemoryEfficiency, kMemoryOf.key},
    {"prefill_attention_flops_efficiency", &OpClasses::prefillAttentionFlopsEfficiency, kFlopsOf.key},
    {"prefill_attention_ramp", &OpClasses::prefillAttentionRamp, kFlopsOf.key, true},
    {"decode_attention_memory_efficiency", &OpClasses::decodeAttentionMemoryEfficiency, kMemoryOf.key},
    {"attention_overhead", &OpClasses::attentionOverhead, kLaunchOf.key, true},
    {"plain_attention_flops_efficiency", &OpClasses::plainAttentionFlopsEfficiency, kFlopsOf.key},
    {"row_memory_efficiency", &OpClasses::rowMemoryEfficiency, kMemoryOf.key},
    {"read_kv_flops_efficiency", &OpClasses::readKvFlopsEfficiency, kFlopsOf.key},
    {"unpack_flops_efficiency", &OpClasses::unpackFlopsEfficiency, kFlopsOf.key},
};
constexpr std::string_view kClassTime = "a finite time above 0 such as \"10us\", or no such key";
constexpr std::string_view kClassShare = "a share above 0 and at most 1, or no such key";

bool mayStand(const ClassKey &key, double value) { return value > 0 && (key.time ? std::isfinite(value) : value <= 1); }

OpClasses readClasses(TomlReader &table, OpClasses classes) {
  for (const ClassKey &key : kClasses) {
    if (table.has(key.of)) // which is of all classes, unless this one's stands beside it
      classes.*key.field = 0;
    const std::optional<double> value = key.time ? table.seconds(key.key) : table.number(key.key);
    if (value && !mayStand(key, *value))
      table.refuse(key.key, key.time ? kClassTime : kClassShare);
    classes.*key.field = value.value_or(classes.*key.field);
  }
  return classes;
}

// Where one key stands all of them do, in the table or in what it changes.
Cpu readCpu(TomlReader &table, Cpu cpu) {
  cpu.cores = table.integer(kCores, 1, kMostThreads).value_or(cpu.cores);
  for (const CpuRateKey &key : kCpuRates)
    cpu.*key.field = (table.*key.read)(key.key).value_or(cpu.*key.field);
  const bool any = cpu.cores > 0 || std::any_of(std::begin(kCpuRates), std::end(kCpuRates),
                                                [&](const CpuRateKey &key) { return cpu.*key.field > 0; });
  if (any && cpu.cores == 0 && !table.has(kCores))
    table.refuse(kCores, "how many cores, as other keys of the CPU stand");
  for (const CpuRateKey &key : kCpuRates)
    if (any && cpu.*key.field == 0 && !table.has(key.key))
      table.refuse(key.key, cat(key.expected, ", as other keys of the CPU stand"));
  return cpu;
}

// The same share of what both directions have together.
double duplexOf(const Hardware &base, const Hardware &hardware) {
  const double sum = hardware.h2dBandwidth + hardware.d2hBandwidth;
  return std::clamp(base.duplexBandwidth * (sum / (base.h2dBandwidth + base.d2hBandwidth)),
                    std::max(hardware.h2dBandwidth, hardware.d2hBandwidth), sum);
}

} // namespace

std::string_view deviceKindName(DeviceKind kind) { return kind == DeviceKind::Host ? "host" : "cuda"; }

std::optional<DeviceKind> deviceKindFromName(std::string_view name) {
  for (DeviceKind kind : {DeviceKind::Host, DeviceKind::Cuda})
    if (deviceKindName(kind) == name)
      return kind;
  return std::nullopt;
}

absl::Status validate(const Hardware &hardware, std::string_view where) {
  const auto refuse = [&](std::string_view key, const absl::AlphaNum &value, std::string_view expected) {
    return absl::InvalidArgumentError(cat(where, ": ", key, " = ", value, ": expected ", expected));
  };
  if (!isName(hardware.name))
    return refuse("name", cat("\"", escaped(hardware.name, 80), "\""), kNameExpected);
  for (const BytesKey &key : kBytes)
    if ((hardware.*key.field == 0 && !key.optional) || hardware.*key.field > kMostBytes)
      return refuse(key.key, hardware.*key.field, "a positive number of bytes, at most 2^62");
  if (hardware.reserveBytes >= hardware.memoryBytes)
    return refuse("reserve", bytesText(hardware.reserveBytes),
                  cat("less than the memory of ", bytesText(hardware.memoryBytes)));
  for (const RateKey &key : kRates) {
    const double value = hardware.*key.field;
    if (!std::isfinite(value) || value < 0 || (value == 0 && !key.zeroAllowed))
      return refuse(key.key, value, key.expected);
  }
  if (const double limit = hardware.memoryBandwidthLimit; !std::isfinite(limit) || limit < 0)
    return refuse(kLimit.key, limit, kLimit.expected);
  else if (limit > 0 && limit < hardware.memoryBandwidth)
    return refuse(kLimit.key, bandwidthText(limit),
                  cat("at least ", bandwidthText(hardware.memoryBandwidth), ", memory_bandwidth: what one thread has"));
  if (hardware.threads < 1 || hardware.threads > kMostThreads)
    return refuse("threads", hardware.threads, cat("from 1 to ", kMostThreads));
  if (hardware.threads > 1 && hardware.kind != DeviceKind::Host)
    return refuse("threads", hardware.threads,
                  "1: hardware of kind host computes on threads, other kinds' are their own");
  for (const ShareKey &key : kShares)
    if (!(hardware.*key.field > 0 && hardware.*key.field <= 1))
      return refuse(key.key, hardware.*key.field, kShare);
  for (const ClassKey &key : kClasses)
    if (const double value = hardware.classes.*key.field; value != 0 && !mayStand(key, value))
      return refuse(key.key, value, key.time ? kClassTime : kClassShare);
  if (hardware.classes.plainAttentionFlopsEfficiency > 0 && hardware.kind != DeviceKind::Cuda)
    return refuse("plain_attention_flops_efficiency", hardware.classes.plainAttentionFlopsEfficiency,
                  "no such key: hardware of kind host has one attention kernel");
  if (const Cpu &cpu = hardware.cpu; cpu != Cpu()) {
    if (hardware.kind != DeviceKind::Cuda)
      return refuse(kCores, cpu.cores, kCpuOfCuda);
    if (cpu.cores < 1 || cpu.cores > kMostThreads)
      return refuse(kCores, cpu.cores, cat("from 1 to ", kMostThreads));
    for (const CpuRateKey &key : kCpuRates)
      if (const double value = cpu.*key.field; !std::isfinite(value) || value <= 0)
        return refuse(key.key, value, key.expected);
    if (cpu.coreBandwidth > cpu.memoryBandwidth)
      return refuse("cpu_core_bandwidth", bandwidthText(cpu.coreBandwidth),
                    cat("at most ", bandwidthText(cpu.memoryBandwidth), ", cpu_memory_bandwidth: what all cores have"));
  }
  if (const double peer = hardware.peerBandwidth; !std::isfinite(peer) || peer < 0)
    return refuse(kPeer.key, peer, kPeer.expected);
  else if (peer > 0 && hardware.kind != DeviceKind::Cuda)
    return refuse(kPeer.key, bandwidthText(peer), kPeerOfCuda);
  const double larger = std::max(hardware.h2dBandwidth, hardware.d2hBandwidth);
  const double sum = hardware.h2dBandwidth + hardware.d2hBandwidth;
  if (hardware.duplexBandwidth < larger || hardware.duplexBandwidth > sum * (1 + 1e-9))
    return refuse("duplex_bandwidth", bandwidthText(hardware.duplexBandwidth),
                  cat("from ", bandwidthText(larger), ", the faster direction, to ", bandwidthText(sum),
                      ", h2d_bandwidth + d2h_bandwidth"));
  return absl::OkStatus();
}

absl::StatusOr<Hardware> parseHardwareTable(TomlReader &table, const std::string &where, const std::string &defaultName,
                                            const std::optional<Hardware> &base) {
  Hardware hardware = base.value_or(Hardware{});
  hardware.name = table.text("name").value_or(base ? base->name : defaultName);
  const auto missing = [&](std::string_view key, std::string_view expected) {
    if (!base && !table.has(key))
      table.refuse(key, expected);
  };
  hardware.kind = table.oneOf("kind", deviceKindFromName, "\"cuda\" or \"host\"").value_or(hardware.kind);
  missing("kind", "\"cuda\" or \"host\"");
  if (base && hardware.kind != base->kind) { // of another device
    hardware.cpu = {};
    hardware.peerBandwidth = 0;
  }
  hardware.gpus = table.texts("gpus").value_or(hardware.gpus);
  for (const BytesKey &key : kBytes) {
    hardware.*key.field = table.bytes(key.key).value_or(hardware.*key.field);
    if (!key.optional)
      missing(key.key, kBytesExpected);
  }
  if (table.has("host_memory") && table.ok() && hardware.hostMemoryBytes == 0) // which stands for unknown
    table.refuse("host_memory", "a positive number of bytes, or no such key where it is unknown");
  for (const RateKey &key : kRates) {
    hardware.*key.field = (table.*key.read)(key.key).value_or(hardware.*key.field);
    missing(key.key, key.expected);
  }
  for (const ShareKey &key : kShares) {
    hardware.*key.field = table.number(key.key).value_or(hardware.*key.field);
    if (key.field != &Hardware::linkEfficiency)
      missing(key.key, kShare);
  }
  hardware.classes = readClasses(table, hardware.classes);
  hardware.cpu = readCpu(table, hardware.cpu);
  hardware.peerBandwidth = table.bandwidth(kPeer.key).value_or(hardware.peerBandwidth);
  hardware.threads = table.integer("threads", 1, kMostThreads).value_or(hardware.threads);
  hardware.memoryBandwidthLimit = table.bandwidth(kLimit.key).value_or(hardware.memoryBandwidthLimit);
  // A limit that was stated for other figures says nothing about these.
  if (base && table.has("memory_bandwidth") && !table.has(kLimit.key))
    hardware.memoryBandwidthLimit = 0;
  RETURN_IF_ERROR(table.finish());
  if (base && table.has("memory") && !table.has("reserve")) // of another device
    hardware.reserveBytes = 0;
  if (base && table.has("h2d_bandwidth") && !table.has("d2h_bandwidth"))
    hardware.d2hBandwidth = withH2dBandwidth(*base, hardware.h2dBandwidth).d2hBandwidth;
  if (base && (table.has("h2d_bandwidth") || table.has("d2h_bandwidth")) && !table.has("duplex_bandwidth"))
    hardware.duplexBandwidth = duplexOf(*base, hardware);
  RETURN_IF_ERROR(validate(hardware, where));
  return hardware;
}

Hardware withH2dBandwidth(Hardware hardware, double h2dBandwidth) {
  const Hardware base = hardware;
  hardware.h2dBandwidth = h2dBandwidth;
  hardware.d2hBandwidth = base.d2hBandwidth * (h2dBandwidth / base.h2dBandwidth);
  hardware.duplexBandwidth = duplexOf(base, hardware);
  return hardware;
}

absl::Span<const ClassKey> classKeys() { return kClasses; }

Hardware impliedClasses(Hardware base, const Hardware &wanted) {
  for (const ShareKey &all : {kFlopsOf, kMemoryOf, kLaunchOf}) {
    const auto lost = [&](const ClassKey &key) {
      return key.of == all.key && base.classes.*key.field > 0 && wanted.classes.*key.field == 0;
    };
    if (base.*all.field == wanted.*all.field && std::none_of(std::begin(kClasses), std::end(kClasses), lost))
      continue;
    base.*all.field = wanted.*all.field + 1; // to be said
    for (const ClassKey &key : kClasses)
      if (key.of == all.key)
        base.classes.*key.field = 0;
  }
  return base;
}

absl::StatusOr<Hardware> parseHardware(std::string_view text, const std::string &path,
                                       const std::optional<Hardware> &base) {
  absl::StatusOr<TomlValue> document = parseToml(text, path);
  if (!document.ok())
    return document.status();
  TomlReader table(*document, path, "");
  return parseHardwareTable(table, path, tomlStem(path), base);
}

absl::StatusOr<Hardware> readHardware(const std::string &path) {
  absl::StatusOr<std::string> text = readTextFile(path);
  if (!text.ok())
    return text.status();
  return parseHardware(*text, path);
}

} // namespace headrace::model
