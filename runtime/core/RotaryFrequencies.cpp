// SPDX-License-Identifier: Apache-2.0
//
// Inverse frequencies of rotary position embedding. Computed in F32 step by step like Hugging Face's
// modeling_rope_utils.py
// (_compute_default_rope_parameters, _compute_linear_scaling_rope_parameters, _compute_llama3_parameters): at long
// positions a frequency's last bit is visible in the logits.
#include <cmath>

#include "runtime/core/BindStep.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::core {
namespace {

// Wavelengths over originalMaxPositions / lowFreqFactor are divided by factor, those under originalMaxPositions /
// highFreqFactor kept, between them the two are blended.
float scaleLlama3(float frequency, const model::Rope &rope) {
  const float length = static_cast<float>(rope.originalMaxPositions);
  const float low = static_cast<float>(rope.lowFreqFactor), high = static_cast<float>(rope.highFreqFactor);
  const float factor = static_cast<float>(rope.factor);
  const float wavelength = 2.0f * static_cast<float>(M_PI) / frequency;
  if (wavelength > length / low)
    return frequency / factor;
  if (wavelength < length / high)
    return frequency;
  const float smooth = (length / wavelength - low) / (high - low);
  return (1.0f - smooth) * frequency / factor + smooth * frequency;
}

} // namespace

std::vector<float> inverseFrequencies(const model::Rope &rope, int64_t headDim) {
  std::vector<float> result(static_cast<size_t>(headDim / 2));
  for (size_t j = 0; j < result.size(); ++j) {
    const float exponent = static_cast<float>(2 * j) / static_cast<float>(headDim);
    float frequency = 1.0f / std::pow(static_cast<float>(rope.theta), exponent);
    switch (rope.scaling) {
    case model::RopeScalingKind::None:
      break;
    case model::RopeScalingKind::Linear:
      frequency /= static_cast<float>(rope.factor);
      break;
    case model::RopeScalingKind::Llama3:
      frequency = scaleLlama3(frequency, rope);
      break;
    }
    result[j] = frequency;
  }
  return result;
}

} // namespace headrace::core
