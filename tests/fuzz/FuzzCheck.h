// SPDX-License-Identifier: Apache-2.0
//
// What fuzz targets assert: a fuzzer finds crashes by itself, and broken promises through this.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/status/status.h"

#define FUZZ_CHECK(condition)                                                                                          \
  do {                                                                                                                 \
    if (!(condition)) {                                                                                                \
      std::fprintf(stderr, "%s:%d: broken: %s\n", __FILE__, __LINE__, #condition);                                     \
      std::abort();                                                                                                    \
    }                                                                                                                  \
  } while (false)

// A refusal is one of bad input, begins with the file, and is short enough to read, with nothing unprintable in it.
inline void checkRefusal(const absl::Status &status, const std::string &file) {
  FUZZ_CHECK(status.code() == absl::StatusCode::kInvalidArgument || status.code() == absl::StatusCode::kNotFound ||
             status.code() == absl::StatusCode::kDataLoss);
  const std::string message(status.message());
  FUZZ_CHECK(message.rfind(file, 0) == 0);
  FUZZ_CHECK(message.size() < 4096);
  for (char c : message)
    FUZZ_CHECK(static_cast<unsigned char>(c) >= 0x20 && c != 0x7F);
}
