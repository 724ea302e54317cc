// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/JobFlags.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/job/TomlText.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/model/Shape.h"
#include "runtime/model/WeightLayout.h"
#include "tests/support/SourceDir.h"

namespace headrace::tools {
namespace {

using model::hardwareEntries;
using model::shapeEntries;
using model::toToml;
using testing::ElementsAre;
using testing::HasSubstr;

// 4 layers of llama, hidden 64, and hardware with 1000 bytes of device memory.
constexpr const char *kShape =
    "family = \"llama\"\nlayers = 4\nhidden = 64\nheads = 4\nkv_heads = 2\nintermediate = 128\n"
    "vocab = 100\nmax_positions = 256\n";
constexpr const char *kHardware =
    "name = \"small\"\nkind = \"host\"\nmemory = \"1000B\"\nhost_memory = \"100000B\"\n"
    "flops_f32 = \"1FLOP/s\"\nflops_f16 = \"1FLOP/s\"\n"
    "memory_bandwidth = \"1B/s\"\nh2d_bandwidth = \"1GB/s\"\nd2h_bandwidth = \"1GB/s\"\nduplex_bandwidth = \"2GB/s\"\n"
    "copy_latency = \"0s\"\n"
    "launch_overhead = \"0s\"\nflops_efficiency = 1\nmemory_efficiency = 1\n";

class JobFlags : public testing::Test {
protected:
  JobFlags() {
    char name[] = "/tmp/headrace-flags-XXXXXX";
    folder = ::mkdtemp(name);
    write("shape.toml", kShape);
    write("small.toml", kHardware);
    input.source = folder + "/shape.toml";
    input.hardwareFlag = folder + "/small.toml";
  }
  ~JobFlags() override { std::filesystem::remove_all(folder); }
  void write(const std::string &name, const std::string &text) { std::ofstream(folder + "/" + name) << text; }
  void useJob(const std::string &text) {
    write("job.toml", "[model]\nshape = \"shape.toml\"\n[hardware]\nfile = \"small.toml\"\n" + text);
    input = {};
    input.source = folder + "/job.toml";
  }
  model::Job job() {
    auto assembled = assembleJob(input);
    EXPECT_TRUE(assembled.ok()) << assembled.status();
    if (!assembled.ok())
      return {};
    notes = assembled->notes;
    return assembled->job;
  }
  std::string refusal() {
    const absl::Status status = assembleJob(input).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  }

  std::string folder;
  JobInput input;
  std::vector<std::string> notes;
};

TEST_F(JobFlags, EveryKeyIsReadBackAsItWasWritten) {
  const model::ModelSpec spec = job().model->spec;
  const auto again = model::parseShape(toToml(shapeEntries(spec)), "again");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(shapeEntries(*again), shapeEntries(spec));
  const auto hardware = model::parseHardware(toToml(hardwareEntries(*job().hardware)), "again");
  ASSERT_TRUE(hardware.ok()) << hardware.status();
  EXPECT_EQ(hardwareEntries(*hardware), hardwareEntries(*job().hardware));
}

TEST_F(JobFlags, ShapesOfEveryFamilyAreReadBackAsTheyWereWritten) {
  for (const char *text :
       {"family = \"opt\"\nlayers = 1\nhidden = 64\nheads = 4\nintermediate = 8\nvocab = 9\nmax_positions = 9\n",
        "family = \"qwen2\"\nlayers = 1\nhidden = 64\nheads = 4\nintermediate = 8\nvocab = 9\nmax_positions = 9\n"
        "rope_scaling = { type = \"linear\", factor = 2.5 }\n",
        "family = \"qwen3\"\nlayers = 1\nhidden = 64\nheads = 4\nintermediate = 8\nvocab = 9\nmax_positions = 9\n",
        "family = \"qwen3\"\nlayers = 1\nhidden = 64\nheads = 4\nintermediate = 8\nvocab = 9\nmax_positions = 9\n"
        "qk_norm = false\n",
        "family = \"mistral\"\nlayers = 1\nhidden = 64\nheads = 4\nintermediate = 8\nvocab = 9\nmax_positions = 9\n"
        "qk_norm = true\n",
        "family = \"llama\"\nlayers = 1\nhidden = 64\nheads = 4\nintermediate = 8\nvocab = 9\nmax_positions = 9\n"
        "rope_theta = 500000.0\nrope_scaling = { type = \"llama3\", factor = 8.0, low_freq_factor = 1.0, "
        "high_freq_factor = 4.0, "
        "original_max_positions = 8192 }\n",
        "family = \"llama\"\nlayers = 1\nhidden = 64\nheads = 4\nintermediate = 64\nvocab = 9\nmax_positions = 9\n"
        "weight_encoding = \"qkv=q4,head=q8:32\"\n"}) {
    const auto spec = model::parseShape(text, "shape");
    ASSERT_TRUE(spec.ok()) << spec.status();
    const auto again = model::parseShape(toToml(shapeEntries(*spec)), "again");
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(shapeEntries(*again), shapeEntries(*spec));
    EXPECT_EQ(again->qkNorm, spec->qkNorm);
    EXPECT_EQ(again->encodings, spec->encodings);
  }
}

TEST_F(JobFlags, EveryFlagReachesItsKey) {
  input.flags = {{"--device-memory", "512B"},   {"--batch", "3"},          {"--context", "128"},
                 {"--kv-tokens", "999"},        {"--kv-dtype", "f16"},     {"--block-tokens", "32"},
                 {"--offload-layers", "2"},     {"--start-rule", "paper"}, {"--slots", "2"},
                 {"--offload-embedding", "on"}, {"--offload-head", "off"}, {"--new-tokens", "1,8,64"},
                 {"--sequences", "1, 3"},       {"--contexts", "128"}};
  const model::Job j = job();
  EXPECT_EQ(j.goal.deviceMemory, 512u);
  EXPECT_EQ(j.goal.batch, 3);
  EXPECT_EQ(j.goal.context, 128);
  EXPECT_EQ(j.goal.kvTokens, 999);
  EXPECT_EQ(j.goal.kvEncoding, model::DType::F16);
  EXPECT_EQ(j.goal.blockTokens, 32);
  EXPECT_EQ(j.policy.offloadLayers, 2);
  EXPECT_EQ(j.policy.startRule, model::StartRule::Paper);
  EXPECT_EQ(j.policy.slots, 2);
  EXPECT_EQ(j.policy.offloadEmbedding, model::AutoOnOff::On);
  EXPECT_EQ(j.policy.offloadHead, model::AutoOnOff::Off);
  EXPECT_THAT(j.buckets.newTokens, ElementsAre(1, 8, 64));
  EXPECT_THAT(j.buckets.sequences, ElementsAre(1, 3));
  EXPECT_THAT(j.buckets.contexts, ElementsAre(128));
}

TEST_F(JobFlags, FlagsWinOverTheFile) {
  useJob("[goal]\nbatch = 2\ncontext = 64\n[policy]\ninterval = 2\nstart_rule = \"paper\"\n");
  input.flags = {{"--batch", "5"}};
  EXPECT_EQ(job().goal.batch, 5);
  EXPECT_EQ(job().goal.context, 64);
  EXPECT_EQ(job().policy.interval, 2);
  EXPECT_EQ(job().policy.startRule, model::StartRule::Paper);
}

TEST_F(JobFlags, APolicyFlagReplacesTheFilesStartRule) {
  useJob("[policy]\nstart_rule = \"paper\"\n");
  EXPECT_EQ(job().policy.startRule, model::StartRule::Paper);
  input.flags = {{"--policy", "deepspeed"}};
  EXPECT_FALSE(job().policy.startRuleStated);
  input.flags = {{"--policy", "interval"}};
  EXPECT_EQ(job().policy.startRule, model::StartRule::Paper);
}

TEST_F(JobFlags, AnIntervalFlagReplacesTheFilesNumberOfLayersAndTheOtherWayRound) {
  useJob("[policy]\noffload_layers = 2\noffload_embedding = true\n");
  input.flags = {{"--interval", "4"}};
  EXPECT_EQ(job().policy.interval, 4);
  EXPECT_FALSE(job().policy.offloadLayers.has_value());
  input.flags = {{"--interval", "none"}};
  EXPECT_TRUE(job().policy.none);
  EXPECT_EQ(job().policy.offloadEmbedding, model::AutoOnOff::Auto);
  useJob("[policy]\ninterval = 2\n");
  input.flags = {{"--offload-layers", "3"}};
  EXPECT_EQ(job().policy.offloadLayers, 3);
  EXPECT_FALSE(job().policy.interval.has_value());
}

TEST_F(JobFlags, AFlagReplacesWhatTheFileSaysOfItsKey) {
  useJob("[goal]\nkv_dtype = \"f16\"\nelastic_kv = true\ntpot = \"50ms\"\n[policy]\ninterval = \"none\"\n[buckets]\n"
         "sequences = [1, 2]\ncontexts = [64]\n");
  EXPECT_EQ(job().goal.kvEncoding, model::DType::F16);
  EXPECT_TRUE(job().policy.none);
  input.flags = {{"--kv-dtype", "auto"}, {"--elastic-kv", "auto"}, {"--interval", "2"}, {"--sequences", "4"}};
  EXPECT_EQ(job().goal.kvEncoding, std::nullopt);
  EXPECT_EQ(job().goal.elasticKv, model::AutoOnOff::Auto);
  EXPECT_FALSE(job().policy.none);
  EXPECT_EQ(job().policy.interval, 2);
  EXPECT_THAT(job().buckets.sequences, ElementsAre(4));
  EXPECT_THAT(job().buckets.contexts, ElementsAre(64)); // as the file has it
  EXPECT_EQ(job().goal.tpot, std::chrono::milliseconds(50));
  input.flags = {{"--offload-layers", "1"}};
  EXPECT_FALSE(job().policy.none);
  EXPECT_EQ(job().policy.offloadLayers, 1);
  input.flags = {{"--slo-factor", "2"}};
  EXPECT_EQ(job().goal.tpot, std::nullopt);
  input.flags = {{"--ttft", "1s"}};
  EXPECT_EQ(job().goal.tpot, std::chrono::milliseconds(50));
  EXPECT_EQ(job().goal.ttft, std::chrono::seconds(1));
}

// Whether a contradiction is between two flags, or a flag and the file, it names what was given.
TEST_F(JobFlags, ARefusalNamesWhereItsKeyWasGiven) {
  useJob("[goal]\ncontext = 200\nkv_tokens = 300\n");
  input.flags = {{"--kv-tokens", "100"}};
  EXPECT_EQ(refusal(), "command line: --kv-tokens = 100: expected at least goal.context = 200");
  input.flags = {{"--max-positions", "128"}};
  EXPECT_EQ(refusal(), folder + "/job.toml: goal.context = 200: expected at most the 128 positions of shape");
  input.flags = {{"--kv-heads", "3"}};
  EXPECT_THAT(refusal(), HasSubstr("command line: --kv-heads = 3: expected"));
  input.flags = {{"--heads", "1"}}; // what is not right beside it any more
  EXPECT_EQ(refusal(), "command line: --kv-heads = 2: expected a divisor of heads = 1");
  input.flags = {{"--family", "opt"}};
  EXPECT_EQ(refusal(), "command line: --family = \"opt\": expected a family with rotary embedding, as shape has");
  input.flags = {{"--rope-scaling", "type=linear"}};
  EXPECT_EQ(refusal(), "command line: --rope-scaling.factor is missing: expected a number");
  input.flags = {{"--rope-scaling", "type=linear,factor=2,type=none"}};
  EXPECT_THAT(refusal(), HasSubstr("type is given twice: expected key=value,key=value"));
}

// What a flag does not say stays as the shape or the profile has it, also where it would follow from another key.
TEST_F(JobFlags, AFlagChangesItsKeyAlone) {
  write("wide.toml", std::string(kShape) +
                         "head_dim = 32\nrope_scaling = { type = \"llama3\", factor = 8.0, "
                         "low_freq_factor = 2.0, high_freq_factor = 3.0, original_max_positions = 64 }\n");
  input.source = folder + "/wide.toml";
  input.flags = {{"--heads", "8"}, {"--rope-theta", "5e5"}};
  const model::ModelSpec spec = job().model->spec;
  EXPECT_EQ(spec.heads, 8);
  EXPECT_EQ(spec.kvHeads, 2);
  EXPECT_EQ(spec.headDim, 32);
  EXPECT_EQ(spec.rope.theta, 5e5);
  EXPECT_EQ(spec.rope.lowFreqFactor, 2.0);
  EXPECT_EQ((*job().model->ofPath)->heads, 4);
  input.flags = {{"--rope-scaling", "type=linear,factor=2"}}; // one value: nothing of the old one stays
  EXPECT_EQ(job().model->spec->rope.lowFreqFactor, 1.0);
  EXPECT_EQ(job().model->spec->rope.originalMaxPositions, 8192);
}

TEST_F(JobFlags, AFileIsTomlInWhateverCaseItsNameSaysSo) {
  write("UPPER.TOML", kShape);
  input.source = folder + "/UPPER.TOML";
  EXPECT_EQ(job().model->spec->name, "UPPER");
  write("JOB.Toml", "[model]\nshape = \"UPPER.TOML\"\n[goal]\nbatch = 3\n");
  input.source = folder + "/JOB.Toml";
  EXPECT_EQ(job().goal.batch, 3);
  input.flags = {{"--context", "999"}};
  EXPECT_THAT(refusal(), HasSubstr("--context = 999"));
}

TEST_F(JobFlags, AModelFlagReplacesTheFilesModel) {
  write("other.toml", std::string(kShape) + "dtype = \"f32\"\n");
  useJob("");
  input.modelFlag = folder + "/other.toml";
  EXPECT_EQ(job().model->spec->dtype, model::DType::F32);
}

TEST_F(JobFlags, ShapeAndHardwareKeysLieOverTheirFiles) {
  input.flags = {{"--layers", "6"},           {"--dtype", "bf16"},         {"--rope-scaling", "type=linear,factor=2"},
                 {"--h2d-bandwidth", "2B/s"}, {"--d2h-bandwidth", "1B/s"}, {"--duplex-bandwidth", "3B/s"}};
  const model::Job j = job();
  EXPECT_EQ(j.model->spec->layers, 6);
  EXPECT_EQ(j.model->spec->hidden, 64);
  EXPECT_EQ(j.model->spec->dtype, model::DType::BF16);
  EXPECT_EQ(j.model->spec->rope.scaling, model::RopeScalingKind::Linear);
  EXPECT_EQ(j.hardware->h2dBandwidth, 2);
  EXPECT_EQ(j.hardware->d2hBandwidth, 1);
  EXPECT_EQ(j.hardware->name, "small");
}

TEST_F(JobFlags, ALinkIsScaledByItsFirstDirection) { // the profile: 1 GB/s each way, 2 together
  input.flags = {{"--h2d-bandwidth", "48GB/s"}};
  EXPECT_EQ(job().hardware->d2hBandwidth, 48e9);
  EXPECT_EQ(job().hardware->duplexBandwidth, 96e9);
  input.flags["--d2h-bandwidth"] = "24GB/s";
  EXPECT_EQ(job().hardware->duplexBandwidth, 72e9);
  input.flags["--duplex-bandwidth"] = "50GB/s";
  EXPECT_EQ(job().hardware->duplexBandwidth, 50e9);
}

TEST_F(JobFlags, WholeNumbersAreTheSameHoweverTheyAreWritten) {
  for (const char *batch : {"1000", "1e3", "1000.0", "1.0e3"}) {
    useJob(std::string("[goal]\nbatch = ") + batch + "\n[buckets]\nsequences = [1.0, " + batch + "]\n");
    input.flags.clear();
    EXPECT_EQ(job().goal.batch, 1000) << batch;
    EXPECT_THAT(job().buckets.sequences, ElementsAre(1, 1000)) << batch;
    useJob("");
    input.flags = {{"--batch", batch}, {"--interval", "2.0"}};
    EXPECT_EQ(job().goal.batch, 1000) << batch;
    EXPECT_EQ(job().policy.interval, 2);
  }
  for (const char *batch : {"1000.5", "1e300", "9007199254740994.0"}) {
    useJob(std::string("[goal]\nbatch = ") + batch + "\n");
    input.flags.clear();
    EXPECT_THAT(refusal(), HasSubstr("job.toml:")) << batch;
    useJob("");
    input.flags = {{"--batch", batch}};
    EXPECT_THAT(refusal(), HasSubstr("command line: --batch = ")) << batch;
  }
}

TEST_F(JobFlags, AShapeCanBeGivenByFlagsAlone) {
  input.source.clear();
  input.flags = {{"--family", "opt"}, {"--layers", "2"},        {"--hidden", "32"},       {"--heads", "2"},
                 {"--vocab", "50"},   {"--intermediate", "64"}, {"--max-positions", "99"}};
  EXPECT_EQ(job().model->spec->family, model::Family::Opt);
  EXPECT_EQ(job().model->spec->headDim, 16);
}

TEST_F(JobFlags, OtherEnginesFlagsAreTranslatedAndPrinted) {
  input.synonyms = {{"--max-model-len", "128"}, {"--max-num-seqs", "4"}};
  input.gpuMemoryUtilization = "0.5";
  input.gpuLayers = "3";
  const model::Job j = job();
  EXPECT_EQ(j.goal.context, 128);
  EXPECT_EQ(j.goal.batch, 4);
  EXPECT_EQ(j.goal.deviceMemory, 500u);
  EXPECT_EQ(j.policy.offloadLayers, 1); // 3 of 4 stay
  EXPECT_THAT(notes, ElementsAre("--max-model-len 128 means --context 128", "--max-num-seqs 4 means --batch 4",
                                 "--gpu-memory-utilization 0.5 (of the 1000 bytes of small) means --device-memory 500B",
                                 "--n-gpu-layers 3 (of 4) means --offload-layers 1"));
}

TEST_F(JobFlags, WhatASuffixWasTakenForIsPrinted) {
  input.flags = {{"--batch", "1k"}, {"--device-memory", "0.5K"}, {"--new-tokens", "0.2k, 1K"}};
  const model::Job j = job();
  EXPECT_EQ(j.goal.batch, 1000);
  EXPECT_EQ(j.goal.deviceMemory, 512u);
  EXPECT_THAT(j.buckets.newTokens, ElementsAre(200, 1024));
  EXPECT_THAT(notes, ElementsAre("--batch 1k means 1000", "--device-memory 0.5K means 512B",
                                 "--new-tokens 0.2k, 1K means 200,1024"));
}

TEST_F(JobFlags, WhatFollowsFromOthersIsNotSaidToBeGiven) {
  EXPECT_EQ(aboutInput(input, absl::InvalidArgumentError("buckets.new_tokens = 2048: expected at most 96")).message(),
            "command line: --new-tokens is not given and comes to 2048: expected at most 96");
}

TEST_F(JobFlags, AllLayersOnTheDeviceOffloadsNone) {
  for (const char *all : {"99", "4", "-1"}) {
    input.gpuLayers = all;
    EXPECT_EQ(job().policy.offloadLayers, 0) << all;
  }
}

TEST_F(JobFlags, CpuOffloadGbIsTheLayersThatItHolds) {
  // A layer at hidden 32768: more than a GiB each, so that GiB count layers.
  input.flags = {{"--hidden", "32768"}, {"--intermediate", "8192"}, {"--head-dim", "128"}};
  const uint64_t layer = model::layoutWeights(job().model->spec).layerBytes(0);
  ASSERT_GT(layer, uint64_t{1} << 30);
  input.cpuOffloadGb = std::to_string(2.5 * static_cast<double>(layer) / static_cast<double>(uint64_t{1} << 30));
  EXPECT_EQ(job().policy.offloadLayers, 2);
  input.cpuOffloadGb = "1000";
  EXPECT_EQ(job().policy.offloadLayers, 4);
  input.cpuOffloadGb = "0";
  EXPECT_EQ(job().policy.offloadLayers, 0);
  input.cpuOffloadGb = "0.5";
  EXPECT_THAT(refusal(), HasSubstr("--cpu-offload-gb = 0.5: expected 0, or at least the "));
}

TEST_F(JobFlags, KvOffloadingSizeIsGibUnlessItHasAUnit) {
  const auto means = [&](const char *text) {
    input.kvOffloadingSize = text;
    return job().goal.kvHostMemory;
  };
  EXPECT_EQ(means("40"), uint64_t{40} << 30);
  EXPECT_THAT(notes, ElementsAre("--kv-offloading-size 40 means --kv-host-memory 40GiB"));
  EXPECT_EQ(means("0.5"), uint64_t{512} << 20);
  EXPECT_THAT(notes, ElementsAre("--kv-offloading-size 0.5 means --kv-host-memory 512MiB"));
  EXPECT_EQ(means("0"), 0u);
  EXPECT_EQ(means("100KiB"), uint64_t{100} << 10);
  input.flags = {{"--kv-host-memory", "5GiB"}};
  EXPECT_EQ(means("5"), uint64_t{5} << 30);
  input.kvOffloadingSize = "4";
  EXPECT_EQ(refusal(), "command line: --kv-offloading-size 4 means --kv-host-memory 4GiB, and --kv-host-memory 5GiB is "
                       "given: expected one of them");
}

TEST_F(JobFlags, OneThingSaidTwiceIsRefusedUnlessItIsTheSame) {
  input.flags = {{"--batch", "3"}};
  input.synonyms = {{"--max-num-seqs", "4"}};
  EXPECT_EQ(refusal(), "command line: --max-num-seqs 4 means --batch 4, and --batch 3 is given: expected one of them");
  input.synonyms = {{"--max-num-seqs", "3"}};
  EXPECT_EQ(job().goal.batch, 3);
}

TEST_F(JobFlags, RefusalsNameTheFlagItsValueAndWhatWasExpected) {
  const auto refusalOf = [&](const std::string &flag, const std::string &value) {
    input.flags = {{flag, value}};
    return refusal();
  };
  EXPECT_EQ(refusalOf("--batch", "0"), "command line: --batch = 0: expected an integer from 1 to 1048576");
  EXPECT_THAT(refusalOf("--batch", "-3"), HasSubstr("command line: --batch = -3: expected"));
  EXPECT_THAT(refusalOf("--batch", "many"), HasSubstr("command line: --batch = \"many\": expected an integer"));
  EXPECT_THAT(refusalOf("--batch", "99999999999999999999"), HasSubstr("command line: "));
  EXPECT_THAT(refusalOf("--device-memory", "8Gigs"), HasSubstr("--device-memory"));
  EXPECT_THAT(refusalOf("--device-memory", "0GiB"),
              HasSubstr("command line: --device-memory = 0: expected a positive number"));
  // A number without a unit, one that no integer holds, and one that no file could hold.
  for (const char *bare : {"0", "24", "8e9", "9223372036854775808", "99999999999999999999", "-1GiB"})
    EXPECT_THAT(refusalOf("--device-memory", bare), HasSubstr(std::string("command line: --device-memory = \"") + bare +
                                                              "\": expected bytes with their unit"));
  for (const char *flag : {"--h2d-bandwidth", "--d2h-bandwidth", "--duplex-bandwidth", "--memory-bandwidth"})
    EXPECT_THAT(refusalOf(flag, "24"), HasSubstr(std::string("command line: ") + flag +
                                                 " = \"24\": expected a positive bandwidth with its unit"));
  EXPECT_THAT(refusalOf("--flops-f16", "1e12"), HasSubstr("--flops-f16 = \"1e12\": expected a positive rate with its"));
  EXPECT_THAT(refusalOf("--batch", "9223372036854775808"),
              HasSubstr("command line: --batch = \"9223372036854775808\": expected an integer from 1"));
  EXPECT_THAT(refusalOf("--device-memory", "99999999999999TiB"), HasSubstr("below 2^63"));
  EXPECT_THAT(refusalOf("--kv-dtype", "int4"), HasSubstr("command line: --kv-dtype = \"int4\": expected"));
  EXPECT_THAT(refusalOf("--interval", "0"), HasSubstr("command line: --interval = 0: expected"));
  EXPECT_THAT(refusalOf("--interval", "some"), HasSubstr("command line: --interval = \"some\": expected"));
  EXPECT_EQ(refusalOf("--interval", "5"),
            "command line: --interval = 5: expected at most the 4 layers of shape, or \"none\"");
  EXPECT_EQ(refusalOf("--offload-layers", "5"),
            "command line: --offload-layers = 5: expected at most the 4 layers of shape");
  EXPECT_THAT(refusalOf("--start-rule", "late"), HasSubstr("command line: --start-rule = \"late\""));
  EXPECT_THAT(refusalOf("--offload-head", "maybe"), HasSubstr("command line: --offload-head = \"maybe\""));
  EXPECT_THAT(refusalOf("--context", "512"),
              HasSubstr("command line: --context = 512: expected at most the 256 positions"));
  EXPECT_THAT(refusalOf("--contexts", "64,32"), HasSubstr("command line: --contexts = 32: expected ascending sizes"));
  EXPECT_THAT(refusalOf("--contexts", "64,x"), HasSubstr("command line: --contexts = [64, \"x\"]"));
  EXPECT_THAT(refusalOf("--contexts", ""), HasSubstr("command line: --contexts"));
  EXPECT_THAT(refusalOf("--policy", "magic"), HasSubstr("command line: --policy = \"magic\": expected \"auto\""));
  EXPECT_THAT(refusalOf("--policy", "select-n"), HasSubstr("command line: --policy = \"select-n\": expected --ttft"));
  for (const char *flag : {"--ttft", "--tpot"})
    for (const char *value : {"0", "0ms", "-5ms", "nan", "inf", "fast", "50 parsecs"})
      EXPECT_THAT(refusalOf(flag, value), HasSubstr(std::string("command line: ") + flag + " = ")) << value;
  for (const char *value : {"0", "0.9", "-1", "nan", "inf", "half"})
    EXPECT_THAT(refusalOf("--slo-factor", value), HasSubstr("command line: --slo-factor = ")) << value;
  EXPECT_THAT(refusalOf("--bus-devices", "0"), HasSubstr("command line: --bus-devices = 0: expected"));
  EXPECT_THAT(refusalOf("--placements", "0"), HasSubstr("command line: --placements = 0: expected"));
  EXPECT_THAT(refusalOf("--record", ""), HasSubstr("command line: --record = \"\": expected"));
  EXPECT_THAT(refusalOf("--layers", "-1"), HasSubstr("command line: --layers = -1: expected"));
  EXPECT_THAT(refusalOf("--family", "gpt2"), HasSubstr("command line: --family = \"gpt2\": expected"));
  EXPECT_THAT(refusalOf("--rope-scaling", "linear"), HasSubstr("--rope-scaling = \"linear\": expected key=value"));
  EXPECT_THAT(refusalOf("--h2d-bandwidth", "0GB/s"), HasSubstr("--h2d-bandwidth"));
  EXPECT_THAT(refusalOf("--duplex-bandwidth", "9GB/s"),
              HasSubstr("command line: --duplex-bandwidth = 9GB/s: expected"));
  EXPECT_THAT(refusalOf("--link-efficiency", "1.5"),
              HasSubstr("command line: --link-efficiency = 1.5: expected a share"));
}

TEST_F(JobFlags, AliasesThatMakeNoSenseAreRefused) {
  for (const char *share : {"0", "1.1", "-0.5", "nan", "half"}) {
    input.gpuMemoryUtilization = share;
    EXPECT_THAT(refusal(), HasSubstr("expected a share above 0 and at most 1")) << share;
  }
  input.gpuMemoryUtilization.reset();
  for (const char *layers : {"-2", "1.5", "all"}) {
    input.gpuLayers = layers;
    EXPECT_THAT(refusal(), HasSubstr("expected a number of layers, or -1 for all")) << layers;
  }
  input.gpuLayers.reset();
  for (const char *gib : {"-1", "nan", "inf", "much"}) {
    input.cpuOffloadGb = gib;
    EXPECT_THAT(refusal(), HasSubstr("expected GiB of weights, 0 or more")) << gib;
  }
  input.cpuOffloadGb.reset();
  for (const char *gib : {"-1", "nan", "1e3", "much", "", ".", "40 GB/s", "9000000000"}) { // 9e9 GiB: beyond 2^63
    input.kvOffloadingSize = gib;
    EXPECT_THAT(refusal(), HasSubstr("--kv-offloading-size = \"" + std::string(gib) + "\": expected GiB such as 40"))
        << gib;
  }
}

TEST_F(JobFlags, WhatDiffersIsSpelledAsFlagsThatGiveItAgain) {
  const model::Job base = job();
  input.flags = {
      {"--layers", "6"}, {"--dtype", "bf16"}, {"--rope-scaling", "type=linear,factor=2"}, {"--copy-latency", "5us"}};
  const model::Job changed = job();
  JobInput again = input;
  again.flags.clear();
  for (const auto &[section, from, to] :
       {std::tuple{"shape", shapeEntries(base.model->spec), shapeEntries(changed.model->spec)},
        std::tuple{"hardware", hardwareEntries(*base.hardware), hardwareEntries(*changed.hardware)}})
    for (const auto &[flag, value] : differingFlags(section, from, to))
      again.flags[flag] = value;
  EXPECT_THAT(again.flags, testing::SizeIs(4));
  EXPECT_EQ(again.flags["--rope-scaling"], "type=linear,factor=2");
  input = again;
  EXPECT_EQ(shapeEntries(job().model->spec), shapeEntries(changed.model->spec));
  EXPECT_EQ(hardwareEntries(*job().hardware), hardwareEntries(*changed.hardware));
}

// A figure of all ops takes those of its classes away, even where it is what the profile has: it is said, then.
TEST_F(JobFlags, HardwareWithFiguresOfClassesIsSpelledAsFlagsThatGiveItAgain) {
  using Flags = std::map<std::string, std::string>;
  input.hardwareFlag = "h200";
  for (const auto &[flags, count] :
       {std::pair{Flags{}, 1},
        {Flags{{"--product-flops-efficiency", "0.5"}}, 2},
        {Flags{{"--flops-efficiency", "0.66"}}, 2},
        {Flags{{"--flops-efficiency", "0.5"}, {"--product-flops-efficiency", "0.77"}}, 3},
        {Flags{{"--launch-overhead", "1us"}, {"--attention-overhead", "3us"}, {"--h2d-bandwidth", "20GB/s"}}, 4},
        {Flags{{"--memory-efficiency", "0.9"}, {"--prefill-attention-ramp", "9us"}}, 3}}) {
    input.flags = {flags.begin(), flags.end()};
    const model::Hardware wanted = *job().hardware;
    const auto spelled = hardwareFlags(wanted);
    EXPECT_THAT(spelled, testing::SizeIs(count));
    EXPECT_EQ(spelled[0], std::pair(std::string("--hardware"), std::string("h200")));
    input.flags = {spelled.begin() + 1, spelled.end()};
    EXPECT_EQ(hardwareEntries(*job().hardware), hardwareEntries(wanted));
  }
  input.flags = {{"--row-memory-efficiency", "0"}};
  EXPECT_THAT(refusal(),
              HasSubstr("--row-memory-efficiency = 0: expected a share above 0 and at most 1, or no such key"));
}

TEST_F(JobFlags, IntervalAndLayersTogetherAreRefused) {
  input.flags = {{"--interval", "2"}, {"--offload-layers", "2"}};
  EXPECT_THAT(refusal(), HasSubstr("command line: --offload-layers = 2: expected not to stand beside --interval = 2"));
}

TEST_F(JobFlags, ShapeFlagsBesideAFolderAreRefused) {
  input.source = sourceDir() + "/tests/golden/opt-7-tied-f32";
  input.flags = {{"--layers", "3"}};
  EXPECT_THAT(refusal(), HasSubstr("--layers: the folder "));
}

// The one thing of a model that no folder says.
TEST_F(JobFlags, WeightsOfAFolderMayBePacked) {
  const std::string model = sourceDir() + "/tests/golden/opt-2-heads-80-f16"; // hidden 160, MLP 75, tied
  input.source = model;
  input.flags = {{"--weight-encoding", "qkv=q4:32,up=q8:32"}};
  EXPECT_EQ(model::weightEncodingText(job().model->spec), "qkv=q4:32,up=q8:32");
  EXPECT_FALSE(job().model->ofPath.value()->encodings.any());
  EXPECT_NE(job().model->checkpoint, nullptr);
  input.flags["--layers"] = "3";
  EXPECT_THAT(refusal(), HasSubstr("--layers: the folder "));
  const auto refusalOf = [&](const std::string &encoding) {
    input.flags = {{"--weight-encoding", encoding}};
    return refusal();
  };
  EXPECT_THAT(refusalOf("q3"), testing::StartsWith("command line: --weight-encoding = \"q3\": expected q8 or q4, "));
  EXPECT_EQ(refusalOf("q4:32"),
            "command line: --weight-encoding = q4:32: expected a group that divides the 75 input features of "
            "model.decoder.layers.0.fc2.weight: none of 32, 64 and 128 does");
  EXPECT_EQ(refusalOf("up=q4"),
            "command line: --weight-encoding = up=q4: expected a group that divides the 160 input features of "
            "model.decoder.layers.0.fc1.weight, such as 32");
  EXPECT_EQ(refusalOf("head=q8:32"), "command line: --weight-encoding = head=q8:32: expected none of the head: it is "
                                     "the embedding's table, which is not packed");
  EXPECT_THAT(refusalOf("embedding=q8:32"), HasSubstr("expected none of the embedding"));
  input.flags.clear();
  // The same of job files, whose paths are relative to them.
  write("folder.toml", "[model]\npath = \"" + model + "\"\nweight_encoding = \"up=q8:32\"\n");
  input.source = folder + "/folder.toml";
  EXPECT_EQ(model::weightEncodingText(job().model->spec), "up=q8:32");
  write("folder.toml", "[model]\npath = \"" + model + "\"\nweight_encoding = \"q3\"\n");
  EXPECT_THAT(refusal(), HasSubstr("folder.toml: model.weight_encoding = \"q3\": expected q8 or q4, "));
  write("folder.toml", "[model]\npath = \"" + model + "\"\nweight_encoding = \"down=q4\"\n");
  EXPECT_THAT(refusal(), HasSubstr("folder.toml: weight_encoding = down=q4: expected a group that divides the 75"));
  write("folder.toml", "[model]\nshape = \"shape.toml\"\nweight_encoding = \"q4\"\n");
  EXPECT_EQ(model::weightEncodingText(job().model->spec), "q4");
}

TEST_F(JobFlags, WithoutAModelThereIsNothingToDo) {
  input.source.clear();
  EXPECT_EQ(refusal(), "command line: no model: expected a folder, a shape, or a job file");
  write("job.toml", "[goal]\nbatch = 1\n");
  input.source = folder + "/job.toml";
  EXPECT_EQ(refusal(), folder + "/job.toml: no [model]: expected one, or --model");
  input.source = folder + "/shape.toml";
  input.modelFlag = "other";
  EXPECT_THAT(refusal(), HasSubstr("--model other beside the model"));
}

TEST_F(JobFlags, AValueCannotSmuggleInAKey) {
  input.flags = {{"--kv-dtype", "f16\"\nbatch = 7 #"}};
  EXPECT_THAT(refusal(), HasSubstr("command line: --kv-dtype"));
  input.flags = {{"--rope-scaling", "type=none}\nlayers=9"}};
  EXPECT_THAT(refusal(), HasSubstr("command line: "));
}

TEST(LooksLikeJob, BySections) {
  EXPECT_TRUE(looksLikeJob("# a job\n[model]\npath = \"x\"\n"));
  EXPECT_TRUE(looksLikeJob("  [ goal ]"));
  EXPECT_TRUE(looksLikeJob("goal.batch = 1"));
  EXPECT_TRUE(looksLikeJob("goal = { batch = 1 }"));
  EXPECT_FALSE(looksLikeJob(kShape));
  EXPECT_FALSE(looksLikeJob("models = 3\n# [model]\n"));
  EXPECT_FALSE(looksLikeJob(""));
}

} // namespace
} // namespace headrace::tools
