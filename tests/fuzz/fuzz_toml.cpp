// SPDX-License-Identifier: Apache-2.0
//
// Any bytes as a shape, a hardware profile, a job and a fleet: refused by name, or values that validate.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/job/FleetFile.h"
#include "runtime/job/JobFile.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/model/Shape.h"
#include "runtime/model/WeightEncodings.h"
#include "tests/fuzz/FuzzCheck.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  using namespace headrace::model;
  const std::string_view text(reinterpret_cast<const char *>(data), size);

  const auto shape = parseShape(text, "shape.toml");
  if (!shape.ok())
    checkRefusal(shape.status(), "shape.toml:");
  else {
    FUZZ_CHECK(validate(*shape, "again").ok());
    // What is packed is what its text says.
    if (const std::string packed = weightEncodingText(*shape); !packed.empty()) {
      std::string expected;
      FUZZ_CHECK(weightEncodingsFromText(packed, *shape, expected) == shape->encodings);
    }
  }

  const auto hardware = parseHardware(text, "hardware.toml");
  if (!hardware.ok())
    checkRefusal(hardware.status(), "hardware.toml:");
  else
    FUZZ_CHECK(validate(*hardware, "again").ok());

  // The folder does not exist: a path in the job finds no file but by an absolute path or a shipped name.
  const auto job = parseJob(text, "/nonexistent/job.toml");
  if (!job.ok())
    checkRefusal(job.status(), "/nonexistent/job.toml:");
  else
    FUZZ_CHECK(validate(*job, "again").ok());

  const auto fleet = parseFleet(text, "fleet.toml");
  if (!fleet.ok())
    checkRefusal(fleet.status(), "fleet.toml:");
  else
    FUZZ_CHECK(fleet->busBandwidth > 0 && !fleet->devices.empty() && !fleet->loads.empty());
  return 0;
}
