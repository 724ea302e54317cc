// SPDX-License-Identifier: Apache-2.0
//
// Serves requests with objectives on the instances of one bus (Select-N, sections 4.2 and 4.5): an instance is one
// model's plan on one device, with a role. A request goes to a free instance of its model; the coordinator admits it on
// its contended iteration time and picks the placement of every device between iterations.
//
//   request --> queue --> admitted --> prefill --> [KV hand-over] --> decode --> done
//                 |  (no free instance: waits,     (prefill and decode on
//                 |   its TTFT running)             instances apart)
//                 '--> refused, with the reason, back to the caller
//
// A request is one or several prompts that run together; its first tokens count as delivered when the last of them is
// there. TTFT runs from its arrival to that moment, with what it waited, and with the hand-over where its KV cache
// moves to another instance; TPOT is the whole gap between a sequence's tokens after that.
//
// An instance serves many requests at once (Engine.h). On one that is free a request's prompts run alone, then decode.
// Others join what decodes at the edge of an iteration, if the iterations with them are within the objectives of all:
//
//   A   prompts  decode  decode  decode  decode  decode  decode
//   B                   (waits)  prompt  prompt  decode  decode ...      in chunks that leave A its TPOT
//   C                                    (waits)  (joins when B is through its prompts)
//
// KV blocks for prompts and output are set aside when a request is admitted: none is ever preempted. One that could be
// held alone and not beside those that run waits until some of them have ended, while its TTFT lasts.
//
// A decode instance is reserved with the prefill instance. One that is free takes the placement that it decodes in
// meanwhile; one that decodes others goes on, also while the KV cache arrives (KvHandover.h): its iterations have half
// of the link then, if they copy, which is in what they are held to, and its placement stays. The new ones decode from
// the next edge on, and that is when their first tokens are delivered. On the bus the cache counts in both directions,
// from the prompts on.
//
// One iteration a device is in flight; where nothing is decided, admitted or ended, nothing is allocated. One thread
// calls it, and drives all devices of the group.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/core/DeviceGroup.h"
#include "runtime/core/Runtime.h"
#include "runtime/serve/engine/Engine.h"
#include "runtime/serve/fleet/Coordinator.h"
#include "runtime/serve/fleet/PlanLoads.h"

namespace headrace::serve {

inline constexpr uint32_t kNoInstance = 0xffffffffu;

// Instance i is on device i of the group.
struct InstanceSpec {
  std::string name;
  Role role = Role::Both;
  core::Runtime *runtime = nullptr; // loaded on the group's device; outlives the fleet
  double linkBandwidth = 0;         // bytes/s host to device; 0: the plan's hardware
  uint64_t memoryBytes = 0;         // for weights and slots; 0: no limit but the plan's own
};

struct FleetRequest {
  std::string model; // of the plan's ModelSpec
  std::vector<std::vector<int32_t>> prompts;
  int64_t maxNewTokens = 16;
  Sampling sampling;
  std::vector<int32_t> stopTokens;
  std::chrono::nanoseconds ttft{0}, tpot{0}; // objectives, both above zero
  int64_t arrivalNs = 0;                     // from the start of run()

  double ttftNs() const { return static_cast<double>(ttft.count()); }
  double tpotNs() const { return static_cast<double>(tpot.count()); }
};

// Others' traffic: from this moment the bus has so much for the fleet. The fleet learns of it by measuring only.
struct BusChange {
  int64_t atNs = 0; // from the start of run()
  double bytesPerSecond = 0;
};

// Why an objective was missed. BusLost: the bus gave less than was planned with, or no combination held since, or the
// changes that this made necessary were under way.
enum class MissCause : uint8_t { None = 0, BusLost = 1, KvBlocks = 2, Other = 3 };
struct MissCounts {
  uint64_t busLost = 0, kvBlocks = 0, other = 0;
  uint64_t total() const { return busLost + kvBlocks + other; }
  void count(MissCause cause);
};

// Rows of one sequence of a request in an iteration.
struct FleetRows {
  uint32_t request = 0;  // into run()'s requests
  uint32_t sequence = 0; // into its prompts
  int64_t firstPosition = 0, rows = 0;
  bool sample = false; // the last of them samples a token
};
// A request that had its first tokens before the iteration, and has tokens of it.
struct FleetGap {
  uint32_t request = 0;
  int64_t longestNs = 0; // of its sequences, to the token before
  MissCause missed = MissCause::None;
};

// An iteration whose tokens were read. Spans are valid during the call only.
struct FleetIteration {
  uint32_t instance = 0;
  uint32_t placement = 0, variant = 0;
  bool prefill = false; // it has rows of prompts
  bool changed = false; // the first in this placement
  int64_t launchNs = 0, visibleNs = 0;
  absl::Span<const FleetRows> rows;
  absl::Span<const FleetGap> gaps;
};

struct FleetOptions {
  double busBandwidth = 0; // bytes/s, host to device, what is planned with at first
  // Device to host, and both directions together; infinite: the bus does not limit them.
  double busD2hBandwidth = std::numeric_limits<double>::infinity();
  double busDuplexBandwidth = std::numeric_limits<double>::infinity();
  Maximise objective = Maximise::FreedMemory;
  SearchLimits limits;
  double lowerBy = 0.05, raiseBy = 0.10; // CoordinatorOptions
  uint32_t raiseAfter = 32;
  bool keepRetreat = true; // CoordinatorOptions
  bool queue = true; // requests wait for a free instance, or for neighbours that cannot make room, while their TTFT
                     // lasts; false: they are refused at once
  std::vector<BusChange> busChanges; // by time
  std::function<void(const FleetIteration &)> onIteration;
};

struct RequestOutcome {
  absl::Status status; // not ok: refused, or ended before its end; says why
  bool admitted = false;
  std::vector<std::vector<int32_t>> tokens; // one a prompt
  uint32_t prefillInstance = kNoInstance, decodeInstance = kNoInstance;
  int64_t arrivalNs = 0, startNs = -1, firstTokensNs = -1, endNs = -1; // on the group's clock
  int64_t handoverNs = 0;                                              // of TTFT
  MissCause ttftMissed = MissCause::None;
  uint64_t gaps = 0; // between tokens
  int64_t gapsNs = 0, longestGapNs = 0;
  uint64_t iterations = 0; // with rows of it
  MissCounts misses;       // iterations with a gap above TPOT
  int64_t ttftNs() const { return firstTokensNs - arrivalNs; }
  double tpotNs() const { return gaps == 0 ? 0 : static_cast<double>(gapsNs) / static_cast<double>(gaps); }
  bool held() const { return status.ok() && ttftMissed == MissCause::None && misses.total() == 0; }
};

struct FleetResult {
  std::vector<RequestOutcome> requests;
  uint64_t admitted = 0, refused = 0, lost = 0, held = 0;
  uint64_t iterations = 0, changes = 0; // changes of placement
  MissCounts misses;                    // of requests' iterations
  uint64_t gaps = 0;                    // between tokens: of a request in an iteration
  uint64_t joined = 0;                  // requests that began beside others on their instance
  uint64_t mostTogether = 0;            // requests on one instance
  MissCounts ttftMisses;                // of requests
  uint64_t kvWaits = 0;                 // changes put off, as KV blocks in use stood in their way
  uint64_t bandwidthLosses = 0;         // times that less than planned was measured
  int64_t startNs = 0, endNs = 0;
  double freedByteSeconds = 0; // device memory given back by placements, over all instances and time
  double attainment() const { return admitted == 0 ? 1 : static_cast<double>(held) / static_cast<double>(admitted); }
};

class Fleet {
public:
  // InvalidArgument: a group with no devices, a number of instances that is not the group's, an instance without a
  // runtime, a bandwidth that is not positive and finite, bus changes out of order. FailedPrecondition: a runtime of
  // another device than the group's, or prefill and decode instances of one model whose KV caches differ.
  static absl::StatusOr<std::unique_ptr<Fleet>> create(core::DeviceGroup &group, std::vector<InstanceSpec> instances,
                                                       FleetOptions options);
  ~Fleet();

  // Serves all requests to their ends. A request that is refused or lost has its status; the call's own is of what
  // concerns all: the group failed. InvalidArgument, before anything runs, for requests out of order of arrival.
  absl::StatusOr<FleetResult> run(absl::Span<const FleetRequest> requests);

  // The device is gone, or to be left out: its requests end with the reason. May be called from onIteration.
  absl::Status lose(uint32_t instance, const absl::Status &why);

  const Coordinator &coordinator() const;

private:
  Fleet();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

} // namespace headrace::serve
