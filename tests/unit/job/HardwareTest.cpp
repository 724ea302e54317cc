// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/Hardware.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <set>

#include "runtime/job/Examples.h"
#include "runtime/job/TomlText.h"
#include "tests/support/SourceDir.h"
#include "tests/support/TestFiles.h"

namespace headrace::model {
namespace {

// Round numbers: 1 byte/s hardware and the like pass too.
constexpr char kRound[] =
    "kind = \"cuda\"\nmemory = \"1GB\"\nhost_memory = \"4000B\"\nflops_f32 = \"1TFLOP/s\"\n"
    "flops_f16 = \"2TFLOP/s\"\nmemory_bandwidth = \"100GB/s\"\nh2d_bandwidth = \"1B/s\"\n"
    "d2h_bandwidth = \"1B/s\"\nduplex_bandwidth = \"2B/s\"\ncopy_latency = \"0s\"\nlaunch_overhead "
    "= \"0us\"\nflops_efficiency = 0.5\n"
    "memory_efficiency = 1\n";

// The text with the line of one key replaced.
std::string replaced(std::string text, const std::string &key, const std::string &line) {
  text = "\n" + text; // so that every key begins behind a line's end
  const size_t begin = text.find("\n" + key + " =") + 1;
  EXPECT_NE(begin, 0u) << key;
  return text.replace(begin, text.find('\n', begin) - begin, line).substr(1);
}

TEST(Hardware, ReadsEveryKey) {
  const auto hardware = parseHardware(kRound, "a/round.toml");
  ASSERT_TRUE(hardware.ok()) << messageOf(hardware);
  EXPECT_EQ(hardware->name, "round");
  EXPECT_EQ(hardware->kind, DeviceKind::Cuda);
  EXPECT_EQ(hardware->memoryBytes, 1'000'000'000u);
  EXPECT_EQ(hardware->hostMemoryBytes, 4000u);
  EXPECT_EQ(hardware->flopsF32, 1e12);
  EXPECT_EQ(hardware->flopsF16, 2e12);
  EXPECT_EQ(hardware->memoryBandwidth, 1e11);
  EXPECT_EQ(hardware->h2dBandwidth, 1.0);
  EXPECT_EQ(hardware->d2hBandwidth, 1.0);
  EXPECT_EQ(hardware->duplexBandwidth, 2.0);
  EXPECT_EQ(hardware->copyLatency, 0.0);
  EXPECT_EQ(hardware->launchOverhead, 0.0);
  EXPECT_EQ(hardware->flopsEfficiency, 0.5);
  EXPECT_EQ(hardware->memoryEfficiency, 1.0);
  EXPECT_EQ(hardware->linkEfficiency, 1.0); // the default
  const auto named = parseHardware(std::string(kRound) + "name = \"x\"\nlink_efficiency = 0.25\n", "f");
  EXPECT_EQ(named->name, "x");
  EXPECT_EQ(named->linkEfficiency, 0.25);
}

TEST(Hardware, RefusesEachMissingKey) {
  for (const char *key :
       {"kind", "memory", "flops_f32", "flops_f16", "memory_bandwidth", "h2d_bandwidth", "d2h_bandwidth",
        "duplex_bandwidth", "copy_latency", "launch_overhead", "flops_efficiency", "memory_efficiency"}) {
    const auto refused = parseHardware(replaced(kRound, key, ""), "f");
    EXPECT_THAT(messageOf(refused), testing::StartsWith("f:1: " + std::string(key) + " is missing: expected "));
    EXPECT_EQ(codeOf(refused), absl::StatusCode::kInvalidArgument);
  }
}

TEST(Hardware, AHostMemoryThatNobodyStatesIsUnknown) {
  const auto unknown = parseHardware(replaced(kRound, "host_memory", ""), "f");
  ASSERT_TRUE(unknown.ok()) << messageOf(unknown);
  EXPECT_EQ(unknown->hostMemoryBytes, 0u);
  EXPECT_EQ(unknown->hostLimit(), uint64_t{1} << 62);
  EXPECT_EQ(parseHardware(kRound, "f")->hostLimit(), 4000u);
  EXPECT_REFUSED(parseHardware(replaced(kRound, "host_memory", "host_memory = \"0B\""), "f"),
                 absl::StatusCode::kInvalidArgument,
                 "f:3: host_memory = \"0B\": expected a positive number of bytes, or no such key where it is unknown");
}

TEST(Hardware, AReserveIsNoPartOfTheDefaultBudget) {
  const std::string reserved = std::string(kRound) + "reserve = \"1MB\"\ngpus = [\"A\", \"B\"]\n";
  const auto hardware = parseHardware(reserved, "f");
  ASSERT_TRUE(hardware.ok()) << messageOf(hardware);
  EXPECT_EQ(hardware->defaultBudget(), 999'000'000u);
  EXPECT_EQ(parseHardware(kRound, "f")->defaultBudget(), 1'000'000'000u);
  EXPECT_THAT(hardware->gpus, testing::ElementsAre("A", "B"));
  // Another memory is another device's.
  EXPECT_EQ(parseHardware("memory = \"2GB\"\n", "f", *hardware)->defaultBudget(), 2'000'000'000u);
  EXPECT_EQ(parseHardware("memory = \"2GB\"\nreserve = \"1GB\"\n", "f", *hardware)->defaultBudget(), 1'000'000'000u);
  EXPECT_REFUSED(parseHardware(std::string(kRound) + "reserve = \"1GB\"\n", "f"), absl::StatusCode::kInvalidArgument,
                 "f: reserve = 1GB: expected less than the memory of 1GB");
  EXPECT_REFUSED(parseHardware(std::string(kRound) + "gpus = \"A\"\n", "f"), absl::StatusCode::kInvalidArgument,
                 "f:14: gpus = \"A\": expected a list of texts");
}

TEST(Hardware, APeerBandwidthIsOfDevicesThatReachEachOther) {
  const auto hardware = parseHardware(std::string(kRound) + "peer_bandwidth = \"50GB/s\"\n", "f");
  ASSERT_TRUE(hardware.ok()) << messageOf(hardware);
  EXPECT_EQ(hardware->peerBandwidth, 50e9);
  EXPECT_THAT(toToml(hardwareEntries(*hardware)), testing::HasSubstr("\npeer_bandwidth = \"50GB/s\"\n"));
  const auto without = parseHardware(kRound, "f");
  EXPECT_EQ(without->peerBandwidth, 0.0);
  EXPECT_THAT(toToml(hardwareEntries(*without)), testing::Not(testing::HasSubstr("peer")));
  EXPECT_EQ(parseHardware("kind = \"host\"\n", "f", *hardware)->peerBandwidth, 0.0); // another device's
  EXPECT_REFUSED(parseHardware(replaced(kRound, "kind", "kind = \"host\"") + "peer_bandwidth = \"50GB/s\"\n", "f"),
                 absl::StatusCode::kInvalidArgument,
                 "f: peer_bandwidth = 50GB/s: expected no such key: hardware of kind host has one memory");
  EXPECT_REFUSED(parseHardware(std::string(kRound) + "peer_bandwidth = \"0GB/s\"\n", "f"),
                 absl::StatusCode::kInvalidArgument,
                 "f:14: peer_bandwidth = \"0GB/s\": expected a positive bandwidth with its unit, such as "
                 "\"24GB/s\", \"800MB/s\" or \"1.5GiB/s\"");
}

TEST(Hardware, RefusesBadFiguresByFileAndKey) {
  const std::pair<const char *, std::pair<const char *, const char *>> refusals[] = {
      {"kind", {"kind = \"rocm\"", "f:1: kind = \"rocm\": expected \"cuda\" or \"host\""}},
      {"memory", {"memory = \"0GB\"", "f: memory = 0: expected a positive number of bytes, at most 2^62"}},
      {"memory",
       {"memory = -5", "f:2: memory = -5: expected bytes with their unit, such as \"8GiB\", \"512MiB\", \"24GB\" or "
                       "\"4096B\", below 2^63"}},
      {"memory",
       {"memory = 2.5", "f:2: memory = 2.5: expected bytes with their unit, such as \"8GiB\", \"512MiB\", \"24GB\" or "
                        "\"4096B\", below 2^63"}},
      {"memory",
       {"memory = \"8g\"", "f:2: memory = \"8g\": expected bytes with their unit, such as \"8GiB\", \"512MiB\", "
                           "\"24GB\" or \"4096B\", below "
                           "2^63"}},
      {"flops_f32",
       {"flops_f32 = 0",
        "f:4: flops_f32 = 0: expected a positive rate with its unit, such as \"31.2TFLOP/s\" or \"800GFLOP/s\""}},
      {"flops_f16",
       {"flops_f16 = inf",
        "f:5: flops_f16 = inf: expected a positive rate with its unit, such as \"31.2TFLOP/s\" or \"800GFLOP/s\""}},
      {"flops_f16",
       {"flops_f16 = nan",
        "f:5: flops_f16 = nan: expected a positive rate with its unit, such as \"31.2TFLOP/s\" or \"800GFLOP/s\""}},
      {"memory_bandwidth",
       {"memory_bandwidth = -1", "f:6: memory_bandwidth = -1: expected a positive bandwidth with its unit, such as "
                                 "\"24GB/s\", \"800MB/s\" or \"1.5GiB/s\""}},
      {"h2d_bandwidth",
       {"h2d_bandwidth = \"24GB\"", "f:7: h2d_bandwidth = \"24GB\": expected a positive bandwidth with its unit, "
                                    "such as \"24GB/s\", \"800MB/s\" or \"1.5GiB/s\""}},
      {"d2h_bandwidth",
       {"d2h_bandwidth = \"0GB/s\"", "f:8: d2h_bandwidth = \"0GB/s\": expected a positive bandwidth with its unit, "
                                     "such as \"24GB/s\", \"800MB/s\" or \"1.5GiB/s\""}},
      {"duplex_bandwidth",
       {"duplex_bandwidth = \"3B/s\"", "f: duplex_bandwidth = 3B/s: expected from 1B/s, the faster direction, to 2B/s, "
                                       "h2d_bandwidth + d2h_bandwidth"}},
      {"duplex_bandwidth",
       {"duplex_bandwidth = \"0.5B/s\"", "f: duplex_bandwidth = 0.5B/s: expected from 1B/s, the faster direction, to "
                                         "2B/s, h2d_bandwidth + d2h_bandwidth"}},
      {"copy_latency",
       {"copy_latency = 0", "f:10: copy_latency = 0: expected a time with its unit (ns, us, ms or s), such as \"5us\", "
                            "\"1.5ms\" or \"2s\""}},
      {"launch_overhead",
       {"launch_overhead = true",
        "f:11: launch_overhead = true: expected a time with its unit (ns, us, ms or s), such as \"5us\", \"1.5ms\" or "
        "\"2s\""}},
      {"flops_efficiency",
       {"flops_efficiency = 1.5", "f: flops_efficiency = 1.5: expected a share above 0 and at most 1"}},
      {"memory_efficiency",
       {"memory_efficiency = 0", "f: memory_efficiency = 0: expected a share above 0 and at most 1"}},
  };
  for (const auto &[key, change] : refusals)
    EXPECT_REFUSED(parseHardware(replaced(kRound, key, change.first), "f"), absl::StatusCode::kInvalidArgument,
                   change.second);
  EXPECT_THAT(
      messageOf(parseHardware(std::string(kRound) + "memory_size = 1\n", "f")),
      testing::StartsWith("f:14: memory_size: unknown key: expected one of attention_overhead, copy_latency, "));
  EXPECT_THAT(messageOf(parseHardware("kind = ", "f")), testing::StartsWith("f:1: expected TOML: "));
}

TEST(Hardware, ValidatesAChangedProfile) {
  Hardware hardware = parseHardware(kRound, "f").value();
  EXPECT_TRUE(validate(hardware, "command line").ok());
  hardware.h2dBandwidth = std::numeric_limits<double>::quiet_NaN();
  EXPECT_REFUSED(validate(hardware, "command line"), absl::StatusCode::kInvalidArgument,
                 "command line: h2d_bandwidth = nan: expected a positive finite bandwidth such as \"24GB/s\"");
}

constexpr char kCpu[] = "cpu_cores = 4\ncpu_flops = \"8GFLOP/s\"\ncpu_memory_bandwidth = \"20GB/s\"\n"
                        "cpu_core_bandwidth = \"3GB/s\"\n";

TEST(HardwareCpu, AllFourFiguresStandOrNone) {
  EXPECT_FALSE(parseHardware(kRound, "f")->cpu.known());
  const auto hardware = parseHardware(std::string(kRound) + kCpu, "f");
  ASSERT_TRUE(hardware.ok()) << messageOf(hardware);
  EXPECT_EQ(hardware->cpu, (Cpu{4, 8e9, 20e9, 3e9}));
  EXPECT_DOUBLE_EQ(hardware->cpu.bandwidth(), 12e9);            // 4 cores at 3, of 20
  EXPECT_DOUBLE_EQ((Cpu{8, 8e9, 20e9, 3e9}).bandwidth(), 20e9); // 8 at 3 are 24, of 20
  // As it is written, and over itself.
  EXPECT_EQ(parseHardware(toToml(hardwareEntries(*hardware)), "again")->cpu, hardware->cpu);
  EXPECT_EQ(parseHardware("cpu_cores = 8\n", "flags", *hardware)->cpu, (Cpu{8, 8e9, 20e9, 3e9}));
  for (const char *key : {"cpu_cores", "cpu_flops", "cpu_memory_bandwidth", "cpu_core_bandwidth"}) {
    std::string rest = kCpu;
    const size_t line = rest.find(std::string(key) + " ");
    rest.erase(line, rest.find('\n', line) + 1 - line);
    const auto read = parseHardware(kRound + rest, "f");
    EXPECT_EQ(codeOf(read), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(messageOf(read), testing::AllOf(testing::HasSubstr(std::string(key) + " is missing: expected "),
                                                testing::HasSubstr("as other keys of the CPU stand")));
  }
}

TEST(HardwareCpu, RefusesBadFiguresByFileAndKey) {
  const auto refused = [](const std::string &line, const std::string &with, const std::string &expected) {
    const auto read = parseHardware(std::string(kRound) + replaced(kCpu, line, with), "f");
    EXPECT_EQ(codeOf(read), absl::StatusCode::kInvalidArgument) << with;
    EXPECT_THAT(messageOf(read), testing::HasSubstr(expected));
  };
  refused("cpu_cores", "cpu_cores = 0", "cpu_cores = 0: expected ");
  refused("cpu_cores", "cpu_cores = 2000", "cpu_cores = 2000: expected ");
  refused("cpu_flops", "cpu_flops = \"0FLOP/s\"", "cpu_flops = ");
  refused("cpu_core_bandwidth", "cpu_core_bandwidth = \"21GB/s\"",
          "cpu_core_bandwidth = 21GB/s: expected at most 20GB/s, cpu_memory_bandwidth: what all cores have");
  EXPECT_REFUSED(
      parseHardware(replaced(kRound, "kind", "kind = \"host\"") + kCpu, "f"), absl::StatusCode::kInvalidArgument,
      "f: cpu_cores = 4: expected no such key: hardware of kind host computes on the CPU, as its other figures "
      "have it");
}

constexpr char kOfClasses[] = "product_flops_efficiency = 0.1\nproduct_memory_efficiency = 0.2\n"
                              "prefill_attention_flops_efficiency = 0.3\nprefill_attention_ramp = \"4us\"\n"
                              "decode_attention_memory_efficiency = 0.5\nattention_overhead = \"6us\"\n"
                              "plain_attention_flops_efficiency = 0.7\nrow_memory_efficiency = 1\n"
                              "read_kv_flops_efficiency = 0.8\nunpack_flops_efficiency = 0.9\n";

TEST(HardwareClasses, EachFigureIsReadAndMayBeMissing) {
  EXPECT_EQ(parseHardware(kRound, "f")->classes, OpClasses());
  const auto hardware = parseHardware(std::string(kRound) + kOfClasses, "f");
  ASSERT_TRUE(hardware.ok()) << messageOf(hardware);
  const OpClasses all = {0.1, 0.2, 0.3, 4e-6, 0.5, 6e-6, 0.7, 1, 0.8, 0.9};
  EXPECT_EQ(hardware->classes, all);
  // As it is written, and over itself.
  const std::string text = toToml(hardwareEntries(*hardware));
  EXPECT_EQ(parseHardware(text, "again")->classes, all);
  EXPECT_EQ(toToml(hardwareEntries(parseHardware(kRound, "f").value())).find("attention"), std::string::npos);
  EXPECT_EQ(parseHardware("h2d_bandwidth = \"2B/s\"\n", "flags", *hardware)->classes, all);
}

TEST(HardwareClasses, RefusesBadFiguresByFileAndKey) {
  const std::string share = ": expected a share above 0 and at most 1, or no such key",
                    time = ": expected a finite time above 0 such as \"10us\", or no such key";
  const auto refused = [&](const std::string &line, const std::string &expected) {
    SCOPED_TRACE(line);
    EXPECT_REFUSED(parseHardware(kRound + line + "\n", "f"), absl::StatusCode::kInvalidArgument,
                   "f:14: " + line + expected);
  };
  for (const ClassKey &key : classKeys()) {
    const std::string is = std::string(key.key) + " = ";
    if (key.time) {
      refused(is + "\"0us\"", time);
      EXPECT_EQ(codeOf(parseHardware(kRound + is + "3\n", "f")), absl::StatusCode::kInvalidArgument) << is;
      EXPECT_EQ(codeOf(parseHardware(kRound + is + "\"-3us\"\n", "f")), absl::StatusCode::kInvalidArgument) << is;
    } else {
      for (const char *value : {"0", "1.01", "-0.5"})
        refused(is + value, share);
      for (const char *value : {"nan", "inf", "\"0.5\""})
        refused(is + value, ": expected a finite number");
    }
    Hardware changed = parseHardware(kRound, "f").value();
    changed.classes.*key.field = std::numeric_limits<double>::quiet_NaN();
    EXPECT_REFUSED(validate(changed, "command line"), absl::StatusCode::kInvalidArgument,
                   "command line: " + is + "nan" + (key.time ? time : share));
  }
  EXPECT_THAT(messageOf(parseHardware(std::string(kRound) + "attention_efficiency = 1\n", "f")),
              testing::StartsWith("f:14: attention_efficiency: unknown key: expected one of attention_overhead, "));
  EXPECT_REFUSED(
      parseHardware(replaced(kRound, "kind", "kind = \"host\"") + "plain_attention_flops_efficiency = 0.5\n", "f"),
      absl::StatusCode::kInvalidArgument,
      "f: plain_attention_flops_efficiency = 0.5: expected no such key: hardware of kind host has one attention "
      "kernel");
}

// What is stated of all ops over a profile is of every class, but for those stated beside it.
TEST(HardwareClasses, AFigureOfAllOpsIsOfAllClasses) {
  const Hardware base = parseHardware(std::string(kRound) + kOfClasses, "f").value();
  const auto over = [&](const std::string &lines) { return parseHardware(lines, "flags", base)->classes; };
  EXPECT_EQ(over("flops_efficiency = 0.5\n"), (OpClasses{0, 0.2, 0, 0, 0.5, 6e-6, 0, 1, 0}));
  EXPECT_EQ(over("memory_efficiency = 0.5\n"), (OpClasses{0.1, 0, 0.3, 4e-6, 0, 6e-6, 0.7, 0, 0.8, 0.9}));
  EXPECT_EQ(over("launch_overhead = \"1us\"\n"), (OpClasses{0.1, 0.2, 0.3, 4e-6, 0.5, 0, 0.7, 1, 0.8, 0.9}));
  EXPECT_EQ(over("memory_efficiency = 0.5\nrow_memory_efficiency = 0.25\n"),
            (OpClasses{0.1, 0, 0.3, 4e-6, 0, 6e-6, 0.7, 0.25, 0.8, 0.9}));
  EXPECT_EQ(over("product_flops_efficiency = 0.9\n"), (OpClasses{0.9, 0.2, 0.3, 4e-6, 0.5, 6e-6, 0.7, 1, 0.8, 0.9}));
}

TEST(HardwareClasses, WhatGoesOrDiffersHasToBeSaid) {
  const Hardware base = parseHardware(std::string(kRound) + kOfClasses, "f").value();
  EXPECT_EQ(impliedClasses(base, base).classes, base.classes);
  EXPECT_EQ(impliedClasses(base, base).flopsEfficiency, base.flopsEfficiency);
  Hardware wanted = base;
  wanted.classes.productFlopsEfficiency = 0.9; // said by itself
  EXPECT_EQ(impliedClasses(base, wanted).classes, base.classes);
  wanted.classes.productFlopsEfficiency = 0; // only flops_efficiency takes it away, and all of its own
  EXPECT_EQ(impliedClasses(base, wanted).classes, (OpClasses{0, 0.2, 0, 0, 0.5, 6e-6, 0, 1, 0}));
  EXPECT_NE(impliedClasses(base, wanted).flopsEfficiency, base.flopsEfficiency);
  wanted = base;
  wanted.launchOverhead = 1e-6;
  EXPECT_EQ(impliedClasses(base, wanted).classes, (OpClasses{0.1, 0.2, 0.3, 4e-6, 0.5, 0, 0.7, 1, 0.8, 0.9}));
}

// One thread's 1 TFLOP/s and 100 GB/s; three have 3 TFLOP/s, and 300 GB/s, or what the limit leaves.
TEST(Hardware, ThreadsHaveTheirFiguresTogetherUpToALimit) {
  const std::string host = replaced(kRound, "kind", "kind = \"host\"");
  Hardware hardware = parseHardware(host, "f").value();
  EXPECT_EQ(hardware.threads, 1);
  EXPECT_EQ(hardware.flops(true), 1e12);
  EXPECT_EQ(hardware.bandwidth(), 1e11);
  hardware = parseHardware(host + "threads = 3\n", "f").value();
  EXPECT_EQ(hardware.flops(true), 3e12);
  EXPECT_EQ(hardware.flops(false), 6e12);
  EXPECT_EQ(hardware.bandwidth(), 3e11);
  const std::string limited = host + "memory_bandwidth_limit = \"250GB/s\"\n";
  hardware = parseHardware(limited + "threads = 3\n", "f").value();
  EXPECT_EQ(hardware.bandwidth(), 2.5e11);
  hardware.threads = 2;
  EXPECT_EQ(hardware.bandwidth(), 2e11);
  // The limit goes with the figure that it was stated beside.
  const Hardware base = parseHardware(limited, "f").value();
  EXPECT_EQ(parseHardware("threads = 4\n", "flags", base)->bandwidth(), 2.5e11);
  EXPECT_EQ(parseHardware("threads = 4\nmemory_bandwidth = \"80GB/s\"\n", "flags", base)->bandwidth(), 3.2e11);
  for (const char *threads : {"0", "-1", "1025", "1.5"})
    EXPECT_THAT(messageOf(parseHardware(host + "threads = " + threads + "\n", "f")),
                testing::StartsWith(std::string("f:14: threads = ") + threads + ": expected"));
  EXPECT_REFUSED(parseHardware(std::string(kRound) + "threads = 2\n", "f"), absl::StatusCode::kInvalidArgument,
                 "f: threads = 2: expected 1: hardware of kind host computes on threads, other kinds' are their own");
  EXPECT_REFUSED(
      parseHardware(host + "memory_bandwidth_limit = \"99GB/s\"\n", "f"), absl::StatusCode::kInvalidArgument,
      "f: memory_bandwidth_limit = 99GB/s: expected at least 100GB/s, memory_bandwidth: what one thread has");
}

Hardware shipped(const std::string &name) {
  const auto hardware = readHardware(sourceDir() + "/examples/hardware/" + name + ".toml");
  EXPECT_TRUE(hardware.ok()) << messageOf(hardware);
  return hardware.value_or(Hardware{});
}

TEST(ShippedHardware, AllProfilesRead) {
  std::set<std::string> gpus;
  for (const std::string &name : exampleNames("hardware")) {
    const Hardware profile = shipped(name);
    EXPECT_EQ(profile.name, name);
    EXPECT_EQ(profile.kind, name == "host" ? DeviceKind::Host : DeviceKind::Cuda);
    for (const std::string &gpu : profile.gpus)
      EXPECT_TRUE(gpus.insert(gpu).second) << gpu << " is two profiles'";
  }
}

// A figure stands with its source: a comment behind it, or one above the lines that share it.
TEST(ShippedHardware, EveryFigureHasASource) {
  for (const std::string &name : exampleNames("hardware")) {
    std::ifstream file(sourceDir() + "/examples/hardware/" + name + ".toml");
    int figures = 0;
    for (std::string line; std::getline(file, line);)
      if (const size_t equal = line.find(" = "); equal != std::string::npos && line.front() != '#') {
        const std::string key = line.substr(0, equal);
        if (key == "name" || key == "kind" || key == "gpus")
          continue;
        ++figures;
        EXPECT_GT(line.size(), line.find('#') + 5) << name << ": " << line;
      }
    EXPECT_GE(figures, 13) << name;
  }
}

// What datasheets have of each card (bytes, FLOP/s dense, bytes/s), and what nvidia-smi shows of its memory, which a
// plan has to leave a context's room in.
TEST(ShippedHardware, IsWhatDatasheetsSay) {
  const struct {
    const char *name;
    double memory, f32, f16, bandwidth, pcie; // pcie: nominal of the link, a direction
    uint64_t shownMib;
  } sheets[] = {{"a10", 24e9, 31.2e12, 125e12, 600e9, 31.5e9, 23'028},
                {"a100-40", 40e9, 19.5e12, 312e12, 1555e9, 31.5e9, 40'960},
                {"gh200", 96e9, 67e12, 990e12, 4e12, 450e9, 97'871},
                {"gh200-paper", 96e9, 67e12, 990e12, 4e12, 450e9, 97'871},
                {"h100", 80e9, 67e12, 989e12, 3.35e12, 63e9, 81'559},
                {"h200", 141e9, 67e12, 989e12, 4.8e12, 63e9, 143'771},
                {"rtx4090", 24'564.0 * (1 << 20), 82.6e12, 165.2e12, 1008e9, 31.5e9, 24'564},
                {"rtx4090-hybridserve", 24e9, 82.6e12, 165.2e12, 1008e9, 31.5e9, 24'564},
                {"v100-16-power9", 16e9, 15.7e12, 125e12, 900e9, 75e9, 16'160}};
  std::vector<std::string> names = {"host"};
  for (const auto &sheet : sheets) {
    SCOPED_TRACE(sheet.name);
    names.emplace_back(sheet.name);
    const Hardware profile = shipped(sheet.name);
    EXPECT_EQ(static_cast<double>(profile.memoryBytes), sheet.memory);
    EXPECT_EQ(profile.flopsF32, sheet.f32);
    EXPECT_EQ(profile.flopsF16, sheet.f16);
    EXPECT_EQ(profile.memoryBandwidth, sheet.bandwidth);
    for (const double rate : {profile.h2dBandwidth, profile.d2hBandwidth}) {
      EXPECT_LE(rate, sheet.pcie);
      EXPECT_GE(rate, 0.7 * sheet.pcie);
    }
    EXPECT_LE(profile.memoryBytes, sheet.shownMib << 20);
    for (const double share : {profile.flopsEfficiency, profile.memoryEfficiency, profile.linkEfficiency}) {
      EXPECT_GE(share, 0.5);
      EXPECT_LE(share, 1);
    }
    EXPECT_LE(profile.copyLatency, 10e-6);
    EXPECT_LE(profile.launchOverhead, 10e-6);
    // Half a GiB beside the budget, but for papers' devices, whose plans may have all of it.
    const std::string name = sheet.name;
    if (name != "a10" && name != "rtx4090-hybridserve") {
      EXPECT_LE(profile.defaultBudget() + (uint64_t{1} << 29), sheet.shownMib << 20);
    }
  }
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, exampleNames("hardware"));
  EXPECT_EQ(shipped("rtx4090").hostMemoryBytes, 0u); // a card is of no machine
}

// One GPU was measured; the H100 has its kernels and as many multiprocessors.
TEST(ShippedHardware, FiguresOfClassesAreTheH200sOrItsCarried) {
  EXPECT_NE(shipped("h200").classes, OpClasses());
  EXPECT_EQ(shipped("h100").classes, shipped("h200").classes);
  EXPECT_EQ(shipped("h100").launchOverhead, shipped("h200").launchOverhead);
  EXPECT_EQ(shipped("h100").copyLatency, shipped("h200").copyLatency);
  for (const std::string &name : exampleNames("hardware"))
    if (name != "h100" && name != "h200") {
      EXPECT_EQ(shipped(name).classes, OpClasses()) << name;
    }
}

TEST(ShippedHardware, HasTheFiguresThePapersGive) {
  EXPECT_EQ(shipped("a10").h2dBandwidth, 24e9);                 // Select-N, section 3
  EXPECT_EQ(shipped("gh200").h2dBandwidth, 419e9);              // Pie, section 2.4
  EXPECT_EQ(shipped("gh200").d2hBandwidth, 371e9);              // Pie, section 2.4
  EXPECT_EQ(shipped("rtx4090-hybridserve").h2dBandwidth, 25e9); // HybridServe's link
  EXPECT_EQ(shipped("rtx4090-hybridserve").flopsEfficiency, 0.6);
  EXPECT_EQ(shipped("rtx4090-hybridserve").hostMemoryBytes, 882'000'000'000u);
  EXPECT_EQ(shipped("a100-40").hostMemoryBytes, 240'000'000'000u); // LM-Offload, Table 4

  // Pie, Figure 1: 95% of the bandwidth at 16 MB. 16e6 / 419e9 = 38.2 us; 38.2 / (38.2 + 2.0) = 0.950
  const Hardware gh200 = shipped("gh200");
  const double alone = 16e6 / gh200.h2dBandwidth;
  EXPECT_NEAR(alone / (alone + gh200.copyLatency), 0.95, 0.001);

  // Select-N, Figure 2: transfer / compute = 3.5 in prefill, 13.8 in decode, of a Qwen1.5-7B layer: 202.4e6 weights
  const Hardware a10 = shipped("a10");
  const double transfer = 2 * 202.4e6 / a10.h2dBandwidth;
  EXPECT_NEAR(transfer / (2 * 202.4e6 * 1024 / (a10.flopsF16 * a10.flopsEfficiency)), 3.5, 0.05);
  EXPECT_NEAR(transfer / ((2 * 202.4e6 + 16.8e6) / (a10.memoryBandwidth * a10.memoryEfficiency)), 13.8, 0.2);
}

} // namespace
} // namespace headrace::model
