// SPDX-License-Identifier: Apache-2.0
//
// Random numbers that are the same on every machine. The generator is counter-based (kernels/Philox.h): number n of a
// stream is a function of seed, stream and n. The distributions are made of sums, products, quotients and square roots,
// which IEEE 754 rounds the same way everywhere: no std:: distribution, whose algorithm is the library's own, and no
// logarithm of the C library, whose last bit depends on its version and on the processor.
#pragma once

#include <cstdint>

namespace headrace::serve {

// What is drawn with a seed, each from numbers of its own.
enum class Stream : uint8_t { Arrivals, PromptLengths, OutputLengths, PromptIds };

class Random {
public:
  // `substream`: below 2^24.
  Random(uint64_t seed, Stream stream, uint64_t substream = 0);

  double uniform();                             // in (0, 1), 53 bits
  int64_t between(int64_t least, int64_t most); // either included; most - least below 2^53
  double exponential();                         // of mean 1
  double normal();                              // of mean 0 and variance 1 (Marsaglia's polar method)
  // Of mean `shape` and scale 1 (Marsaglia and Tsang, 2000). shape > 0; of 1 it is exponential().
  double gamma(double shape);

private:
  const uint64_t seed_;
  uint64_t position_;
};

// Of finite x > 0, and of x in [-700, 700]: within 4 ulp, of operations that IEEE 754 defines alone.
double portableLog(double x);
double portableExp(double x);

} // namespace headrace::serve
