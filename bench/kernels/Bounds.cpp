// SPDX-License-Identifier: Apache-2.0
#include "bench/kernels/Bounds.h"

#include <cblas.h>
#include <immintrin.h>
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#include "kernels/Half.h"

namespace headrace::bench {

Buffer::Buffer(uint64_t bytes) : length((bytes + (2u << 20) - 1) & ~uint64_t{(2u << 20) - 1}) {
  memory = std::aligned_alloc(2u << 20, length);
  if (memory == nullptr)
    std::abort();
  madvise(memory, length, MADV_HUGEPAGE);
  std::memset(memory, 0, length);
}
Buffer::~Buffer() { std::free(memory); }

static float valueAt(uint64_t i) {
  return kernels::floatFromBits(0x3f800000u | static_cast<uint32_t>(i * 0x9E3779B97F4A7C15ull >> 41));
}
void fillFloats(float *out, uint64_t n) {
  for (uint64_t i = 0; i < n; ++i)
    out[i] = valueAt(i);
}
void fillHalves(uint16_t *out, uint64_t n, bool bfloat) {
  for (uint64_t i = 0; i < n; ++i)
    out[i] = bfloat ? kernels::bf16FromFloat(valueAt(i)) : kernels::f16FromFloat(valueAt(i));
}

// `streams` parts of the memory are read side by side, each with software prefetch `ahead` bytes forward if not zero.
struct ReadManner {
  int64_t streams = 1, ahead = 0;
};
static ReadManner best;

template <int kStreams>
__attribute__((target("avx2"))) static void readStreams(const char *p, uint64_t bytes, int64_t ahead) {
  constexpr uint64_t kStep = 128;
  const uint64_t part = bytes / kStreams / kStep * kStep;
  __m256i sum[4] = {};
  for (uint64_t i = 0; i < part; i += kStep)
    for (int s = 0; s < kStreams; ++s) {
      const char *at = p + s * part + i;
      if (ahead > 0) {
        _mm_prefetch(at + ahead, _MM_HINT_T0);
        _mm_prefetch(at + ahead + 64, _MM_HINT_T0);
      }
      for (int j = 0; j < 4; ++j)
        sum[j] = _mm256_xor_si256(sum[j], _mm256_load_si256(reinterpret_cast<const __m256i *>(at + 32 * j)));
    }
  sum[0] = _mm256_xor_si256(_mm256_xor_si256(sum[0], sum[1]), _mm256_xor_si256(sum[2], sum[3]));
  int64_t result = _mm256_extract_epi64(sum[0], 0);
  benchmark::DoNotOptimize(result);
}

static void readWith(const void *memory, uint64_t bytes, ReadManner manner) {
  const char *p = static_cast<const char *>(memory);
  switch (manner.streams) {
  case 1:
    return readStreams<1>(p, bytes, manner.ahead);
  case 2:
    return readStreams<2>(p, bytes, manner.ahead);
  case 4:
    return readStreams<4>(p, bytes, manner.ahead);
  default:
    return readStreams<8>(p, bytes, manner.ahead);
  }
}

void readMemory(const void *memory, uint64_t bytes) { readWith(memory, bytes, best); }

double calibrateReading() {
  const Buffer buffer(256u << 20);
  double bestTime = 1e30;
  for (int64_t streams : {1, 2, 4, 8})
    for (int64_t ahead : {0, 512, 1024, 2048}) {
      std::vector<double> times;
      for (int pass = 0; pass < 7; ++pass)
        times.push_back(timeOf([&] { readWith(buffer.as<void>(), buffer.bytes(), {streams, ahead}); }));
      std::sort(times.begin(), times.end());
      if (times[2] < bestTime) {
        bestTime = times[2];
        best = {streams, ahead};
      }
    }
  return static_cast<double>(buffer.bytes()) / bestTime;
}

extern "C" void openblas_set_num_threads(int);

void sgemm(const float *x, const float *w, float *y, int64_t rows, int64_t n, int64_t k) {
  openblas_set_num_threads(1);
  const int m = static_cast<int>(rows), columns = static_cast<int>(n), depth = static_cast<int>(k);
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, m, columns, depth, 1.0f, x, depth, w, depth, 0.0f, y, columns);
}

double sgemmPeakFlops() {
  constexpr int64_t kSize = 1536;
  Buffer a(kSize * kSize * 4), b(kSize * kSize * 4), c(kSize * kSize * 4);
  fillFloats(a.as<float>(), kSize * kSize);
  fillFloats(b.as<float>(), kSize * kSize);
  double bestTime = 1e30;
  for (int pass = 0; pass < 5; ++pass) {
    bestTime =
        std::min(bestTime, timeOf([&] { sgemm(a.as<float>(), b.as<float>(), c.as<float>(), kSize, kSize, kSize); }));
  }
  return 2.0 * kSize * kSize * kSize / bestTime;
}

} // namespace headrace::bench
