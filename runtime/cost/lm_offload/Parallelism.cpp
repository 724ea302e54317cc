// SPDX-License-Identifier: Apache-2.0
#include "runtime/cost/lm_offload/Parallelism.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"

namespace headrace::cost {
namespace {

constexpr int64_t kSpare = kTransferTasks;

absl::Status unfitGraph(const std::string &message) { return absl::InvalidArgumentError(message); }

std::vector<std::vector<size_t>> followers(absl::Span<const GraphOp> ops) {
  std::vector<std::vector<size_t>> next(ops.size());
  for (size_t op = 0; op < ops.size(); ++op)
    for (const size_t before : ops[op].after)
      next[before].push_back(op);
  return next;
}

// The most ops of which none needs another: ops less a largest matching of ops with ops that need them (Dilworth).
int64_t antichainOf(absl::Span<const GraphOp> ops, const std::vector<size_t> &order) {
  std::vector<std::vector<bool>> needs(ops.size(), std::vector<bool>(ops.size(), false)); // [op][what it needs]
  for (const size_t op : order) {
    for (const size_t before : ops[op].after) {
      needs[op][before] = true;
      for (size_t i = 0; i < ops.size(); ++i)
        needs[op][i] = needs[op][i] || needs[before][i];
    }
  }
  std::vector<std::optional<size_t>> matched(ops.size()); // of what is needed: by which op
  std::vector<bool> tried;
  const std::function<bool(size_t)> match = [&](size_t op) {
    for (size_t i = 0; i < ops.size(); ++i) {
      if (!needs[op][i] || tried[i])
        continue;
      tried[i] = true;
      if (!matched[i] || match(*matched[i])) {
        matched[i] = op;
        return true;
      }
    }
    return false;
  };
  int64_t width = static_cast<int64_t>(ops.size());
  for (size_t op = 0; op < ops.size(); ++op) {
    tried.assign(ops.size(), false);
    width -= match(op) ? 1 : 0;
  }
  return width;
}

int64_t levelsOf(absl::Span<const GraphOp> ops, const std::vector<size_t> &order) {
  std::vector<size_t> depth(ops.size(), 0);
  std::vector<int64_t> at(ops.size(), 0);
  for (const size_t op : order) {
    for (const size_t before : ops[op].after)
      depth[op] = std::max(depth[op], depth[before] + 1);
    ++at[depth[op]];
  }
  return *std::max_element(at.begin(), at.end());
}

// One each, the rest by volume: the next to the task with the largest volume a thread, the first of several.
std::array<int64_t, kTransferTasks> threadsByVolume(const TransferTasks &transfers, int64_t free) {
  std::array<int64_t, kTransferTasks> threads;
  threads.fill(1);
  for (int64_t left = free - kSpare; left > 0; --left) {
    size_t most = 0;
    for (size_t i = 1; i < kTransferTasks; ++i) {
      if (transfers.bytes[i] * static_cast<double>(threads[most]) >
          transfers.bytes[most] * static_cast<double>(threads[i]))
        most = i;
    }
    ++threads[most];
  }
  return threads;
}

absl::Status checkRecords(absl::Span<const GraphOp> ops) {
  for (const GraphOp &op : ops) {
    if (op.record.empty())
      return unfitGraph(model::cat(op.name, ": no record: expected times by threads"));
    for (size_t i = 0; i < op.record.size(); ++i) {
      const ThreadTime &time = op.record[i];
      if (time.threads < 1 || (i > 0 && time.threads <= op.record[i - 1].threads))
        return unfitGraph(model::cat(op.name, ": a record of ", time.threads, " threads: expected ascending numbers"));
      if (!(time.ns > 0 && std::isfinite(time.ns)))
        return unfitGraph(model::cat(op.name, ": ", time.ns, " ns: expected a positive time"));
    }
    const std::vector<ThreadTime> &first = ops.front().record;
    if (!std::equal(first.begin(), first.end(), op.record.begin(), op.record.end(),
                    [](const ThreadTime &a, const ThreadTime &b) { return a.threads == b.threads; }))
      return unfitGraph(model::cat(op.name, ": other numbers of threads than ", ops.front().name, "'s"));
  }
  return absl::OkStatus();
}

absl::Status checkTransfers(const TransferTasks &transfers) {
  for (const double bytes : transfers.bytes) {
    if (!(bytes >= 0 && std::isfinite(bytes)))
      return unfitGraph(model::cat("a transfer of ", bytes, " bytes: expected at least 0"));
  }
  for (const double rate : {transfers.h2dBandwidth, transfers.d2hBandwidth}) {
    if (!(rate > 0 && std::isfinite(rate)))
      return unfitGraph(model::cat("a link of ", rate, " bytes/s: expected a positive bandwidth"));
  }
  return absl::OkStatus();
}

} // namespace

absl::StatusOr<std::vector<size_t>> kahnOrder(absl::Span<const GraphOp> ops) {
  if (ops.empty())
    return unfitGraph("a graph without ops");
  std::vector<size_t> open(ops.size()), order;
  for (size_t op = 0; op < ops.size(); ++op) {
    for (const size_t before : ops[op].after) {
      if (before >= ops.size())
        return unfitGraph(model::cat(ops[op].name, ": after op ", before, ": expected below ", ops.size()));
    }
    open[op] = ops[op].after.size();
    if (open[op] == 0)
      order.push_back(op);
  }
  const std::vector<std::vector<size_t>> next = followers(ops);
  for (size_t i = 0; i < order.size(); ++i) {
    for (const size_t op : next[order[i]]) {
      if (--open[op] == 0)
        order.push_back(op);
    }
  }
  if (order.size() == ops.size())
    return order;
  // From an op that is left over back along what it waits for: where an op comes again there is a cycle.
  size_t at =
      static_cast<size_t>(std::find_if(open.begin(), open.end(), [](size_t n) { return n > 0; }) - open.begin());
  for (size_t steps = 0; steps < ops.size(); ++steps)
    at = *std::find_if(ops[at].after.begin(), ops[at].after.end(), [&](size_t before) { return open[before] > 0; });
  return unfitGraph(model::cat("op ", ops[at].name, " waits for itself: expected a graph without cycles"));
}

GraphRun runGraph(absl::Span<const GraphOp> ops, absl::Span<const double> ns, int64_t most) {
  const std::vector<std::vector<size_t>> next = followers(ops);
  std::vector<size_t> open(ops.size()), ready;
  for (size_t op = 0; op < ops.size(); ++op) {
    open[op] = ops[op].after.size();
    if (open[op] == 0)
      ready.push_back(op);
  }
  GraphRun run;
  std::vector<std::pair<double, size_t>> running; // when it ends, op
  size_t started = 0;
  while (started < ready.size() || !running.empty()) {
    while (started < ready.size() && static_cast<int64_t>(running.size()) < most) {
      const size_t op = ready[started++];
      running.emplace_back(run.ns + ns[op], op);
    }
    run.concurrency = std::max(run.concurrency, static_cast<int64_t>(running.size()));
    // All that end now have ended before anything else starts.
    run.ns = std::min_element(running.begin(), running.end())->first;
    std::sort(running.begin(), running.end());
    while (!running.empty() && running.front().first <= run.ns) {
      for (const size_t op : next[running.front().second]) {
        if (--open[op] == 0)
          ready.push_back(op);
      }
      running.erase(running.begin());
    }
  }
  return run;
}

absl::StatusOr<GraphWidths> graphWidths(absl::Span<const GraphOp> ops, absl::Span<const double> ns) {
  ASSIGN_OR_RETURN(order, kahnOrder(ops));
  return GraphWidths{.levels = levelsOf(ops, order),
                     .concurrency = runGraph(ops, ns, std::numeric_limits<int64_t>::max()).concurrency,
                     .antichain = antichainOf(ops, order)};
}

absl::StatusOr<Parallelism> findParallelism(absl::Span<const GraphOp> ops, const TransferTasks &transfers,
                                            int64_t threads) {
  RETURN_IF_ERROR(kahnOrder(ops).status());
  RETURN_IF_ERROR(checkRecords(ops));
  RETURN_IF_ERROR(checkTransfers(transfers));
  if (threads < 1)
    return unfitGraph(model::cat(threads, " threads: expected at least 1"));
  double transferNs = 0;
  for (size_t i = 0; i < kTransferTasks; ++i)
    transferNs =
        std::max(transferNs, transfers.bytes[i] * 1e9 / (i < 3 ? transfers.h2dBandwidth : transfers.d2hBandwidth));

  std::optional<Parallelism> best;
  std::vector<double> ns(ops.size());
  const auto timesAt = [&](size_t i) {
    for (size_t op = 0; op < ops.size(); ++op)
      ns[op] = ops[op].record[i].ns;
  };
  for (size_t i = 0; i < ops.front().record.size(); ++i) {
    const int64_t intra = ops.front().record[i].threads;
    if (intra > threads - kSpare)
      break;
    timesAt(i);
    ASSIGN_OR_RETURN(widths, graphWidths(ops, ns));
    const GraphRun run = runGraph(ops, ns, widths.concurrency);
    const int64_t free = threads - widths.concurrency * intra;
    if (free < kSpare)
      continue;
    if (best && std::max(run.ns, transferNs) >= std::max(best->computeNs, best->transferNs))
      continue;
    best = Parallelism{.intraOp = intra,
                       .interOpCompute = widths.concurrency,
                       .interOp = widths.concurrency + kSpare,
                       .transferThreads = threadsByVolume(transfers, free),
                       .computeNs = run.ns,
                       .transferNs = transferNs,
                       .widths = widths,
                       .givenUp = ""};
  }
  if (best)
    return *best;

  // Ops in turn, one thread each, as many as there are threads beside the five, or one.
  timesAt(0);
  ASSIGN_OR_RETURN(widths, graphWidths(ops, ns));
  Parallelism few{.intraOp = ops.front().record.front().threads, .widths = widths};
  few.interOpCompute = std::max<int64_t>(1, (threads - kSpare) / few.intraOp);
  few.interOp = few.interOpCompute + kSpare;
  few.computeNs = runGraph(ops, ns, few.interOpCompute).ns;
  few.transferNs = transferNs;
  few.transferThreads.fill(1);
  const int64_t needed = few.interOpCompute;
  if (needed * few.intraOp + kSpare <= threads)
    few.givenUp = model::cat(threads, " threads: ", few.interOpCompute, " of ", widths.concurrency,
                             " ops that could run at once do, so that five threads are left to load and store");
  else
    few.givenUp =
        model::cat(threads, " threads: the five load and store tasks have no threads of their own, they share ",
                   "those of compute");
  return few;
}

} // namespace headrace::cost
