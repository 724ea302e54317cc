// SPDX-License-Identifier: Apache-2.0
//
// How new KV rows get home to the host: written there by the kernel that appends them, or copied behind it.
#include "bench/cuda/MetaBuffer.h"
#include "bench/cuda/Parts.h"
#include "kernels/KvSegments.h"

namespace headrace::bench {
namespace {

constexpr int64_t kBlock = 16, kQueries = 32, kWidth = 128;
constexpr int kInRow = 32; // a node a layer, each with a cache of its own

class Append {
public:
  Append(int64_t sequences, int64_t tokens, int64_t kvHeads)
      : sequences_(sequences), tokens_(tokens), kvHeads_(kvHeads),
        meta_(std::vector<BenchRows>(static_cast<size_t>(sequences), {tokens, std::max<int64_t>(tokens, 256)}), kBlock),
        cacheBytes_(static_cast<size_t>(meta_.blocks() * kernels::kvBlockElements(kvHeads, kBlock, kWidth)) * 2),
        qkv_(static_cast<size_t>(sequences * tokens * (kQueries + 2 * kvHeads) * kWidth * 2),
             DeviceBuffer::Holds::Random),
        kv_(cacheBytes_ * kInRow), home_(cacheBytes_ * kInRow) {
    args_.meta = meta_.get();
    args_.qkv = qkv_.as();
    args_.segments = kernels::oneRun(meta_.blocks(), kernels::kvBlockElements(kvHeads, kBlock, kWidth));
    args_.homeFirst = 0;
    args_.homeEnd = meta_.blocks();
    args_.homeStride = kernels::kvBlockElements(kvHeads, kBlock, kWidth);
    args_.heads = kQueries;
    args_.kvHeads = kvHeads;
    args_.headDim = kWidth;
    args_.blockTokens = kBlock;
    args_.kvElem = args_.activation = kernels::Elem::BF16;
  }

  double rowBytes() const { return static_cast<double>(sequences_ * tokens_ * 2 * kvHeads_ * kWidth * 2); }
  size_t cacheBytes() const { return cacheBytes_; }

  enum class How { DeviceOnly, Direct, CopyAll };
  // Microseconds a layer of the chain of kernels, and of the copies in a chain beside it.
  double us(Timer &timer, How how) {
    BenchGraph graph;
    cudaGraphNode_t last = nullptr, copied = nullptr;
    for (size_t i = 0; i < kInRow; ++i) {
      kernels::RopeAppendArgs args = args_;
      args.kv = kv_.as() + cacheBytes_ * i;
      args.home = how == How::Direct ? home_.as() + cacheBytes_ * i : nullptr;
      last = graph.kernel({last}, launchOf(kernels::Op::RopeAppend, &args, {sequences_ * tokens_, sequences_, 4096}),
                          &args);
      if (how == How::CopyAll)
        copied = graph.copy({last, copied}, home_.as() + cacheBytes_ * i, kv_.as() + cacheBytes_ * i, cacheBytes_,
                            cudaMemcpyDeviceToHost);
    }
    graph.build(timer.stream());
    return timer.medianMs(5, [&](cudaStream_t stream) { graph.launch(stream); }) / kInRow * 1e3;
  }

private:
  int64_t sequences_, tokens_, kvHeads_;
  MetaBuffer meta_;
  size_t cacheBytes_;
  DeviceBuffer qkv_, kv_;
  PinnedBuffer home_;
  kernels::RopeAppendArgs args_{};
};

Json appended(Timer &timer, int64_t sequences, int64_t tokens, int64_t kvHeads) {
  Append append(sequences, tokens, kvHeads);
  const double device = append.us(timer, Append::How::DeviceOnly), direct = append.us(timer, Append::How::Direct),
               copy = append.us(timer, Append::How::CopyAll);
  return {{"rows' bytes", append.rowBytes()},       {"to the device us", device},
          {"and home directly us", direct},         {"directly GB/s", append.rowBytes() / direct * 1e-3},
          {"all blocks copied behind it us", copy}, {"blocks' bytes", append.cacheBytes()}};
}

} // namespace

void measureDirectWrites(const Context &context) {
  Report &report = context.report;
  report.part("direct",
              "append of new KV rows, 32 layers with caches of their own in one graph, a layer's share of it by events "
              "behind a spin kernel; contexts of 256; home: pinned, mapped host memory; copied: all blocks of a layer "
              "in one copy beside the next layer's append");
  Timer timer;
  std::vector<Report::Task> tasks;
  for (const int64_t kvHeads : {32, 8}) // OPT-6.7B's, Llama-3.1-8B's
    for (const auto &[sequences, tokens] : {std::pair<int64_t, int64_t>{32, 1}, {1, 1}, {128, 1}, {1, 1024}})
      tasks.push_back({std::to_string(sequences) + " x " + std::to_string(tokens) + " rows, " +
                           std::to_string(kvHeads) + " heads of keys",
                       6, [&timer, sequences = sequences, tokens = tokens, kvHeads] {
                         return appended(timer, sequences, tokens, kvHeads);
                       }});
  report.attempt(tasks);
}

} // namespace headrace::bench
