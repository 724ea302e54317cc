// SPDX-License-Identifier: Apache-2.0
//
// What the tests of CUDA attention share: texts of random queries, keys and values, iterations made of parts of them,
// and the reference.
#pragma once

#include <functional>

#include "kernels/CudaWorkspace.h"
#include "tests/unit/kernels/Reference.h"
#include "tests/unit/kernels_cuda/TestDevice.h"

namespace headrace::kernels {

struct AttentionCase {
  int64_t heads = 4, kvHeads = 2, headDim = 64, blockTokens = 16;
  Elem activation = Elem::F16, kvElem = Elem::F16;
  int64_t rowLength() const { return (heads + 2 * kvHeads) * headDim; }
};
inline std::ostream &operator<<(std::ostream &out, const AttentionCase &c) {
  return out << "heads " << c.heads << "/" << c.kvHeads << " dim " << c.headDim << " block " << c.blockTokens
             << " types " << int(c.activation) << " " << int(c.kvElem);
}

// One sequence's queries, keys and values, as the types hold them.
struct PagedText {
  int64_t length;
  Stored q;    // [length, heads, headDim]
  Stored k, v; // [length, kvHeads, headDim]
  PagedText(const AttentionCase &c, int64_t n, uint64_t seed)
      : length(n), q(c.activation, sharpened(randomFloats(n * c.heads * c.headDim, seed))),
        k(c.kvElem, randomFloats(n * c.kvHeads * c.headDim, seed + 1)),
        v(c.kvElem, randomFloats(n * c.kvHeads * c.headDim, seed + 2)) {}

private:
  static Floats sharpened(Floats values) { // scores of several units: attention far from uniform
    for (float &x : values)
      x *= 4;
    return values;
  }
};

// Rows of an iteration: positions [start, start + rows) of a text, start + rows tokens in the cache.
struct TextPart {
  const PagedText *text;
  int64_t start, rows;
};

// What an iteration leaves: the rows' outputs as bits and as values, and rows behind them that must stay as they were.
struct AttentionResult {
  Stored out;
  int64_t rows = 0, width = 0;
  bool paddingUntouched = true;
  std::vector<uint8_t> rowBits(int64_t row) const {
    const int64_t bytes = width * (out.elem == Elem::F32 ? 4 : 2);
    return {out.bytes.begin() + row * bytes, out.bytes.begin() + (row + 1) * bytes};
  }
};

// The parts as one iteration in a bucket of `shape` (its counts at least the iteration's). The cache's unused rows and
// blocks are NaN, block tables are shuffled by `seed`. `arrivals` is the plan's.
class PagedAttention {
public:
  PagedAttention(const AttentionCase &c, const std::vector<TextPart> &parts, CudaShape shape, uint64_t seed,
                 DeviceArray<uint32_t> &arrivals, const std::function<KvSegments(int64_t, int64_t)> &layout = oneRun)
      : PagedAttention(c, shape, Filled(c, parts, shape, seed, layout), arrivals) {}

  KernelRun run() const {
    const char *why = nullptr;
    const CudaLaunch launch = cudaLaunch(Op::Attention, &args_, shape_, &why);
    EXPECT_NE(launch.kernel, nullptr) << why;
    return kernelRun(launch, args_);
  }
  AttentionResult result() const {
    AttentionResult result;
    result.out.elem = args_.activation, result.out.bytes = out_.raw();
    result.rows = rows_, result.width = args_.heads * args_.headDim;
    for (size_t i = rows_ * result.width; i < result.out.size(); ++i)
      result.paddingUntouched &= result.out.value(i) == kPoison;
    return result;
  }

private:
  static constexpr float kPoison = 7.0f;

  // On the host.
  struct Filled {
    int64_t rows = 0;
    KvSegments segments;
    Stored cache, qkv;
    std::vector<TestSequence> sequences;
    int64_t blocks = 3;

    Filled(const AttentionCase &c, const std::vector<TextPart> &parts, CudaShape shape, uint64_t seed,
           const std::function<KvSegments(int64_t, int64_t)> &layout) {
      for (const TextPart &p : parts) {
        blocks += (p.start + p.rows + c.blockTokens - 1) / c.blockTokens;
        rows += p.rows;
      }
      std::vector<int32_t> unused;
      for (int64_t b = 1; b < blocks; ++b)
        unused.push_back(static_cast<int32_t>(b));
      std::shuffle(unused.begin(), unused.end(), std::mt19937_64(seed));
      segments = layout(blocks, kvBlockElements(c.kvHeads, c.blockTokens, c.headDim));
      cache = Stored(c.kvElem, Floats(segments.end, kNan));
      qkv = Stored(c.activation, Floats(shape.tokens * c.rowLength(), kNan)); // k and v come from the cache
      int64_t row = 0;
      for (const TextPart &p : parts) {
        TestSequence sequence{p.start, p.rows, {}};
        for (int64_t t = 0; t < p.start + p.rows; ++t) {
          if (t % c.blockTokens == 0) {
            sequence.blocks.push_back(unused.back());
            unused.pop_back();
          }
          for (int64_t h = 0; h < c.kvHeads; ++h)
            for (int64_t d = 0; d < c.headDim; ++d) {
              const size_t from = (t * c.kvHeads + h) * c.headDim + d;
              const size_t to =
                  segments.of(sequence.blocks.back()) + (h * c.blockTokens + t % c.blockTokens) * c.headDim + d;
              cache.set(to, p.text->k.value(from));
              cache.set(to + c.kvHeads * c.blockTokens * c.headDim, p.text->v.value(from));
            }
        }
        for (int64_t t = p.start; t < p.start + p.rows; ++t, ++row)
          for (int64_t i = 0; i < c.heads * c.headDim; ++i)
            qkv.set(row * c.rowLength() + i, p.text->q.value(t * c.heads * c.headDim + i));
        sequences.push_back(std::move(sequence));
      }
    }
  };

  PagedAttention(const AttentionCase &c, CudaShape shape, Filled filled, DeviceArray<uint32_t> &arrivals)
      : shape_(shape), rows_(filled.rows), hostMeta_(filled.sequences, c.blockTokens, filled.blocks), meta_(hostMeta_),
        qkv_(filled.qkv.bytes), cache_(filled.cache.bytes),
        out_(c.activation, shape.tokens * c.heads * c.headDim, kPoison),
        workspace_(std::vector<uint8_t>(
            attentionWorkspaceBytes(Backend::Cuda, shape.sequences, c.heads, c.headDim, shape.context), 0xff)) {
    args_.meta = meta_.get(), args_.qkv = qkv_.get(), args_.kv = cache_.get(), args_.out = out_.data();
    args_.segments = filled.segments;
    args_.workspace = workspace_.get(), args_.arrivals = arrivals.get();
    args_.heads = c.heads, args_.kvHeads = c.kvHeads, args_.headDim = c.headDim;
    args_.blockTokens = c.blockTokens, args_.maxContext = shape.context;
    args_.scale = 1 / std::sqrt(static_cast<float>(c.headDim)), args_.kvElem = c.kvElem;
    args_.activation = c.activation;
  }

  const CudaShape shape_;
  const int64_t rows_;
  TestMeta hostMeta_;
  DeviceMeta meta_;
  DeviceArray<uint8_t> qkv_, cache_;
  DeviceStored out_;
  DeviceArray<uint8_t> workspace_;
  AttentionArgs args_{};
};

// The counters of one plan, which all launches of this program share that run one behind the other.
inline DeviceArray<uint32_t> &oneArrivals() {
  static DeviceArray<uint32_t> arrivals(CudaWorkspace::kArrivals, 0u);
  return arrivals;
}

inline AttentionResult runAttention(const AttentionCase &c, const std::vector<TextPart> &parts, CudaShape shape,
                                    uint64_t seed = 1, uint64_t order = 0,
                                    const std::function<KvSegments(int64_t, int64_t)> &layout = oneRun) {
  const PagedAttention attention(c, parts, shape, seed, oneArrivals(), layout);
  testDevice().run({attention.run()}, order);
  return attention.result();
}

// Outputs of `rows` rows from `firstRow` on against positions start .. of the text.
inline void expectReference(const AttentionCase &c, const TextPart &part, const AttentionResult &result,
                            int64_t firstRow) {
  // The output is rounded once, and so is each exponential before it is multiplied with its value (at most one).
  const double bound = c.activation == Elem::F32 ? 4e-6 : 3 * roundingOf(c.activation);
  for (int64_t i = 0; i < part.rows; ++i)
    for (int64_t head = 0; head < c.heads; ++head) {
      const int64_t t = part.start + i, kvHead = head / (c.heads / c.kvHeads);
      reference::Values q, keys, values;
      for (int64_t d = 0; d < c.headDim; ++d)
        q.push_back(part.text->q.value((t * c.heads + head) * c.headDim + d));
      for (int64_t j = 0; j <= t; ++j)
        for (int64_t d = 0; d < c.headDim; ++d) {
          keys.push_back(part.text->k.value((j * c.kvHeads + kvHead) * c.headDim + d));
          values.push_back(part.text->v.value((j * c.kvHeads + kvHead) * c.headDim + d));
        }
      const reference::Values expected =
          reference::attention(q, keys, values, t + 1, 1 / std::sqrt(static_cast<double>(c.headDim)));
      for (int64_t d = 0; d < c.headDim; ++d)
        ASSERT_NEAR(result.out.value((firstRow + i) * result.width + head * c.headDim + d), expected[d], bound)
            << "position " << t << " head " << head << " element " << d;
    }
}

inline void expectReference(const AttentionCase &c, const std::vector<TextPart> &parts, const AttentionResult &result) {
  EXPECT_TRUE(result.paddingUntouched);
  int64_t row = 0;
  for (const TextPart &part : parts) {
    expectReference(c, part, result, row);
    if (testing::Test::HasFatalFailure())
      return;
    row += part.rows;
  }
}

} // namespace headrace::kernels
