// SPDX-License-Identifier: Apache-2.0
//
// What a step takes: measured, or the roofline where nothing was measured.
//
//   compute  max(flops / (peak x efficiency), bytes / (bandwidth x efficiency)) + launch overhead, of the op's class
//   on the CPU beside a device: max(flops / peak, bytes / host memory's bandwidth) + a host node
//   copy     latency + bytes / (bandwidth x efficiency)
//
// Prefill and decode are priced separately by construction: work depends on the rows and the context of the bucket.
#pragma once

#include <array>
#include <cstdint>
#include <limits>

#include "kernels/Types.h"
#include "runtime/base/Boxed.h"
#include "runtime/base/Encoding.h"
#include "runtime/job/Hardware.h"
#include "runtime/model/WeightLayout.h"

namespace headrace::model {
struct ModelSpec;
}

namespace headrace::cost {

// The bucket a step is priced for.
struct Bucket {
  int64_t tokens = 1; // rows
  int64_t sequences = 1;
  int64_t context = 1; // tokens in the cache of each sequence once this iteration's are appended
  int64_t actRows = 0; // rows of activation blocks, at most: 0 where there are none
  bool operator==(const Bucket &) const = default;
};

// What runs in an iteration, as far as the work of its ops depends on it.
struct Rows {
  uint64_t tokens = 0;   // rows
  uint64_t sampled = 0;  // rows behind GatherRows
  uint64_t contexts = 0; // tokens in the caches of all sequences that have rows, this iteration's included
  uint64_t pairs = 0;    // of a row and a token that it attends to
  uint64_t homeRows = 0; // appended to blocks of the KV cache that are at home on the host
  uint64_t keptRows = 0; // kept in activation blocks
  uint64_t actRows = 0;  // of earlier iterations there, whose keys and values are rebuilt
};
// A full bucket: a sampled row a sequence, all contexts as long as they may be, the rows spread evenly over the
// sequences, as that has the most pairs, and all of them of blocks at home on the host; of activation blocks, where
// there are any, all rows of the iteration as well as all that the bucket has.
Rows rowsOf(const Bucket &bucket);

// What a step does, in amounts.
struct Work {
  uint64_t flops = 0;
  uint64_t unpackFlops = 0; // of these: codes of weights, and of what attention reads, made values
  uint64_t keptValues = 0;  // of a step of attention: keys and values that it reads, once for all of their queries
  uint64_t deviceBytes = 0; // read and written in device memory
  uint64_t linkBytes = 0;   // over the link, of a direct op
  bool toHost = false;      // ... written; else read
  // Of a product with packed weights, which are unpacked in each pass: how many of them, and the bytes they are read
  // in.
  int64_t packedRows = 0, packedCols = 0;
  uint64_t packedBytes = 0;
};

// Which op of the model; the sizes follow from the model.
struct OpSite {
  kernels::Op op;
  model::UnitRole unit; // Norm and Linear: whose weights
};

// The amounts of one op, exactly (saturating at 2^64 - 1); Work.cpp has them in a table.
// `direct`: of Embed and Linear, the table's rows, or the matrix and its bias, are linkBytes and not device bytes; of
// RopeAppend, the home rows are written to the host as well as to the device; of ActAppend, all rows there alone.
Work workOf(const model::ModelSpec &spec, const OpSite &site, const Rows &rows, model::DType activation,
            const model::Encoding &kv, bool direct);
inline Work workOf(const model::ModelSpec &spec, const OpSite &site, const Bucket &bucket, model::DType activation,
                   const model::Encoding &kv, bool direct) {
  return workOf(spec, site, rowsOf(bucket), activation, kv, direct);
}

// How compute and copies disturb each other on one device: nothing, where they have engines of their own.
struct Interference {
  double computeFactor = 1; // what a compute step takes while copies run, as a multiple of what it takes alone
  uint64_t wakeNs = 0;      // from the end of what a lane waits for to its next start: of a copy after a compute step
};

// How lanes slow each other: both directions of the link, and what reads and writes host memory, which is max-min fair
// to both directions' copies and to the cpu lane.
struct Sharing {
  explicit Sharing(double duplex = 2.0) : duplexShare(duplex) {}
  double duplexShare; // of max(h2d, d2h) bandwidth, what both directions get together
  double hostMemory = std::numeric_limits<double>::infinity(); // bytes/s
  std::array<double, 3> asked{}; // bytes/s of it that h2d, d2h and cpu take alone; latencies of copies, too
};
// Of a profile; `linkBandwidth` bytes/s a direction where it is not 0.
Sharing sharingOf(const model::Hardware &hardware, double linkBandwidth = 0);

// Where a compute step runs and reads.
enum class How : uint8_t { OnDevice, Direct /* host memory over the link */, OnCpu /* the cpu lane */ };

class CostModel {
public:
  virtual ~CostModel() = default;
  virtual uint64_t computeNs(const OpSite &site, const Bucket &bucket, bool direct) const = 0;
  virtual uint64_t copyNs(uint64_t bytes, bool hostToDevice) const = 0;
  // Of a step of the cpu lane; of kind host what it takes in the compute lane.
  virtual uint64_t cpuNs(const OpSite &site, const Bucket &bucket) const { return computeNs(site, bucket, false); }
  virtual double duplexShare() const { return 2.0; }                 // Sharing's
  virtual Sharing sharing() const { return Sharing(duplexShare()); } // Simulator::run's argument
  virtual Interference interference() const { return {}; }
  // What the slowest iterations of a placement that moves weights take, as a multiple of what these prices predict: at
  // least 1. An objective is held by what leaves this much room.
  virtual double slowestFactor() const { return 1; }
};

// No step is priced above this (about 11 days), so that no sum over a schedule of 18,000 steps overflows.
inline constexpr uint64_t kLongestStepNs = 1'000'000'000'000'000;

// To the nearest whole nanosecond, at most kLongestStepNs: a rate of zero (a figure the profile does not have) makes
// the longest step, never a NaN.
uint64_t wholeNs(double ns);

// The roofline over a hardware profile; the plainest model, and the fallback outside a record's grid.
//   compute  max(flops / (peak x flopsEfficiency), device bytes / (memoryBandwidth x memoryEfficiency),
//                link bytes / (bandwidth of their direction x linkEfficiency)) + launchOverhead
//   cpu      max(flops / cpu.flops, bytes / cpu.bandwidth()) + kHostNodeSeconds, of kind cuda; 0 rates: no CPU is known
//   copy     copyLatency + bytes / (bandwidth x linkEfficiency)
// to the nearest nanosecond. The peak is flopsF32 for F32 activations, flopsF16 for others. A class of ops that has
// figures of its own (model::OpClasses) goes by those:
//   products    Linear, RebuildKv
//   attention   its flops by prefill's efficiency and ramp, its bytes by decode's, its overhead; plain where CUDA has
//   no
//               tensor-core kernel for the head size and types (kernels/AttentionSizes.h)
//   rows        all others
//   unpacking   of products and attention, where codes are made values: beside their other flops
// From the device's work that a step of the cpu lane waits for to its first byte: a host node of a CUDA Graph that
// posts to a pool of threads. Assumed, until a GPU has measured it.
inline constexpr double kHostNodeSeconds = 30e-6;

class Roofline final : public CostModel {
public:
  Roofline(const model::ModelSpec &spec, const model::Hardware &hardware, model::DType activation,
           const model::Encoding &kv);
  uint64_t computeNs(const OpSite &site, const Bucket &bucket, bool direct) const override;
  uint64_t copyNs(uint64_t bytes, bool hostToDevice) const override;
  uint64_t cpuNs(const OpSite &site, const Bucket &bucket) const override;
  double duplexShare() const override;
  Sharing sharing() const override;
  // The least that a direct op takes: its link bytes, and the launch.
  uint64_t directNs(const OpSite &site, const Bucket &bucket) const;
  // Of what runs, launchSeconds() of its op apart; infinite where a rate is zero.
  double seconds(const OpSite &site, const Rows &rows, bool direct) const;
  double seconds(const OpSite &site, const Rows &rows, How how) const;
  double launchSeconds(kernels::Op op) const;
  double launchSeconds(kernels::Op op, How how) const;
  uint64_t ns(const OpSite &site, const Bucket &bucket, How how) const;
  // Of seconds() what unpacking takes, were it alone.
  double unpackSeconds(const OpSite &site, const Rows &rows) const;

private:
  double linkSeconds(uint64_t bytes, bool hostToDevice) const;
  bool besideDevice(How how) const { return how == How::OnCpu && hardware_.kind != model::DeviceKind::Host; }
  bool plainAttention() const;
  double flopsSeconds(kernels::Op op, uint64_t flops, const Rows &rows) const;
  double memorySeconds(kernels::Op op, uint64_t bytes) const;
  double unpackAheadSeconds(const OpSite &site, const Rows &rows, Work &work) const;
  double unpackingSeconds(uint64_t flops) const; // 0: as all flops of the op
  double keptSeconds(const Work &work) const;    // 0: no rate of its own

  model::Boxed<model::ModelSpec> spec_;
  model::Hardware hardware_;
  model::DType activation_;
  model::Encoding kv_;
};

} // namespace headrace::cost
