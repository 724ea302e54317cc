// SPDX-License-Identifier: Apache-2.0
#include "runtime/threads/ThreadPool.h"

#include <sched.h>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/threads/LowLatency.h"
#include "runtime/threads/Threads.h"

namespace headrace::threads {
namespace {

constexpr uint64_t kLine = 64;
constexpr int kWakeTogether = 2; // each of the woken wakes others: the lane has better to do
constexpr uint32_t unitsOf(uint64_t open) { return static_cast<uint32_t>(open >> 32); }
constexpr uint32_t nextOf(uint64_t open) { return static_cast<uint32_t>(open); }

} // namespace

// One phase of a kernel, as the lane shares it.
struct ThreadPool::Step {
  const kernels::HostKernel &kernel;
  const void *args;
  const kernels::HostWork &work;
  int64_t phase;

  static void run(const void *context, int64_t unit, float *scratch) {
    const Step &step = *static_cast<const Step *>(context);
    step.kernel.run(step.args, step.work, step.phase, unit, scratch);
  }
};

ThreadPool::ThreadPool(size_t lanes, int threads)
    : lanes_(lanes), helpers_(static_cast<size_t>(std::max<int64_t>(0, threads - static_cast<int64_t>(lanes)))) {}

ThreadPool::~ThreadPool() {
  for (size_t lane = 0; lane < lanes_.size(); ++lane)
    detach(lane);
}

absl::Status ThreadPool::attach(size_t index, const PoolMember &member) {
  Lane &lane = lanes_[index];
  if (helpers_ == 0)
    return absl::OkStatus();
  lane.stride = (member.workspaceBytes + kLine - 1) / kLine * kLine;
  const uint64_t shared = (member.sharedBytes + kLine - 1) / kLine * kLine;
  const uint64_t bytes = helpers_ * lane.stride + shared;
  ASSIGN_OR_RETURN(memory, GuardedMemory::take(bytes, kLine, "scratch of threads", false));
  lane.memory = std::move(memory);
  lane.scratch = lane.memory.bytes().data();
  if (member.poison && bytes > 0)
    std::memset(lane.scratch, 0xff, bytes); // NaN
  lane.team = {.threads = threadsOfLane(),
               .unitNs = member.unitNs,
               .shared = reinterpret_cast<float *>(lane.scratch + helpers_ * lane.stride),
               .sharedBytes = shared};
  lane.attached = true;
  absl::Status started = threads_.empty() ? start(member) : absl::OkStatus();
  if (!started.ok())
    detach(index);
  return started;
}

void ThreadPool::detach(size_t index) {
  Lane &lane = lanes_[index];
  if (!lane.attached)
    return;
  lane.attached = false;
  if (std::none_of(lanes_.begin(), lanes_.end(), [](const Lane &other) { return other.attached; }))
    stop();
  lane.memory = GuardedMemory();
  lane.scratch = nullptr;
  lane.team = {};
}

absl::Status ThreadPool::start(const PoolMember &member) {
  threads_.resize(helpers_);
  for (size_t i = 0; i < helpers_; ++i) {
    const std::string which = absl::StrCat("compute thread ", i + 1 + lanes_.size(), " of ", threads());
    RETURN_IF_ERROR(startThread(threads_[i], which, [this, i, urgent = member.urgent] {
      if (urgent)
        (void)makeThreadUrgent(); // as the caller was before
      help(i);
    }));
    RETURN_IF_ERROR(pinThread(threads_[i], i < member.cores.size() ? member.cores[i] : -1, which));
  }
  return absl::OkStatus();
}

void ThreadPool::stop() {
  stop_.store(true, std::memory_order_seq_cst);
  bell_.fetch_add(1, std::memory_order_seq_cst);
  futexWake(bell_, std::numeric_limits<int>::max());
  for (std::thread &thread : threads_)
    if (thread.joinable())
      thread.join();
  threads_.clear();
  stop_.store(false, std::memory_order_seq_cst);
}

void ThreadPool::run(size_t index, const kernels::HostKernel &kernel, const void *args) {
  Lane &lane = lanes_[index];
  if (lane.team.threads == 1)
    return kernel(args);
  const kernels::HostWork work = kernel.work(args, lane.team);
  if (work.ns < 2 * lane.team.unitNs)
    return kernel(args);
  for (int64_t phase = 0; phase < work.phases; ++phase) {
    const Step step{kernel, args, work, phase};
    share(lane, kernel.units(args, work, phase), Step::run, &step);
  }
}

void ThreadPool::each(size_t lane, int64_t units, absl::FunctionRef<void(int64_t)> f) {
  share(
      lanes_[lane], units,
      [](const void *context, int64_t unit, float *) {
        (*static_cast<const absl::FunctionRef<void(int64_t)> *>(context))(unit);
      },
      &f);
}

void ThreadPool::share(Lane &lane, int64_t all, Call call, const void *context) {
  if (all <= 1 || threads_.empty()) {
    for (int64_t unit = 0; unit < all; ++unit)
      call(context, unit, nullptr);
    return;
  }
  assert(all <= std::numeric_limits<uint32_t>::max());
  const uint32_t units = static_cast<uint32_t>(all);
  lane.call = call;
  lane.context = context;
  lane.ended.store(0, std::memory_order_relaxed);
  lane.open.store(uint64_t{units} << 32, std::memory_order_seq_cst);
  wake(static_cast<int>(std::min<uint32_t>(units - 1, kWakeTogether)));
  for (uint32_t unit, of; take(lane, unit, of);)
    runUnit(lane, unit, of, nullptr);
  const auto left = [&] { return lane.ended.load(std::memory_order_acquire) != units; };
  for (const int64_t endNs = left() ? monotonicNs() + kSpinNs : 0; left();) {
    for (int i = 0; i < 16 && left(); ++i)
      pauseSpinning();
    if (!left() || monotonicNs() < endNs)
      continue;
    lane.sleeps.store(1, std::memory_order_seq_cst);
    for (uint32_t ended; (ended = lane.ended.load(std::memory_order_seq_cst)) != units;)
      futexWait(lane.ended, ended, kNever);
    lane.sleeps.store(0, std::memory_order_relaxed);
  }
}

void ThreadPool::wake(int most) {
  const uint32_t sleepers = sleepers_.load(std::memory_order_seq_cst);
  if (sleepers == 0 || most <= 0)
    return;
  bell_.fetch_add(1, std::memory_order_seq_cst);
  futexWake(bell_, most);
}

bool ThreadPool::take(Lane &lane, uint32_t &unit, uint32_t &units) {
  uint64_t open = lane.open.load(std::memory_order_acquire);
  while (nextOf(open) < unitsOf(open))
    // Should the step have been another's meanwhile, with as many units and as many taken, then it is one of that which
    // is taken: nothing else has been looked at yet.
    if (lane.open.compare_exchange_weak(open, open + 1, std::memory_order_acq_rel, std::memory_order_acquire)) {
      unit = nextOf(open), units = unitsOf(open);
      return true;
    }
  return false;
}

void ThreadPool::runUnit(Lane &lane, uint32_t unit, uint32_t units, float *scratch) {
  lane.call(lane.context, unit, scratch);
  // Whoever ends the last unit may find the lane at its next step: it touches nothing of this one any more.
  if (lane.ended.fetch_add(1, std::memory_order_seq_cst) + 1 == units &&
      lane.sleeps.load(std::memory_order_seq_cst) != 0)
    futexWake(lane.ended);
}

bool ThreadPool::anyOpen() const {
  return std::any_of(lanes_.begin(), lanes_.end(), [](const Lane &lane) {
    const uint64_t open = lane.open.load(std::memory_order_seq_cst);
    return nextOf(open) < unitsOf(open);
  });
}

void ThreadPool::help(size_t self) {
  while (!stop_.load(std::memory_order_acquire)) {
    bool wakes = true;
    for (size_t i = 0; i < lanes_.size(); ++i) { // not all of them the first one first
      Lane &lane = lanes_[(self + i) % lanes_.size()];
      for (uint32_t unit, units; take(lane, unit, units);) {
        if (wakes && unit + 1 < units)
          wake(kWakeTogether);
        wakes = false;
        runUnit(lane, unit, units, reinterpret_cast<float *>(lane.scratch + self * lane.stride));
      }
    }
    sleepOrSpin();
  }
}

void ThreadPool::sleepOrSpin() {
  const auto awaited = [this] { return anyOpen() || stop_.load(std::memory_order_seq_cst); };
  for (const int64_t endNs = monotonicNs() + kPoolSpinNs; monotonicNs() < endNs; sched_yield()) // to who has none
    for (int i = 0; i < 32; ++i) {
      if (awaited())
        return;
      pauseSpinning();
    }
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  const uint32_t rings = bell_.load(std::memory_order_seq_cst);
  if (!awaited())
    futexWait(bell_, rings, kNever);
  sleepers_.fetch_sub(1, std::memory_order_seq_cst);
}

} // namespace headrace::threads
