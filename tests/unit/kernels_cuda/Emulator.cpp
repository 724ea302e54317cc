// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/kernels_cuda/Emulator.h"

#include <csetjmp>
#include <ucontext.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <type_traits>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace headrace::kernels::emulator {
namespace {

constexpr size_t kStackBytes = 64 << 10, kMostBytes = 64;

enum class State { Runnable, AtExchange, AtBarrier, Done };

struct Copy {
  void *to;
  const void *from;
  uint64_t bytes;
};

struct Fiber {
  ucontext_t context;
  jmp_buf resume;
  bool started = false; // it is resumed, not made anew: one block's thread behind the other
  std::unique_ptr<char[]> stack{new char[kStackBytes]};
  State state = State::Done;
  uint64_t exchanges = 0, bytes = 0;     // bytes: of the exchange it waits at
  std::vector<std::vector<Copy>> groups; // committed, oldest first
  std::vector<Copy> open;                // not committed yet
};

struct Warp {
  unsigned char values[2][32][kMostBytes]; // of exchanges with even and odd numbers
};

std::vector<std::unique_ptr<Fiber>> fibers;
std::vector<Warp> warps;
std::vector<uint64_t> sharedWords;
size_t sharedBytes;
ucontext_t scheduler;
Fiber *running;
size_t runningIndex;
void (*threadBody)(const void *);
const void *threadContext;
#if defined(__SANITIZE_ADDRESS__)
const void *schedulerStack;
size_t schedulerStackBytes;
#else
jmp_buf schedulerResume;
#endif

// A fiber is made once and starts with swapcontext; from then on both sides switch with _setjmp and _longjmp, which
// need no system call. The address sanitizer must be told of every switch, and does not follow jumps: with it a fiber
// is made for each thread of a block, and swapcontext switches.
void toFiber(size_t index) {
  running = fibers[index].get();
  runningIndex = index;
  threadIdx = {static_cast<uint32_t>(index), 0, 0};
#if defined(__SANITIZE_ADDRESS__)
  void *fake = nullptr;
  __sanitizer_start_switch_fiber(&fake, running->stack.get(), kStackBytes);
  swapcontext(&scheduler, &running->context);
  __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#else
  if (_setjmp(schedulerResume) != 0)
    return;
  if (running->started)
    _longjmp(running->resume, 1);
  running->started = true;
  swapcontext(&scheduler, &running->context);
#endif
}

void toScheduler(State state) {
  running->state = state;
#if defined(__SANITIZE_ADDRESS__)
  void *fake = nullptr;
  __sanitizer_start_switch_fiber(state == State::Done ? nullptr : &fake, schedulerStack, schedulerStackBytes);
  swapcontext(&running->context, &scheduler);
  __sanitizer_finish_switch_fiber(fake, &schedulerStack, &schedulerStackBytes);
#else
  if (_setjmp(running->resume) == 0)
    _longjmp(schedulerResume, 1);
#endif
}

void threadMain() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &schedulerStack, &schedulerStackBytes);
#endif
  for (;;) {
    threadBody(threadContext);
    if (!running->open.empty() || !running->groups.empty())
      fail("a thread ends with copies that it never waited for");
    toScheduler(State::Done); // and goes on as a thread of another block
  }
}

// Lets the lanes of a warp run until none can.
void runWarp(size_t warp, uint64_t order, std::mt19937_64 &random) {
  size_t lanes[32];
  for (size_t i = 0; i < 32; ++i)
    lanes[i] = warp * 32 + (order == 1 ? 31 - i : i);
  for (;;) {
    if (order > 1)
      std::shuffle(lanes, lanes + 32, random);
    bool ran = false;
    for (size_t lane : lanes)
      if (fibers[lane]->state == State::Runnable)
        toFiber(lane), ran = true;
    if (!ran)
      return;
    size_t waiting = 0;
    for (size_t lane : lanes)
      waiting += fibers[lane]->state == State::AtExchange ? 1 : 0;
    if (waiting == 0)
      continue;
    if (waiting != 32)
      fail("lanes of a warp part before an exchange");
    for (size_t lane : lanes) {
      if (fibers[lane]->bytes != fibers[lanes[0]]->bytes)
        fail("lanes of a warp meet at different exchanges");
      fibers[lane]->state = State::Runnable;
    }
  }
}

void prepare(Fiber &fiber) {
  fiber.state = State::Runnable;
  fiber.exchanges = 0;
  if (fiber.started)
    return;
  getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = fiber.stack.get();
  fiber.context.uc_stack.ss_size = kStackBytes;
  fiber.context.uc_link = nullptr;
  makecontext(&fiber.context, threadMain, 0);
}

void runBlock(size_t threads, uint64_t order, std::mt19937_64 &random) {
  std::fill(sharedWords.begin(), sharedWords.end(), ~uint64_t{0});
  for (size_t i = 0; i < threads; ++i)
    prepare(*fibers[i]);
  touched.assign(threads, 0);
  counts.blockCopied = 0;
  std::vector<size_t> turns(threads / 32);
  for (size_t i = 0; i < turns.size(); ++i)
    turns[i] = order == 1 ? turns.size() - 1 - i : i;
  for (;;) {
    if (order > 1)
      std::shuffle(turns.begin(), turns.end(), random);
    for (size_t warp : turns)
      runWarp(warp, order, random);
    size_t done = 0;
    for (size_t i = 0; i < threads; ++i)
      done += fibers[i]->state == State::Done ? 1 : 0;
    if (done == threads) {
      counts.threads += threads;
      counts.mostCopied = std::max(counts.mostCopied, counts.blockCopied);
      counts.active += static_cast<uint64_t>(std::count(touched.begin(), touched.end(), 1));
      return;
    }
    if (done != 0)
      fail("a thread ends while others wait at a barrier");
    for (size_t i = 0; i < threads; ++i)
      fibers[i]->state = State::Runnable; // all are at the barrier
  }
}

} // namespace

void fail(const char *message) {
  std::fprintf(stderr, "emulated block (%u, %u, %u), thread %zu: %s\n", blockIdx.x, blockIdx.y, blockIdx.z,
               runningIndex, message);
  std::abort();
}

unsigned char *shared() { return reinterpret_cast<unsigned char *>(sharedWords.data()); }

void meetBlock() { toScheduler(State::AtBarrier); }

void exchange(const void *value, uint64_t bytes, void *all) {
  if (bytes > kMostBytes)
    fail("an exchange of more than 64 bytes");
  Fiber *const fiber = running;
  Warp &warp = warps[runningIndex / 32];
  unsigned char(&values)[32][kMostBytes] = warp.values[fiber->exchanges++ % 2];
  std::memcpy(values[runningIndex % 32], value, bytes);
  fiber->bytes = bytes;
  toScheduler(State::AtExchange);
  const auto gather = [&](auto each) { // a size that the compiler knows is one move
    for (size_t i = 0; i < 32; ++i)
      std::memcpy(static_cast<char *>(all) + i * each, values[i], each);
  };
  if (bytes == 4)
    gather(std::integral_constant<size_t, 4>());
  else if (bytes == 8)
    gather(std::integral_constant<size_t, 8>());
  else
    gather(bytes);
}

void copyLater(void *to, const void *from, uint64_t bytes) {
  if (static_cast<unsigned char *>(to) < shared() || static_cast<unsigned char *>(to) + bytes > shared() + sharedBytes)
    fail("an asynchronous copy leaves shared memory");
  std::memset(to, 0xff, bytes);
  counts.blockCopied += from != nullptr ? bytes : 0;
  running->open.push_back({to, from, bytes});
}

void commit() {
  running->groups.push_back(std::move(running->open));
  running->open.clear();
}

void wait(int pending) {
  auto &groups = running->groups;
  while (groups.size() > static_cast<size_t>(pending)) {
    for (const Copy &copy : groups.front())
      if (copy.from != nullptr)
        std::memcpy(copy.to, copy.from, copy.bytes);
      else
        std::memset(copy.to, 0, copy.bytes);
    groups.erase(groups.begin());
  }
}

void runGrids(const std::vector<Grid> &grids, uint64_t order) {
  struct Block {
    const Grid *grid;
    uint64_t number;
  };
  std::vector<Block> sequence;
  for (const Grid &grid : grids) {
    const CudaLaunch &launch = grid.launch;
    const size_t threads = launch.block[0];
    if (launch.block[1] != 1 || launch.block[2] != 1 || threads % 32 != 0)
      fail("blocks are one-dimensional with whole warps");
    while (fibers.size() < threads)
      fibers.push_back(std::make_unique<Fiber>());
    warps.resize(std::max(warps.size(), threads / 32));
    const uint64_t blocks = uint64_t{launch.grid[0]} * launch.grid[1] * launch.grid[2];
    for (uint64_t i = 0; i < blocks; ++i)
      sequence.push_back({&grid, i});
  }
  std::mt19937_64 random(order);
  if (order == 1)
    std::reverse(sequence.begin(), sequence.end());
  else if (order > 1)
    std::shuffle(sequence.begin(), sequence.end(), random);
  const Grid *last = nullptr;
  for (const auto &[grid, block] : sequence) {
    const CudaLaunch &launch = grid->launch;
    if (grid != last) {
      sharedBytes = launch.sharedBytes;
      sharedWords.resize(sharedBytes / 8);
      threadBody = grid->body;
      threadContext = grid->context;
      blockDim = {launch.block[0], 1, 1};
      gridDim = {launch.grid[0], launch.grid[1], launch.grid[2]};
      last = grid;
    }
    blockIdx = {static_cast<uint32_t>(block % gridDim.x), static_cast<uint32_t>(block / gridDim.x % gridDim.y),
                static_cast<uint32_t>(block / gridDim.x / gridDim.y)};
    runBlock(blockDim.x, order, random);
  }
}

} // namespace headrace::kernels::emulator
