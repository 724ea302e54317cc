// SPDX-License-Identifier: Apache-2.0
//
// The performance record of one model on one device (Select-N, section 4.4): what each op of an iteration takes for
// every (batch, sequence) of powers of two, prefill and decode apart, and what copies take by size. All times are in
// integer nanoseconds, each with its spread.
//
//   Record
//    |- identity    which model, which device, which element types: lookups for others are refused
//    |- model       its shape, so that the work between the measured sizes can be counted
//    |- hardware    the profile that the device was measured under
//    |- transfers   by size: alone, with compute running, both directions at once
//    |- loading     of a folder's weights
//    |- lines       by tokens: keys and values made again of activations, loads of either; may be missing
//    '- cells       one a (phase, batch, sequence): 14 op sites of an iteration, the nine of a layer once
//
// A cell need not be measured where a cell that is no larger in batch and sequence shows a layer that computes longer
// than it is copied: there every copy hides behind its own layer and the interval is 1 (section 4.4). Pairs of more
// tokens than a limit are not on the grid at all: they did not fit the device.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/cost/CostModel.h"
#include "runtime/cost/HybridServe.h"

namespace headrace::cost {

inline constexpr int64_t kRecordVersion = 1;

// Prefill: all `sequence` tokens of `batch` prompts. Decode: one token of each of `batch` sequences, `sequence` tokens
// in its cache with it.
enum class Phase : uint8_t { Prefill = 0, Decode = 1 };
inline constexpr int kPhases = 2;
std::string_view phaseName(Phase phase); // "prefill", "decode"
std::optional<Phase> phaseFromName(std::string_view name);
Bucket bucketOf(Phase phase, int64_t batch, int64_t sequence);

// The ops of an iteration that are timed, in the order in which they run; those from AttentionNorm to Down are a
// layer's.
enum class Site : uint8_t {
  Embed = 0,
  AttentionNorm = 1,
  Qkv = 2,
  RopeAppend = 3,
  Attention = 4,
  Out = 5,
  MlpNorm = 6,
  Up = 7,
  Activate = 8,
  Down = 9,
  Gather = 10,
  HeadNorm = 11,
  Head = 12,
  Sample = 13
};
inline constexpr int kSites = 14;
std::string_view siteName(Site site); // "embed", "attention_norm", "qkv", ...: keys of the file
constexpr bool inLayer(Site site) { return site >= Site::AttentionNorm && site <= Site::Down; }
OpSite opSiteOf(Site site);
// Nothing for an op that no record has (a value of a later format).
std::optional<Site> siteOf(const OpSite &site);

// Nearest-rank quantiles of repeated measurements, ns.
struct Timing {
  uint64_t medianNs = 0, p10Ns = 0, p90Ns = 0;
  bool operator==(const Timing &) const = default;
};
// Of at least one sample.
Timing summarise(std::vector<uint64_t> samplesNs);

struct Cell {
  Phase phase = Phase::Prefill;
  int64_t batch = 1, sequence = 1;
  uint32_t repetitions = 1; // iterations measured
  std::array<Timing, kSites> sites{};
  std::vector<uint64_t> layerNs; // median of each layer; only where the layers are not equally fast

  const Timing &at(Site site) const { return sites[static_cast<size_t>(site)]; }
  Timing &at(Site site) { return sites[static_cast<size_t>(site)]; }
};

// Copies of one size.
struct Transfer {
  uint64_t bytes = 0;
  uint32_t repetitions = 1;
  Timing h2d, d2h;                       // nothing else running
  Timing h2dWithCompute, d2hWithCompute; // a layer computing meanwhile
  Timing both;                           // one of each direction started together, until both have ended
};

// How compute and copies disturb each other (CostModel.h), over one pair's iteration.
struct MeasuredInterference {
  uint32_t repetitions = 0; // 0: not measured
  Timing computeAlone;      // from the start of the first compute step to the end of the last
  Timing computeBeside;     // the same while copies of the largest size run, one behind the other
  Timing copyStart;         // from the end of a compute step to the start of a copy that has waited for it
};

// How far the slowest iterations of one pair's decode lie from what this record predicts: with everything resident,
// where compute decides, and with a copy before each layer that the layer waits for, half as long again as the layer
// computes, where the link does.
struct MeasuredSpread {
  struct Iterations {
    uint64_t predictedNs = 0; // from this record's medians
    uint64_t medianNs = 0;    // as it was measured
    uint64_t slowestNs = 0;   // p99, on the safe side (AnalyzerSpread.h)
    bool operator==(const Iterations &) const = default;
  };
  uint32_t repetitions = 0; // of each; 0: not measured
  Iterations resident, waiting;
  // The larger slowest / predicted, at least 1; to a thousandth below.
  double slowestFactor() const;
};
// Of an objective, the share in percent that a placement leaves free whose predicted time, times `slowestFactor` (at
// least 1), is within it: 20 for 1.25.
constexpr double percentKeptFree(double slowestFactor) { return 100 - 100 / slowestFactor; }

// Weights read from a folder's files, packed on the way where the model's are, and put into the device's memory. The
// rate is of bytes as they lie there; as files that the system's cache holds are read faster, it is of a first look.
struct MeasuredLoading {
  uint64_t bytes = 0, ns = 0; // 0: not measured
  bool measured() const { return ns > 0; }
  double bytesPerSecond() const { return static_cast<double>(bytes) * 1e9 / static_cast<double>(ns); }
  bool operator==(const MeasuredLoading &) const = default;
};

// HybridServe's sampling (section 4.3, Figure 11): what three tasks of a layer take at several counts of tokens. Each
// is a line, fitted to every other count from the first on; the counts between them are held out, and show how well the
// line predicts.
enum class LineKind : uint8_t {
  RebuildKv = 0, // T_kv_gen: keys and values of the tokens in activation blocks
  LoadKv = 1,    // T_load_kv: copies to the device of the tokens' keys and values
  LoadAct = 2    // T_load_act: ... of their activations
};
inline constexpr int kLines = 3;
std::string_view lineName(LineKind kind); // "rebuild_kv", "load_kv", "load_act": keys of the file

struct MeasuredLines {
  struct Sample {
    int64_t tokens = 0;
    Timing timing;
    bool operator==(const Sample &) const = default;
  };
  std::array<std::vector<Sample>, kLines> samples; // ascending by tokens; all empty: not measured

  bool measured() const; // any of them
  const std::vector<Sample> &at(LineKind kind) const { return samples[static_cast<size_t>(kind)]; }
  std::vector<Sample> &at(LineKind kind) { return samples[static_cast<size_t>(kind)]; }
};
inline constexpr size_t kLeastLineSamples = 5; // three that the line is fitted to, two held out
constexpr bool heldOut(size_t sample) { return sample % 2 == 1; }
// The line through the medians of those that are not held out. kInvalidArgument where there is none, or less linear
// than kLeastR2 asks for (HybridServe.h); `what` begins the message.
absl::StatusOr<Line> fitLine(absl::Span<const MeasuredLines::Sample> samples, std::string_view what);

// What a record is of. Two identities are equal when all of it is.
struct Identity {
  std::string model;     // name, for people
  std::string modelHash; // as in plans: of the spec and the checkpoint's headers
  std::string device;    // which device it was, for people and for the check
  model::DeviceKind kind = model::DeviceKind::Host;
  model::DType activation = model::DType::F32;
  model::Encoding kv;
  int64_t layers = 0;
  uint64_t layerBytes = 0; // weights of a layer: what an offloaded one copies
};

inline constexpr int64_t kAnyTokens = int64_t{1} << 60; // no limit: the largest pair of two axes

struct Record {
  Identity identity;
  model::Boxed<model::ModelSpec> model;
  model::Hardware hardware;
  std::vector<int64_t> batches, sequences; // powers of two, ascending without gaps
  // By phase: pairs of a larger batch x sequence are not on the grid.
  std::array<int64_t, kPhases> mostTokens{kAnyTokens, kAnyTokens};
  int64_t layersRun = 0;           // of the model's layers, those that were there: fewer where not all fit
  bool layersEqual = true;         // false: every cell has layerNs
  std::vector<Transfer> transfers; // ascending by bytes
  MeasuredInterference interference;
  MeasuredSpread spread;
  MeasuredLoading loading;
  MeasuredLines lines;
  std::vector<Cell> cells;

  const Cell *find(Phase phase, int64_t batch, int64_t sequence) const; // null: not measured
  bool onGrid(Phase phase, int64_t batch, int64_t sequence) const {     // of two that are on the axes
    return batch * sequence <= mostTokens[static_cast<size_t>(phase)];
  }
};

// Whether all layers are as fast as the fastest, within `tolerance` (0.05: five hundredths slower at most).
bool layersAreEqual(absl::Span<const uint64_t> layerNs, double tolerance);

// Compute of one layer: the sum of its sites' medians; of unequal layers the slowest.
uint64_t layerComputeNs(const Cell &cell);
// Compute of all that is not in a layer: embedding, head and sampling.
uint64_t restComputeNs(const Cell &cell);

// A copy while compute runs, by size: linear between measured sizes; below the smallest what the smallest takes; above
// the largest its time in proportion. Never below what the same copy takes alone. A record without transfers has none:
// kLongestStepNs.
uint64_t transferNs(const Record &record, uint64_t bytes, bool hostToDevice);

struct CellKey {
  Phase phase = Phase::Prefill;
  int64_t batch = 1, sequence = 1;
  bool operator==(const CellKey &) const = default;
};
// The cells still to be measured, small ones first; prefill before decode. Those that need not be (above) are left out.
std::vector<CellKey> missingCells(const Record &record);

// What every record must hold, partial or not: a grid of powers of two, cells inside it and none twice, spreads around
// their medians, as many layer times as layers, samples of lines that are lines. kInvalidArgument; `where` (a file)
// begins the message.
absl::Status checkRecord(const Record &record, std::string_view where);
// That nothing is missing: kFailedPrecondition naming how many cells are and which is the first, or the transfers.
absl::Status checkComplete(const Record &record, std::string_view where);
// That the record is of this model on this device: kFailedPrecondition naming the first difference and both values.
absl::Status checkIdentity(const Record &record, const Identity &expected, std::string_view where);

} // namespace headrace::cost
