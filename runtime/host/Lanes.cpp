// SPDX-License-Identifier: Apache-2.0
#include "runtime/host/Lanes.h"

#include <algorithm>
#include <cstring>

namespace headrace::host {
namespace {

// Every byte 0xff: a NaN as F32, F16 and BF16.
constexpr int kPoisonByte = 0xff;

class ComputeLane {
public:
  explicit ComputeLane(Shared &shared) : s_(shared) {}

  void run() {
    wakeOnTime();
    for (uint64_t n = 0;; ++n) {
      s_.signals.wait(Thread::Compute, {Counter::Launched, n + 1});
      if (s_.signals.value(Counter::Launched) >= kStop)
        return;
      runLaunch(s_.ring[n % kRing]);
    }
  }

private:
  void runLaunch(const Launch &launch) {
    HostGraph &graph = *launch.graph;
    waitFor({Counter::H2D, launch.base[1]});
    waitFor({Counter::D2H, launch.base[2]});
    for (uint32_t i = 0; i < graph.poisonBefore; ++i)
      poison(graph.poison[i]);
    if (launch.staging != nullptr)
      std::memcpy(static_cast<void *>(s_.meta), launch.staging, core::bytesInUse(s_.metas.at(launch.staging)));
    uint64_t ended = launch.base[0];
    // Who waits for tokens asks for the launch's end next. Where nothing is between, both are there before it is woken.
    // Once it has ended the graph, and what the next launch brings, are not this one's any more.
    const bool tokensLast = !graph.lanes[0].empty() && graph.lanes[0].back().kind == plan::StepKind::Publish;
    const uint64_t iteration = launch.staging != nullptr ? s_.meta->iteration : 0;
    for (LaneStep &step : graph.lanes[0]) {
      for (uint8_t w = 0; w < step.waitCount; ++w) {
        const Want &want = step.waits[w];
        waitFor({want.counter, launch.base[static_cast<size_t>(want.counter)] + want.threshold});
      }
      const int64_t start = s_.trace ? threads::monotonicNs() : 0;
      execute(step, launch.inUse);
      if (s_.trace || step.signals)
        step.endedNs = threads::monotonicNs();
      if (s_.trace)
        graph.times[step.step] = {start, step.endedNs};
      ++ended;
      if (step.signals)
        s_.signals.advance(Counter::Compute, ended);
      if (step.kind == plan::StepKind::Publish && !tokensLast)
        s_.signals.announce(Counter::Published, iteration);
      for (uint32_t i = 0; i < step.poisonCount; ++i)
        poison(graph.poison[step.firstPoison + i]);
    }
    s_.endedNs[0].store(threads::monotonicNs(), std::memory_order_relaxed);
    s_.signals.advance(Counter::Compute, launch.end[0]);
    if (tokensLast)
      s_.signals.announce(Counter::Published, iteration);
  }

  void execute(const LaneStep &step, const core::LaunchInUse &inUse) {
    switch (step.kind) {
    case plan::StepKind::Compute:
      if (step.direct.any())
        computeDirectly(step);
      else
        compute(step);
      break;
    case plan::StepKind::Copy: { // debug mode only; else the transfer thread's
      const core::CopyRun run = step.copy.runIn(inUse);
      core::copyPart(step.copy, run.offset, run.bytes);
      (plan::toDevice(step.lane) ? s_.h2dBytes : s_.d2hBytes).fetch_add(run.bytes, std::memory_order_relaxed);
      break;
    }
    case plan::StepKind::Publish:
      publish();
      break;
    }
  }

  void compute(const LaneStep &step) { s_.pool->run(s_.poolLane, step.kernel, step.args); }

  // What is written over the link is there when the step ends: with its first byte on the way as the step starts, that
  // is not before all of them have crossed at the link's rate. The lane waits for it, so the step has the lane for so
  // long. Not modelled: that copies under way share the link (the bus, Bus.h, knows nothing of it), and that what is
  // read over it takes time.
  void computeDirectly(const LaneStep &step) {
    const int64_t startNs = threads::monotonicNs();
    compute(step);
    s_.h2dBytes.fetch_add(step.direct.read(*s_.meta), std::memory_order_relaxed);
    const uint64_t written = step.direct.written(*s_.meta);
    s_.d2hBytes.fetch_add(written, std::memory_order_relaxed);
    passTo(startNs + s_.directWriteNs(written));
  }

  void passTo(int64_t ns) {
    const int64_t now = threads::monotonicNs();
    if (ns - now > 2 * kLongSpinNs) // a sleep is some microseconds late
      s_.signals.waitAny(Thread::Compute, {}, ns - kLongSpinNs);
    if (ns > now)
      s_.signals.waitAny(Thread::Compute, {}, ns);
  }

  void publish() {
    TokenSlot &slot = s_.tokens[s_.meta->iteration % kTokenSlots];
    slot.count = s_.metas.sampled();
    std::copy_n(s_.output, slot.count, slot.tokens.begin());
    slot.iteration = s_.meta->iteration;
    slot.visibleNs = threads::monotonicNs();
    s_.signals.store(Counter::Published, s_.meta->iteration); // who sleeps for it is rung for by runLaunch()
  }

  // For a copy, mostly. Whoever waits has a core, and the transfer thread may have none: what is late, this lane does.
  void waitFor(const Want &want) {
    if (s_.signals.reached(want))
      return;
    const int64_t startNs = threads::monotonicNs();
    s_.signals.waitAny(Thread::Compute, {&want, 1}, startNs + threads::kSpinNs);
    while (!s_.signals.reached(want))
      s_.signals.waitAny(Thread::Compute, {&want, 1}, s_.copies->takeOver(startNs));
    s_.stallNs.fetch_add(std::max<int64_t>(threads::monotonicNs() - startNs, 1), std::memory_order_relaxed);
  }

  void poison(const ByteRange &range) {
    std::memset(s_.bases.device + range.begin, kPoisonByte, range.end - range.begin);
  }

  Shared &s_;
};

} // namespace

void runComputeLane(Shared &shared) { ComputeLane(shared).run(); }

} // namespace headrace::host
