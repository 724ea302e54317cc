// SPDX-License-Identifier: Apache-2.0
//
// The hardware of a job that names none, on the stand-in of CUDA's runtime: without a GPU, with one, with two.
#include "tools/commands/Machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/unit/cuda/stand_in/StandIn.h"
#include "tools/commands/JobFlags.h"

namespace headrace::tools {
namespace {

using stand_in::ShownGpu;
using testing::HasSubstr;
using testing::Not;

constexpr uint64_t kGiB = uint64_t{1} << 30, kMiB = uint64_t{1} << 20;

class MachineHardwareOf : public testing::Test {
protected:
  MachineHardwareOf() { ::setenv("HEADRACE_HOST_MEMORY", "24063MiB", 1); } // 23.5 GiB: 21 of them for plans
  ~MachineHardwareOf() override {
    ::unsetenv("HEADRACE_HOST_MEMORY");
    stand_in::show({{}});
  }
  static AssembledJob assembled(const std::string &device = "", FlagTexts flags = {}) {
    JobInput input;
    input.source = "opt-6.7b";
    input.device = device;
    input.flags = std::move(flags);
    absl::StatusOr<AssembledJob> job = assembleJob(input);
    EXPECT_TRUE(job.ok()) << job.status();
    return job.value_or(AssembledJob{});
  }
  static std::string noteOf(const AssembledJob &job) { return job.notes.empty() ? "" : job.notes.front(); }
};

// What nvidia-smi and CUDA show of real ones.
const ShownGpu kRtx4090{.name = "NVIDIA GeForce RTX 4090", .memory = 25'386'352'640};
const ShownGpu kH200{.name = "NVIDIA H200", .memory = 150'109'880'320};
const ShownGpu kTuring{.name = "Tesla T4", .major = 7, .minor = 5, .memory = 15 * kGiB};
// 100 multiprocessors at 2 GHz: 2 x 128 x 100 x 2e9 = 51.2 TFLOP/s in F32, 2 x 2048 x ... = 819.2 in F16; a bus of 1024
// bits at 2 GHz, twice a clock: 512 GB/s.
const ShownGpu kUnknown{.name = "NVIDIA H1",
                        .memory = 40 * kGiB,
                        .multiprocessors = 100,
                        .clock = 2'000'000,
                        .memoryClock = 2'000'000,
                        .memoryBus = 1024};

TEST_F(MachineHardwareOf, WithoutAGpuIsTheHost) {
  stand_in::show({});
  const AssembledJob job = assembled();
  EXPECT_EQ(job.job.hardware->name, "host");
  EXPECT_EQ(job.job.hardware->memoryBytes, 21 * kGiB);
  EXPECT_EQ(job.job.hardware->hostMemoryBytes, 21 * kGiB);
  EXPECT_EQ(job.job.hardware->reserveBytes, 0u);
  EXPECT_EQ(job.job.sharedMemory, 21 * kGiB);
  EXPECT_EQ(job.device, "host");
  EXPECT_THAT(noteOf(job), HasSubstr("hardware: host, 21.0 GiB of the machine's 23.5 GiB"));
  EXPECT_THAT(noteOf(job), testing::EndsWith("; as flags: --hardware host --memory 21GiB --host-memory 21GiB"));
  // Whoever says what there is has two memories.
  const AssembledJob stated = assembled("", {{"--memory", "2GiB"}});
  EXPECT_EQ(stated.job.hardware->memoryBytes, 2 * kGiB);
  EXPECT_FALSE(stated.job.sharedMemory.has_value());
}

TEST_F(MachineHardwareOf, WithAGpuIsItsProfile) {
  stand_in::show({kH200});
  const AssembledJob job = assembled();
  EXPECT_EQ(job.job.hardware->name, "h200");
  EXPECT_EQ(job.job.hardware->memoryBytes, 141'000'000'000u);
  EXPECT_EQ(job.job.hardware->hostMemoryBytes, 21 * kGiB) << "this machine's, not the profile's";
  EXPECT_FALSE(job.job.sharedMemory.has_value());
  EXPECT_EQ(job.device, "cuda");
  EXPECT_THAT(noteOf(job), HasSubstr("hardware: GPU 0: h200, the profile of NVIDIA H200; 21.0 GiB of the machine's"));
  EXPECT_THAT(noteOf(job), testing::EndsWith("; as flags: --hardware h200 --host-memory 21GiB"));
  EXPECT_EQ(assembled("host").job.hardware->name, "host");
  EXPECT_EQ(assembled("sim").job.hardware->name, "h200");
}

TEST_F(MachineHardwareOf, ABudgetLeavesTheContextItsRoom) {
  stand_in::show({kRtx4090});
  const model::Hardware found = *assembled().job.hardware;
  EXPECT_EQ(found.memoryBytes, 24'210 * kMiB) << "what CUDA sees of 24,564";
  EXPECT_EQ(found.defaultBudget(), 23'186 * kMiB);
  EXPECT_THAT(noteOf(assembled()),
              testing::EndsWith("as flags: --hardware rtx4090 --memory 24210MiB --reserve 1GiB --host-memory 21GiB"));
  // A profile that is a paper's device leaves nothing; a real one has to.
  stand_in::show({{.name = "NVIDIA A10", .memory = 22'731 * kMiB}});
  EXPECT_EQ(assembled().job.hardware->defaultBudget(), 21'707 * kMiB);
}

TEST_F(MachineHardwareOf, OfTwoTheFirstThatCanBeUsedServes) {
  stand_in::show({kTuring, kH200});
  const AssembledJob job = assembled();
  EXPECT_EQ(job.job.hardware->name, "h200");
  EXPECT_EQ(job.device, "cuda:1");
  stand_in::show({kRtx4090, kH200});
  EXPECT_EQ(assembled().job.hardware->name, "rtx4090");
  EXPECT_EQ(assembled("cuda:1").job.hardware->name, "h200");
  EXPECT_EQ(assembled("cuda:1").device, "cuda:1");
  JobInput third;
  third.source = "opt-6.7b";
  third.device = "cuda:2";
  const absl::Status refused = assembleJob(third).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(refused.message(), HasSubstr("no GPU 2: there are 2, counted from 0"));
}

// As nvidia-smi counts them, and not the fastest first.
TEST_F(MachineHardwareOf, GpusAreCountedByThePciBus) {
  ShownGpu fast = kH200, slow = kRtx4090;
  fast.pciBus = 9, slow.pciBus = 3;
  ::unsetenv("CUDA_DEVICE_ORDER");
  stand_in::show({fast, slow});
  EXPECT_EQ(assembled("cuda:0").job.hardware->name, "rtx4090");
  EXPECT_EQ(assembled("cuda:1").job.hardware->name, "h200");
  ::setenv("CUDA_DEVICE_ORDER", "FASTEST_FIRST", 1); // who says so has it so
  EXPECT_EQ(assembled("cuda:0").job.hardware->name, "h200");
  ::unsetenv("CUDA_DEVICE_ORDER");
}

TEST_F(MachineHardwareOf, OneThatCannotBeUsedIsNamed) {
  stand_in::show({kTuring});
  const AssembledJob job = assembled();
  EXPECT_EQ(job.job.hardware->name, "host");
  EXPECT_THAT(noteOf(job), HasSubstr("; not GPU 0: cuda device: Tesla T4 has compute capability 7.5"));
}

TEST_F(MachineHardwareOf, OfAnUnknownGpuItSaysWhatIsKnownAndWhatAssumed) {
  stand_in::show({kUnknown});
  const AssembledJob job = assembled();
  const model::Hardware &found = *job.job.hardware;
  EXPECT_EQ(found.name, "NVIDIA H1");
  EXPECT_EQ(found.memoryBytes, 40 * kGiB);
  EXPECT_EQ(found.defaultBudget(), 39 * kGiB);
  EXPECT_EQ(found.memoryBandwidth, 512e9);
  EXPECT_EQ(found.flopsF32, 51.2e12);
  EXPECT_EQ(found.flopsF16, 819.2e12);
  EXPECT_EQ(found.h2dBandwidth, 55e9) << "h100's";
  EXPECT_THAT(noteOf(job), HasSubstr("NVIDIA H1, which no profile knows: by its driver 40.0 GiB at 512GB/s, 100 "
                                     "multiprocessors at 2000 MHz (51.2 TFLOP/s in F32, 819 in F16); assumed as "
                                     "h100's: the link, latencies, efficiencies"));
  EXPECT_THAT(noteOf(job), HasSubstr("--hardware host --hardware-name 'NVIDIA H1' --hardware-kind cuda"));
  // A driver that does not say its clocks.
  stand_in::show({{.name = "NVIDIA H2"}});
  EXPECT_THAT(noteOf(assembled()), HasSubstr("assumed as h100's: its FLOP/s, its memory's bandwidth, the link"));
}

TEST_F(MachineHardwareOf, ANamedHardwareAsksForNone) {
  stand_in::show({kH200});
  JobInput input;
  input.source = "opt-6.7b";
  input.hardwareFlag = "rtx4090";
  const absl::StatusOr<AssembledJob> job = assembleJob(input);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->job.hardware->name, "rtx4090");
  EXPECT_EQ(job->job.hardware->hostMemoryBytes, 0u) << "unknown";
  EXPECT_THAT(job->notes, testing::IsEmpty());
}

TEST(MemoryForPlans, IsWholeGibLessWhatTheSystemNeeds) {
  EXPECT_EQ(memoryForPlans(24'063 * kMiB), 21 * kGiB);
  EXPECT_EQ(memoryForPlans(64 * kGiB), 62 * kGiB);
  EXPECT_EQ(memoryForPlans(64 * kGiB - 1), 61 * kGiB);
  EXPECT_EQ(memoryForPlans(3 * kGiB), 1 * kGiB);
  EXPECT_EQ(memoryForPlans(1 * kGiB), 512 * kMiB);
}

} // namespace
} // namespace headrace::tools
