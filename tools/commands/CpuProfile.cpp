// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/CpuProfile.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <numeric>
#include <utility>

#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "kernels/Kernels.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/cost/lm_offload/PoolThreads.h"
#include "runtime/model/WeightLayout.h"
#include "runtime/threads/GuardedMemory.h"
#include "runtime/threads/ThreadPool.h"
#include "tools/report/Format.h"

namespace headrace::tools {
namespace {

using threads::monotonicNs;
using threads::ThreadPool;

constexpr uint64_t kMostBytes = uint64_t{1} << 30, kLeastBytes = uint64_t{1} << 26;
constexpr int kRounds = 5;
constexpr int64_t kDecodeColumns = 4096;
constexpr int64_t kPrefillRows = 192, kPrefillSize = 2048;
constexpr int64_t kHeads = 32, kKvHeads = 8, kHeadDim = 128, kBlockTokens = 16, kContext = 4096;
constexpr int64_t kBlocks = kContext / kBlockTokens;
constexpr uint64_t kCacheValues = 2 * kKvHeads * kHeadDim * kContext;
constexpr uint64_t kMostCaches = 64; // 1 GiB of 16-bit ones; as many packed ones take no longer

// Bytes of `span`, added up as 64-bit words.
uint64_t sumOf(absl::Span<const std::byte> span) {
  typedef uint64_t Words __attribute__((vector_size(32), may_alias));
  Words sums[4] = {};
  for (size_t i = 0; i + sizeof(sums) <= span.size(); i += sizeof(sums))
    for (size_t j = 0; j < 4; ++j) {
      Words next;
      std::memcpy(&next, span.data() + i + j * sizeof(Words), sizeof(Words));
      sums[j] += next;
    }
  const Words all = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  return all[0] + all[1] + all[2] + all[3];
}

// Of a unit a second, from how long it takes.
double rate(double units, int64_t ns) { return units / static_cast<double>(std::max<int64_t>(ns, 1)) * 1e9; }

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// One processor's memory, and what is run over it. Every 16-bit number there is 0.0115 in BF16.
class Workload {
public:
  static absl::StatusOr<std::unique_ptr<Workload>> make(double seconds) {
    const uint64_t available = threads::availableMemory();
    const uint64_t useful = static_cast<uint64_t>(std::min(seconds, 2.0) / 2 * static_cast<double>(kMostBytes));
    const uint64_t most = available == 0 ? useful : std::min(useful, available / 4);
    const uint64_t bytes = std::max(most / kLeastBytes * kLeastBytes, kLeastBytes);
    ASSIGN_OR_RETURN(memory, threads::GuardedMemory::take(bytes, 4096, "memory to read", true));
    std::memset(memory.bytes().data(), 0x3c, bytes);
    return std::make_unique<Workload>(std::move(memory));
  }
  explicit Workload(threads::GuardedMemory memory) : memory_(std::move(memory)) {
    const kernels::MetaLayout layout{.maxTokens = 1, .maxSequences = 1, .maxBlocksPerSequence = kBlocks};
    meta_.resize(kernels::metaBytes(layout) / sizeof(uint64_t));
    kernels::IterationMeta &meta = *this->meta();
    kernels::initMeta(layout, &meta);
    meta.numTokens = meta.numSequences = 1;
    meta.array<int32_t>(meta.queryStart)[1] = 1;
    meta.array<int32_t>(meta.positions)[0] = kContext - 1;
    int32_t *const table = meta.array<int32_t>(meta.blockTable);
    std::iota(table, table + kBlocks, 0);
  }

  static uint64_t workspaceBytes() {
    return std::max(kernels::linearWorkspaceBytes(kernels::Backend::Host, kPrefillRows, kPrefillSize, kPrefillSize),
                    kernels::attentionWorkspaceBytes(kernels::Backend::Host, 1, kHeads, kHeadDim, kContext));
  }

  double read(ThreadPool &pool) {
    constexpr uint64_t kPart = uint64_t{1} << 20;
    const absl::Span<const std::byte> all = memory_.bytes();
    std::atomic<uint64_t> sum{0};
    const int64_t start = monotonicNs();
    pool.each(0, static_cast<int64_t>(all.size() / kPart),
              [&](int64_t part) { sum += sumOf(all.subspan(static_cast<uint64_t>(part) * kPart, kPart)); });
    const int64_t ns = monotonicNs() - start;
    kept_ += sum.load(); // so that it is computed
    return rate(static_cast<double>(all.size()), ns);
  }

  double decode(ThreadPool &pool) {
    const auto rows = static_cast<int64_t>(memory_.bytes().size() / (kDecodeColumns * 2));
    return rate(static_cast<double>(rows * kDecodeColumns * 2), linear(pool, 1, rows, kDecodeColumns));
  }
  double prefill(ThreadPool &pool) {
    return rate(2.0 * kPrefillRows * kPrefillSize * kPrefillSize,
                linear(pool, kPrefillRows, kPrefillSize, kPrefillSize));
  }

  // Weights of a row of q4 linears; every group's scale and minimum are 1.06.
  double unpack(ThreadPool &pool) {
    const kernels::Packing packing{4, model::kDefaultGroup};
    const auto rows = static_cast<int64_t>(memory_.bytes().size() /
                                           model::Encoding::groups(4).bytes(model::kPanelRows, kDecodeColumns)) *
                      model::kPanelRows;
    return rate(static_cast<double>(rows * kDecodeColumns), linear(pool, 1, rows, kDecodeColumns, packing));
  }

  double attention(ThreadPool &pool) { return 2 * attended(pool, kHeads, {}); }
  double packedAttention(ThreadPool &pool) { return attended(pool, kKvHeads, {4, model::kDefaultGroup}); }

private:
  kernels::IterationMeta *meta() { return reinterpret_cast<kernels::IterationMeta *>(meta_.data()); }
  float *workspace() {
    workspace_.resize(workspaceBytes() / sizeof(float));
    return workspace_.data();
  }

  // Keys and values a second. Caches one behind the other, so that none is where the one before it was.
  double attended(ThreadPool &pool, int64_t heads, const kernels::Packing &packing) {
    qkv_.resize((kHeads + 2 * kKvHeads) * kHeadDim, 0.01f);
    out_.resize(kHeads * kHeadDim);
    kernels::AttentionArgs args{};
    args.meta = meta(), args.qkv = qkv_.data(), args.out = out_.data(), args.workspace = workspace();
    const int64_t units = kernels::kvBlockUnits(packing, kKvHeads, kBlockTokens, kHeadDim);
    args.segments = kernels::oneRun(kBlocks, units);
    args.heads = heads, args.kvHeads = kKvHeads, args.headDim = kHeadDim, args.blockTokens = kBlockTokens;
    args.maxContext = kContext, args.scale = 0.1f, args.kvElem = kernels::Elem::BF16, args.kvPacking = packing;
    const uint64_t bytes = static_cast<uint64_t>(kBlocks * units) * (packing.codeBits == 0 ? 2 : 1);
    const uint64_t caches = std::min(memory_.bytes().size() / bytes, kMostCaches);
    const int64_t start = monotonicNs();
    for (uint64_t i = 0; i < caches; ++i) {
      args.kv = memory_.bytes().data() + i * bytes;
      pool.run(0, kernels::hostKernel(kernels::Op::Attention), &args);
    }
    return rate(static_cast<double>(caches * kCacheValues), monotonicNs() - start);
  }

  int64_t linear(ThreadPool &pool, int32_t rows, int64_t n, int64_t k, const kernels::Packing &packing = {}) {
    x_.resize(static_cast<size_t>(rows * k), 0.01f);
    y_.resize(static_cast<size_t>(rows * n));
    kernels::LinearArgs args{};
    args.count = &rows, args.x = x_.data(), args.w = memory_.bytes().data(), args.y = y_.data();
    args.workspace = workspace(), args.n = n, args.k = k, args.capacity = rows;
    args.elem = kernels::Elem::BF16, args.order = kernels::kHostOrder, args.packing = packing;
    const int64_t start = monotonicNs();
    pool.run(0, kernels::hostKernel(kernels::Op::Linear), &args);
    return monotonicNs() - start;
  }

  const threads::GuardedMemory memory_;
  std::vector<uint64_t> meta_;
  std::vector<float> qkv_, out_, x_, y_, workspace_;
  uint64_t kept_ = 0;
};

std::vector<int> countsUpTo(int threads) {
  std::vector<int> counts;
  for (int count = 1; count < threads; count *= 2)
    counts.push_back(count);
  counts.push_back(threads);
  return counts;
}

const CpuFigures &fastest(const std::vector<CpuFigures> &figures) {
  return *std::max_element(figures.begin(), figures.end(),
                           [](const CpuFigures &a, const CpuFigures &b) { return a.read < b.read; });
}

// As many threads as a CPU's attention is to have beside a device: of more, copies are short.
const CpuFigures &poolOf(const std::vector<CpuFigures> &figures) {
  std::vector<cost::ThreadTime> times;
  for (const CpuFigures &f : figures)
    times.push_back({.threads = f.threads, .ns = 1e9 / f.attention});
  const absl::StatusOr<int64_t> threads = cost::poolThreads(times, figures.back().threads);
  const auto of = std::find_if(figures.begin(), figures.end(),
                               [&](const CpuFigures &f) { return threads.ok() && f.threads == *threads; });
  return of == figures.end() ? figures.back() : *of;
}

} // namespace

absl::StatusOr<std::vector<CpuFigures>> measureCpu(int threads, double seconds) {
  ASSIGN_OR_RETURN(work, Workload::make(seconds));
  const std::vector<int> counts = countsUpTo(threads);
  std::vector<std::unique_ptr<ThreadPool>> pools;
  for (const int count : counts) {
    pools.push_back(std::make_unique<ThreadPool>(1, count));
    RETURN_IF_ERROR(pools.back()->attach(0, {.workspaceBytes = Workload::workspaceBytes(),
                                             .sharedBytes = kernels::hostTeamBytes(kHeads, kKvHeads, kHeadDim),
                                             .unitNs = kernels::HostTeam().unitNs}));
  }
  constexpr std::array<std::pair<double CpuFigures::*, double (Workload::*)(ThreadPool &)>, 6> kMeasures = {
      {{&CpuFigures::read, &Workload::read},
       {&CpuFigures::decode, &Workload::decode},
       {&CpuFigures::prefill, &Workload::prefill},
       {&CpuFigures::unpack, &Workload::unpack},
       {&CpuFigures::attention, &Workload::attention},
       {&CpuFigures::packedAttention, &Workload::packedAttention}}};
  std::vector<CpuFigures> figures(counts.size());
  for (const auto &[figure, measure] : kMeasures) {
    std::vector<std::vector<double>> seen(counts.size());
    for (int round = 0; round <= kRounds; ++round) // the first warms up
      for (size_t i = 0; i < counts.size(); ++i)
        if (const double now = ((*work).*measure)(*pools[i]); round > 0)
          seen[i].push_back(now);
    for (size_t i = 0; i < counts.size(); ++i) {
      figures[i].threads = counts[i];
      figures[i].*figure = median(std::move(seen[i]));
    }
  }
  // The kernels read memory, too: what the fastest has read is what memory gives.
  for (CpuFigures &f : figures)
    f.read = std::max({f.read, f.decode, f.attention});
  return figures;
}

namespace {

// Of the peak of products, two flops that take so long.
double shareOf(const CpuFigures &one, double seconds) {
  return seconds > 0 ? std::min(1.0, 2 / seconds / one.prefill) : 1.0;
}

// What two flops a value take of a row beside the product's two.
double unpackEfficiency(const CpuFigures &one) {
  const double seconds = 1 / one.unpack - 2 / one.prefill;
  return shareOf(one, seconds);
}

// The same of what attention's reading of a value takes, beside its unpacking and the two flops of its query.
double readKvEfficiency(const CpuFigures &one) {
  const double seconds = 1 / one.packedAttention - 2 / one.prefill - 2 / (unpackEfficiency(one) * one.prefill);
  return shareOf(one, seconds);
}

} // namespace

std::string cpuText(const std::vector<CpuFigures> &figures) {
  std::vector<std::vector<std::string>> rows = {{"threads", "read", "linear, 1 row", "of read", "linear, 192 rows",
                                                 "of 1 thread", "attention", "of read", "q4 linear, 1 row",
                                                 "q4 attention"}};
  for (const CpuFigures &f : figures) {
    const auto share = [](double part, double whole) { return absl::StrFormat("%.2f", part / whole); };
    const auto giga = [](double rate, const char *unit) { return absl::StrFormat("%.1f %s/s", rate / 1e9, unit); };
    rows.push_back({model::cat(f.threads), giga(f.read, "GB"), giga(f.decode, "GB"), share(f.decode, f.read),
                    giga(f.prefill, "GFLOP"), share(f.prefill, figures[0].prefill), giga(f.attention, "GB"),
                    share(f.attention, f.read), absl::StrFormat("%.1f Gweights/s", f.unpack / 1e9),
                    absl::StrFormat("%.1f Gvalues/s", f.packedAttention / 1e9)});
  }
  const CpuFigures &one = figures.front(), &pool = poolOf(figures);
  return model::cat(
      formatTable(rows), "\nAs keys of a profile of kind host, of one thread but for the limit:\n",
      absl::StrFormat("flops_f32 = \"%.1fGFLOP/s\"\nflops_f16 = \"%.1fGFLOP/s\"\nmemory_bandwidth = \"%.1fGB/s\"\n"
                      "memory_bandwidth_limit = \"%.1fGB/s\"\nflops_efficiency = 1.0\nmemory_efficiency = %.2f\n"
                      "read_kv_flops_efficiency = %.3f\nunpack_flops_efficiency = %.2f\n",
                      one.prefill / 1e9, one.prefill / 1e9, one.read / 1e9, fastest(figures).read / 1e9,
                      std::min(1.0, one.decode / one.read), readKvEfficiency(one), unpackEfficiency(one)),
      "\nAs keys of a profile of kind cuda, of the CPU beside the device:\n",
      absl::StrFormat("cpu_cores = %d\ncpu_flops = \"%.1fGFLOP/s\"\ncpu_memory_bandwidth = \"%.1fGB/s\"\n"
                      "cpu_core_bandwidth = \"%.1fGB/s\"\n",
                      pool.threads, pool.prefill / 1e9, fastest(figures).read / 1e9,
                      pool.attention / pool.threads / 1e9));
}

std::string cpuJson(const std::vector<CpuFigures> &figures) {
  using Json = nlohmann::ordered_json;
  Json rows = Json::array();
  for (const CpuFigures &f : figures)
    rows.push_back({{"threads", f.threads},
                    {"read_bytes_per_second", f.read},
                    {"linear_one_row_bytes_per_second", f.decode},
                    {"linear_192_rows_flops_per_second", f.prefill},
                    {"attention_bytes_per_second", f.attention},
                    {"linear_one_row_q4_weights_per_second", f.unpack},
                    {"q4_attention_values_per_second", f.packedAttention}});
  return Json{{"format", "headrace-cpu"}, {"figures", std::move(rows)}}.dump(1) + "\n";
}

} // namespace headrace::tools
