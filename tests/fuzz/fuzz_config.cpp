// SPDX-License-Identifier: Apache-2.0
//
// Any bytes as config.json: refused by name, or a spec that validates and whose weights can be laid out.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "runtime/model/HfConfig.h"
#include "runtime/model/WeightLayout.h"
#include "tests/fuzz/FuzzCheck.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  using namespace headrace::model;
  const std::string_view text(reinterpret_cast<const char *>(data), size);
  const auto spec = parseHfConfig(text, "config.json", "fuzzed");
  if (!spec.ok()) {
    checkRefusal(spec.status(), "config.json: ");
    return 0;
  }
  FUZZ_CHECK(validate(*spec, "again").ok());
  FUZZ_CHECK(spec->layers <= kMaxLayers);
  if (spec->layers > 64) // 4 units a layer: enough of them were laid out elsewhere
    return 0;
  const WeightLayout layout = layoutWeights(*spec);
  FUZZ_CHECK(layout.units.size() == static_cast<size_t>(4 * spec->layers + 2));
  FUZZ_CHECK(parameterCount(layout) <= layout.totalBytes());
  return 0;
}
