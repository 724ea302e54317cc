// SPDX-License-Identifier: Apache-2.0
//
// Counts what is taken from the heap in this thread: proof that nothing is allocated on the word of untrusted bytes.
#pragma once

#include <cstddef>

namespace headrace::plan::test {

// While one exists, the bytes that operator new hands out and that are not returned yet are counted.
class AllocationGuard {
public:
  AllocationGuard();
  ~AllocationGuard();
  size_t peakBytes() const; // the most at one time
};

} // namespace headrace::plan::test
