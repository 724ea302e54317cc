// SPDX-License-Identifier: Apache-2.0
//
// The link: what one large pinned copy gets, and what chains of chunks in a graph get of that, alone, both ways at once
// and beside kernels. The chunks of a graph are the denominators of every iteration's bound.
#include <algorithm>
#include <memory>

#include "bench/cuda/Gpu.h"
#include "bench/cuda/Parts.h"

namespace headrace::bench {
namespace {

constexpr size_t kTotal = kGiB; // bytes a measurement moves in one direction
constexpr int kRepeats = 5;
constexpr const char *kOneIn = "one copy of 1 GiB, h2d", *kOneOut = "one copy of 1 GiB, d2h",
                     *kLoadAlone = "load kernel alone";

double gbps(double bytes, double ms) { return bytes / ms * 1e-6; }

// Kernels that stream device memory, one after another, for about as long as the copies take.
struct Load {
  static constexpr int64_t kRows = 4096, kColumns = 16384;
  static constexpr double kBytes = static_cast<double>(kRows * kColumns * 2 * 3); // 384 MiB: no L2 holds it
  DeviceBuffer gateUp{static_cast<size_t>(kRows * 2 * kColumns * 2), DeviceBuffer::Holds::Random};
  DeviceBuffer y{static_cast<size_t>(kRows * kColumns * 2)};
  DeviceBuffer count{sizeof(int32_t)};
  kernels::ActivateArgs args{};

  Load() {
    const int32_t rows = kRows;
    must(cudaMemcpy(count.as(), &rows, sizeof(rows), cudaMemcpyHostToDevice), "cudaMemcpy");
    args.count = count.as<int32_t>();
    args.gateUp = gateUp.as();
    args.y = y.as();
    args.intermediate = kColumns;
    args.activation = kernels::Elem::BF16;
  }
  void add(BenchGraph &graph, int kernelCount) const {
    const kernels::CudaLaunch launch = launchOf(kernels::Op::Activate, &args, {kRows, 1, kRows});
    cudaGraphNode_t last = nullptr;
    for (int i = 0; i < kernelCount; ++i)
      last = graph.kernel({last}, launch, &args);
  }
};

class LinkBench {
public:
  explicit LinkBench(Report &report) : report_(report) {}

  void run() {
    std::vector<Report::Task> tasks = {{kOneIn, 3, [&] { return one(true); }},
                                       {kOneOut, 3, [&] { return one(false); }},
                                       {kLoadAlone, 3, [&] {
                                          const double ms = graphMs(0, false, false, 64) / 64;
                                          return Json{{"ms", ms}, {"memory GB/s", gbps(Load::kBytes, ms)}};
                                        }}};
    // Those that plans use first. Smaller ones would be more than a held stream takes (BenchGraph::heldLaunches).
    for (const size_t chunk : {32, 8, 128, 2, 16, 64, 4, 256}) {
      const std::string name = std::to_string(chunk) + " MiB chunks";
      const size_t bytes = chunk * kMiB;
      tasks.push_back({name + ", h2d", 3, [=, this] { return alone(bytes, true, kOneIn); }});
      tasks.push_back({name + ", d2h", 3, [=, this] { return alone(bytes, false, kOneOut); }});
      tasks.push_back({name + ", both ways", 3, [=, this] { return bothWays(name, bytes); }});
      tasks.push_back({name + ", h2d beside kernels", 3, [=, this] { return beside(name, bytes, true, false); }});
      tasks.push_back({name + ", d2h beside kernels", 3, [=, this] { return beside(name, bytes, false, true); }});
      tasks.push_back({name + ", both ways beside kernels", 3, [=, this] { return beside(name, bytes, true, true); }});
    }
    report_.attempt(tasks);
  }

private:
  struct Memory {
    PinnedBuffer hostIn{kTotal}, hostOut{kTotal};
    DeviceBuffer deviceIn{kTotal}, deviceOut{kTotal, DeviceBuffer::Holds::Random};
    Load load;
    Timer timer;
  };
  Memory &memory() { // taken when the first figure is measured
    if (memory_ == nullptr)
      memory_ = std::make_unique<Memory>();
    return *memory_;
  }

  Json one(bool toDevice) {
    Memory &m = memory();
    const double ms = m.timer.medianMs(kRepeats, [&](cudaStream_t stream) {
      must(toDevice ? cudaMemcpyAsync(m.deviceIn.as(), m.hostIn.as(), kTotal, cudaMemcpyHostToDevice, stream)
                    : cudaMemcpyAsync(m.hostOut.as(), m.deviceOut.as(), kTotal, cudaMemcpyDeviceToHost, stream),
           "cudaMemcpyAsync");
    });
    return {{"ms", ms}, {"GB/s", gbps(kTotal, ms)}};
  }

  // Three chains: copies in, copies out, kernels.
  double graphMs(size_t chunk, bool in, bool out, int kernelCount) {
    Memory &m = memory();
    BenchGraph graph;
    cudaGraphNode_t last = nullptr;
    for (size_t at = 0; in && at < kTotal; at += chunk)
      last = graph.copy({last}, m.deviceIn.as() + at, m.hostIn.as() + at, chunk, cudaMemcpyHostToDevice);
    last = nullptr;
    for (size_t at = 0; out && at < kTotal; at += chunk)
      last = graph.copy({last}, m.hostOut.as() + at, m.deviceOut.as() + at, chunk, cudaMemcpyDeviceToHost);
    m.load.add(graph, kernelCount);
    graph.build(m.timer.stream());
    return m.timer.medianMs(kRepeats, [&](cudaStream_t stream) { graph.launch(stream); });
  }

  Json alone(size_t chunk, bool toDevice, const char *of) {
    const double ms = graphMs(chunk, toDevice, !toDevice, 0);
    return {{"ms", ms}, {"GB/s", gbps(kTotal, ms)}, {"of one copy", report_.number(of, "ms") / ms}};
  }

  Json bothWays(const std::string &name, size_t chunk) {
    const double longer = std::max(report_.number(name + ", h2d", "ms"), report_.number(name + ", d2h", "ms"));
    const double ms = graphMs(chunk, true, true, 0);
    return {{"ms", ms}, {"GB/s, sum", gbps(2 * kTotal, ms)}, {"of the longer alone", ms / longer}};
  }

  // Kernels for as long as the copies take alone.
  Json beside(const std::string &name, size_t chunk, bool in, bool out) {
    const char *which = in && out ? ", both ways" : in ? ", h2d" : ", d2h";
    const double copies = report_.number(name + which, "ms"), kernel = report_.number(kLoadAlone, "ms");
    const int count = std::max(1, static_cast<int>(copies / kernel));
    const double ms = graphMs(chunk, in, out, count), kernels = kernel * count;
    return {{"ms", ms},
            {"kernels alone ms", kernels},
            {"copies alone ms", copies},
            {"of the longer alone", ms / std::max(kernels, copies)},
            {"of their sum", ms / (kernels + copies)}};
  }

  Report &report_;
  std::unique_ptr<Memory> memory_;
};

} // namespace

void measureLink(const Context &context) {
  context.report.part("link", "1 GiB of random bytes each way, median of 5 by events, enqueued behind a spin kernel; "
                              "graphs of 1-D copy nodes in one chain a direction; 'of one copy' divides by one "
                              "cudaMemcpyAsync of 1 GiB from pinned memory; kernels stream 384 MiB each");
  LinkBench(context.report).run();
}

} // namespace headrace::bench
