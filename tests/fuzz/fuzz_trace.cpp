// SPDX-License-Identifier: Apache-2.0
//
// Any bytes as a trace: refused by name, or requests in order of arrival with lengths of at least one.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "runtime/serve/traffic/TraceFile.h"
#include "tests/fuzz/FuzzCheck.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  using namespace headrace::serve;
  const auto trace = parseTrace({reinterpret_cast<const char *>(data), size}, "trace");
  if (!trace.ok()) {
    checkRefusal(trace.status(), "trace: ");
    return 0;
  }
  FUZZ_CHECK(!trace->requests.empty());
  int64_t before = 0;
  for (const TrafficRequest &one : trace->requests) {
    FUZZ_CHECK(one.arrivalNs >= before);
    before = one.arrivalNs;
    FUZZ_CHECK(one.tokensOfPrompt() >= 1 && one.outputTokens >= 1);
  }
  FUZZ_CHECK(trace->warnings.size() <= 1);
  return 0;
}
