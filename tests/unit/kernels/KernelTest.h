// SPDX-License-Identifier: Apache-2.0
//
// What the kernels' tests share: random values, operands in every element type and order, buffers whose unused part is
// NaN, an IterationMeta made from a list of sequences, and the instruction sets to run on.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "kernels/Half.h"
#include "kernels/Kernels.h"
#include "kernels/host/HostIsa.h"

namespace headrace::kernels {

using Floats = std::vector<float>;
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

inline std::vector<HostIsa> testedIsas() {
  std::vector<HostIsa> isas;
  for (const HostIsa isa : {HostIsa::Portable, HostIsa::Avx2, HostIsa::Avx512})
    if (isaSupported(isa))
      isas.push_back(isa);
  return isas;
}
inline std::string isaName(const testing::TestParamInfo<HostIsa> &info) {
  return info.param == HostIsa::Portable ? "Portable" : info.param == HostIsa::Avx2 ? "Avx2" : "Avx512";
}

// How runKernel() cuts ops, as finely as it goes unless unitNs says otherwise; units of a phase run in an order drawn
// by `seed`, each in a scratch of NaNs.
struct TestTeam {
  int threads = 1;
  uint64_t seed = 1;
  int64_t unitNs = 0;
};
inline std::optional<TestTeam> testTeam; // none: a thread alone

// workspaceBytes: the op's, for scratch; sharedBytes: of the team.
inline void runKernel(Op op, HostIsa isa, const void *args, uint64_t workspaceBytes = 0, uint64_t sharedBytes = 0) {
  const HostKernel kernel = hostKernel(op, isa);
  if (!testTeam)
    return kernel(args);
  const size_t sharedFloats = sharedBytes / sizeof(float), scratchFloats = workspaceBytes / sizeof(float);
  std::vector<float> shared(sharedFloats, std::numeric_limits<float>::quiet_NaN());
  std::mt19937_64 random(testTeam->seed);
  const HostWork work = kernel.work(
      args,
      {.threads = testTeam->threads, .unitNs = testTeam->unitNs, .shared = shared.data(), .sharedBytes = sharedBytes});
  for (int64_t phase = 0; phase < work.phases; ++phase) {
    std::vector<int64_t> units(static_cast<size_t>(kernel.units(args, work, phase)));
    std::iota(units.begin(), units.end(), 0);
    std::shuffle(units.begin(), units.end(), random);
    for (const int64_t unit : units) {
      std::vector<float> scratch(scratchFloats, std::numeric_limits<float>::quiet_NaN());
      kernel.run(args, work, phase, unit, scratch.data());
    }
  }
}

// f() in teams of 2, 3, 5 and 8, cut finely and coarsely: whether all are what it is alone.
template <typename F> bool sameInTeams(F f, uint64_t seed = 1) {
  const auto alone = f();
  for (const int threads : {2, 3, 5, 8})
    for (const int64_t unitNs : {0, 500}) {
      testTeam = {.threads = threads, .seed = seed++, .unitNs = unitNs};
      const bool same = f() == alone;
      testTeam.reset();
      if (!same)
        return false;
    }
  return true;
}

// A test suite whose tests run once for each instruction set: `call(op, args)` runs a kernel.
class OnEachIsa : public testing::TestWithParam<HostIsa> {
protected:
  void call(Op op, const void *args) const { runKernel(op, GetParam(), args); }
};
#define HEADRACE_ON_EACH_ISA(Suite)                                                                                    \
  class Suite : public OnEachIsa {};                                                                                   \
  INSTANTIATE_TEST_SUITE_P(, Suite, testing::ValuesIn(testedIsas()), isaName)

// Uniform in [-1, 1), seeded.
inline Floats randomFloats(size_t n, uint64_t seed) {
  std::mt19937_64 random(seed);
  Floats values(n);
  for (float &v : values)
    v = static_cast<float>(static_cast<double>(random() >> 11) * 0x1p-52 - 1.0);
  return values;
}
inline std::vector<double> widen(const Floats &values) { return {values.begin(), values.end()}; }

inline const std::vector<Elem> kAllElems = {Elem::F32, Elem::F16, Elem::BF16};
inline const std::vector<Order> kAllOrders = {Order::RowMajor, Order::Panel16};

// Values in memory as `elem`; `value(i)` is what element i holds after rounding.
struct Stored {
  Elem elem = Elem::F32;
  std::vector<uint8_t> bytes;

  Stored() = default;
  Stored(Elem e, size_t n) : elem(e), bytes(n * (e == Elem::F32 ? 4 : 2)) {}
  Stored(Elem e, const Floats &values) : Stored(e, values.size()) {
    for (size_t i = 0; i < values.size(); ++i)
      set(i, values[i]);
  }
  void set(size_t i, float v) {
    if (elem == Elem::F32) {
      std::memcpy(&bytes[4 * i], &v, 4);
      return;
    }
    const uint16_t half = elem == Elem::F16 ? f16FromFloat(v) : bf16FromFloat(v);
    std::memcpy(&bytes[2 * i], &half, 2);
  }
  float value(size_t i) const {
    if (elem == Elem::F32) {
      float v;
      std::memcpy(&v, &bytes[4 * i], 4);
      return v;
    }
    uint16_t half;
    std::memcpy(&half, &bytes[2 * i], 2);
    return elem == Elem::F16 ? floatFromF16(half) : floatFromBf16(half);
  }
  size_t size() const { return bytes.size() / (elem == Elem::F32 ? 4 : 2); }
  void *data() { return bytes.data(); }
};

// A matrix [rows, cols] as an operand with rows padded to 16 with zeros, and the values it holds, row-major.
struct Matrix {
  Stored stored;
  std::vector<double> values;

  Matrix(const Floats &dense, int64_t rows, int64_t cols, Elem elem, Order order)
      : stored(elem, static_cast<size_t>((rows + 15) / 16 * 16 * cols)), values(dense.size()) {
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < cols; ++c) {
        const size_t at = order == Order::RowMajor ? r * cols + c : (r / 16 * cols + c) * 16 + r % 16;
        stored.set(at, dense[r * cols + c]);
        values[r * cols + c] = stored.value(at);
      }
  }
};

// A matrix [rows, cols] of random codes, scales and minima as a packed operand in Panel16, rows padded to 16 with
// codes, scales and minima of 0, and the values it stands for, row-major: by the definition (docs/encodings.md), one by
// one.
struct PackedMatrix {
  std::vector<uint8_t> bytes;
  Floats values;

  PackedMatrix(int64_t rows, int64_t cols, const Packing &of, uint64_t seed, Order order = Order::Panel16)
      : bytes(static_cast<size_t>((rows + 15) / 16 * (cols / of.group) * panelGroup(of))), values(rows * cols) {
    std::mt19937_64 random(seed);
    const int64_t groups = cols / of.group;
    const bool panels = order == Order::Panel16;
    const int64_t inRow = 4 + int64_t{of.group} * of.codeBits / 8; // of a group
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t g = 0; g < groups; ++g) {
        uint8_t *group = bytes.data() + (panels ? (r / 16 * groups + g) * panelGroup(of) : (r * groups + g) * inRow);
        uint8_t *codes = group + (panels ? 64 : 4);
        const auto draw = [&](double most) {
          return f16FromFloat(static_cast<float>(most * static_cast<double>(random() % 4096) / 4096));
        };
        const uint16_t scale = draw(0.125), min = draw(1) | 0x8000;
        std::memcpy(group + (panels ? 2 * (r % 16) : 0), &scale, 2);
        std::memcpy(group + (panels ? 32 + 2 * (r % 16) : 2), &min, 2);
        for (int64_t c = 0; c < of.group; ++c) {
          const auto code = static_cast<uint8_t>(random() % (1u << of.codeBits));
          if (of.codeBits == 8)
            codes[panels ? c * 16 + r % 16 : c] = code;
          else if (!panels)
            codes[c / 2] |= static_cast<uint8_t>(c % 2 == 0 ? code : code << 4);
          else
            codes[c * 8 + r % 8] |= static_cast<uint8_t>(r % 16 < 8 ? code : code << 4);
          const volatile float product = static_cast<float>(code) * floatFromF16(scale); // rounded, were it not exact
          values[r * cols + g * of.group + c] = product + floatFromF16(min);
        }
      }
  }
  static int64_t panelGroup(const Packing &of) { return 64 + int64_t{2} * of.group * of.codeBits; }
};

// For comparisons that tell bits apart.
inline std::vector<uint32_t> bitsOf(const Floats &values) {
  std::vector<uint32_t> bits(values.size());
  std::memcpy(bits.data(), values.data(), values.size() * sizeof(float));
  return bits;
}
inline bool sameBits(const float *a, const float *b, size_t n) { return std::memcmp(a, b, n * sizeof(float)) == 0; }

// One sequence's share of an iteration: `rows` new tokens from position `start` on, its cache blocks in order.
struct TestSequence {
  int64_t start = 0;
  int64_t rows = 1;
  std::vector<int32_t> blocks;
};

// Activation blocks are those numbered from `first` on.
struct TestActBlocks {
  int64_t first = std::numeric_limits<int32_t>::max(), count = 0;
};

// An IterationMeta filled for the given sequences; block table entries past a sequence's blocks are out of any range.
class TestMeta {
public:
  TestMeta(const std::vector<TestSequence> &sequences, int64_t blockTokens, int64_t maxBlocks = 64,
           const TestActBlocks &act = {}) {
    MetaLayout layout{1, static_cast<int64_t>(sequences.size()) + 1, maxBlocks, act.first, act.count};
    for (const TestSequence &s : sequences)
      layout.maxTokens += s.rows;
    memory.resize(metaBytes(layout) / sizeof(uint64_t));
    initMeta(layout, get());
    IterationMeta &m = *get();
    m.numSequences = static_cast<int32_t>(sequences.size());
    for (size_t s = 0; s < sequences.size(); ++s) {
      const TestSequence &sequence = sequences[s];
      m.array<int32_t>(m.queryStart)[s] = m.numTokens;
      m.array<int32_t>(m.contextLength)[s] = static_cast<int32_t>(sequence.start + sequence.rows);
      for (int64_t b = 0; b < maxBlocks; ++b)
        m.array<int32_t>(m.blockTable)[s * maxBlocks + b] =
            b < static_cast<int64_t>(sequence.blocks.size()) ? sequence.blocks[b] : 1 << 30;
      for (int64_t b = 0; b * blockTokens < sequence.start && act.count > 0; ++b)
        if (sequence.blocks[b] >= act.first) {
          m.array<int32_t>(m.actBlock)[m.numActBlocks] = static_cast<int32_t>(sequence.blocks[b] - act.first);
          m.array<int32_t>(m.actPosition)[m.numActBlocks] = static_cast<int32_t>(b * blockTokens);
          m.array<int32_t>(m.actTokens)[m.numActBlocks++] =
              static_cast<int32_t>(std::min(blockTokens, sequence.start - b * blockTokens));
        }
      m.numActRows = static_cast<int32_t>(m.numActBlocks * blockTokens);
      for (int64_t position = sequence.start; position < sequence.start + sequence.rows; ++position) {
        const int32_t t = m.numTokens++;
        m.array<int32_t>(m.positions)[t] = static_cast<int32_t>(position);
        m.array<int32_t>(m.tokenSequence)[t] = static_cast<int32_t>(s);
        m.array<int32_t>(m.kvSlot)[t] =
            static_cast<int32_t>(sequence.blocks[position / blockTokens] * blockTokens + position % blockTokens);
      }
    }
    m.array<int32_t>(m.queryStart)[sequences.size()] = m.numTokens;
  }
  IterationMeta *get() { return reinterpret_cast<IterationMeta *>(memory.data()); }
  IterationMeta *operator->() { return get(); }
  int32_t *ints(uint32_t offset) { return get()->array<int32_t>(offset); }
  size_t byteCount() const { return memory.size() * sizeof(uint64_t); }

private:
  std::vector<uint64_t> memory;
};

// Blocks below `split` (at most all) `gap` block sizes apart, the others one behind the other, before or behind them.
inline KvSegments splitRun(int64_t blocks, int64_t blockElements, int64_t split, int64_t gap, bool tailFirst) {
  const int64_t below = split < blocks ? split : blocks, away = (blocks - below) * blockElements;
  KvSegments out;
  out.split = static_cast<int32_t>(split);
  out.stride = gap * blockElements;
  out.tailStride = blockElements;
  out.start = tailFirst ? away : 0;
  out.tail = tailFirst ? 0 : below * out.stride;
  out.end = below * out.stride + away;
  return out;
}

// Where a row's keys and values are: the row of a block.
struct TestSlot {
  int64_t block, row;
};
// The home of the blocks [first, blocks) of a cache, with eight elements more before, between and behind them: whatever
// no row is written to is 55.
struct TestHome {
  static constexpr int64_t kGuard = 8; // a vector of F16, so that the home is as aligned as its buffer
  int64_t first, end, stride;          // of blocks [first, end); there is room for those behind, too
  Stored stored;

  TestHome(Elem elem, int64_t blocks, int64_t firstBlock, int64_t blockElements)
      : first(firstBlock), end(blocks), stride(blockElements + kGuard),
        stored(elem, Floats(kGuard + (blocks - first) * stride, 55.0f)) {}
  size_t elementBytes() const { return stored.elem == Elem::F32 ? 4 : 2; }
  size_t offsetBytes() const { return kGuard * elementBytes(); } // of the first block
  void *data() { return stored.bytes.data() + offsetBytes(); }

  // What is there once rows have been written to `slots` of a cache, given by the cache's bits.
  Stored expected(const Stored &cache, const KvSegments &segments, const std::vector<TestSlot> &slots, int64_t planes,
                  int64_t blockTokens, int64_t headDim) const {
    Stored out(stored.elem, Floats(stored.size(), 55.0f));
    for (const TestSlot &slot : slots)
      for (int64_t plane = 0; plane < planes && slot.block >= first && slot.block < end; ++plane) {
        const int64_t line = (plane * blockTokens + slot.row) * headDim;
        std::memcpy(&out.bytes[offsetBytes() + ((slot.block - first) * stride + line) * elementBytes()],
                    &cache.bytes[(segments.of(slot.block) + line) * elementBytes()], headDim * elementBytes());
      }
    return out;
  }
};

} // namespace headrace::kernels
