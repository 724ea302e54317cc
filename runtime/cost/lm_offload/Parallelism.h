// SPDX-License-Identifier: Apache-2.0
//
// LM-Offload's thread-level parallelism (section 4.2, Algorithm 3) on plain values: how many ops of the compute task
// run at once (inter-op), on how many threads each (intra-op), and how many threads copy.
//
//   for intra = 1 ... threads - 5            of the recorded numbers of threads
//     inter = most ops that run at once      Kahn's order: an op starts when those before it have ended
//     free  = threads - inter x intra        below 5: not considered
//     free threads to the five load and store tasks by volume, each at least one
//     throughput = 1 / the longest of compute and the five, each volume / bandwidth
//
// "Maximum concurrency level" has three meanings, of which the second is taken, since the paper has it depend on times:
//
//      a               levels       ops at one depth: {a, b}, {c}, {d, e}: 2
//      b --> c --> d   concurrency  ops that run at one moment: 3 where a outlasts b and c, else 2
//             +--> e   antichain    ops of which none needs another, whatever they take: {a, d, e}: 3
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace headrace::cost {

struct ThreadTime {
  int64_t threads = 0;
  double ns = 0;
};

struct GraphOp {
  std::string name;
  std::vector<size_t> after;      // ops that end before it starts, by their place in the list
  std::vector<ThreadTime> record; // ascending threads, the same numbers for all ops
};

// Volumes of load_weight, load_cache, load_activation, store_cache, store_activation: bytes; of the link bytes/s.
inline constexpr size_t kTransferTasks = 5;
struct TransferTasks {
  std::array<double, kTransferTasks> bytes = {};
  double h2dBandwidth = 0, d2hBandwidth = 0;
};

struct GraphWidths {
  int64_t levels = 0, concurrency = 0, antichain = 0;
};

// Ops in Kahn's order, ties by place; kInvalidArgument: no ops, `after` beyond the list, a cycle, naming an op of it.
absl::StatusOr<std::vector<size_t>> kahnOrder(absl::Span<const GraphOp> ops);

struct GraphRun {
  double ns = 0;           // until the last op has ended
  int64_t concurrency = 0; // most ops at one moment
};
// With a time each, at most `most` at once: those that may start, in Kahn's order. Needs kahnOrder() to accept them.
GraphRun runGraph(absl::Span<const GraphOp> ops, absl::Span<const double> ns, int64_t most);
// The three meanings, with a time each.
absl::StatusOr<GraphWidths> graphWidths(absl::Span<const GraphOp> ops, absl::Span<const double> ns);

struct Parallelism {
  int64_t intraOp = 0;        // threads of each op of compute
  int64_t interOpCompute = 0; // ops of compute at once
  int64_t interOp = 0;        // with the five load and store tasks
  std::array<int64_t, kTransferTasks> transferThreads = {};
  double computeNs = 0, transferNs = 0; // the longest of the five
  GraphWidths widths;
  std::string givenUp; // what there are too few threads for; empty: nothing
};

// kInvalidArgument: as kahnOrder(); no record, one that is not ascending, has other numbers of threads than the first
// op's, or a time that is not positive; threads below 1; a volume below 0, a bandwidth that is not positive. Where
// five threads cannot be spared the best without them, and what it gives up.
absl::StatusOr<Parallelism> findParallelism(absl::Span<const GraphOp> ops, const TransferTasks &transfers,
                                            int64_t threads);

} // namespace headrace::cost
