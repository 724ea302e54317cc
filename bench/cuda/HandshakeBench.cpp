// SPDX-License-Identifier: Apache-2.0
//
// What a running graph can ask of the host and wait for, as attention on the CPU would have it, and how long that
// takes:
//
//   compute   kernel | ask, wait | kernel | ask, wait | ...     100 rounds in one graph
//   h2d/d2h   copy ......................................       none, or as long as the rounds take
//   host                answers      answers
//
// A host node asks by running; the others write the round's number to mapped memory and wait until the host has written
// it beside, by a node of memory operations or by a kernel that looks. What is measured is from ask to ask, as the host
// sees them, less the kernel in between.
#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <thread>

#include "bench/cuda/BenchKernels.h"
#include "bench/cuda/MemOps.h"
#include "bench/cuda/Parts.h"
#include "bench/cuda/Steps.h"

namespace headrace::bench {
namespace {

uint32_t roundsEach() { return timesCount() ? 100 : 8; }
int askLaunches() { return timesCount() ? 5 : 1; }
constexpr size_t kBulk = 64 * kMiB;

enum class How { HostNode, MemOps, Kernel };
enum class Beside { Nothing, ToDevice, ToHost };

// The two numbers, each in a line of its own, and who answers.
class Host {
public:
  Host() : memory_(4096) {
    void *seen = nullptr;
    must(cudaHostGetDevicePointer(&seen, memory_.as(), 0), "cudaHostGetDevicePointer");
    device_ = static_cast<char *>(seen);
  }
  ~Host() { end(); }
  Host(const Host &) = delete;
  Host &operator=(const Host &) = delete;

  uint32_t *asked() const { return reinterpret_cast<uint32_t *>(device_); }
  uint32_t *answered() const { return reinterpret_cast<uint32_t *>(device_ + 256); }
  void saw() { at_.push_back(nowSeconds()); }
  static void CUDART_CB sawOne(void *host) { static_cast<Host *>(host)->saw(); }
  static void CUDART_CB copiesEnd(void *host) { static_cast<Host *>(host)->copiesEndedAt_ = nowSeconds(); }
  double copiesEndedAt() const { return copiesEndedAt_; }

  // Before a launch; with `answers` a thread answers its rounds.
  void begin(bool answers) {
    at_.clear();
    at_.reserve(roundsEach());
    word(0).store(0);
    word(256).store(0);
    if (answers)
      thread_ = std::thread([this] { answer(); });
  }
  // Once it has ended: when each round was asked; Failure where one was not in time.
  std::vector<double> end() {
    if (thread_.joinable())
      thread_.join();
    return at_;
  }

private:
  static constexpr double kPatience = 2; // seconds until the graph is let go unasked
  std::atomic_ref<uint32_t> word(size_t at) const {
    return std::atomic_ref<uint32_t>(*reinterpret_cast<uint32_t *>(memory_.as() + at));
  }
  void answer() {
    for (uint32_t round = 1; round <= roundsEach(); ++round) {
      const double from = nowSeconds();
      while (word(0).load(std::memory_order_acquire) < round)
        if (nowSeconds() - from > kPatience) {
          word(256).store(UINT32_MAX);
          return;
        } else if (!timesCount()) {
          std::this_thread::yield(); // the stand-in needs the processor
        }
      saw();
      word(256).store(round, std::memory_order_release);
    }
  }

  PinnedBuffer memory_;
  char *device_ = nullptr;
  std::vector<double> at_;
  double copiesEndedAt_ = 0;
  std::thread thread_;
};

class Copies {
public:
  Copies() : host_(kBulk), device_(kBulk) {}
  cudaGraphNode_t add(BenchGraph &graph, Beside beside, int count) const {
    cudaGraphNode_t last = nullptr;
    for (int i = 0; i < count; ++i)
      last = beside == Beside::ToDevice ? graph.copy({last}, device_.as(), host_.as(), kBulk, cudaMemcpyHostToDevice)
                                        : graph.copy({last}, host_.as(), device_.as(), kBulk, cudaMemcpyDeviceToHost);
    return last;
  }

private:
  PinnedBuffer host_;
  DeviceBuffer device_;
};

struct Rounds {
  std::vector<double> us;                 // from ask to ask, while copies ran
  double graphMs = 0, untilLastAskMs = 0; // medians, from the launch call
};

Rounds play(How how, Host &host, const Copies &copies, Beside beside, int copyCount, cudaStream_t stream) {
  EmptyKernel kernel;
  BenchGraph graph;
  if (const cudaGraphNode_t end = copies.add(graph, beside, copyCount); end != nullptr)
    graph.host({end}, Host::copiesEnd, &host);
  cudaGraphNode_t last = nullptr;
  for (uint32_t round = 1; round <= roundsEach(); ++round) {
    last = kernel.add(graph, {last});
    if (how == How::HostNode)
      last = graph.host({last}, Host::sawOne, &host);
    else if (how == How::MemOps)
      last = askAndWait(graph, {last}, host.asked(), host.answered(), round);
    else {
      const AskArgs args{.asked = host.asked(), .answered = host.answered(), .round = round};
      last = graph.kernel({last}, askEntry(), {.kernel = "ask", .block = {32, 1, 1}}, &args);
    }
  }
  graph.build(stream);
  Rounds all;
  std::vector<double> graphMs, untilMs;
  for (int launch = 0; launch <= askLaunches(); ++launch) { // the first does not count
    host.begin(how != How::HostNode);
    const double at = nowSeconds();
    graph.launch(stream);
    must(cudaStreamSynchronize(stream), "a graph that asks the host");
    const double took = nowSeconds() - at;
    const std::vector<double> asked = host.end();
    if (asked.size() != roundsEach())
      fail("the host was asked " + std::to_string(asked.size()) + " times of " + std::to_string(roundsEach()));
    if (launch == 0)
      continue;
    // The stand-in runs a copy all at once, before the rounds or behind them.
    const bool whole = copyCount == 0 || !timesCount();
    for (size_t i = 1; i < asked.size() && (whole || asked[i] <= host.copiesEndedAt()); ++i)
      all.us.push_back((asked[i] - asked[i - 1]) * 1e6);
    graphMs.push_back(took * 1e3);
    untilMs.push_back((asked.back() - at) * 1e3);
  }
  if (all.us.size() < (roundsEach() - 1) * static_cast<size_t>(askLaunches()) / 4)
    fail("of all rounds only " + std::to_string(all.us.size()) + " were beside copies");
  all.graphMs = median(std::move(graphMs));
  all.untilLastAskMs = median(std::move(untilMs));
  return all;
}

// Microseconds of one read of host memory that waits for the one before: no question is answered in less.
double linkUs(Timer &timer) {
  constexpr uint32_t kReads = 1000;
  const PinnedBuffer memory(4096);
  void *seen = nullptr;
  must(cudaHostGetDevicePointer(&seen, memory.as(), 0), "cudaHostGetDevicePointer");
  *memory.as<uint32_t>() = 0;
  const DeviceBuffer last(sizeof(uint32_t));
  const ReadsArgs args{.words = static_cast<const uint32_t *>(seen), .last = last.as<uint32_t>(), .count = kReads};
  return chainUs(timer, 2,
                 [&](BenchGraph &graph, cudaGraphNode_t before, size_t) {
                   return graph.kernel({before}, readsEntry(), {.kernel = "reads", .block = {32, 1, 1}}, &args);
                 }) /
         kReads;
}

Json roundTrips(How how, Beside beside) {
  if (how == How::MemOps)
    if (const std::string why = whyNoMemOps(); !why.empty())
      return {{"unavailable", why}};
  Timer timer;
  Host host;
  const Copies copies;
  EmptyKernel empty;
  const double kernelUs = chainUs(
      timer, roundsEach(), [&](BenchGraph &graph, cudaGraphNode_t last, size_t) { return empty.add(graph, {last}); });
  const Rounds idle = play(how, host, copies, Beside::Nothing, 0, timer.stream());
  Rounds rounds = idle;
  int count = 0;
  if (beside != Beside::Nothing) {
    BenchGraph one;
    copies.add(one, beside, 1);
    one.build(timer.stream());
    const double copyMs = timer.medianMs(3, [&](cudaStream_t stream) { one.launch(stream); });
    // Twice as long as the rounds take by themselves.
    count = std::clamp(static_cast<int>(2 * idle.untilLastAskMs / copyMs) + 1, 1, 64);
    rounds = play(how, host, copies, beside, count, timer.stream());
  }
  const double bound = linkUs(timer), us = median(rounds.us) - kernelUs;
  Json fields = {{"us", us},
                 {"bound us", bound},
                 {"share", bound / us},
                 {"p99 us", quantile(rounds.us, 0.99) - kernelUs},
                 {"rounds", rounds.us.size()},
                 {"longest us", quantile(rounds.us, 1) - kernelUs},
                 {"shortest us", quantile(rounds.us, 0) - kernelUs},
                 {"kernel between us", kernelUs},
                 {"last asked after ms", rounds.untilLastAskMs},
                 {"graph ms", rounds.graphMs}};
  if (beside != Beside::Nothing) {
    fields["copies of 64 MiB"] = count;
    fields["idle us"] = median(idle.us) - kernelUs;
    fields["beside / idle"] = us / (median(idle.us) - kernelUs);
  }
  return fields;
}

} // namespace

void measureHandshake(const Context &context) {
  context.report.part(
      "handshake",
      "a graph of 100 rounds of an empty kernel and of one that asks the host and waits for it, launched 5 times; from "
      "ask to ask as the host sees them, less the empty kernel's time in a chain of its own; bound: a read of host "
      "memory, 1,000 of which wait for one another; beside copies of 64 MiB in the same graph, twice as long as the "
      "rounds take alone: rounds behind the copies' end do not count");
  struct Way {
    const char *name;
    How how;
  };
  constexpr Way kWays[] = {
      {"host node", How::HostNode}, {"memory operations", How::MemOps}, {"a kernel that looks", How::Kernel}};
  Tasks tasks;
  for (const Way &way : kWays)
    for (const auto &[name, beside] : {std::pair<const char *, Beside>{"link idle", Beside::Nothing},
                                       {"beside copies to the device", Beside::ToDevice},
                                       {"beside copies from it", Beside::ToHost}})
      tasks.push_back({std::string(way.name) + ", " + name, 4,
                       [how = way.how, beside = beside] { return roundTrips(how, beside); }});
  context.report.attempt(tasks);
}

} // namespace headrace::bench
