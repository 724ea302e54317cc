// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/plan/AllocationGuard.h"

#include <malloc.h>

#include <algorithm>
#include <cstdlib>
#include <new>

namespace headrace::plan::test {
namespace {

thread_local bool counting = false;
thread_local std::ptrdiff_t now = 0, peak = 0;

void *take(size_t bytes) {
  void *p = std::malloc(std::max<size_t>(bytes, 1));
  if (!p)
    std::abort();
  if (counting) {
    now += static_cast<std::ptrdiff_t>(malloc_usable_size(p));
    peak = std::max(peak, now);
  }
  return p;
}
void giveBack(void *p) {
  if (p && counting)
    now -= static_cast<std::ptrdiff_t>(malloc_usable_size(p));
  std::free(p);
}

} // namespace

AllocationGuard::AllocationGuard() {
  now = peak = 0;
  counting = true;
}
AllocationGuard::~AllocationGuard() { counting = false; }
size_t AllocationGuard::peakBytes() const { return static_cast<size_t>(peak); }

} // namespace headrace::plan::test

void *operator new(size_t bytes) { return headrace::plan::test::take(bytes); }
void *operator new[](size_t bytes) { return headrace::plan::test::take(bytes); }
void operator delete(void *p) noexcept { headrace::plan::test::giveBack(p); }
void operator delete[](void *p) noexcept { headrace::plan::test::giveBack(p); }
void operator delete(void *p, size_t) noexcept { headrace::plan::test::giveBack(p); }
void operator delete[](void *p, size_t) noexcept { headrace::plan::test::giveBack(p); }
