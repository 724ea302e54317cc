// SPDX-License-Identifier: Apache-2.0
//
// `headrace profile` on the stand-in of CUDA's runtime: what it writes beside the record, and who takes it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "runtime/model/WeightSource.h"
#include "tests/support/TinyPlan.h"
#include "tests/unit/cuda/stand_in/StandIn.h"
#include "tools/commands/Commands.h"
#include "tools/commands/Devices.h"
#include "tools/commands/RunSetup.h"

namespace headrace::tools {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class ProfileOnCuda : public testing::Test {
protected:
  ProfileOnCuda() {
    ::setenv("HEADRACE_CUDA_LIBRARIES", HEADRACE_STAND_IN_LIBRARIES, 0);
    stand_in::show({{.name = "NVIDIA H200", .memory = uint64_t{1} << 30}});
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    write("tiny.toml", "family = \"llama\"\nlayers = 1\nhidden = 64\nheads = 4\nkv_heads = 2\nintermediate = 128\n"
                       "vocab = 100\nmax_positions = 64\ndtype = \"bf16\"\n");
  }
  ~ProfileOnCuda() override { stand_in::show({{}}); }

  std::string path(const std::string &name) const { return folder_ + "/" + name; }
  void write(const std::string &name, const std::string &text) const { std::ofstream(path(name)) << text; }
  std::string read(const std::string &name) const {
    std::stringstream text;
    text << std::ifstream(path(name)).rdbuf();
    return text.str();
  }
  JobInput job() const {
    JobInput input;
    input.source = path("tiny.toml");
    input.hardwareFlag = "h200";
    input.device = "cuda";
    input.flags["--device-memory"] = "64MiB";
    return input;
  }
  absl::Status profile(bool force) const {
    ProfileOptions options;
    options.job = job();
    options.device.device = "cuda";
    options.output = path("r.toml");
    options.batches = "1";
    options.sequences = "16";
    options.secondsPerPair = 0.01;
    options.force = force;
    testing::internal::CaptureStdout();
    const absl::Status status = profileCommand(options);
    testing::internal::GetCapturedStdout();
    return status;
  }
  // As run, chat, bench and bench serve load a plan that the record priced.
  absl::Status load() const {
    plan::Plan plan = core::tinyPlan({.kind = model::DeviceKind::Cuda});
    plan.goal.record = path("r.toml");
    auto device = makeDevice("cuda", {});
    if (!device.ok())
      return device.status();
    std::unique_ptr<model::WeightSource> weights = model::syntheticWeights(1);
    return loadRuntime(plan, **device, {}, weights, {}).status();
  }

private:
  const std::string folder_ = testing::TempDir() + "profile-on-cuda";
};

TEST_F(ProfileOnCuda, WritesTheAlgorithmsBesideTheRecordAndWhoeverPlansWithItTakesThem) {
  ASSERT_EQ(profile(/*force=*/false), absl::OkStatus());
  const std::string algorithms = read("r.toml.cublaslt");
  EXPECT_THAT(algorithms, testing::StartsWith("cublasLt "));
  EXPECT_THAT(algorithms, HasSubstr(": algorithm 0 "));
  EXPECT_EQ(load(), absl::OkStatus());
  // It is read: one that is none is refused by its name.
  write("r.toml.cublaslt", "cublasLt 7\nnothing\n");
  EXPECT_THAT(std::string(load().message()), HasSubstr("r.toml.cublaslt:2: 'nothing': expected 'SHAPE: ..., bytes"));
  // Measured anew, and written anew; what is no such list is not replaced.
  ASSERT_EQ(profile(/*force=*/true), absl::OkStatus());
  EXPECT_EQ(read("r.toml.cublaslt"), algorithms);
  write("r.toml.cublaslt", "something that somebody needs\n");
  EXPECT_THAT(std::string(profile(/*force=*/true).message()),
              HasSubstr("r.toml.cublaslt\": a file is there, and it is no list of algorithms of headrace"));
}

} // namespace
} // namespace headrace::tools
