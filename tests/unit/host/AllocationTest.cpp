// SPDX-License-Identifier: Apache-2.0
//
// An iteration allocates nothing, on any of the device's threads: this binary counts every call of the allocator.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>

#include "runtime/core/MetaWriter.h"
#include "runtime/core/Runtime.h"
#include "runtime/host/HostDevice.h"
#include "runtime/serve/BatchEngine.h"
#include "tests/unit/core/TinyPlan.h"

namespace {
std::atomic<uint64_t> allocations{0};
}

// operator new ends here too.
extern "C" {
void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);
void *malloc(size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_malloc(bytes);
}
void *calloc(size_t count, size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_calloc(count, bytes);
}
void *realloc(void *old, size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_realloc(old, bytes);
}
void *aligned_alloc(size_t alignment, size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void **out, size_t alignment, size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  *out = __libc_memalign(alignment, bytes);
  return *out == nullptr ? 12 : 0;
}
}

namespace headrace::host {
namespace {

std::unique_ptr<core::Runtime> load(const plan::Plan &plan, core::Device &device) {
  const auto weights = model::syntheticWeights(3);
  auto runtime = core::Runtime::load(plan, device, {.linkBandwidth = 4e9, .trace = true}, weights.get(), {});
  EXPECT_TRUE(runtime.ok()) << runtime.status();
  return runtime.ok() ? *std::move(runtime) : nullptr;
}

TEST(Allocations, AreCounted) {
  const uint64_t before = allocations.load();
  std::vector<int> *volatile v = new std::vector<int>(100);
  delete v;
  EXPECT_EQ(allocations.load() - before, 2u);
}

TEST(Allocations, LaunchingAndAwaitingDoNotAllocate) {
  const plan::Plan plan = core::tinyPlan({.spec = core::tinyLlama(4), .offloaded = {1, 3}, .wrap = true});
  const auto device = makeHostDevice();
  const auto runtime = load(plan, *device);
  const int32_t prompt[] = {1, 2, 3, 4, 5}, token = -1, blocks[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  uint64_t before = 0;
  for (int i = 0; i < 30; ++i) {
    if (i == 3) // two launches have ended: what the C library makes once a thread is there
      before = allocations.load();
    const core::SequenceRows rows[] = {{.tokens = {&token, 1}, .firstPosition = i, .blocks = blocks, .sample = true},
                                       {.tokens = prompt, .blocks = blocks, .sample = i % 2 == 0, .requestSlot = 1}};
    const size_t count = i % 3 == 0 ? 2 : 1; // mixed and decode in turn
    ASSERT_TRUE(core::writeMeta(plan.metaLayout, plan.blockTokens, {rows, count}, device->meta()).ok());
    const auto variant = runtime->choose(count == 2 ? 6 : 1, static_cast<int64_t>(count), i + 1);
    ASSERT_TRUE(variant.ok());
    ASSERT_TRUE(runtime->launch(*variant).ok());
    if (i > 0) { // two in flight
      ASSERT_TRUE(runtime->awaitTokens().ok());
    }
  }
  ASSERT_TRUE(runtime->awaitTokens().ok());
  ASSERT_TRUE(device->drain().ok());
  EXPECT_EQ(allocations.load() - before, 0u);
}

TEST(Allocations, TheEngineAllocatesBeforeItsFirstIterationOnly) {
  const plan::Plan plan = core::tinyPlan({.spec = core::tinyLlama(4), .offloaded = {0, 2}, .wrap = true});
  const auto device = makeHostDevice();
  const auto runtime = load(plan, *device);
  serve::GenerateRequest request;
  request.prompts = {{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, {5, 6}, {7}};
  request.maxNewTokens = 25;
  std::vector<uint64_t> seen;
  seen.reserve(100);
  request.onIteration = [&](uint32_t, int64_t) { seen.push_back(allocations.load()); };
  ASSERT_TRUE(serve::generate(*runtime, request).ok());
  ASSERT_GT(seen.size(), 20u);
  EXPECT_EQ(seen.back(), seen.front());
}

} // namespace
} // namespace headrace::host
