// SPDX-License-Identifier: Apache-2.0
//
// What every device does first when it builds a graph, done and refused in the same words: what the key asks for, the
// form of its steps, where a copy's bytes are, and what each lane waits for. How a step runs is each device's own.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/core/BindStep.h"
#include "runtime/core/Device.h"
#include "runtime/core/InUse.h"
#include "runtime/core/LaunchChecks.h"
#include "runtime/plan/value/Plan.h"

namespace headrace::core {

// Lanes of a device that runs steps: those of plan::Lane.
inline constexpr size_t kGraphLanes = plan::kLanes;
constexpr size_t laneIndex(plan::Lane lane) { return static_cast<size_t>(lane); }

// What a key asks to build; all of it is the plan's.
struct GraphSource {
  const plan::Schedule *schedule = nullptr;
  const plan::Variant *variant = nullptr; // null: a transition
  absl::Span<const uint64_t> durationsNs; // one a step
  Bucket bucket;                          // a variant's
};
// InvalidArgument for a key, or a schedule, that the plan has not.
absl::StatusOr<GraphSource> graphSource(const plan::Plan &plan, const GraphKey &key);

// InvalidArgument: "schedule 'S', step I: message".
absl::Status refuseStep(const plan::Schedule &schedule, uint32_t step, std::string_view message);

// The form of all steps: compute in the compute lane or the CPU's, publish in the compute lane, operands in the
// schedule's list, and exactly one publish; a transition has copies only.
absl::Status checkSteps(const GraphSource &source);

// Memory that a copy may name, in this process or on this device.
struct GraphSpaces {
  Bases bases;
  uint64_t deviceBytes = 0, hostBytes = 0;
};
// What a copy copies: one run of bytes, or the blocks of an interleaved side (plan::Operand), which are one run on the
// host and rows on the device.
struct CopySides {
  bool toDevice = true;
  std::byte *destination = nullptr;
  const std::byte *source = nullptr;
  uint64_t bytes = 0;             // all that a launch may copy
  uint64_t rowBytes = 0;          // of one row, 0: one run on both sides; `bytes` is whole rows
  uint64_t pitch = 0;             // from the beginning of a row to that of the next, on the device
  std::optional<SizedCopy> sized; // of a resizable copy

  bool inRows() const { return rowBytes != 0; }
  uint64_t rows() const { return inRows() ? bytes / rowBytes : 1; }
  // What a launch copies of it.
  CopyRun runIn(const LaunchInUse &inUse) const {
    return sized.has_value() ? runInUse(*sized, inUse) : CopyRun{0, bytes};
  }
  uint64_t bytesIn(const LaunchInUse &inUse) const { return runIn(inUse).bytes; }
};
// Of a Copy step that checkSteps() accepts. Refuses one whose sides are not those of its lane, differ in size, or lie
// outside their space; an interleaved one that is not whole blocks of a cache on the device; and what sizedCopy()
// refuses.
absl::StatusOr<CopySides> copySides(const plan::Plan &plan, const plan::Schedule &schedule, uint32_t step,
                                    const GraphSpaces &spaces);
// Bytes [from, from + bytes) of a copy, by the processor.
void copyPart(const CopySides &copy, uint64_t from, uint64_t bytes);

// Of a resizable step. Refuses what is no copy of a layer's cache from the beginning of a block on, and one of what was
// written (Step::dirtyOnly) that is not to the host or belongs to a transition.
absl::StatusOr<SizedCopy> sizedCopy(const plan::Plan &plan, const plan::Schedule &schedule, uint32_t step);

// For each step and lane, the last step of that lane that must have ended before it; kNone where there is none, or
// where an earlier step of its own lane has waited for as much: a lane runs in order, so that one says it all. Of steps
// that checkSteps() accepts. A device that is the CPU (`isCpu`) runs steps of the cpu lane in the compute lane, where
// they stand. Refuses edges that do not lead forwards.
using LaneWaits = std::array<uint32_t, kGraphLanes>;
absl::StatusOr<std::vector<LaneWaits>> stepWaits(const plan::Schedule &schedule, bool isCpu = false);

} // namespace headrace::core
