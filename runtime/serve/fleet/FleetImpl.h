// SPDX-License-Identifier: Apache-2.0
//
// What Fleet.cpp (the loop), FleetAdmission.cpp (who is admitted), FleetStart.cpp (who starts), FleetBatch.cpp (who
// joins those that run), FleetHandover.cpp (KV caches that move), FleetEnd.cpp (who ends) and FleetStats.cpp (what is
// read and counted) share.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/serve/fleet/Fleet.h"
#include "runtime/serve/fleet/KvHandover.h"

namespace headrace::serve {

enum class RequestPhase : uint8_t { Queued, Waiting, Prefill, Handover, Decode, Ended };

struct FleetInstance {
  FleetInstance(uint32_t at, InstanceSpec s)
      : index(at), spec(std::move(s)), plan(spec.runtime->plan()), loads(plan, spec.linkBandwidth) {}
  const uint32_t index;
  const InstanceSpec spec;
  const plan::Plan &plan;
  const PlanLoads loads;
  std::unique_ptr<Engine> engine;

  // A sequence of the engine: of which request.
  struct Member {
    uint64_t id = 0;
    uint32_t request = 0, sequence = 0;
  };

  bool lost = false;
  absl::Status why;               // it was
  std::vector<uint32_t> requests; // that it is reserved for or serves, in the order in which they were admitted
  // Of these the last ones, which the coordinator counts and whose prompts are not through (decode: whose KV caches
  // have not arrived).
  std::vector<uint32_t> wave;
  bool waveStarted = false;
  bool batched = false;                // requests have joined since it was free: the coordinator knows a RunningBatch
  bool arrived = false;                // since the last launch: the gap of those that run has a hand-over in it
  bool enters = false;                 // a request was started beside those that run, and no edge has come since
  int64_t budget = 0;                  // of the last edge that was asked for
  bool arrivedLate = false;            // the bus lost bandwidth since that hand-over was counted on
  uint32_t joinsFrom = 0;              // placement, when the wave was admitted to what runs
  int64_t joinsSinceNs = 0;            // then
  std::vector<Member> members;         // by id
  size_t unended = 0;                  // of them, that have tokens to come
  uint32_t placement = 0;              // of the last launch
  std::optional<uint32_t> lastVariant; // launched since it was free
  bool began = false;                  // a first iteration was launched for the request that found it free
  bool changed = false;                // the iteration in flight is the first in its placement
  bool dirty = false;                  // the iteration in flight was launched while the bus was lost
  bool kvWaited = false;               // it waited for KV blocks
  uint64_t losses = 0;                 // counted when it was launched
  int64_t readyNs = 0;                 // decode: when the transition that was launched ahead has surely ended
  KvHandover handover;                 // decode: of the KV cache that arrives
  // It launches no more, and what it copies behind the last tokens is on the bus until then.
  int64_t drainedNs = kNothing;
  static constexpr int64_t kNothing = -1;

  // Launches what leads to the entry of the first decode iteration in a placement, and nothing more.
  absl::Status enter(uint32_t placement, absl::Span<const std::vector<int32_t>> prompts);
  // Launches the transitions that lead to a placement. FailedPrecondition while KV blocks are in use that it lacks.
  absl::Status changeTo(uint32_t placement);
  bool free() const { return !lost && requests.empty() && drainedNs == kNothing; }
  // It decodes, and others may join that. Not while a hand-over is in the gap: what runs until the next edge is to be
  // held with that.
  bool joinable() const { return !lost && !requests.empty() && wave.empty() && !arrived && drainedNs == kNothing; }
  bool waveWaits() const { return !wave.empty() && !waveStarted; }
  const Member *member(uint64_t id) const;
};

struct ServedRequest {
  const FleetRequest *asked = nullptr;
  RequestPhase phase = RequestPhase::Queued;
  uint32_t prefill = kNoInstance, decode = kNoInstance; // the same where one does both; no decode: one new token
  bool joined = false;                                  // `decode` serves others beside it
  uint64_t kvBytes = 0;
  int64_t kvBlocks = 0; // set aside for it
  int64_t kvEnd = 0;    // its blocks are below this number
  int64_t admittedNs = 0;
  double handoverNs = 0;                    // that the hand-over takes at most, at fair rates
  int64_t tokensNs = 0;                     // its first tokens were visible, where it is handed over
  int64_t lookNs = 0, lookEveryNs = 0;      // when what is handed over is looked at, whatever else happens
  std::vector<std::vector<int32_t>> blocks; // on the receiver, one a sequence that goes on, until it runs there
  std::vector<int64_t> lastTokenNs;         // one a sequence
  std::vector<uint64_t> ids;                // one a sequence, on the prefill instance
  size_t unread = 0;                        // sequences without a token
  size_t running = 0;                       // sequences that have not ended, on the instance where it is
  absl::Status failed;                      // of one of its sequences
  absl::Status beside;                      // queued: why it could not join those that ran when it was tried first
  bool dirty = false;                       // it started while the bus was lost
  uint64_t losses = 0;                      // counted when it started
  bool apart() const { return decode != kNoInstance && decode != prefill; }
};

// A request that has an instance to itself.
BatchWork loneWork(const FleetRequest &asked);

inline double ms(double ns) { return ns * 1e-6; }

struct Fleet::Impl {
  Impl(core::DeviceGroup &g, FleetOptions o, Coordinator c)
      : group(g), options(std::move(o)), coordinator(std::move(c)) {}

  core::DeviceGroup &group;
  const FleetOptions options;
  Coordinator coordinator;
  std::vector<std::unique_ptr<FleetInstance>> instances;

  // Of one run().
  absl::Span<const FleetRequest> asked;
  std::vector<ServedRequest> served;
  FleetResult result;
  size_t arrived = 0;          // requests whose time has come
  size_t busChanged = 0;       // bus changes made
  std::deque<uint32_t> queue;  // requests without an instance, by arrival
  std::vector<uint32_t> alive; // requests with instances
  bool tryQueue = false;       // an instance may take more, or a request came
  std::vector<uint64_t> awaited;
  bool busLost = false; // since less was measured until every device has what was decided then
  uint64_t freedBytes = 0;
  int64_t freedSinceNs = 0;
  // Of the iteration being read.
  std::vector<FleetRows> rows;
  std::vector<FleetGap> gaps;
  std::vector<uint32_t> delivered, done; // requests that had their first tokens, their last
  EngineIteration iteration;

  int64_t nowNs() const { return group.nowNs(); }
  FleetInstance &instance(uint32_t i) { return *instances[i]; }
  std::string nameOf(uint32_t request) const;

  // FleetAdmission.cpp
  absl::Status checkAsked(uint32_t request) const;
  enum class Admission : uint8_t { Admitted, NoneFree, Refused };
  Admission admit(uint32_t request, absl::Status &why);
  absl::Status admitTo(uint32_t request, FleetInstance &prefill, FleetInstance *decode);
  absl::Status decodeFirst(uint32_t request, ServedRequest next, FleetInstance &decode, BusRequest &first);
  void admitted(uint32_t request);
  absl::Status missingInstance(const FleetRequest &asked) const;
  absl::Status fitsNowhere(const FleetRequest &asked) const;
  void serveQueue();
  // What a hand-over of so many blocks takes at fair rates, from first tokens on; `waitNs`: an iteration of the
  // receiver, which copies meanwhile, 0: it has none.
  double handoverNs(uint64_t blocks, const FleetInstance &from, const FleetInstance &to, double waitNs) const;
  double fairNs(const BusStage &stage, uint32_t device) const;

  // FleetStart.cpp
  void startWaiting();
  absl::Status begin(uint32_t request);
  absl::Status enterAhead(uint32_t request, FleetInstance &decode);
  EngineRequest engineRequest(const FleetRequest &asked, uint32_t sequence, int64_t newTokens, bool keepBlocks) const;
  void giveBack(uint32_t request, const absl::Status &why);
  void putBack(uint32_t request, const absl::Status &why);

  // FleetBatch.cpp
  int64_t blocksFor(const FleetInstance &on, const FleetRequest &asked, int64_t newTokens) const;
  RunningBatch batchOf(const FleetInstance &on) const;
  absl::StatusOr<BusRequest> loadOf(const FleetInstance &on) const;
  absl::Status joinLast(FleetInstance &on);
  absl::Status joinTo(uint32_t request, FleetInstance &on);
  void startJoining();
  void countBlocks(FleetInstance &on);
  void shrink(FleetInstance &on);

  // Fleet.cpp
  absl::Status loop();
  int64_t nextMoment() const;
  void changeBus();
  void launchEdges();
  absl::Status launch(FleetInstance &on);
  void read(FleetInstance &on);
  void prefilled(uint32_t request, FleetInstance &on, int64_t visibleNs);

  // FleetHandover.cpp
  absl::Status beginHandover(uint32_t request, FleetInstance &from, int64_t visibleNs);
  void handOver();
  absl::Status advanceHandover(uint32_t request);
  absl::Status finishHandover(uint32_t request);
  void failHandover(uint32_t request, const absl::Status &why);
  void giveUpHandover(ServedRequest &of);

  // FleetEnd.cpp
  void release(uint32_t request, FleetInstance &on);
  void drain(FleetInstance &on, std::optional<uint32_t> last, uint64_t handedOver = 0);
  void drained(FleetInstance &on);
  void finishDraining(int64_t now);
  void end(uint32_t request, const absl::Status &status);
  void lose(FleetInstance &on, const absl::Status &why);

  // FleetStats.cpp
  EngineOptions engineOptions(FleetInstance &on);
  void measure();
  void countFreed(const FleetInstance &on, uint32_t to);
  void deliverFirst(uint32_t request, int64_t atNs);
  void tellToken(FleetInstance &on, const EngineToken &token);
  void tellEnd(FleetInstance &on, const EngineEnd &end);
  void tellIteration(FleetInstance &on, const EngineIteration &iteration);
  void countRead(FleetInstance &on);
  bool lostSince(bool dirty, uint64_t losses) const;
  MissCause causeFor(const FleetInstance &on) const;
  void summarise();
};

} // namespace headrace::serve
