// SPDX-License-Identifier: Apache-2.0
//
// What the kernels are held against: the rate at which one thread reads memory, and OpenBLAS' sgemm on one thread.
//
// Each benchmark measures its bound itself, in turns with the kernel, on the same memory: one pass of the bound, one of
// the kernel, and so on. `share` is the median over the turns of bound time / kernel time, so that a neighbour on the
// machine or a change of clock meets both alike. Times are the thread's CPU time.
#pragma once

#include <benchmark/benchmark.h>

#include <time.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace headrace::bench {

// Page-aligned memory, in huge pages where the system gives them, touched.
class Buffer {
public:
  explicit Buffer(uint64_t bytes);
  ~Buffer();
  Buffer(const Buffer &) = delete;
  Buffer &operator=(const Buffer &) = delete;
  template <typename T> T *as() const { return static_cast<T *>(memory); }
  uint64_t bytes() const { return length; }

private:
  void *memory;
  uint64_t length;
};

// Values of one to two in all of `n` floats, or of the 16-bit elements made from them.
void fillFloats(float *out, uint64_t n);
void fillHalves(uint16_t *out, uint64_t n, bool bfloat);

// Reads all the bytes with AVX2 loads, in the way that `calibrateReading` found fastest.
void readMemory(const void *memory, uint64_t bytes);
// Tries numbers of streams and prefetch distances on memory larger than the caches; bytes per second of the best.
double calibrateReading();

// y[rows, n] = x[rows, k] w[n, k]^T in F32, one thread.
void sgemm(const float *x, const float *w, float *y, int64_t rows, int64_t n, int64_t k);
// Multiply-adds count two: the rate at 1536 x 1536 x 1536.
double sgemmPeakFlops();

// CPU time of this thread: what others do on the machine's cores does not count, what they do to its memory does.
inline double threadSeconds() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}
// The time one call of f takes.
template <typename F> double timeOf(F f) {
  const double start = threadSeconds();
  f();
  return threadSeconds() - start;
}

// Runs bound and kernel in turns; reports the kernel's time, and the counters `share` and `bound_ms`.
template <typename Bound, typename Kernel> void inTurns(benchmark::State &state, Bound bound, Kernel kernel) {
  std::vector<double> ratios, bounds;
  kernel();
  for (auto _ : state) {
    const double boundTime = timeOf(bound), kernelTime = timeOf(kernel);
    state.SetIterationTime(kernelTime);
    ratios.push_back(boundTime / kernelTime);
    bounds.push_back(boundTime);
  }
  auto median = [](std::vector<double> &v) {
    std::nth_element(v.begin(), v.begin() + v.size() / 2, v.end());
    return v[v.size() / 2];
  };
  state.counters["share"] = median(ratios);
  state.counters["bound_ms"] = median(bounds) * 1e3;
}

} // namespace headrace::bench
