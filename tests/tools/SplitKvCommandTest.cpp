// SPDX-License-Identifier: Apache-2.0
//
// KV caches beyond device memory, as a user of the command line asks for them and hears of them.
//
// The model's cache: a block of 16 tokens is 2 x 24 rows of 4 bytes x 16 = 3072 bytes a layer, 21504 in all 7 layers;
// 8 sequences of 64 tokens take 32 of them, and block 0 is scratch: 33.
#include <iterator>
#include <sstream>

#include <gmock/gmock.h>

#include "tests/support/Process.h"

namespace headrace::tools {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr const char *kModel = "llama-7-gqa-llama3-f32";
constexpr uint64_t kBlock = 21504, kBlocks = 33;

class SplitKv : public CommandLine {
protected:
  static std::vector<std::string> arguments(const std::vector<std::string> &more) {
    std::vector<std::string> all = {"compile", golden(kModel), "--hardware", "host",     "--batch",
                                    "8",       "--context",    "64",         "--dry-run"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  static nlohmann::json homes(const nlohmann::json &plan) { return plan["placements"][0]["kv_bytes_by_home"]; }
  // The bytes behind "the minimum is" in an error.
  static uint64_t minimum(const std::string &error) {
    constexpr std::string_view kMinimum = "the minimum is ";
    const size_t at = error.find(kMinimum);
    EXPECT_NE(at, std::string::npos) << error;
    return at == std::string::npos ? 0 : std::stoull(error.substr(at + kMinimum.size()));
  }
  // As a job file, with lines of [goal] behind the sixth.
  std::string job(const std::string &goal) const {
    writeText(path("job.toml"), "[model]\npath = \"" + golden(kModel) +
                                    "\"\n[goal]\nbatch = 8\ncontext = 64\n# what is asked for\n" + goal + "\n");
    return path("job.toml");
  }
};

TEST_F(SplitKv, ABudgetTooSmallForTheCacheSplitsIt) {
  const Outcome o = headrace(arguments({"--device-memory", "1MiB", "--policy", "interval"}));
  EXPECT_EQ(o.status, 0) << o.err;
  EXPECT_EQ(o.err, "");
  EXPECT_THAT(o.out, HasSubstr("at home on the host: with all of them on the device nothing fits. " // why
                               "Rows of KV on the host: decode mirrors"));
  EXPECT_THAT(o.out, HasSubstr("KV cache       1 of 33 blocks on the device (21.0 KiB), 32 at home on the host ("));
  EXPECT_THAT(o.out, HasSubstr(" h2d, 10.5 KiB d2h)")); // 8 rows of 2 x 24 x 4 bytes, 7 layers: 10752
  const nlohmann::json plan = json(arguments({"--device-memory", "1MiB", "--policy", "interval"}));
  EXPECT_EQ(homes(plan)["device"], kBlock);
  EXPECT_EQ(homes(plan)["host"], (kBlocks - 1) * kBlock);
  EXPECT_LE(plan["arena_bytes"], 1 << 20);
}

TEST_F(SplitKv, TheFlagsItPrintsGiveThePlanAgain) {
  for (const std::vector<std::string> &asked :
       std::vector<std::vector<std::string>>{{"--device-memory", "1MiB"},
                                             {"--device-memory", "1350000B", "--kv-host-memory", "1GiB"},
                                             {"--kv-device-memory", "345KiB"},
                                             {"--kv-device-memory", "345KiB", "--interval", "3"},
                                             {"--kv-device-memory", "0B"},
                                             {"--kv-device-memory", "345KiB", "--kv-write-back", "dirty"}}) {
    const nlohmann::json first = json(arguments(asked));
    EXPECT_GT(homes(first)["host"], 0);
    std::istringstream words(first["command"].get<std::string>());
    std::vector<std::string> again{std::istream_iterator<std::string>(words), {}};
    again.erase(again.begin()); // "headrace"
    again.emplace_back("--dry-run");
    const nlohmann::json second = json(again);
    for (const char *key : {"placements", "variants", "transitions", "arena_bytes", "host_bytes", "command"})
      EXPECT_EQ(first[key], second[key]) << key << " of " << first["command"];
  }
}

// As bytes, too: what was asked for is in the plan.
TEST_F(SplitKv, WhatWasAskedForKvIsAmongThoseFlags) {
  const nlohmann::json plan = json(arguments({"--kv-device-memory", "345KiB", "--kv-host-memory", "1GiB"}));
  EXPECT_THAT(plan["command"].get<std::string>(), HasSubstr(" --kv-device-memory 345KiB --kv-host-memory 1GiB "));
  const nlohmann::json whole = json(arguments({"--kv-host-memory", "0B"}));
  EXPECT_THAT(whole["command"].get<std::string>(), HasSubstr(" --kv-host-memory 0B "));
  EXPECT_THAT(whole["command"].get<std::string>(), Not(HasSubstr("--kv-device-memory")));
}

// Four blocks of all seven layers, 84 KiB, and three slots of what a layer has of the other 29, 87 KiB each: 345 KiB.
TEST_F(SplitKv, WhatKvMayHaveOfTheDeviceIsBlocksAndSlots) {
  const nlohmann::json plan = json(arguments({"--kv-device-memory", "345KiB"}));
  EXPECT_EQ(homes(plan)["device"], 4 * kBlock);
  EXPECT_EQ(homes(plan)["host"], 29 * kBlock);
  EXPECT_EQ(plan["placements"][0]["kv_slot_bytes"], 3 * 29 * kBlock / 7);
  EXPECT_EQ(plan["placements"][0]["kv_device_bytes"], 345 * 1024);
  EXPECT_EQ(homes(json(arguments({"--kv-device-memory", "353279B"})))["device"], 3 * kBlock);
  EXPECT_EQ(json({"compile", job("kv_device_memory = \"345KiB\""), "--hardware", "host", "--dry-run"})["placements"],
            plan["placements"]);
  // Over the file.
  EXPECT_EQ(homes(json({"compile", job("kv_device_memory = \"1KiB\""), "--hardware", "host", "--kv-device-memory",
                        "309KiB", "--dry-run"})),
            homes(json(arguments({"--kv-device-memory", "309KiB"}))));
  // Enough for all of them: nothing is split.
  for (const char *enough : {"709632B", "8GiB"}) // 33 x 21504, and all that the device has
    EXPECT_EQ(homes(json(arguments({"--kv-device-memory", enough})))["host"], 0) << enough;
  EXPECT_EQ(homes(json(arguments({"--kv-device-memory", "709631B"})))["host"], kBlock);
  // Where weights are is stated beside it, or chosen.
  const nlohmann::json stated = json(arguments({"--kv-device-memory", "345KiB", "--interval", "3"}));
  EXPECT_EQ(stated["offloaded_layers"], 2); // 7 / 3
  EXPECT_EQ(homes(stated), homes(plan));
}

TEST_F(SplitKv, NoBlockNeedStayOnTheDevice) {
  const nlohmann::json plan = json(arguments({"--kv-device-memory", "0B"}));
  EXPECT_EQ(homes(plan)["device"], 0);
  EXPECT_EQ(homes(plan)["host"], kBlocks * kBlock);
  EXPECT_EQ(plan["placements"][0]["kv_device_bytes"], 3 * kBlocks * kBlock / 7); // of slots, which are not limited
  const Outcome text = headrace(arguments({"--kv-device-memory", "0B"}));
  EXPECT_THAT(text.out,
              HasSubstr("KV cache       0 of 33 blocks on the device (0 B), 33 at home on the host (693 KiB), "
                        "brought through slots of 297 KiB\n"));
  EXPECT_THAT(text.out, HasSubstr(". KV takes 297.00 KiB of the device, all of that the slots that blocks on the host "
                                  "go through\n")); // why
  EXPECT_EQ(json({"compile", job("kv_device_memory = \"0B\""), "--hardware", "host", "--dry-run"})["placements"],
            plan["placements"]);
}

TEST_F(SplitKv, HowAppendedRowsGetHomeIsAskedForOrChosen) {
  const auto of = [&](const std::vector<std::string> &more) {
    return json(arguments(more))["placements"][0]["kv_write_back"];
  };
  for (const char *way : {"mirror", "all", "dirty"}) {
    const nlohmann::json back = of({"--kv-device-memory", "345KiB", "--kv-write-back", way});
    EXPECT_EQ(back["decode"]["how"], way);
    EXPECT_EQ(back["prefill"]["how"], way);
    // 29 blocks of each layer go home, or of decode's 8 rows their 2 x 24 x 4 bytes.
    EXPECT_EQ(back["decode"]["d2h_bytes"], std::string(way) == "mirror" ? 10752 : 29 * kBlock);
    const nlohmann::json plan = json(arguments({"--kv-device-memory", "345KiB", "--kv-write-back", way}));
    EXPECT_THAT(plan["command"].get<std::string>(), HasSubstr(std::string(" --kv-write-back ") + way));
  }
  EXPECT_EQ(of({"--kv-device-memory", "345KiB"})["decode"]["how"], "mirror"); // 8 rows against 29 blocks
  EXPECT_TRUE(of({"--kv-write-back", "dirty"}).is_null());                    // all blocks are on the device
  refused(arguments({"--kv-write-back", "often"}), 2,
          "command line: --kv-write-back = \"often\": expected auto, mirror, all or dirty");
  refused(arguments({"--kv-write-back", "all", "--policy", "accelerate"}), 2,
          "--kv-write-back = \"all\" beside --policy = \"accelerate\": expected policy interval, pie, hybridserve, "
          "flexgen-throughput, lm-offload, zero-inference, headrace or joint: the policy moves weights alone");
}

TEST_F(SplitKv, HostMemoryForKvIsNamedAsOthersNameIt) {
  for (const char *size : {"1", "0.5", "1GiB"}) {
    const Outcome o = headrace(arguments({"--device-memory", "1MiB", "--kv-offloading-size", size}));
    EXPECT_EQ(o.status, 0) << o.err;
    EXPECT_EQ(o.err, std::string("headrace: --kv-offloading-size ") + size + " means --kv-host-memory " +
                         (std::string(size) == "0.5" ? "512MiB" : "1GiB") + "\n");
  }
  refused(arguments({"--kv-offloading-size", "lots"}), 2,
          "command line: --kv-offloading-size = \"lots\": expected GiB such as 40 or 0.5, or bytes with their unit");
  refused(arguments({"--kv-offloading-size", "-5"}), 2, "command line: --kv-offloading-size = \"-5\": expected GiB");
  refused(arguments({"--kv-offloading-size", "5", "--kv-host-memory", "4GiB"}), 2,
          "--kv-offloading-size 5 means --kv-host-memory 5GiB, and --kv-host-memory 4GiB is given");
}

TEST_F(SplitKv, NoHostMemoryForKvKeepsTheCacheOnTheDevice) {
  const auto with = [&](const std::string &budget) {
    return headrace(arguments({"--kv-host-memory", "0B", "--device-memory", budget}));
  };
  const Outcome o = with("1MiB");
  EXPECT_EQ(o.status, 1);
  EXPECT_EQ(o.out, "");
  EXPECT_THAT(o.err, HasSubstr("KV cache 693.00 KiB")); // 33 x 21504: all of it
  const uint64_t least = minimum(o.err);
  EXPECT_EQ(with(std::to_string(least) + "B").status, 0);
  EXPECT_EQ(with(std::to_string(least - 1) + "B").status, 1);
  EXPECT_EQ(homes(json(arguments({"--kv-host-memory", "0B", "--device-memory", std::to_string(least) + "B"})))["host"],
            0);
  refused({"compile", job("device_memory = \"1MiB\"\nkv_host_memory = \"0B\""), "--hardware", "host", "--dry-run"}, 1,
          "KV cache 693.00 KiB");
}

TEST_F(SplitKv, HomesThatTheHostHasNoRoomForAreRefusedWithTheMinimum) {
  for (const char *flag : {"--kv-host-memory", "--host-memory"}) {
    const auto with = [&](uint64_t bytes) {
      return headrace(arguments({"--kv-device-memory", "345KiB", flag, std::to_string(bytes) + "B"}));
    };
    const Outcome o = with(100 << 10);
    EXPECT_EQ(o.status, 1) << o.out;
    EXPECT_EQ(o.out, "");
    EXPECT_EQ(minimum(o.err), 29 * kBlock) << o.err; // all but the 4 on the device
    EXPECT_EQ(with(29 * kBlock).status, 0);
    EXPECT_EQ(with(29 * kBlock - 1).status, 1);
  }
  // Found by itself, so many blocks leave the device as there is room for on the host: 1 of them for 32 KiB.
  const uint64_t whole = minimum(headrace(arguments({"--device-memory", "1MiB", "--kv-host-memory", "0B"})).err);
  const nlohmann::json plan = json(arguments(
      {"--device-memory", std::to_string(whole - 1) + "B", "--kv-host-memory", std::to_string(2 * kBlock) + "B"}));
  EXPECT_GT(homes(plan)["host"], 0);
  EXPECT_LE(homes(plan)["host"], 2 * kBlock);
}

TEST_F(SplitKv, DeviceMemoryForKvThatCannotBeIsRefused) {
  refused(arguments({"--kv-device-memory", "9GiB"}), 2,
          "command line: --kv-device-memory = 9663676416: expected at most the 8589934592 bytes that host has");
  refused(arguments({"--kv-device-memory", "2MiB", "--device-memory", "1MiB"}), 2,
          "command line: --kv-device-memory = 2097152: expected at most --device-memory = 1048576");
  for (const auto &[text, bytes] : {std::pair("316415B", "316415"), {"1B", "1"}})
    refused(arguments({"--kv-device-memory", text}), 2,
            std::string("command line: --kv-device-memory = ") + bytes +
                ": expected at least 316416 bytes, one block of all caches and slots for the others (7 layers), or 0 "
                "for no block");
  for (const char *flag : {"--kv-device-memory", "--kv-host-memory"})
    for (const char *text : {"lots", "-1KiB", "5", "1.5", "5GB/s", "", "9223372036854775808B"})
      refused(arguments({flag, text}), 2,
              std::string("command line: ") + flag + " = \"" + text + "\": expected bytes with their unit");
}

TEST_F(SplitKv, AFileIsRefusedByItsKey) {
  for (const std::string key : {"kv_device_memory", "kv_host_memory"})
    for (const std::string value : {"5", "-5", "0", "1.5", "true", "\"5\"", "\"lots\"", "[\"1GiB\"]", "{ }"})
      refused({"compile", job(key + " = " + value), "--hardware", "host", "--dry-run"}, 2,
              path("job.toml") + ":7: goal." + key + " = " + (value == "{ }" ? "{...}" : value) +
                  ": expected bytes with their unit, such as \"8GiB\"");
  refused({"compile", job("kv_device_memory = \"9GiB\""), "--hardware", "host", "--dry-run"}, 2,
          path("job.toml") + ": goal.kv_device_memory = 9663676416: expected at most the 8589934592 bytes");
  refused({"compile", job("kv_device_memory = \"1KiB\""), "--hardware", "host", "--dry-run"}, 2,
          path("job.toml") + ": goal.kv_device_memory = 1024: expected at least 316416 bytes, one block of all ");
  refused({"compile", job("kv_offloading_size = 5"), "--hardware", "host", "--dry-run"}, 2,
          "goal.kv_offloading_size: unknown key");
}

TEST_F(SplitKv, OtherPoliciesKeepCachesOnTheDeviceAndSaySo) {
  for (const char *policy :
       {"none", "deepspeed", "accelerate", "vllm-prefetch", "flexgen", "flexgen-nobus", "select-n"}) {
    refused(arguments({"--kv-device-memory", "345KiB", "--policy", policy, "--tpot", "1s"}), 2,
            std::string("command line: --kv-device-memory = 353280 beside --policy = \"") + policy +
                "\": expected policy interval, pie, hybridserve, flexgen-throughput, lm-offload, zero-inference, "
                "headrace or joint: "
                "the policy moves weights alone");
    const Outcome o = headrace(arguments({"--device-memory", "600KiB", "--policy", policy, "--tpot", "1s"}));
    EXPECT_EQ(o.status, 1) << policy << o.out;
    EXPECT_THAT(o.err, HasSubstr("KV cache 693.00 KiB")) << policy;
  }
  refused(arguments({"--kv-device-memory", "345KiB", "--start-rule", "paper"}), 2,
          "--kv-device-memory = 353280 beside --start-rule = \"paper\": expected start rule eager: ");
}

// What a placement that is stated cannot hold is not split unasked.
TEST_F(SplitKv, AStatedPlacementIsSplitOnlyWhereThatIsStated) {
  const Outcome o = headrace(arguments({"--device-memory", "1700000B", "--interval", "none"}));
  EXPECT_EQ(o.status, 1) << o.out;
  EXPECT_THAT(o.err, HasSubstr("the minimum is "));
  EXPECT_EQ(homes(json(arguments(
                {"--device-memory", "1700000B", "--interval", "none", "--kv-device-memory", "345KiB"})))["host"],
            29 * kBlock);
}

TEST_F(SplitKv, PlansAndProfilesTakeNoSuchFlags) {
  ASSERT_EQ(headrace({"compile", golden(kModel), "--hardware", "host", "-o", path("a.plan")}).status, 0);
  refused({"run", path("a.plan"), "--prompt-ids", "1", "--kv-device-memory", "1MiB"}, 2,
          "--kv-device-memory beside the plan");
  refused({"run", path("a.plan"), "--prompt-ids", "1", "--kv-offloading-size", "1"}, 2,
          "--kv-offloading-size beside the plan");
  refused({"profile", golden(kModel), "--hardware", "host", "--kv-device-memory", "1MiB", "-o", path("r.toml")}, 2,
          "--kv-device-memory 1MiB: expected a flag or an argument of headrace profile");
}

// 2 x 20 prompt tokens and 8 new ones: 2 blocks each, so 5 with the scratch block, of which 3 are on the device.
TEST_F(SplitKv, ARunGivesTheSameTokensAndSaysWhereKvWasAndWhatMoved) {
  const auto compiled = [&](const char *file, const std::vector<std::string> &more) {
    std::vector<std::string> all = {"compile", golden(kModel), "--hardware", "host", "--batch",
                                    "8",       "--context",    "64",         "-o",   path(file)};
    all.insert(all.end(), more.begin(), more.end());
    EXPECT_EQ(headrace(all).status, 0);
    return path(file);
  };
  const auto ran = [&](const char *command, const std::string &plan, const std::vector<std::string> &more = {}) {
    std::vector<std::string> all = {command,         plan, "--random-input-len", "20",
                                    "--num-prompts", "2",  "--max-new-tokens",   "8"};
    all.insert(all.end(), more.begin(), more.end());
    return json(all);
  };
  const std::string split = compiled("split.plan", {"--kv-device-memory", "333KiB"});
  const nlohmann::json host = ran("run", split, {"--trace", path("host.json")});
  EXPECT_EQ(host["tokens"], ran("run", compiled("whole.plan", {}))["tokens"]);
  const nlohmann::json sim = ran("simulate", split, {"--timeline", path("sim.svg")});
  for (const nlohmann::json *run : {&host, &sim}) {
    EXPECT_EQ((*run)["manifest"]["kv"]["device"], 3 * kBlock);
    EXPECT_EQ((*run)["manifest"]["kv"]["host"], 30 * kBlock);
    // 8 iterations of 2 blocks of 30, at most 7 of them in one launch: 256ths of a tail and multiples of 256 bytes
    // are rounded.
    EXPECT_GE((*run)["h2d_bytes"], 7 * 2 * kBlock);
    EXPECT_LE((*run)["h2d_bytes"], 8 * 3 * kBlock);
    EXPECT_GT((*run)["d2h_bytes"], 0);
  }
  EXPECT_EQ(host["h2d_bytes"], sim["h2d_bytes"]);
  EXPECT_EQ(host["d2h_bytes"], sim["d2h_bytes"]); // the rows that were written, not those that the bucket has
  EXPECT_THAT(readFile(path("sim.svg")), HasSubstr("the copies of KV are those of blocks below 5 of 33"));
  EXPECT_THAT(readFile(path("sim.svg")), HasSubstr("over the link, written in place"));
  const Outcome text = headrace({"run", split, "--prompt-ids", "1", "--max-new-tokens", "1"});
  EXPECT_THAT(text.out,
              HasSubstr("\nKV by home\n  device                     64512\n  host                      645120\n"));
  EXPECT_THAT(text.out, HasSubstr("\noffloaded        KV blocks from 3 on\n"));

  const Outcome both = headrace({"timeline", split, "--measured", path("host.json")});
  EXPECT_EQ(both.status, 0) << both.err;
  EXPECT_THAT(both.out, HasSubstr("; the copies of KV are those of blocks below 5 of 33\n"));
  EXPECT_THAT(both.out, HasSubstr("measured (host), iteration "));
  const Outcome planned = headrace({"timeline", split}); // of the first variant that brings tails
  EXPECT_THAT(planned.out,
              HasSubstr("\nvariant 1: 1 new tokens, 1 sequences, context 64; offloaded: KV blocks from 3"));
  EXPECT_THAT(planned.out, HasSubstr(" 630 KiB ")); // 30 blocks
  EXPECT_THAT(headrace({"timeline", split, "--variant", "0"}).out, HasSubstr("context 64, no tails; offloaded: "));
}

// A short prompt brings a small part of the tails: that is why it is fast, not the link.
// Every gap of a run that fills the cache, the one between prompts and decoding included: 4 x 65100 of 262144 tokens.
TEST_F(SplitKv, AnObjectiveHoldsWithAllOfKvInUse) {
  const std::vector<std::string> shape = {"llama-3.1-8b", "--hardware", "a10", "--batch", "4", "--context", "65536"};
  std::vector<std::string> words = {"compile"};
  words.insert(words.end(), shape.begin(), shape.end());
  words.insert(words.end(), {"--tpot", "1150ms", "-o", path("long.plan")});
  const Outcome made = headrace(words);
  ASSERT_EQ(made.status, 0) << made.err;
  const Outcome ran = headrace(
      {"simulate", path("long.plan"), "--random-input-len", "65000", "--num-prompts", "4", "--max-new-tokens", "100"});
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr(" x its objective of 1150.000 ms; all 99 held it"));
}

TEST_F(SplitKv, ARunIsHeldAgainstTheKvThatItUses) {
  ASSERT_EQ(headrace({"compile", golden(kModel), "--hardware", "host", "--batch", "8", "--context", "64",
                      "--kv-device-memory", "309KiB", "--h2d-bandwidth", "100MB/s", "-o", path("slow.plan")})
                .status,
            0);
  const nlohmann::json run =
      json({"simulate", path("slow.plan"), "--random-input-len", "4", "--num-prompts", "1", "--max-new-tokens", "8"});
  EXPECT_NEAR(run["decode"]["ratio"].get<double>(), 1, 0.001); // 1 block of 32
  EXPECT_TRUE(run["why"].is_null() || !run["why"].contains("decode")) << run["why"];
}

TEST_F(SplitKv, BenchSplitsForThePoliciesThatDo) {
  const auto with = [&](const std::vector<std::string> &more, const std::string &batches = "8") {
    std::vector<std::string> all = {"bench",     golden(kModel), "--hardware",  "host", "--device",     "sim",
                                    "--batches", batches,        "--input-len", "16",   "--output-len", "4"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  const nlohmann::json whole = json(with({"--policies", "interval"}));
  const nlohmann::json split = json(with({"--policies", "interval", "--kv-device-memory", "201KiB"}));
  EXPECT_EQ(whole["rows"][0]["decode"]["host_bytes"], 0);
  EXPECT_EQ(split["rows"][0]["decode"]["host_bytes"], 13 * kBlock); // 8 x 2 and scratch, less the 4 on the device
  // Three slots of 13 blocks of 3072 bytes are 119808, and with the 4 of all layers 201 KiB.
  EXPECT_EQ(split["rows"][0]["decode"]["freed_bytes"], 13 * kBlock - 119808);
  // What is too little for one batch is enough for another.
  const nlohmann::json both = json(with({"--policies", "interval", "--kv-device-memory", "201KiB"}, "8,64"));
  EXPECT_TRUE(both["rows"][0]["decode"]["refused"].is_null());
  EXPECT_THAT(both["rows"][1]["decode"]["refused"].get<std::string>(),
              HasSubstr("--kv-device-memory = 205824: expected at least 1201152 bytes, "));
  // What an objective's factor is of has the whole cache on a device that is large enough: it is no reason to refuse.
  refused(with({"--policies", "deepspeed", "--slo-factor", "1.5", "--kv-device-memory", "345KiB"}), 2,
          "command line: --kv-device-memory = 353280 beside --policy = \"deepspeed\": expected policy interval, ");
}

} // namespace
} // namespace headrace::tools
