// SPDX-License-Identifier: Apache-2.0
//
// Any bytes as a plan file, as they are and with the end that would make them whole (else a checksum would be all that
// is tested): refused by name, or a plan that survives its own verifier and all that prints it.
#include <cstddef>
#include <cstdint>
#include <string>

#include "runtime/plan/PlanFile.h"
#include "runtime/plan/proof/PlanVerifier.h"
#include "runtime/plan/value/CacheMap.h"
#include "runtime/plan/value/PlanBytes.h"
#include "tests/fuzz/FuzzCheck.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  using namespace headrace::plan;
  const auto asIs = parse(absl::MakeConstSpan(reinterpret_cast<const std::byte *>(data), size), "a.plan");
  if (!asIs.ok())
    checkRefusal(asIs.status(), "a.plan:");
  const std::string file = sealed(std::string(reinterpret_cast<const char *>(data), size));
  const auto plan = parse(absl::MakeConstSpan(reinterpret_cast<const std::byte *>(file.data()), file.size()), "a.plan");
  if (!plan.ok()) {
    checkRefusal(plan.status(), "a.plan:");
    return 0;
  }
  // What was read is what is written.
  const std::string written = serialize(*plan);
  const auto again =
      parse(absl::MakeConstSpan(reinterpret_cast<const std::byte *>(written.data()), written.size()), "again");
  FUZZ_CHECK(again.ok());
  FUZZ_CHECK(serialize(*again) == written);

  const absl::Status verified = verifyPlan(*plan, "a.plan");
  if (!verified.ok())
    checkRefusal(verified, "a.plan:");
  FUZZ_CHECK(verified.ok() == findViolations(*plan).empty());
  for (uint32_t i = 0; i < plan->schedules.size(); ++i) {
    const uint64_t live = largestLiveBytes(*plan, i);
    const DeviceBytes bytes = deviceBytes(*plan, i);
    linkBytes(plan->schedules[i]);
    if (verified.ok()) {
      FUZZ_CHECK(live <= bytes.peak);
      FUZZ_CHECK(bytes.peak <= plan->arenaBytes);
    }
  }
  for (uint32_t i = 0; i < plan->placements.size(); ++i) {
    weightBytesByHome(*plan, i);
    kvBytesByHome(*plan, i);
    if (verified.ok()) {
      FUZZ_CHECK(CacheMap(*plan, plan->placements[i]).resident() <= plan->placements[i].kvBlocks);
    }
  }
  return 0;
}
