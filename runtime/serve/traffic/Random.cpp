// SPDX-License-Identifier: Apache-2.0
#include "runtime/serve/traffic/Random.h"

#include <algorithm>
#include <cmath>

#include "kernels/Philox.h"

namespace headrace::serve {
namespace {

constexpr uint64_t kSubstreams = uint64_t{1} << 24;
constexpr double kLn2High = 0x1.62e42fefa0000p-1, kLn2Low = 0x1.cf79abc9e3b39p-40; // the first times k <= 2^10 is exact

} // namespace

// The position: 8 bits of stream, 24 of substream, 32 of the number drawn.
Random::Random(uint64_t seed, Stream stream, uint64_t substream)
    : seed_(seed), position_(uint64_t{static_cast<uint8_t>(stream)} << 56 | substream % kSubstreams << 32) {}

double Random::uniform() { return kernels::philoxUniform(seed_, position_++) + 0x1p-54; }

int64_t Random::between(int64_t least, int64_t most) {
  const auto values = static_cast<double>(most - least + 1);
  return std::min(most, least + static_cast<int64_t>(uniform() * values));
}

double Random::exponential() { return -portableLog(uniform()); }

double Random::normal() {
  for (;;) {
    const double x = 2 * uniform() - 1, y = 2 * uniform() - 1, s = x * x + y * y;
    if (s > 0 && s < 1)
      return x * std::sqrt(-2 * portableLog(s) / s);
  }
}

double Random::gamma(double shape) {
  if (shape == 1)
    return exponential();
  if (shape < 1) { // that of shape + 1 times u^(1 / shape)
    const double log = portableLog(uniform()) / shape;
    const double above = gamma(shape + 1);
    return log < -700 ? 0 : above * portableExp(log);
  }
  const double d = shape - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  for (;;) {
    const double x = normal(), root = 1 + c * x, v = root * root * root, u = uniform();
    if (root > 0 && (u < 1 - 0.0331 * x * x * x * x || portableLog(u) < 0.5 * x * x + d * (1 - v + portableLog(v))))
      return d * v;
  }
}

// x = m 2^k, m near 1; log m = 2 atanh(t), t = (m - 1) / (m + 1), |t| < 0.172: its series ends below 2^-56 at t^21.
double portableLog(double x) {
  int k = 0;
  double m = std::frexp(x, &k); // in [1/2, 1)
  if (m < 0.70710678118654752440) {
    m *= 2;
    --k;
  }
  const double t = (m - 1) / (m + 1), t2 = t * t;
  double sum = 0;
  for (int n = 21; n >= 3; n -= 2)
    sum = (sum + 1.0 / n) * t2;
  return k * kLn2High + (2 * t + (2 * t * sum + k * kLn2Low));
}

// x = k ln 2 + r, |r| <= 0.347; exp r by its series, which ends below 2^-56 at r^14.
double portableExp(double x) {
  const double k = std::floor(x / (kLn2High + kLn2Low) + 0.5);
  const double r = (x - k * kLn2High) - k * kLn2Low;
  double sum = 1;
  for (int n = 14; n >= 1; --n)
    sum = 1 + sum * r / n;
  return std::ldexp(sum, static_cast<int>(k));
}

} // namespace headrace::serve
