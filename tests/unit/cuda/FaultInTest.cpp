// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/FaultIn.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <barrier>
#include <cerrno>
#include <thread>
#include <vector>

namespace headrace::cuda {
namespace {

using testing::HasSubstr;

constexpr uint64_t kPage = 4096, kPages = 64, kBytes = kPage * kPages;

class FaultIn : public testing::Test {
protected:
  FaultIn()
      : data_(static_cast<std::byte *>(
            ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {}
  ~FaultIn() override { ::munmap(data_, kBytes); }
  uint64_t resident() const {
    std::vector<unsigned char> pages(kPages);
    EXPECT_EQ(::mincore(data_, kBytes, pages.data()), 0);
    uint64_t count = 0;
    for (unsigned char page : pages)
      count += page & 1;
    return count;
  }
  std::byte *const data_;
};

TEST_F(FaultIn, GivesEveryPageMemory) {
  ASSERT_EQ(resident(), 0u);
  ASSERT_TRUE(faultIn(data_, kBytes, 3 * kPage, 4, nullptr).ok()); // the last chunk is one page
  EXPECT_EQ(resident(), kPages);
}

// Each of four chunks waits for the other three.
TEST_F(FaultIn, ByThreadsSideBySide) {
  std::barrier all(4);
  const absl::Status status = faultIn(data_, kBytes, kBytes / 4, 4, nullptr, [&](std::byte *, uint64_t) {
    all.arrive_and_wait();
    return 0;
  });
  EXPECT_TRUE(status.ok()) << status;
}

TEST_F(FaultIn, SaysHowFarItIsOnTheCallersThread) {
  std::vector<uint64_t> done;
  const auto progress = [&, caller = std::this_thread::get_id()](uint64_t bytes, uint64_t total) {
    EXPECT_EQ(std::this_thread::get_id(), caller);
    EXPECT_EQ(total, kBytes);
    EXPECT_TRUE(done.empty() || bytes >= done.back());
    done.push_back(bytes);
  };
  ASSERT_TRUE(faultIn(data_, kBytes, kPage, 1, progress).ok());
  EXPECT_EQ(done.size(), kPages + 1);
  EXPECT_EQ(done.front(), kPage);
  EXPECT_EQ(done.back(), kBytes);
  done.clear();
  ASSERT_TRUE(faultIn(data_, kBytes, kPage, 3, progress).ok());
  EXPECT_EQ(done.back(), kBytes);
}

TEST_F(FaultIn, NamesHowFarItWentWhereMemoryLacks) {
  int calls = 0;
  uint64_t last = 0;
  const absl::Status status = faultIn(
      data_, kBytes, kPage, 1, [&](uint64_t done, uint64_t) { last = done; },
      [&](std::byte *, uint64_t) { return ++calls == 3 ? ENOMEM : 0; });
  EXPECT_EQ(calls, 3);
  EXPECT_EQ(last, kBytes) << "the step of progress ends";
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("after 8192 of 262144 bytes: Cannot allocate memory"));
}

TEST_F(FaultIn, PagesOnAnotherNodeAreCounted) {
  ASSERT_EQ(populate(data_, kBytes), 0);
  const std::optional<uint64_t> none = bytesElsewhere(data_, kBytes, 0);
  // On a machine of one node all of them are there; of no node 512. Where the system does not say, nothing is.
  EXPECT_EQ(bytesElsewhere(data_, kBytes, 512), none ? std::optional(kBytes) : std::nullopt);
  EXPECT_LE(none.value_or(0), kBytes);
}

TEST(PagesElsewhere, AreSaidWithTheirNode) {
  EXPECT_EQ(elsewhereNotice(0, kBytes, 1), "");
  EXPECT_THAT(elsewhereNotice(10, 20, 1), HasSubstr("about 10 of 20 bytes are not on NUMA node 1, which is the GPU's"));
}

} // namespace
} // namespace headrace::cuda
