// SPDX-License-Identifier: Apache-2.0
#include "runtime/host/Cores.h"

#include <gtest/gtest.h>

#include <sched.h>

#include <filesystem>
#include <fstream>

namespace headrace::host {
namespace {

namespace fs = std::filesystem;

class Cores : public testing::Test {
protected:
  Cores() : root_(fs::path(testing::TempDir()) / "headrace_cores") {
    fs::remove_all(root_);
    fs::create_directories(root_);
  }
  ~Cores() override { fs::remove_all(root_); }
  CoreFiles files() const { return {(root_ / "sys").string(), (root_ / "proc").string()}; }
  void write(const std::string &path, const std::string &text) const {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }

private:
  const fs::path root_;
};

TEST_F(Cores, OneOfEachPhysicalCoreComesBeforeTheSecondOfAny) {
  const std::vector<int> all = usableCores(files()); // nothing is said: each is one
  ASSERT_FALSE(all.empty());
  EXPECT_TRUE(std::is_sorted(all.begin(), all.end()));
  for (const int core : all) { // all of one core but the last
    const std::string topology = "sys/devices/system/cpu/cpu" + std::to_string(core) + "/topology/";
    write(topology + "physical_package_id", "0\n");
    write(topology + "core_id", core == all.back() ? "7\n" : "3\n");
  }
  std::vector<int> expected = {all.front()};
  if (all.size() > 1)
    expected.push_back(all.back());
  for (size_t i = 1; i + 1 < all.size(); ++i)
    expected.push_back(all[i]);
  EXPECT_EQ(usableCores(files()), expected);
}

TEST_F(Cores, AnAffinityThatHasChangedIsTheOneThatCounts) {
  cpu_set_t before, one;
  ASSERT_EQ(::sched_getaffinity(0, sizeof(before), &before), 0);
  const int core = usableCores().back();
  CPU_ZERO(&one);
  CPU_SET(core, &one);
  ASSERT_EQ(::sched_setaffinity(0, sizeof(one), &one), 0);
  EXPECT_EQ(usableCores(), std::vector<int>{core});
  EXPECT_EQ(defaultThreads(files()), 1);
  ASSERT_EQ(::sched_setaffinity(0, sizeof(before), &before), 0);
  EXPECT_EQ(usableCores().size(), static_cast<size_t>(CPU_COUNT(&before)));
}

TEST_F(Cores, TheQuotaIsTheLeastOfTheGroupsThatItIsIn) {
  EXPECT_EQ(coresByQuota(files()), 0); // no groups
  write("proc/cgroup", "0::/a/b\n");
  EXPECT_EQ(coresByQuota(files()), 0); // none with a limit
  write("sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  EXPECT_EQ(coresByQuota(files()), 0);
  write("sys/fs/cgroup/a/cpu.max", "350000 100000\n"); // three and a half
  EXPECT_EQ(coresByQuota(files()), 3);
  write("sys/fs/cgroup/a/b/cpu.max", "50000 100000\n"); // half of one
  EXPECT_EQ(coresByQuota(files()), 1);
  EXPECT_EQ(defaultThreads(files()), 1);
}

TEST_F(Cores, AQuotaAtTheRootCountsWhereTheGroupIsOutOfSight) {
  write("proc/cgroup", "0::/docker/1234\n");
  write("sys/fs/cgroup/cpu.max", "200000 100000\n");
  EXPECT_EQ(coresByQuota(files()), 2);
}

TEST_F(Cores, ElderGroupsHaveTheirQuotaInTwoFiles) {
  write("proc/cgroup", "5:memory:/m\n4:cpu,cpuacct:/c\n");
  write("sys/fs/cgroup/cpu/c/cpu.cfs_quota_us", "-1\n");
  write("sys/fs/cgroup/cpu/c/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(coresByQuota(files()), 0);
  write("sys/fs/cgroup/cpu/c/cpu.cfs_quota_us", "400000\n");
  EXPECT_EQ(coresByQuota(files()), 4);
  write("sys/fs/cgroup/cpu/c/cpu.cfs_quota_us", "x\n");
  EXPECT_EQ(coresByQuota(files()), 0);
}

} // namespace
} // namespace headrace::host
