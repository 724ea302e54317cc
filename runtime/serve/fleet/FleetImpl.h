// SPDX-License-Identifier: Apache-2.0
//
// What Fleet.cpp (the loop), FleetAdmission.cpp (who may start) and FleetStats.cpp (what is counted) share.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "runtime/serve/fleet/Fleet.h"
#include "runtime/serve/fleet/KvHandover.h"

namespace headrace::serve {

enum class RequestPhase : uint8_t { Queued, Waiting, Prefill, Handover, Decode, Ended };

struct FleetInstance {
  FleetInstance(uint32_t at, InstanceSpec s)
      : index(at), spec(std::move(s)), plan(spec.runtime->plan()), loads(plan, spec.linkBandwidth), run(*spec.runtime) {
  }
  const uint32_t index;
  const InstanceSpec spec;
  const plan::Plan &plan;
  const PlanLoads loads;
  BatchRun run;

  bool lost = false;
  absl::Status why;               // it was
  uint32_t request = kNoInstance; // that it is reserved for or serves
  GenerateRequest work;           // of that request, what `run` has
  uint32_t placement = 0;         // of the last launch
  bool began = false;             // a first iteration was launched for the request
  bool changed = false;           // the iteration in flight is the first in its placement
  bool dirty = false;             // the iteration in flight was launched while the bus was lost
  bool kvWaited = false;          // it waited for KV blocks
  uint64_t losses = 0;            // counted when it was launched
  int64_t readyNs = 0;            // decode: when the transition that was launched ahead has surely ended
  // It launches no more for its request, and what it copies behind the last tokens is on the bus until then;
  // kNotDraining: nothing is.
  int64_t drainedNs = kNotDraining;
  static constexpr int64_t kNotDraining = -1;

  // Launches what leads to the entry of the first decode iteration of `work` in a placement, and nothing more.
  absl::Status enter(uint32_t placement);
  // Launches the transitions that lead to a placement. FailedPrecondition while KV blocks are in use that it lacks.
  absl::Status changeTo(uint32_t placement);
  bool free() const { return !lost && request == kNoInstance && drainedNs == kNotDraining; }
};

struct ServedRequest {
  const FleetRequest *asked = nullptr;
  RequestPhase phase = RequestPhase::Queued;
  uint32_t prefill = kNoInstance, decode = kNoInstance; // the same where one does both; no decode: one new token
  uint64_t kvBytes = 0;
  int64_t admittedNs = 0, handoverEndNs = 0;
  std::vector<int64_t> lastTokenNs; // one a sequence
  bool dirty = false;               // it started while the bus was lost
  uint64_t losses = 0;              // counted when it started
  bool apart() const { return decode != kNoInstance && decode != prefill; }
};

struct Fleet::Impl {
  Impl(core::DeviceGroup &g, FleetOptions o, Coordinator c)
      : group(g), options(std::move(o)), coordinator(std::move(c)) {}

  core::DeviceGroup &group;
  const FleetOptions options;
  Coordinator coordinator;
  std::vector<std::unique_ptr<FleetInstance>> instances;
  KvHandover handover;

  // Of one run().
  absl::Span<const FleetRequest> asked;
  std::vector<ServedRequest> served;
  FleetResult result;
  size_t arrived = 0;          // requests whose time has come
  size_t busChanged = 0;       // bus changes made
  std::deque<uint32_t> queue;  // requests without an instance, by arrival
  std::vector<uint32_t> alive; // requests with instances
  bool tryQueue = false;       // an instance became free, or a request came
  std::vector<uint64_t> awaited;
  bool busLost = false; // since less was measured until every device has what was decided then
  uint64_t freedBytes = 0;
  int64_t freedSinceNs = 0;

  int64_t nowNs() const { return group.nowNs(); }
  FleetInstance &instance(uint32_t i) { return *instances[i]; }
  std::string nameOf(uint32_t request) const;

  // FleetAdmission.cpp
  absl::Status checkAsked(uint32_t request) const;
  enum class Admission : uint8_t { Admitted, NoneFree, Refused };
  Admission admit(uint32_t request, absl::Status &why);
  absl::Status admitTo(uint32_t request, FleetInstance &prefill, FleetInstance *decode);
  absl::Status missingInstance(const FleetRequest &asked) const;
  void serveQueue();
  void startWaiting();
  absl::Status begin(uint32_t request);
  void giveBack(uint32_t request, const absl::Status &why);
  double handoverNs(uint64_t bytes, uint32_t device) const;
  double fairNs(const BusStage &stage, uint32_t device) const;

  // Fleet.cpp
  absl::Status loop();
  int64_t nextMoment() const;
  void changeBus();
  void launchEdges();
  absl::Status launch(FleetInstance &on);
  void read(FleetInstance &on);
  void prefilled(FleetInstance &on, int64_t visibleNs);
  void finishHandovers();
  absl::Status finishHandover(uint32_t request);
  void release(FleetInstance &on);
  void drain(FleetInstance &on, std::optional<uint32_t> last);
  void drained(FleetInstance &on);
  void finishDraining(int64_t now);
  void end(uint32_t request, const absl::Status &status);
  void lose(FleetInstance &on, const absl::Status &why);

  // FleetStats.cpp
  void measure();
  void countFreed(const FleetInstance &on, uint32_t to);
  void deliverFirst(uint32_t request, int64_t atNs);
  void countRead(FleetInstance &on);
  bool lostSince(bool dirty, uint64_t losses) const;
  MissCause causeFor(const FleetInstance &on) const;
  void summarise();
};

} // namespace headrace::serve
