// SPDX-License-Identifier: Apache-2.0
//
// What the runtime needs of a device, and no more: memory of the plan's sizes, graphs made once from a schedule,
// launches without waiting, and the clock. Three implementations pass one conformance suite (tests/conformance): host
// (real data on the CPU, paced links), sim (virtual time, no data), cuda (CUDA Graphs).
//
//   open(plan) -> load weights: hostSlab(), writeDevice() -> build() + upload() every schedule x variant
//   then, per iteration:  meta() fill, launch(graph, in use), [next launch ...], awaitTokens(), ..., drain()
//
// Launches of one device run one after another: every step of a launch ends before the first of the next starts. A
// launch allocates nothing. One thread drives a device.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/IterationMeta.h"
#include "kernels/Types.h"
#include "runtime/core/BesideCopies.h"
#include "runtime/core/InUse.h"
#include "runtime/model/WeightLayout.h"
#include "runtime/plan/value/Plan.h"

namespace headrace::core {

// An executable made from one schedule with one variant's (or transition's) durations and bucket. It outlives its
// launches: drain() the device, or destroy it, first.
class Graph {
public:
  virtual ~Graph() = default;
};

// What to build: a variant or a transition of the opened plan.
struct GraphKey {
  bool transition = false;
  uint32_t index = 0; // into Plan::variants or Plan::transitions
};

// Start and end of one step on the device's clock.
struct StepTime {
  int64_t startNs = 0;
  int64_t endNs = 0;
};

// Counted since open().
struct DeviceCounters {
  uint64_t launches = 0;
  uint64_t h2dBytes = 0, d2hBytes = 0;
  int64_t stallNs = 0;          // compute lane waiting for copies, of its launch or of the one before
  int64_t cpuWaitNs = 0;        // ... for the cpu lane beside it; virtual time of one device alone knows it
  uint64_t peakDeviceBytes = 0; // of the arena: what open() took
  uint64_t hostBytes = 0;       // pinned slab
  uint64_t graphBytes = 0;      // device memory that graphs took beside the arena; 0 where they take none
  uint64_t sizesSet = 0;        // of copies in graphs, or their starts, that had changed; 0 where graphs hold none

  // What was counted after `before`; of bytes held what there are now.
  DeviceCounters since(const DeviceCounters &before) const {
    DeviceCounters counters = *this;
    counters.launches -= before.launches;
    counters.h2dBytes -= before.h2dBytes;
    counters.d2hBytes -= before.d2hBytes;
    counters.stallNs -= before.stallNs;
    counters.cpuWaitNs -= before.cpuWaitNs;
    counters.sizesSet -= before.sizesSet;
    return counters;
  }
  // Of several devices together; of arenas the largest.
  DeviceCounters &operator+=(const DeviceCounters &other) {
    launches += other.launches;
    h2dBytes += other.h2dBytes;
    d2hBytes += other.d2hBytes;
    stallNs += other.stallNs;
    cpuWaitNs += other.cpuWaitNs;
    sizesSet += other.sizesSet;
    peakDeviceBytes = std::max(peakDeviceBytes, other.peakDeviceBytes);
    hostBytes += other.hostBytes;
    graphBytes += other.graphBytes;
    return *this;
  }
};

// The first number that is not finite of what a step wrote.
struct WrongNumber {
  uint32_t step = 0; // in the variant's schedule
  int64_t row = 0;   // of the iteration; of the sampled rows, for steps that work on those
  int64_t column = 0;
  float value = 0;
};

// How long a device in virtual time takes the compute steps of an iteration to be.
enum class Pricing : uint8_t {
  Bucket = 0, // as the plan says of the variant, however little of its bucket runs
  Rows = 1    // by what runs of it: the iteration's rows, each sequence's own context
};

// What a device is opened with, whatever its kind. What only one kind has is asked of the factory that makes it.
struct DeviceOptions {
  // The link that is modelled, bytes/s each direction; 0: the plan's hardware profile. InvalidArgument where the link
  // is a real one.
  double linkBandwidth = 0;
  bool trace = false; // keep StepTimes of the last launch
  // Devices whose time is real take what they take, whatever this says. InvalidArgument where it is Rows and devices
  // share one virtual time.
  Pricing pricing = Pricing::Bucket;
};

class Device {
public:
  virtual ~Device() = default;
  virtual std::string_view kind() const = 0;      // "host", "sim", "cuda"
  virtual kernels::Order matrixOrder() const = 0; // of linear operands in memory
  virtual bool holdsData() const = 0;             // false for sim: weights are not loaded, tokens are made up

  // That compute together on the host; of other devices 1.
  virtual int threads() const { return 1; }
  // Calls f(i) for each i below `count`, by as many threads as compute, in any order. For what is prepared for a device
  // that is open, before its first launch.
  virtual void each(int64_t count, absl::FunctionRef<void(int64_t)> f) {
    for (int64_t i = 0; i < count; ++i)
      f(i);
  }

  // Takes exactly plan.arenaBytes of device memory and plan.hostBytes of host memory, or fails naming the number. The
  // plan must outlive the device. Opening again gives up what was taken, and refuses graphs built before.
  virtual absl::Status open(const plan::Plan &plan, const DeviceOptions &options) = 0;

  virtual absl::Span<std::byte> hostSlab() = 0; // empty for sim
  virtual absl::Status writeDevice(uint64_t address, absl::Span<const std::byte> bytes) = 0;
  virtual absl::Status readDevice(uint64_t address, absl::Span<std::byte> bytes) = 0; // after drain()

  virtual absl::StatusOr<std::unique_ptr<Graph>> build(const GraphKey &key) = 0;
  virtual absl::Status upload(Graph &graph) = 0;

  // The staging copy of the iteration buffer that the next launch will read; filled by the caller before launch().
  // Its offsets are set (initMeta); arrays keep what was written two iterations ago. At most two iterations are in
  // flight, each with a staging copy of its own: with two in flight, meta() waits until the older one's was taken, or
  // has ended where a device cannot tell, and launch() waits for it to end.
  virtual kernels::IterationMeta *meta() = 0;
  // Appends a launch; returns without waiting for it to run. A variant's launch numbers its iteration (from 1, into
  // IterationMeta::iteration) and takes the staging copy; a transition's does neither. Resizable copies copy what is in
  // use, or was written, as far as the device can: an interleaved one of a CUDA graph always copies all.
  virtual absl::Status launch(Graph &graph, const LaunchInUse &inUse = {}) = 0;

  // Waits until the tokens of launch number `iteration` (counting from 1; transitions are not counted) can be read, and
  // returns them: one a sampled row. Valid until two iterations later. FailedPrecondition for an iteration that was not
  // launched, OutOfRange for one whose tokens are gone.
  virtual absl::StatusOr<absl::Span<const int32_t>> awaitTokens(uint64_t iteration) = 0;
  // When tokens that were awaited became visible, on the device's clock; -1 for tokens that are gone.
  virtual int64_t tokensVisibleNs(uint64_t iteration) const = 0;
  virtual absl::Status drain() = 0; // all launches have ended, and all copies beside them

  // Copies beside launches (BesideCopies.h): between blocks on the device and swap memory, pinned host memory beside
  // the slab. They share the link with the copies of launches, a chunk of each in turn, and what they have moved counts
  // as theirs does. Swap memory is taken once open() has, and given up with 0, or by the next open(): whatever is under
  // way ends first. ResourceExhausted naming the number where there is less; FailedPrecondition before open().
  virtual absl::Status reserveSwap(uint64_t /*bytes*/) {
    return absl::UnimplementedError("the device has no copies beside launches");
  }
  virtual absl::Span<std::byte> swapMemory() { return {}; } // empty where the device holds no data
  // Starts copies once all launches made so far have ended; launches made from now on may run beside them, and must not
  // touch these bytes. Those of one direction run in the order asked for; the two directions run beside each other, so
  // what was copied out is brought back once that has ended. Returns a ticket, from 1 since open(). Refusals:
  // checkCopies(). Allocates only while more is under way than ever before.
  virtual absl::StatusOr<uint64_t> copyBeside(absl::Span<const BlockCopy> /*copies*/) {
    return absl::UnimplementedError("the device has no copies beside launches");
  }
  // Whether all of a ticket has ended, without waiting. FailedPrecondition for one that was not given.
  virtual absl::StatusOr<bool> copied(uint64_t /*ticket*/) {
    return absl::UnimplementedError("the device has no copies beside launches");
  }
  virtual absl::Status awaitCopied(uint64_t /*ticket*/) {
    return absl::UnimplementedError("the device has no copies beside launches");
  }

  // Once all launches have ended: runs a variant over what meta() holds, one step at a time on the caller's thread, up
  // to the first that writes a number which is not finite; none if all are. A variant that keeps homes on the host
  // current with copies (writesBack(), DirtyStates.h) runs to its end all the same, as what it appends would be lost.
  // No launch, and nothing is published; the variant's entry state must be there, and its exit state is left behind;
  // copies are launch()'s.
  // Unimplemented on devices that cannot look.
  virtual absl::StatusOr<std::optional<WrongNumber>> findWrongNumber(uint32_t /*variant*/,
                                                                     const LaunchInUse & /*inUse*/ = {}) {
    return absl::UnimplementedError("only the host device looks at what each step writes");
  }

  virtual int64_t nowNs() const = 0; // real or virtual
  // Lets time pass to `ns` on the device's clock, not at all where it has come; what was launched runs on meanwhile. A
  // virtual clock then shows exactly `ns`, a real one at least that.
  virtual absl::Status waitUntil(int64_t ns) = 0;
  virtual DeviceCounters counters() const = 0;
  // Of the last launch, one a step; empty unless options.trace. After drain().
  virtual absl::Span<const StepTime> lastTimes() const = 0;
};

} // namespace headrace::core
