// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/JobFile.h"

#include <array>

#include "tests/support/SourceDir.h"
#include "tests/support/TestFiles.h"

namespace headrace::model {
namespace {

using testing::ElementsAre;

// Keys of a shape with four layers and 64 positions.
constexpr char kShape[] = "family = \"llama\"\nlayers = 4\nhidden = 64\nheads = 8\nintermediate = 172\nvocab = 500\n"
                          "max_positions = 64\n";

void expectRefused(const std::string &text, const std::string &message) {
  EXPECT_REFUSED(parseJob(text, "job.toml"), absl::StatusCode::kInvalidArgument, "job.toml:" + message);
}

TEST(JobFile, ReadsEveryKey) {
  const TempFolder folder;
  folder.write("shapes/tiny.toml", kShape);
  const auto job = parseJob(R"(
[model]
shape = "shapes/tiny.toml"
[hardware]
file = "a10"
h2d_bandwidth = "20GB/s"
[goal]
device_memory = "8GiB"
batch = 8
mini_batches = 4
context = 48
kv_tokens = 100
kv_device_memory = "3GiB"
kv_host_memory = "40GiB"
kv_dtype = "bf16"
allow_quantized = "weights"
block_tokens = 32
[policy]
name = "interval"
interval = 3
start_rule = "paper"
slots = 2
kv_places = 3
kv_write_back = "dirty"
residuals = "host"
offload_embedding = true
offload_head = "off"
[buckets]
new_tokens = [1, 8, 512]
sequences = [1, 8]
contexts = [16, 64]
)",
                            folder.file("job.toml"));
  ASSERT_TRUE(job.ok()) << messageOf(job);
  ASSERT_TRUE(job->model.has_value());
  EXPECT_EQ(job->model->path, folder.file("shapes/tiny.toml")); // relative to the job
  EXPECT_EQ(job->model->spec->name, "tiny");
  EXPECT_EQ(job->model->checkpoint, nullptr);
  ASSERT_TRUE(job->hardware.has_value());
  EXPECT_EQ(job->hardware->name, "a10");
  EXPECT_EQ(job->hardware->h2dBandwidth, 20e9);       // replaced
  EXPECT_EQ(job->hardware->d2hBandwidth, 20e9);       // scaled with it
  EXPECT_DOUBLE_EQ(job->hardware->copyLatency, 5e-6); // the file's
  EXPECT_EQ(job->goal.deviceMemory, 8ull << 30);
  EXPECT_EQ(job->goal.batch, 8);
  EXPECT_EQ(job->goal.miniBatches, 4);
  EXPECT_EQ(job->goal.context, 48);
  EXPECT_EQ(job->goal.kvTokens, 100);
  EXPECT_EQ(job->goal.kvDeviceMemory, 3ull << 30);
  EXPECT_EQ(job->goal.kvHostMemory, 40ull << 30);
  EXPECT_EQ(job->goal.kvEncoding, DType::BF16);
  EXPECT_EQ(job->goal.allowQuantized, AllowQuantized::Weights);
  EXPECT_EQ(job->goal.blockTokens, 32);
  EXPECT_EQ(job->policy.name, "interval");
  EXPECT_FALSE(job->policy.none);
  EXPECT_EQ(job->policy.interval, 3);
  EXPECT_EQ(job->policy.offloadLayers, std::nullopt);
  EXPECT_EQ(job->policy.startRule, StartRule::Paper);
  EXPECT_EQ(job->policy.slots, 2);
  EXPECT_EQ(job->policy.kvPlaces, 3);
  EXPECT_EQ(job->policy.offloadEmbedding, AutoOnOff::On);
  EXPECT_EQ(job->policy.kvWriteBack, KvWriteBack::Dirty);
  EXPECT_EQ(job->policy.residuals, Residuals::Host);
  EXPECT_EQ(job->policy.offloadHead, AutoOnOff::Off);
  EXPECT_THAT(job->buckets.newTokens, ElementsAre(1, 8, 512));
  EXPECT_THAT(job->buckets.sequences, ElementsAre(1, 8));
  EXPECT_THAT(job->buckets.contexts, ElementsAre(16, 64));
}

TEST(JobFile, AnEmptyFileLeavesEverythingOpen) {
  const auto job = parseJob("", "job.toml");
  ASSERT_TRUE(job.ok()) << messageOf(job);
  EXPECT_FALSE(job->model || job->hardware || job->goal.deviceMemory || job->goal.batch || job->goal.context ||
               job->goal.kvTokens || job->goal.kvDeviceMemory || job->goal.kvHostMemory || job->goal.kvEncoding ||
               job->goal.expansion || job->policy.interval || job->policy.offloadLayers || job->policy.slots ||
               job->policy.none);
  EXPECT_EQ(job->goal.blockTokens, 16);
  EXPECT_EQ(job->policy.startRule, StartRule::Eager);
  EXPECT_EQ(job->policy.offloadHead, AutoOnOff::Auto);
  EXPECT_TRUE(job->buckets.newTokens.empty());
}

TEST(JobFile, ReadsTheOtherSpellings) {
  const auto job = parseJob("[goal]\ndevice_memory = \"1000B\"\nkv_dtype = \"auto\"\n[policy]\ninterval = \"none\"\n"
                            "offload_embedding = \"auto\"\noffload_head = false\n",
                            "job.toml");
  ASSERT_TRUE(job.ok()) << messageOf(job);
  EXPECT_EQ(job->goal.deviceMemory, 1000u);
  EXPECT_EQ(job->goal.kvEncoding, std::nullopt);
  EXPECT_EQ(job->goal.elasticKv, AutoOnOff::Auto);
  EXPECT_EQ(parseJob("[goal]\nelastic_kv = true\n", "job.toml")->goal.elasticKv, AutoOnOff::On);
  EXPECT_EQ(job->goal.instances, Instances::Together);
  EXPECT_EQ(parseJob("[goal]\ninstances = \"apart\"\n", "job.toml")->goal.instances, Instances::Apart);
  EXPECT_EQ(parseJob("[goal]\nelastic_kv = false\n", "job.toml")->goal.elasticKv, AutoOnOff::Off);
  EXPECT_TRUE(job->policy.none);
  EXPECT_EQ(job->policy.offloadHead, AutoOnOff::Off);
  EXPECT_EQ(parseJob("[policy]\noffload_layers = 0\n", "job.toml")->policy.offloadLayers, 0);
}

TEST(JobFile, ReadsAShapeAndHardwareInline) {
  const auto job =
      parseJob(std::string("[model]\nname = \"mine\"\n") + kShape +
                   "[hardware]\nname = \"box\"\nkind = \"host\"\nmemory = \"1GiB\"\nhost_memory = \"1GiB\"\n"
                   "flops_f32 = \"1GFLOP/s\"\nflops_f16 = \"1GFLOP/s\"\nmemory_bandwidth = \"1GB/s\"\n"
                   "h2d_bandwidth = \"1GB/s\"\nd2h_bandwidth = \"1GB/s\"\nduplex_bandwidth = \"1GB/s\"\n"
                   "copy_latency = \"0s\"\nlaunch_overhead = \"0s\"\n"
                   "flops_efficiency = 1\nmemory_efficiency = 1\n",
               "job.toml");
  ASSERT_TRUE(job.ok()) << messageOf(job);
  EXPECT_EQ(job->model->spec->name, "mine");
  EXPECT_EQ(job->model->path, "");
  EXPECT_EQ(job->hardware->kind, DeviceKind::Host);
}

TEST(JobFile, ReadsAModelFolder) {
  const TempFolder folder;
  folder.write("opt/config.json", "{\"model_type\": \"opt\"}");
  const auto job = parseJob("model.path = \"opt\"", folder.file("job.toml"));
  ASSERT_TRUE(job.ok()) << messageOf(job);
  EXPECT_EQ(job->model->spec->name, "opt");
  EXPECT_EQ(job->model->checkpoint, nullptr);
}

TEST(JobFile, TheShippedJobsRead) {
  for (const char *name : {"opt-6.7b-on-a10", "llama-3.1-8b-in-8gib", "tiny-on-host", "four-layers"}) {
    const auto job = readJob(sourceDir() + "/examples/jobs/" + name + ".toml");
    ASSERT_TRUE(job.ok()) << messageOf(job);
    EXPECT_TRUE(job->model && job->hardware) << name;
  }
}

TEST(JobFile, RefusesUnknownKeysAndSections) {
  for (const char *count : {"0", "65", "-1", "\"4\""})
    expectRefused(std::string("[goal]\nmini_batches = ") + count + "\n",
                  std::string("2: goal.mini_batches = ") + count + ": expected an integer from 1 to 64, or \"auto\"");
  expectRefused("[goals]\nbatch = 1\n",
                "1: goals: unknown key: expected one of buckets, goal, hardware, model, policy; did you mean goal?");
  expectRefused("[goal]\nslo = \"50ms\"\n",
                "2: goal.slo: unknown key: expected one of allow_quantized, batch, block_tokens, bus_devices, context, "
                "device_memory, "
                "elastic_kv, expansion, input_len, instances, kv_device_memory, kv_dtype, kv_host_memory, kv_tokens, "
                "mini_batches, output_len, record, "
                "slo_factor, tpot, "
                "ttft; did you mean slo_factor?");
  expectRefused("[policy]\nintervals = 3\n",
                "2: policy.intervals: unknown key: expected one of act_home, act_ratio, attention, "
                "interval, kv_places, kv_write_back, name, "
                "offload_embedding, "
                "offload_head, offload_layers, percent, placements, prefer, residuals, slots, start_rule; did you mean "
                "interval?");
  expectRefused("[buckets]\nbatch = [1]\n",
                "2: buckets.batch: unknown key: expected one of contexts, new_tokens, sequences");
  expectRefused("goal = 3\n", "1: goal = 3: expected a table");
  expectRefused("[[goal]]\nbatch = 3\n", "1: goal = [{...}]: expected a table");
  EXPECT_THAT(messageOf(parseJob("[goal\n", "job.toml")), testing::StartsWith("job.toml:1: expected TOML: "));
}

TEST(JobFile, RefusesBadGoals) {
  expectRefused(
      "[goal]\ndevice_memory = \"8g\"\n",
      "2: goal.device_memory = \"8g\": expected bytes with their unit, such as \"8GiB\", \"512MiB\", \"24GB\" or "
      "\"4096B\", below "
      "2^63");
  expectRefused("[goal]\ndevice_memory = \"0GiB\"\n", " goal.device_memory = 0: expected a positive number of bytes");
  expectRefused("[goal]\ndevice_memory = -1\n", "2: goal.device_memory = -1: expected bytes with their unit, such as "
                                                "\"8GiB\", \"512MiB\", \"24GB\" or \"4096B\", below 2^63");
  expectRefused("[goal]\nbatch = 0\n", "2: goal.batch = 0: expected an integer from 1 to 1048576");
  expectRefused("[goal]\nbatch = \"8\"\n", "2: goal.batch = \"8\": expected an integer from 1 to 1048576");
  expectRefused("[goal]\ncontext = -1\n", "2: goal.context = -1: expected an integer from 1 to 2147483647");
  expectRefused("[goal]\nkv_tokens = 0\n", "2: goal.kv_tokens = 0: expected an integer from 1 to 1099511627776");
  expectRefused("[goal]\nkv_tokens = 100\ncontext = 200\n",
                " goal.kv_tokens = 100: expected at least goal.context = 200");
  for (const std::string key : {"kv_device_memory", "kv_host_memory"})
    expectRefused("[goal]\n" + key + " = 5\n",
                  "2: goal." + key +
                      " = 5: expected bytes with their unit, such as \"8GiB\", \"512MiB\", \"24GB\" or "
                      "\"4096B\", below 2^63");
  EXPECT_EQ(parseJob("[goal]\nkv_host_memory = \"0B\"\n", "job.toml")->goal.kvHostMemory, 0u); // none leave the device
  expectRefused("[goal]\ndevice_memory = \"1GiB\"\nkv_device_memory = \"2GiB\"\n",
                " goal.kv_device_memory = 2147483648: expected at most goal.device_memory = 1073741824");
  EXPECT_EQ(parseJob("[goal]\nexpansion = \"auto\"\n", "job.toml")->goal.expansion, kAutoExpansion);
  EXPECT_EQ(parseJob("[goal]\nexpansion = 1\n", "job.toml")->goal.expansion, 1);
  EXPECT_EQ(parseJob("[goal]\nexpansion = 2.08\n", "job.toml")->goal.expansion, 2.08);
  for (const std::string value : {"0", "0.99", "-1", "1e7", "nan", "\"on\"", "true"})
    EXPECT_THAT(messageOf(parseJob("[goal]\nexpansion = " + value + "\n", "job.toml")),
                testing::HasSubstr(": expected \"auto\", or all KV by that on the device, from 1 to 1e6"))
        << value;
  expectRefused("[goal]\nkv_tokens = \"auto\"\nkv_device_memory = \"1GiB\"\n",
                " goal.kv_tokens = \"auto\": expected no goal.kv_device_memory beside it: it is what memory is left");
  expectRefused("[goal]\nkv_tokens = \"auto\"\n[policy]\nkv_places = 4\n",
                " goal.kv_tokens = \"auto\": expected no policy.kv_places beside it: caches that cycle have places on "
                "the host");
  expectRefused("[goal]\nkv_tokens = \"auto\"\n[policy]\nprefer = \"throughput\"\n",
                " goal.kv_tokens = \"auto\": expected no policy.prefer = \"throughput\" beside it: the batch that is "
                "found has KV for all of it");
  expectRefused("[goal]\nexpansion = 1.5\nkv_tokens = 100\nkv_device_memory = \"1GiB\"\n",
                " goal.expansion = 1.5: expected goal.kv_tokens or goal.kv_device_memory beside it, not both: each "
                "follows from the other");
  for (const char *wrong : {"fp8", "q3", "q4:32", "q8_0", ""}) // a group follows from the head size
    expectRefused(
        cat("[goal]\nkv_dtype = \"", wrong, "\"\n"),
        cat("2: goal.kv_dtype = \"", wrong, "\": expected \"auto\", \"f32\", \"f16\", \"bf16\", \"q8\" or \"q4\""));
  expectRefused("[goal]\nelastic_kv = \"often\"\n", "2: goal.elastic_kv = \"often\": expected auto, on or off");
  expectRefused("[goal]\nblock_tokens = 0\n", "2: goal.block_tokens = 0: expected an integer from 1 to 4096");
  expectRefused(std::string("[model]\n") + kShape + "[goal]\ncontext = 65\n",
                " goal.context = 65: expected at most the 64 positions of inline");
}

TEST(JobFile, RefusesBadPolicies) {
  const std::string interval = ": expected an integer from 1 to 2000 (at most the model's layers), or \"none\"";
  expectRefused("[policy]\ninterval = 0\n", "2: policy.interval = 0" + interval);
  expectRefused("[policy]\ninterval = -2\n", "2: policy.interval = -2" + interval);
  expectRefused("[policy]\ninterval = 2.5\n", "2: policy.interval = 2.5" + interval);
  expectRefused("[policy]\ninterval = \"all\"\n", "2: policy.interval = \"all\"" + interval);
  expectRefused("[policy]\noffload_layers = -1\n", "2: policy.offload_layers = -1: expected an integer from 0 to 2000");
  expectRefused("[policy]\nstart_rule = \"lazy\"\n",
                "2: policy.start_rule = \"lazy\": expected \"paper\" or \"eager\"");
  expectRefused("[policy]\nslots = 0\n", "2: policy.slots = 0: expected an integer from 1 to 65536");
  expectRefused("[policy]\nresiduals = \"disk\"\n", "2: policy.residuals = \"disk\": expected device or host");
  expectRefused("[policy]\nkv_places = 1\n", "2: policy.kv_places = 1: expected an integer from 2 to 2000");
  expectRefused("[policy]\noffload_head = \"maybe\"\n", "2: policy.offload_head = \"maybe\": expected auto, on or off");
  expectRefused("[policy]\nkv_write_back = \"never\"\n",
                "2: policy.kv_write_back = \"never\": expected auto, mirror, all or dirty");
  expectRefused("[policy]\noffload_embedding = 1\n", "2: policy.offload_embedding = 1: expected a string");
  expectRefused("[policy]\nname = \"\"\n", " policy.name = \"\": expected a policy's name");
  expectRefused("[policy]\nplacements = 0\n", "2: policy.placements = 0: expected an integer from 1 to 64");
}

TEST(JobFile, ReadsLatencyObjectives) {
  const auto job = parseJob("[goal]\nttft = \"1.5s\"\ntpot = \"52.312345ms\"\nbus_devices = 2\nrecord = \"r.toml\"\n"
                            "[policy]\nplacements = 8\n",
                            "jobs/job.toml");
  ASSERT_TRUE(job.ok()) << messageOf(job);
  EXPECT_EQ(job->goal.ttft, std::chrono::nanoseconds(1'500'000'000));
  EXPECT_EQ(job->goal.tpot, std::chrono::nanoseconds(52'312'345));
  EXPECT_EQ(job->goal.busDevices, 2);
  EXPECT_EQ(job->goal.record, "jobs/r.toml"); // beside the job
  EXPECT_EQ(job->policy.placements, 8);
  EXPECT_EQ(parseJob("[goal]\ncontext = \"8k\"\nkv_tokens = \"8K\"\n", "job.toml")->goal.kvTokens, 8192);
  const auto any = parseJob("[goal]\nkv_tokens = \"auto\"\n", "job.toml");
  EXPECT_TRUE(any->goal.autoKvTokens && !any->goal.kvTokens);
  EXPECT_EQ(parseJob("[goal]\nslo_factor = 1.5\n", "job.toml")->goal.sloFactor, 1.5);
  EXPECT_EQ(parseJob("[goal]\nslo_factor = 1\n", "job.toml")->goal.sloFactor, 1.0);
}

TEST(JobFile, ReadsTheLengthsThatATtftIsOf) {
  const auto lengthOf = [](const std::string &goal) {
    const auto job = parseJob("[goal]\n" + goal, "job.toml");
    EXPECT_TRUE(job.ok()) << messageOf(job);
    return job->goal.promptLength(100);
  };
  EXPECT_EQ(lengthOf("input_len = 60\noutput_len = 30\n"), 60);
  EXPECT_EQ(lengthOf("output_len = 30\n"), 70);
  EXPECT_EQ(lengthOf(""), 99); // one token of output
  EXPECT_EQ(lengthOf("output_len = 200\n"), 1);
  expectRefused("[goal]\ninput_len = 0\n", "2: goal.input_len = 0: expected an integer from 1 to 2147483647");
  expectRefused("[goal]\noutput_len = 0\n", "2: goal.output_len = 0: expected an integer from 1 to 2147483647");
  expectRefused("[goal]\ncontext = 64\ninput_len = 60\noutput_len = 5\n",
                " goal.input_len = 60: expected with 5 of output at most goal.context = 64");
  expectRefused("[goal]\ncontext = 64\ninput_len = 64\n",
                " goal.input_len = 64: expected with 1 of output at most goal.context = 64");
  expectRefused("[goal]\ncontext = 64\noutput_len = 64\n",
                " goal.output_len = 64: expected less than goal.context = 64");
}

TEST(JobFile, RefusesBadLatencyObjectives) {
  for (const std::string key : {"ttft", "tpot"}) {
    const std::string time = ": expected a time above zero such as \"50ms\", at most 1e6 s";
    for (const std::string bare : {"0", "50", "0.05", "-1", "nan", "inf"})
      expectRefused("[goal]\n" + key + " = " + bare + "\n",
                    "2: goal." + key + " = " + bare +
                        ": expected a time with its unit (ns, us, ms or s), such as \"5us\", \"1.5ms\" or \"2s\"");
    expectRefused("[goal]\n" + key + " = \"0ms\"\n", "2: goal." + key + " = \"0ms\"" + time);
    EXPECT_FALSE(parseJob("[goal]\n" + key + " = \"-5ms\"\n", "job.toml").ok());
    EXPECT_FALSE(parseJob("[goal]\n" + key + " = \"nan\"\n", "job.toml").ok());
    EXPECT_FALSE(parseJob("[goal]\n" + key + " = \"fast\"\n", "job.toml").ok());
  }
  const std::string factor = ": expected a factor of the time without offloading, from 1 to 1e6";
  for (const std::string value : {"0", "0.99", "-1.5"})
    expectRefused("[goal]\nslo_factor = " + value + "\n", "2: goal.slo_factor = " + value + factor);
  expectRefused("[goal]\nslo_factor = nan\n", "2: goal.slo_factor = nan: expected a finite number");
  expectRefused("[goal]\ntpot = \"50ms\"\nslo_factor = 1.5\n",
                " goal.tpot = 50 ms: expected either a time or goal.slo_factor, not both");
  expectRefused("[goal]\nttft = \"50ms\"\nslo_factor = 1.5\n",
                " goal.ttft = 50 ms: expected either a time or goal.slo_factor, not both");
  expectRefused("[goal]\ninstances = \"two\"\n", "2: goal.instances = \"two\": expected \"together\" or \"apart\"");
  expectRefused("[goal]\nbus_devices = 0\n", "2: goal.bus_devices = 0: expected an integer from 1 to 64");
  expectRefused("[goal]\nrecord = \"\"\n", "2: goal.record = \"\": expected a performance record's file");
}

TEST(JobFile, RefusesContradictingPolicies) {
  expectRefused("[policy]\ninterval = 4\noffload_layers = 2\n",
                " policy.offload_layers = 2: expected not to stand beside policy.interval = 4");
  expectRefused("[policy]\ninterval = \"none\"\noffload_layers = 2\n",
                " policy.offload_layers = 2: expected 0 beside policy.interval = \"none\"");
  EXPECT_TRUE(parseJob("[policy]\ninterval = \"none\"\noffload_layers = 0\n", "job.toml").ok());
  expectRefused(
      "[policy]\ninterval = \"none\"\noffload_embedding = true\n",
      " policy.offload_embedding = true: expected \"auto\" or false beside policy.interval = \"none\": nothing "
      "is offloaded");
  expectRefused("[policy]\ninterval = \"none\"\noffload_head = \"on\"\n",
                " policy.offload_head = true: expected \"auto\" or false beside policy.interval = \"none\": nothing is "
                "offloaded");
  const std::string model = std::string("[model]\n") + kShape;
  EXPECT_TRUE(parseJob(model + "[policy]\ninterval = 4\n", "job.toml").ok());
  expectRefused(model + "[policy]\ninterval = 5\n",
                " policy.interval = 5: expected at most the 4 layers of inline, or \"none\"");
  expectRefused(model + "[policy]\noffload_layers = 5\n",
                " policy.offload_layers = 5: expected at most the 4 layers of inline");
}

TEST(JobFile, RefusesBadBuckets) {
  const std::string list = ": expected a list of integers from 1 to 2147483647";
  expectRefused("[buckets]\nsequences = 8\n", "2: buckets.sequences = 8" + list);
  expectRefused("[buckets]\nsequences = [1, 0]\n", "2: buckets.sequences = [1, 0]" + list);
  expectRefused("[buckets]\nnew_tokens = [1, \"a\"]\n", "2: buckets.new_tokens = [1, \"a\"]" + list);
  expectRefused("[buckets]\ncontexts = []\n", "2: buckets.contexts = []: expected at least one size");
  expectRefused("[buckets]\nsequences = [8, 4]\n", " buckets.sequences = 4: expected ascending sizes, it follows 8");
  expectRefused("[buckets]\nnew_tokens = [4, 4]\n", " buckets.new_tokens = 4: expected ascending sizes, it follows 4");
  expectRefused(std::string("[model]\n") + kShape + "[buckets]\ncontexts = [16, 128]\n",
                " buckets.contexts = 128: expected at most the 64 positions of inline");
}

TEST(JobFile, RefusesBadModels) {
  expectRefused("[model]\n",
                "1: model.family is missing: expected \"opt\", \"llama\", \"qwen2\", \"mistral\" or \"qwen3\"");
  expectRefused(std::string("[model]\n") + kShape + "kv_heads = 3\n", " kv_heads = 3: expected a divisor of heads = 8");
  expectRefused("[model]\npath = \"a\"\nshape = \"b\"\n",
                "3: model.shape: unknown key: expected one of path, weight_encoding");
  expectRefused("[model]\nshape = \"opt-6.7b\"\nlayers = 3\n",
                "3: model.layers: unknown key: expected one of shape, weight_encoding");
  expectRefused("[model]\npath = 3\n", "2: model.path = 3: expected a string");
  EXPECT_REFUSED(parseJob("[model]\npath = \"no/such\"\n", "job.toml"), absl::StatusCode::kNotFound,
                 "job.toml:2: model.path: \"no/such\": no such file or folder");
  const TempFolder folder;
  folder.write("opt/config.json", "{\"model_type\": \"gpt2\"}");
  folder.write("bad.toml", "family = 3\n");
  EXPECT_REFUSED(parseJob("[model]\nshape = \"opt\"\n", folder.file("job.toml")), absl::StatusCode::kInvalidArgument,
                 folder.file("job.toml") +
                     ":2: model.shape = \"opt\": expected a shape's .toml file: a folder is given as path");
  EXPECT_REFUSED(parseJob("[model]\npath = \"opt\"\n", folder.file("job.toml")), absl::StatusCode::kInvalidArgument,
                 folder.file("job.toml") + ":2: model.path: " + folder.file("opt/config.json") +
                     ": model_type = \"gpt2\": expected opt, llama, qwen2, mistral or qwen3");
  EXPECT_REFUSED(
      parseJob("[model]\nshape = \"bad.toml\"\n", folder.file("job.toml")), absl::StatusCode::kInvalidArgument,
      folder.file("job.toml") + ":2: model.shape: " + folder.file("bad.toml") + ":1: family = 3: expected a string");
}

TEST(JobFile, RefusesBadHardware) {
  EXPECT_REFUSED(parseJob("[hardware]\nfile = \"./gone.toml\"\n", "job.toml"), absl::StatusCode::kNotFound,
                 "job.toml:2: hardware.file: \"./gone.toml\": no such file or folder");
  expectRefused("[hardware]\nfile = \"a10\"\nspeed = 3\n",
                "3: hardware.speed: unknown key: expected one of attention_overhead, copy_latency, cpu_core_bandwidth, "
                "cpu_cores, cpu_flops, cpu_memory_bandwidth, d2h_bandwidth, "
                "decode_attention_memory_efficiency, duplex_bandwidth, file, flops_efficiency, flops_f16, flops_f32, "
                "gpus, h2d_bandwidth, host_memory, kind, launch_overhead, link_efficiency, memory, memory_bandwidth, "
                "memory_bandwidth_limit, memory_efficiency, name, peer_bandwidth, plain_attention_flops_efficiency, "
                "prefill_attention_flops_efficiency, prefill_attention_ramp, product_flops_efficiency, "
                "product_memory_efficiency, read_kv_flops_efficiency, reserve, row_memory_efficiency, threads, "
                "unpack_flops_efficiency");
  expectRefused("[hardware]\nkind = \"cuda\"\n", "1: hardware.memory is missing: expected bytes with their unit, such "
                                                 "as \"8GiB\", \"512MiB\", \"24GB\" or \"4096B\", below 2^63");
  expectRefused("[hardware]\nfile = \"a10\"\nduplex_bandwidth = \"100GB/s\"\n",
                " duplex_bandwidth = 100GB/s: expected from 24GB/s, the faster direction, to 48GB/s, h2d_bandwidth + "
                "d2h_bandwidth");
  expectRefused("[hardware]\nfile = \"a10\"\nh2d_bandwidth = 24\n",
                "3: hardware.h2d_bandwidth = 24: expected a positive bandwidth with its unit, such as \"24GB/s\", "
                "\"800MB/s\" or \"1.5GiB/s\"");
  expectRefused("[goal]\ndevice_memory = 8000000000\n",
                "2: goal.device_memory = 8000000000: expected bytes with their unit, such as \"8GiB\", \"512MiB\", "
                "\"24GB\" or \"4096B\", below 2^63");
}

TEST(JobFile, ALinkIsScaledByItsFirstDirection) { // the profile: 24 GB/s each way, 36 together
  const auto linkOf = [](const std::string &keys) {
    const auto job = parseJob("[hardware]\nfile = \"a10\"\n" + keys, "job.toml");
    EXPECT_TRUE(job.ok()) << messageOf(job);
    return std::array{job->hardware->h2dBandwidth, job->hardware->d2hBandwidth, job->hardware->duplexBandwidth};
  };
  EXPECT_EQ(linkOf(""), (std::array{24e9, 24e9, 36e9}));
  EXPECT_EQ(linkOf("h2d_bandwidth = \"48GB/s\"\n"), (std::array{48e9, 48e9, 72e9}));
  EXPECT_EQ(linkOf("h2d_bandwidth = \"48GB/s\"\nd2h_bandwidth = \"24GB/s\"\n"), (std::array{48e9, 24e9, 54e9}));
  EXPECT_EQ(linkOf("d2h_bandwidth = \"12GB/s\"\n"), (std::array{24e9, 12e9, 27e9}));
  EXPECT_EQ(linkOf("h2d_bandwidth = \"48GB/s\"\nduplex_bandwidth = \"50GB/s\"\n"), (std::array{48e9, 48e9, 50e9}));
  // Never below the faster direction: 24 + 240 together are 198 by the profile's share, and h2d alone 240.
  EXPECT_EQ(linkOf("h2d_bandwidth = \"240GB/s\"\nd2h_bandwidth = \"24GB/s\"\n"), (std::array{240e9, 24e9, 240e9}));
}

TEST(JobFile, RefusesAMissingFile) {
  EXPECT_REFUSED(readJob("gone.toml"), absl::StatusCode::kNotFound, "gone.toml: no such file");
}

TEST(ValidateJob, ChecksWhatFlagsHaveChanged) {
  Job job;
  EXPECT_TRUE(validate(job, "command line").ok());
  job.policy.interval = 0;
  EXPECT_REFUSED(validate(job, "command line"), absl::StatusCode::kInvalidArgument,
                 "command line: policy.interval = 0: expected at least 1, or \"none\"");
  job.policy.interval = 2;
  job.policy.none = true;
  EXPECT_REFUSED(validate(job, "command line"), absl::StatusCode::kInvalidArgument,
                 "command line: policy.interval = 2: expected no other interval beside \"none\"");
  job.policy = {};
  job.policy.offloadLayers = -1;
  EXPECT_REFUSED(validate(job, "command line"), absl::StatusCode::kInvalidArgument,
                 "command line: policy.offload_layers = -1: expected 0 or more");
  job.policy = {};
  job.policy.slots = 0;
  EXPECT_REFUSED(validate(job, "command line"), absl::StatusCode::kInvalidArgument,
                 "command line: policy.slots = 0: expected at least 1");
  job.policy = {};
  job.policy.kvPlaces = 1;
  EXPECT_REFUSED(validate(job, "command line"), absl::StatusCode::kInvalidArgument,
                 "command line: policy.kv_places = 1: expected at least 2: one is filled while the other is in use");
  job.policy = {};
  job.goal.batch = 0;
  EXPECT_REFUSED(validate(job, "command line"), absl::StatusCode::kInvalidArgument,
                 "command line: goal.batch = 0: expected at least 1");
  job.goal = {};
  job.goal.blockTokens = 0;
  EXPECT_REFUSED(validate(job, "command line"), absl::StatusCode::kInvalidArgument,
                 "command line: goal.block_tokens = 0: expected at least 1");
  job.goal = {};
  job.goal.context = 0;
  EXPECT_REFUSED(validate(job, "command line"), absl::StatusCode::kInvalidArgument,
                 "command line: goal.context = 0: expected at least 1");
  job.goal = {};
  job.buckets.contexts = {0};
  EXPECT_REFUSED(validate(job, "command line"), absl::StatusCode::kInvalidArgument,
                 "command line: buckets.contexts = 0: expected sizes of at least 1");
}

TEST(Names, RoundTrip) {
  for (StartRule rule : {StartRule::Paper, StartRule::Eager})
    EXPECT_EQ(startRuleFromName(startRuleName(rule)), rule);
  for (AutoOnOff choice : {AutoOnOff::Auto, AutoOnOff::On, AutoOnOff::Off})
    EXPECT_EQ(autoOnOffFromName(autoOnOffName(choice)), choice);
  EXPECT_EQ(startRuleFromName("x"), std::nullopt);
}

} // namespace
} // namespace headrace::model
