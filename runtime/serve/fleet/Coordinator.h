// SPDX-License-Identifier: Apache-2.0
//
// Keeps the latency objectives of all devices on one bus (Select-N, section 4.5 and Figure 8): admits requests, picks
// the placement of every device, and orders the changes so that no objective is missed on the way.
//
//   device   Idle --arrive--> Waiting --start--> Running --finish--> Idle          lost from any of them
//                                       join, start --^ | ^-- update
//
// A decision gives every device a target. Nothing changes at once: a running device asks what to run at each edge
// between iterations (nextIteration), which is where its change is commanded; its next call says that the iteration
// with the transition has ended. A waiting device may start when its target is admissible beside what the others run
// now, a change under way counted as the worse of both its sides. So a new request starts only after the transitions
// that make room for it.
//
// A change is commanded only when it keeps every running device within its SLO (or, where the bus gives less than it
// did and some miss theirs, when it copies no more); changes that make room come first by that rule alone. A change
// whose transition does not fit into one iteration is made in steps, by way of placements that lie between. Where no
// order of changes is safe, what runs goes on as it is; waiting requests start with what is safe beside it, or are
// refused.
//
// What a running device serves may grow and shrink. A request that joins comes with the load of all that the device
// serves then; it is admitted as one that arrives, and starts when the new load holds beside what the others run, with
// the change of placement that it may need. Until then the device runs what it ran. A load that shrinks takes effect at
// once.
//
// A request may have a first stage (Contention.h) with an objective of its own; no change is commanded until the caller
// says that it is done (firstDone). Where its prompts run on another device, that one is a request of its own, which
// names the device that decodes (decodedBy): until that one's first stage is done the two are not neighbours. What
// comes to the prefill device after that is held beside the decoding like any other request: it takes what leaves the
// decoding its objective, or waits.
//
// One thread calls it. Times in ns, rates in bytes/s, host to device where nothing else is said.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/serve/fleet/Combination.h"

namespace headrace::serve {

struct CoordinatorOptions {
  Maximise objective = Maximise::FreedMemory;
  SearchLimits limits;
  // Measured bandwidth below the nominal one by more than `lowerBy` is planned with at once, and so is any that is less
  // than one that was measured and is planned with; above it by more than `raiseBy` only when `raiseAfter` measurements
  // in a row were (the least of them is then planned with).
  double lowerBy = 0.05, raiseBy = 0.10;
  uint32_t raiseAfter = 32;
  // What turning one placement of a device into another one takes before the iteration; null: nothing.
  std::function<TransitionCost(uint32_t device, uint32_t from, uint32_t to)> transition;
  // On a bus of several devices: take only placements that, alone on the bus, can be turned into one that copies less
  // within the objective, step by step down to the least. What cannot give way keeps every neighbour out until it ends.
  bool keepRetreat = true;
  // Of the bus, device to host and both directions together, bytes/s; as long as they are not measured they are what
  // they were.
  double d2hBandwidth = std::numeric_limits<double>::infinity();
  double bothBandwidth = std::numeric_limits<double>::infinity();
};

struct BusDevice {
  std::string name;
  double linkBandwidth = 0;                                      // bytes/s, host to device
  uint64_t memoryBytes = 0;                                      // that placements may need
  double d2hBandwidth = std::numeric_limits<double>::infinity(); // bytes/s, of its link
  double bothShare = 1; // of each direction's rate while both are at work, at most 1
};

struct BusRequest {
  uint32_t device = 0; // a free instance of its model
  double sloNs = 0;    // of an iteration: TTFT for prefill, TPOT for decode
  double waitedNs = 0; // already (section 4.2): of the first stage's SLO if there is one, else of the iteration's
  std::vector<BusPlacement> placements;
  double firstSloNs = 0; // of the first stage; 0: there is none
  // Prefill and decode on devices apart. Of the one that prefills: the device that decodes, whose request arrives first
  // and has a first stage, and what is kept of the SLO for the hand-over. Of the one that decodes: the bytes of its
  // first stage that are handed over.
  uint32_t decodedBy = kNoDevice;
  double handoverNs = 0;
  uint64_t handoverBytes = 0;
  bool prompts = false; // sloNs is a TTFT: for what messages say
  std::string name;     // of the request, in what others are told about it; may be empty
};

enum class DeviceState : uint8_t { Idle = 0, Waiting = 1, Running = 2, Lost = 3 };

struct NextIteration {
  uint32_t placement = 0; // BusPlacement::placement to run
  int64_t budget = 0;     // BusPlacement::budget
  bool changed = false;   // not the one before: the transition comes first
};

class Coordinator {
public:
  // kInvalidArgument, by name: a bus with no devices or more than 64, a bandwidth of it or of a link that is not
  // positive (those to devices: and finite), a bothShare that is not above 0 and at most 1.
  static absl::StatusOr<Coordinator> create(double bandwidth, std::vector<BusDevice> devices,
                                            CoordinatorOptions options = {});

  // Admits the request to its device, which is then Waiting, or refuses it and leaves everything as it was:
  //   kInvalidArgument      SLO or time waited that is zero, negative or NaN, no such device, malformed placements,
  //                         decodedBy a device that serves nothing or is beyond its first stage
  //   kFailedPrecondition   the device is not free, or lost
  //   kResourceExhausted    cannot be held; the message says why and names the minimum: of device memory, of the SLO
  //                         alone, of the SLO beside the neighbours, or the neighbours' objectives that are in the way
  //                         and what would do of those; or that the SLO was spent waiting
  absl::Status arrive(const BusRequest &request);
  // Whether the waiting device starts now, `waitedNs` after it arrived, which its objective is reduced by. The request
  // goes back to the caller with kUnavailable: no safe order of changes makes room; kResourceExhausted: nothing holds
  // what is left of its objective. kFailedPrecondition: it does not wait.
  absl::StatusOr<bool> start(uint32_t device, double waitedNs = 0);
  // Admits a request to a running device beyond its first stage; `request` is all that the device serves with it. It
  // waits then until start(), which also says that it goes back; refusals as of arrive().
  absl::Status join(const BusRequest &request);
  bool joining(uint32_t device) const { return slots_[device].wanted.has_value(); }
  // The one that joins is given up before it started. Nothing if there is none.
  void leaveOut(uint32_t device);
  // What a running device serves is `request` from now on: less than before, and without a first stage. Where what it
  // runs is none of the placements of that, only the first stage ends. kFailedPrecondition: it does not run, or a
  // request is about to join.
  absl::Status update(const BusRequest &request);
  // The first stage of a running device is done. Nothing where it has none.
  absl::Status firstDone(uint32_t device);
  // At the edge between two iterations of a running device. Allocates nothing where nothing changes.
  absl::StatusOr<NextIteration> nextIteration(uint32_t device);
  // The change that nextIteration() commanded cannot be made yet (KV blocks stand in its way): the device runs what it
  // ran, and is told again. kFailedPrecondition: no change was commanded.
  absl::StatusOr<NextIteration> postpone(uint32_t device);
  // A running device launches no more for its request: its objectives bind nobody, but the bytes that it still copies
  // share the bus until finish(). kFailedPrecondition: it does not run.
  absl::Status drain(uint32_t device, const plan::LinkBytes &bytes);
  // The device's request has ended (or was given up while waiting); its neighbours may take more.
  absl::Status finish(uint32_t device);
  // The device is gone: its request with it. Later calls for it are refused.
  absl::Status lose(uint32_t device);

  // What the bus gives at the moment, over all devices. True if another decision was made. kInvalidArgument unless
  // positive and finite.
  absl::StatusOr<bool> measured(double bandwidth);
  // There was nothing to measure, as no copy was slowed. After `raiseAfter` of these in a row with less than nominal
  // planned the nominal bandwidth is tried (true: another decision was made); each time that this turns out wrong, the
  // next try comes after twice as many, at most 2^10 times.
  bool unmeasured();

  DeviceState state(uint32_t device) const { return slots_[device].state; }
  double plannedBandwidth() const { return bus_.bandwidth; }
  const Bus &bus() const { return bus_; } // as planned with
  // True while no combination holds at the planned bandwidth: every device then runs what copies least, and misses are
  // the bus's.
  bool overloaded() const { return overloaded_; }
  // Whether every running device has what was decided for it, and no change is under way.
  bool settled() const;
  // The last decision; choices in the order of the devices that serve or wait.
  const Combination &decision() const { return decision_; }

private:
  struct Slot {
    DeviceState state = DeviceState::Idle;
    BusLoad load;
    uint32_t current = 0, target = 0; // into load.placements
    BusPlacement from;                // while switching: what is changed into `current`
    uint32_t fromIndex = 0;           // into load.placements, where it was one of those
    bool switching = false;
    bool entering = false;         // switching, and the device was not yet told
    std::optional<BusLoad> wanted; // with the request that joins; `target` is into its placements then
    std::string joins;             // the name of what it serves then
    bool refused = false;          // waiting or to join, and no safe order was found
    double waitedNs = 0;           // since it arrived, and taken from its objective
    std::string request;           // its name
    bool prompts = false;          // BusRequest
  };
  Coordinator(double bandwidth, std::vector<BusDevice> devices, CoordinatorOptions options);

  absl::Status checkDevice(uint32_t device) const;
  absl::StatusOr<BusLoad> validLoad(const BusRequest &request) const;
  static const BusLoad &decided(const Slot &slot) { return slot.wanted ? *slot.wanted : slot.load; }
  void dropJoining(Slot &slot);
  void endFirstStage(Slot &slot);
  void keepRetreats(BusLoad &load) const;
  absl::Status refuseContended(std::vector<BusLoad> loads, const BusRequest &request) const;
  std::optional<double> leastHeld(std::vector<BusLoad> &loads, size_t at, double BusLoad::*slo) const;
  std::string inTheWay(std::vector<BusLoad> &loads) const;
  std::vector<uint32_t> served() const; // devices that wait or run
  std::vector<BusLoad> loadsOf(const std::vector<uint32_t> &devices) const;
  void decide();
  void take(const std::vector<uint32_t> &devices, Combination combination);
  BusPlacement between(uint32_t device, const BusPlacement &from, const BusPlacement &to, bool &possible) const;
  bool holdsBesideOthers(uint32_t device, const BusLoad &load, const BusPlacement &runs) const;
  bool startHolds(uint32_t device, uint32_t placement) const;
  bool holdsWith(uint32_t device, uint32_t placement) const;
  bool mayChange(uint32_t device, uint32_t placement) const;
  std::optional<uint32_t> stepOf(uint32_t device) const;
  std::optional<uint32_t> bestBesideOthers(uint32_t device) const;
  absl::StatusOr<bool> tighten(uint32_t device, double waitedNs);
  void settle();
  void unpair(uint32_t decode);
  void leave(uint32_t device, DeviceState as);
  std::string name(uint32_t device) const;

  Bus bus_;
  double nominal_ = 0;
  std::vector<BusDevice> devices_;
  CoordinatorOptions options_;
  std::vector<Slot> slots_;
  Combination decision_;
  bool overloaded_ = false;
  uint32_t above_ = 0; // measurements in a row above the planned bandwidth
  double leastAbove_ = 0;
  uint32_t unmeasured_ = 0; // edges in a row
  uint32_t triedAfter_ = 0; // edges that the nominal bandwidth is tried after; 0: raiseAfter
  bool tried_ = false;      // what is planned with was not measured
};

} // namespace headrace::serve
