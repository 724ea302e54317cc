// SPDX-License-Identifier: Apache-2.0
//
// What is asked of the system before a device is opened, on made-up answers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "runtime/cuda/Architectures.h"
#include "runtime/cuda/DeviceChecks.h"
#include "runtime/cuda/DynamicLibrary.h"
#include "runtime/cuda/HostMemory.h"

namespace headrace::cuda {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

constexpr const char *kPackage = "80-real,86-real,89-real,90,100-real,120"; // cmake/CudaArchitectures.cmake

TEST(Architectures, ThePackageRunsOnWhatPeopleHave) {
  const struct {
    int capability;
    KernelCode code;
  } kTable[] = {
      {75, KernelCode::None},         // T4, RTX 20
      {80, KernelCode::MachineCode},  // A100
      {86, KernelCode::MachineCode},  // A10, RTX 30
      {87, KernelCode::None},         // Jetson Orin: PTX is of newer ones, and machine code is not shared with it
      {88, KernelCode::None},         // Jetson and Drive
      {89, KernelCode::MachineCode},  // L4, RTX 40
      {90, KernelCode::MachineCode},  // H100, H200
      {100, KernelCode::MachineCode}, // B200
      {101, KernelCode::Ptx},         // Jetson and Drive, of 90
      {103, KernelCode::MachineCode}, // B300, of 100
      {110, KernelCode::Ptx},         // Jetson Thor, of 90
      {120, KernelCode::MachineCode}, // RTX 50
      {121, KernelCode::MachineCode}, // DGX Spark, of 120
      {130, KernelCode::Ptx},         // what comes
  };
  for (const auto &[capability, code] : kTable) {
    SCOPED_TRACE(capability);
    EXPECT_EQ(codeFor(kPackage, capability / 10, capability % 10), code);
    EXPECT_EQ(checkArchitecture("a GPU", kPackage, capability / 10, capability % 10).ok(), code != KernelCode::None);
  }
}

TEST(Architectures, MachineCodeRunsOnTheSameMajorPtxOnAnythingNewer) {
  EXPECT_EQ(codeFor("90", 9, 0), KernelCode::MachineCode);
  EXPECT_EQ(codeFor("80,86,90", 8, 9), KernelCode::MachineCode); // of 86
  EXPECT_EQ(codeFor("80", 12, 0), KernelCode::Ptx);
  EXPECT_EQ(codeFor("80-virtual,89-real", 8, 9), KernelCode::MachineCode);
  EXPECT_EQ(codeFor("89-real,80-virtual", 8, 6), KernelCode::Ptx);
  EXPECT_EQ(codeFor("80-real", 8, 6), KernelCode::MachineCode);
  EXPECT_EQ(codeFor("80-real", 9, 0), KernelCode::None);
  EXPECT_EQ(codeFor("86-real", 8, 0), KernelCode::None);
  EXPECT_EQ(codeFor("80-virtual", 9, 0), KernelCode::Ptx);
  EXPECT_EQ(codeFor("87-real", 8, 7), KernelCode::MachineCode); // on Jetson what is its own
  EXPECT_EQ(codeFor("87-real", 8, 9), KernelCode::None);
  EXPECT_EQ(codeFor("80", 8, 7), KernelCode::Ptx);
  EXPECT_EQ(codeFor("90a", 10, 0), KernelCode::None);
  EXPECT_EQ(codeFor("90a", 9, 0), KernelCode::MachineCode);
  EXPECT_EQ(codeFor("90a-virtual", 9, 0), KernelCode::Ptx);
  EXPECT_EQ(codeFor("75", 8, 0), KernelCode::None); // no kernel compiles for it
  EXPECT_EQ(codeFor("", 9, 0), KernelCode::None);
  EXPECT_EQ(codeFor("native", 9, 0), KernelCode::None);
}

std::string refusal(const absl::Status &status) {
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  return std::string(status.message());
}

TEST(DeviceChecks, DriversThatAreMissingOrTooOldAreRefused) {
  EXPECT_THAT(refusal(checkDriver(0)), HasSubstr("no NVIDIA driver answers: install one for CUDA 13.0 or later"));
  EXPECT_THAT(refusal(checkDriver(12080)),
              HasSubstr("the NVIDIA driver is for CUDA 12.8, expected 13.0 or later: update the driver"));
  EXPECT_TRUE(checkDriver(13000).ok());
  EXPECT_TRUE(checkDriver(13010).ok());
}

TEST(DeviceChecks, GpusThatAreNotThereAreRefused) {
  EXPECT_THAT(refusal(checkIndex(0, 0)), HasSubstr("the driver knows no GPU"));
  EXPECT_THAT(refusal(checkIndex(2, 2)), HasSubstr("no GPU 2: there are 2, counted from 0"));
  EXPECT_THAT(refusal(checkIndex(-1, 2)), HasSubstr("no GPU -1"));
  EXPECT_TRUE(checkIndex(1, 2).ok());
}

TEST(DeviceChecks, ArchitecturesThatAreNotBuiltInAreRefused) {
  EXPECT_TRUE(checkArchitecture("NVIDIA H200", "90", 9, 0).ok());
  EXPECT_THAT(refusal(checkArchitecture("NVIDIA A10", "90", 8, 6)),
              HasSubstr("NVIDIA A10 has compute capability 8.6, the kernels were built for 90: build with "
                        "CMAKE_CUDA_ARCHITECTURES=86"));
  EXPECT_THAT(refusal(checkArchitecture("Orin", kPackage, 8, 7)),
              HasSubstr("Orin has compute capability 8.7, the kernels were built for "
                        "80-real,86-real,89-real,90,100-real,120: build with CMAKE_CUDA_ARCHITECTURES=87"));
  const std::string old = refusal(checkArchitecture("Tesla T4", kPackage, 7, 5));
  EXPECT_THAT(old, HasSubstr("Tesla T4 has compute capability 7.5, expected 8.0 (A100, A10, RTX 30) or later"));
  EXPECT_THAT(old, Not(HasSubstr("CMAKE_CUDA_ARCHITECTURES"))); // nothing would compile
}

TEST(DeviceChecks, MemoryThatOthersHoldIsRefusedWithTheNumbers) {
  EXPECT_TRUE(checkFreeMemory(60, 40, 100, 200).ok());
  for (const auto &[arena, overhead] : {std::pair<uint64_t, uint64_t>{61, 40}, {101, 0}, {UINT64_MAX, UINT64_MAX}}) {
    const absl::Status status = checkFreeMemory(arena, overhead, 100, 200);
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(status.message()), HasSubstr("100 of the device's 200 are free: end other processes"));
  }
}

TEST(HostMemory, AvailableIsTheKernelsOwnEstimate) {
  EXPECT_EQ(memAvailable("MemTotal:       1000 kB\nMemFree:  10 kB\nMemAvailable:    500 kB\nBuffers: 1 kB\n"),
            500u * 1024);
  EXPECT_EQ(memAvailable("MemTotal:       1000 kB\n"), 0u);
  const absl::StatusOr<HostMemory> read = readHostMemory(0);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_GT(read->available, 0u);
}

TEST(HostMemory, WhatIsStatedReplacesTheEstimate) {
  ASSERT_EQ(::setenv("HEADRACE_HOST_MEMORY", "4096TiB", 1), 0);
  const absl::StatusOr<HostMemory> stated = readHostMemory(0);
  const absl::StatusOr<HostMemory> left = readHostMemory(uint64_t{96} << 40), none = readHostMemory(uint64_t{1} << 60);
  ASSERT_EQ(::setenv("HEADRACE_HOST_MEMORY", "plenty", 1), 0);
  const absl::StatusOr<HostMemory> junk = readHostMemory(0);
  ::unsetenv("HEADRACE_HOST_MEMORY");
  ASSERT_TRUE(stated.ok()) << stated.status();
  EXPECT_EQ(stated->available, uint64_t{4096} << 40);
  EXPECT_EQ(left->available, uint64_t{4000} << 40); // of devices together
  EXPECT_EQ(none->available, 0u);
  EXPECT_EQ(junk.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(junk.status().message()), HasSubstr("HEADRACE_HOST_MEMORY = \"plenty\": expected bytes"));
}

TEST(HostMemory, AControlGroupLeavesItsLimitLessWhatItHolds) {
  EXPECT_EQ(controlGroupLeft("max\n", "100\n", ""), std::nullopt);
  EXPECT_EQ(controlGroupLeft("", "", ""), std::nullopt);
  EXPECT_EQ(controlGroupLeft("1000\n", "400\n", "anon 100\nfile 300\nkernel 1\n"), 900u); // 300 are page cache
  EXPECT_EQ(controlGroupLeft("1000\n", "400\n", "anon 400\n"), 600u);
  EXPECT_EQ(controlGroupLeft("1000\n", "400\n", "file 300\nshmem 50\n"), 850u); // of tmpfs, which stays
  EXPECT_EQ(controlGroupLeft("1000\n", "400\n", "cache 1\nshmem 1\ntotal_cache 300\ntotal_shmem 50\n"), 850u);
  EXPECT_EQ(controlGroupLeft("1000\n", "1200\n", "file 100\n"), 0u); // over its limit for a moment
}

// Groups of both versions, as files in a folder of the test's.
class ControlGroups : public testing::Test {
protected:
  ~ControlGroups() override { std::filesystem::remove_all(root_); }
  void write(const std::string &file, const std::string &text) const {
    std::filesystem::create_directories(std::filesystem::path(root_ + "/" + file).parent_path());
    std::ofstream(root_ + "/" + file) << text << "\n";
  }
  void limit(const std::string &folder, const std::string &max, const std::string &high) const {
    write(folder + "/memory.max", max);
    write(folder + "/memory.high", high);
    write(folder + "/memory.current", "10");
  }
  const std::string root_ = testing::TempDir() + "headrace-groups-" + std::to_string(::getpid());
};

TEST_F(ControlGroups, OfAllAboveTheLeastCounts) {
  const std::string own = "0::/machine/pod/own\n";
  EXPECT_EQ(controlGroupsLeft(own, root_), std::nullopt);
  limit("machine/pod/own", "max", "max");
  limit("machine/pod", "max", "max");
  limit("machine", "max", "max");
  EXPECT_EQ(controlGroupsLeft(own, root_), std::nullopt);
  limit("machine", "1000", "max");
  EXPECT_EQ(controlGroupsLeft(own, root_), 990u);
  limit("machine/pod", "max", "500"); // is slowed down above it
  EXPECT_EQ(controlGroupsLeft(own, root_), 490u);
  limit("machine/pod/own", "300", "400");
  EXPECT_EQ(controlGroupsLeft(own, root_), 290u);
  EXPECT_EQ(controlGroupsLimit(own, root_), 300u);
  limit("machine/other", "20", "20"); // not this process's
  EXPECT_EQ(controlGroupsLeft(own, root_), 290u);
  limit("", "100", "max"); // the root that a container sees has a limit
  EXPECT_EQ(controlGroupsLeft(own, root_), 90u);
  EXPECT_EQ(controlGroupsLeft("0::/\n", root_), 90u);
}

TEST_F(ControlGroups, OfVersionOneAreThoseOfMemory) {
  const std::string own = "9:name=systemd:/a\n4:cpu,memory:/a/b\n1:cpu:/c\n0::/\n";
  write("memory/a/b/memory.limit_in_bytes", "700");
  write("memory/a/b/memory.usage_in_bytes", "100");
  EXPECT_EQ(controlGroupsLeft(own, root_), 600u);
  write("memory/a/memory.limit_in_bytes", "400");
  write("memory/a/memory.usage_in_bytes", "150");
  write("memory/a/memory.stat", "total_cache 50");
  EXPECT_EQ(controlGroupsLeft(own, root_), 300u);
  write("memory/c/memory.limit_in_bytes", "1"); // of another controller
  write("memory/c/memory.usage_in_bytes", "1");
  EXPECT_EQ(controlGroupsLeft(own, root_), 300u);
  limit("unified", "250", "max"); // version 2 beside it
  EXPECT_EQ(controlGroupsLeft(own, root_), 240u);
}

// 1024 bytes take 2 of page tables: 8 for each 4096.
TEST(HostMemory, TooLittleIsRefusedWithTheNumbers) {
  EXPECT_TRUE(checkHostMemory(1024, {.available = 1026}).ok());
  EXPECT_EQ(pageTableBytes(uint64_t{512} << 30), uint64_t{1} << 30);
  const absl::Status refused = checkHostMemory(1024, {.available = 1025});
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("pins 1024 bytes of host memory, which take 2 of page tables, 1025 are available"));
  EXPECT_FALSE(checkHostMemory(UINT64_MAX, {.available = UINT64_MAX}).ok());
  EXPECT_THAT(std::string(refused.message()), HasSubstr("say in HEADRACE_HOST_MEMORY how much there can be"));
}

TEST(HostMemory, RefusedPinningNamesTheLimit) {
  EXPECT_THAT(pinningRefused(10, {.available = 7, .memlockLimit = 5}), HasSubstr("RLIMIT_MEMLOCK is 5 bytes"));
  EXPECT_THAT(pinningRefused(10, {.available = 7}), HasSubstr("RLIMIT_MEMLOCK is unlimited"));
}

class DynamicLibraryTest : public testing::Test {
protected:
  DynamicLibraryTest() { std::filesystem::create_directories(folder); }
  ~DynamicLibraryTest() override { std::filesystem::remove_all(folder); }
  const std::string folder = testing::TempDir() + "headrace-libraries-" + std::to_string(::getpid());
};

TEST_F(DynamicLibraryTest, FoldersAreTriedInOrder) {
  ASSERT_EQ(::setenv("HEADRACE_CUDA_LIBRARIES", "/from/environment:/and/more", 1), 0);
  ASSERT_EQ(::setenv("VIRTUAL_ENV", folder.c_str(), 1), 0);
  const std::string wheel = folder + "/lib/python3.11/site-packages/nvidia/cu13/lib";
  std::filesystem::create_directories(wheel);
  const std::vector<std::string> folders = librarySearchPath("/first:/second");
  ::unsetenv("HEADRACE_CUDA_LIBRARIES");
  ::unsetenv("VIRTUAL_ENV");
  ASSERT_GE(folders.size(), 6u);
  EXPECT_EQ(std::vector<std::string>(folders.begin(), folders.begin() + 5),
            (std::vector<std::string>{"/first", "/second", "/from/environment", "/and/more", ""}));
  const auto at = [&](const std::string &name) { return std::find(folders.begin(), folders.end(), name); };
  EXPECT_NE(at("/usr/local/cuda/lib64"), folders.end());
  EXPECT_LT(at("/usr/local/cuda/lib64"), at(wheel));
  EXPECT_NE(at(wheel), folders.end());
}

TEST_F(DynamicLibraryTest, CuptiIsSoughtInItsOwnFolderLast) {
  std::vector<std::string> folders = cuptiSearchPath("/first");
  EXPECT_EQ(folders.back(), "/usr/local/cuda/extras/CUPTI/lib64");
  folders.resize(librarySearchPath("/first").size());
  EXPECT_EQ(folders, librarySearchPath("/first"));
}

TEST_F(DynamicLibraryTest, MissingLibrariesAreNamedWithWhereTheyWereSought) {
  const auto opened = DynamicLibrary::open({"libheadrace-none.so.13"}, {folder, ""});
  EXPECT_EQ(opened.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(opened.status().message()), HasSubstr("libheadrace-none.so.13 not found in " + folder));
  EXPECT_THAT(std::string(opened.status().message()), HasSubstr("HEADRACE_CUDA_LIBRARIES"));
}

TEST_F(DynamicLibraryTest, AFileThatIsNoLibraryIsSaidToBeThere) {
  std::ofstream(folder + "/libheadrace-none.so.13") << "not a library";
  const auto opened = DynamicLibrary::open({"libheadrace-none.so.13"}, {folder});
  EXPECT_THAT(std::string(opened.status().message()), HasSubstr(folder + "/libheadrace-none.so.13:"));
}

TEST_F(DynamicLibraryTest, SymbolsAreFoundOrNamed) {
  const auto opened = DynamicLibrary::open({"libm.so.6"}, {""});
  ASSERT_TRUE(opened.ok()) << opened.status();
  double (*cosine)(double) = nullptr;
  ASSERT_TRUE(opened->find("cos", cosine).ok());
  EXPECT_EQ(cosine(0), 1);
  EXPECT_THAT(std::string(opened->find("no_such_function", cosine).message()), HasSubstr("no no_such_function"));
}

} // namespace
} // namespace headrace::cuda
