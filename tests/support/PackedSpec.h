// SPDX-License-Identifier: Apache-2.0
//
// Specs of models that groups divide, and packed ones.
#pragma once

#include <string>

#include "runtime/model/ModelSpec.h"
#include "runtime/model/WeightEncodings.h"
#include "gtest/gtest.h"

namespace headrace::model {

// The sizes that linear ops read, as multiples of 32, the smallest group.
inline ModelSpec roundedUp(ModelSpec spec) {
  for (int64_t *size : {&spec.hidden, &spec.headDim, &spec.intermediate})
    *size = (*size + 31) / 32 * 32;
  return spec;
}

inline ModelSpec packedSpec(ModelSpec spec, const std::string &text) {
  std::string expected;
  const auto encodings = weightEncodingsFromText(text, spec, expected);
  EXPECT_TRUE(encodings) << text << ": " << expected;
  spec.encodings = encodings.value_or(WeightEncodings());
  EXPECT_TRUE(validate(spec, text).ok()) << validate(spec, text);
  return spec;
}

} // namespace headrace::model
