// SPDX-License-Identifier: Apache-2.0
//
// `headrace run X.stages --device cuda` on the stand-in of CUDA's runtime: with a GPU for each stage, with fewer, and
// with none.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <nlohmann/json.hpp>

#include "runtime/plan/PlanFile.h"
#include "runtime/plan/StagesFile.h"
#include "tests/unit/cuda/stand_in/StandIn.h"
#include "tools/commands/Commands.h"
#include "tools/commands/Compiling.h"
#include "tools/commands/Devices.h"
#include "tools/commands/ExitCode.h"
#include "tools/commands/StagesRun.h"

namespace headrace::tools {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class StagesOnGpus : public testing::Test {
protected:
  StagesOnGpus() {
    ::setenv("HEADRACE_CUDA_LIBRARIES", HEADRACE_STAND_IN_LIBRARIES, 0);
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    std::ofstream(folder_ + "/tiny.toml")
        << "family = \"llama\"\nlayers = 6\nhidden = 64\nheads = 4\nkv_heads = 2\nintermediate = 128\n"
           "vocab = 100\nmax_positions = 64\ndtype = \"bf16\"\n";
  }
  ~StagesOnGpus() override { stand_in::show({{}}); }

  // So many stages' plans for an H200, and the file that names them.
  std::string compiled(int64_t stages) const {
    JobInput input;
    input.source = folder_ + "/tiny.toml";
    input.hardwareFlag = "h200";
    input.flags = {{"--device-memory", "64MiB"}, {"--batch", "4"}, {"--context", "32"}, {"--interval", "2"}};
    const auto job = assembleJob(input);
    EXPECT_TRUE(job.ok()) << job.status();
    const auto made = compileStagesToHold(*job, stages);
    EXPECT_TRUE(made.ok()) << made.status();
    const std::string file = folder_ + "/tiny" + std::to_string(stages) + ".stages";
    for (size_t i = 0; i < made->plans.size(); ++i)
      EXPECT_TRUE(plan::writePlan(made->plans[i], plan::stagePlanPath(file, i)).ok());
    std::ofstream(file) << plan::stagesText(made->plans, file);
    return file;
  }
  absl::StatusOr<nlohmann::json> run(const std::string &file, const std::string &device = "") const {
    RunOptions options;
    options.job.source = file;
    options.device.device = device;
    options.weights.synthetic = 3;
    options.prompts.ids = "1,2,3;4,5,6,7,8;9";
    options.maxNewTokens = 6;
    options.json = true;
    testing::internal::CaptureStdout();
    const absl::Status status = runStages(options);
    const std::string out = testing::internal::GetCapturedStdout();
    return status.ok() ? absl::StatusOr<nlohmann::json>(nlohmann::json::parse(out)) : status;
  }
  static void expectRefused(const absl::Status &status, int exit, const std::string &what) {
    EXPECT_EQ(exitCodeOf(status), exit) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(what));
  }

private:
  const std::string folder_ = testing::TempDir() + "stages-on-gpus";
};

TEST_F(StagesOnGpus, ADeviceForEach) {
  stand_in::show(std::vector<stand_in::ShownGpu>(3));
  const stand_in::Held before = stand_in::held();
  const auto three = run(compiled(3));
  ASSERT_TRUE(three.ok()) << three.status();
  EXPECT_EQ((*three)["device"], "cuda");
  EXPECT_EQ((*three)["stages"].size(), 3u);
  EXPECT_EQ((*three)["tokens"].size(), 3u);
  const std::string two = compiled(2);
  for (const char *device : {"", "cuda", "cuda:2,0"}) {
    const auto found = run(two, device);
    ASSERT_TRUE(found.ok()) << device << ": " << found.status();
    EXPECT_EQ((*found)["tokens"], (*three)["tokens"]) << device;
  }
  EXPECT_EQ(stand_in::held(), before);
}

TEST_F(StagesOnGpus, FewerGpusThanStagesAreRefusedByBothNumbers) {
  const std::string file = compiled(3);
  stand_in::show({{}, {}});
  expectRefused(run(file).status(), kExitBadInput,
                "cuda device: expected 3 GPUs, one for each device, and there are 2: --device sim runs them in virtual "
                "time");
  stand_in::show({{}});
  expectRefused(run(file, "cuda").status(), kExitBadInput, "expected 3 GPUs, one for each device, and there is 1: ");
  stand_in::show({{}, {}, {}});
  for (const char *device : {"cuda:1", "cuda:0,1", "cuda:0,1,x"})
    expectRefused(run(file, device).status(), kExitBadInput,
                  std::string("--device = \"") + device +
                      "\": expected cuda, or cuda:N,M,... with 3 GPUs, counted from 0");
  expectRefused(run(file, "cuda:0,1,1").status(), kExitBadInput, "GPU 1 twice");
  expectRefused(run(file, "cuda:0,1,3").status(), kExitFailed, "no GPU 3: there are 3, counted from 0");
  expectRefused(run(file, "gpu").status(), kExitBadInput,
                "--device = \"gpu\": expected host, sim or cuda, or cuda:0,1 for the first GPU and the second");
}

// As `run --device cuda` of one plan has it.
TEST_F(StagesOnGpus, WithoutAGpuItSaysWhatOneDeviceSays) {
  const std::string file = compiled(2);
  stand_in::show({});
  const absl::Status one = makeDevice("cuda", {}).status();
  EXPECT_EQ(one.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(run(file, "cuda").status(), one);
  EXPECT_EQ(run(file).status(), one);
}

TEST_F(StagesOnGpus, ABusOfGpusIsNotSet) {
  stand_in::show({{}, {}});
  expectRefused(makeDeviceGroup("cuda", {}, 2, {.h2d = 24e9}).status(), kExitBadInput,
                "--device = \"cuda\": expected host or sim: a bus of GPUs is the machine's own");
  EXPECT_FALSE(checkDeviceGroup("cuda").ok());
  EXPECT_TRUE(checkDeviceGroup("sim").ok());
  DeviceFlags flags;
  flags.lowLatency = true;
  expectRefused(makeDeviceGroup("cuda", flags, 2, {}).status(), kExitBadInput, "--low-latency: expected the host");
}

} // namespace
} // namespace headrace::tools
