// SPDX-License-Identifier: Apache-2.0
//
// Activation blocks: what act_append keeps, and that rebuild_kv makes of it the very keys and values that linear and
// rope_append made when the tokens were new.
#include <functional>

#include "tests/unit/kernels/KernelTest.h"

namespace headrace::kernels {
namespace {

struct HybridModel {
  int64_t hidden = 40, heads = 3, kvHeads = 2, headDim = 6, blockTokens = 4;
  Elem elem = Elem::F32, kvElem = Elem::F32;
  Order order = Order::Panel16;
  bool bias = true, rotates = true, norms = false;
  Packing packing = {};   // of the weights
  Packing kvPacking = {}; // of the cache
  int64_t qRows() const { return heads * headDim; }
  int64_t qkvRows() const { return (heads + 2 * kvHeads) * headDim; }
  // Of a packed cache: elements of F32 that are as many bytes.
  int64_t blockElements() const {
    return kvPacking.codeBits != 0 ? kvBlockUnits(kvPacking, kvHeads, blockTokens, headDim) / 4
                                   : kvBlockElements(kvHeads, blockTokens, headDim);
  }
};

Floats hybridFrequencies(int64_t headDim) {
  Floats f(headDim / 2);
  for (int64_t j = 0; j < headDim / 2; ++j)
    f[j] = static_cast<float>(1 / std::pow(10000.0, 2.0 * j / headDim));
  return f;
}

// A layer's weights, and its kernels on one instruction set.
class HybridLayer {
public:
  HybridLayer(HostIsa isa, const HybridModel &model)
      : isa_(isa), m_(model),
        weights_(randomFloats(m_.qkvRows() * m_.hidden, 3), m_.qkvRows(), m_.hidden, m_.elem, m_.order),
        packed_(m_.packing.codeBits == 0
                    ? std::nullopt
                    : std::optional<PackedMatrix>(std::in_place, m_.qkvRows(), m_.hidden, m_.packing, 3)),
        bias_(randomFloats((m_.qkvRows() + 15) / 16 * 16, 4)), frequencies_(hybridFrequencies(m_.headDim)),
        norms_(randomFloats(2 * m_.headDim, 5)) {}

  // qkv of new tokens, appended to a cache of `blocks` blocks in one run.
  Stored append(TestMeta &meta, const Floats &x, int64_t blocks) {
    Floats qkv(meta->numTokens * m_.qkvRows());
    std::vector<uint8_t> workspace(linearWorkspaceBytes(Backend::Host, meta->numTokens, m_.qkvRows(), m_.hidden) + 4);
    LinearArgs linear{};
    linear.count = &meta->numTokens, linear.x = x.data(), linear.w = weights_.stored.data(), linear.y = qkv.data();
    linear.bias = m_.bias ? bias_.data() : nullptr, linear.workspace = workspace.data();
    linear.n = m_.qkvRows(), linear.k = m_.hidden, linear.capacity = meta->numTokens;
    linear.elem = m_.elem, linear.order = m_.order;
    if (packed_)
      linear.w = packed_->bytes.data(), linear.packing = m_.packing;
    runKernel(Op::Linear, isa_, &linear, workspace.size());
    Stored kv(m_.kvElem, Floats(blocks * m_.blockElements(), 99.0f));
    RopeAppendArgs rope{};
    rope.meta = meta.get(), rope.qkv = qkv.data(), rope.kv = kv.data();
    rope.segments = oneRun(blocks, kvBlockUnits(m_.kvPacking, m_.kvHeads, m_.blockTokens, m_.headDim));
    rope.kvPacking = m_.kvPacking;
    rope.inverseFrequencies = m_.rotates ? frequencies_.data() : nullptr;
    rope.headNorms = m_.norms ? norms_.data() : nullptr;
    rope.heads = m_.heads, rope.kvHeads = m_.kvHeads, rope.headDim = m_.headDim, rope.blockTokens = m_.blockTokens;
    rope.eps = 1e-5f, rope.kvElem = m_.kvElem;
    runKernel(Op::RopeAppend, isa_, &rope);
    return kv;
  }

  // The rows of x that are kept, in activation blocks from number `firstAct` on.
  Floats keep(TestMeta &meta, const Floats &x, int64_t firstAct, int64_t actBlocks) {
    Floats act(actBlocks * m_.blockTokens * m_.hidden, 77.0f);
    ActAppendArgs args{meta.get(), x.data(), act.data(), m_.hidden, m_.blockTokens, firstAct, Elem::F32};
    runKernel(Op::ActAppend, isa_, &args);
    return act;
  }

  Stored rebuild(TestMeta &meta, const Floats &act, int64_t actBlocks) {
    const int64_t lead = m_.qRows() % 16, first = m_.qRows() - lead, capacity = actBlocks * m_.blockTokens;
    Stored kv(m_.kvElem, Floats(actBlocks * m_.blockElements(), 99.0f));
    RebuildKvArgs args{};
    args.meta = meta.get(), args.act = act.data(), args.kv = kv.data();
    args.w = weights_.stored.bytes.data() + first * m_.hidden * (m_.elem == Elem::F32 ? 4 : 2);
    args.bias = m_.bias ? bias_.data() + first : nullptr;
    args.inverseFrequencies = m_.rotates ? frequencies_.data() : nullptr;
    args.headNorms = m_.norms ? norms_.data() : nullptr;
    args.hidden = m_.hidden, args.lead = lead, args.kvHeads = m_.kvHeads, args.headDim = m_.headDim;
    args.blockTokens = m_.blockTokens, args.capacity = capacity, args.eps = 1e-5f;
    args.elem = m_.elem, args.order = m_.order, args.kvElem = m_.kvElem, args.kvPacking = m_.kvPacking;
    if (packed_) {
      args.packing = m_.packing;
      args.w =
          packed_->bytes.data() + first / 16 * (m_.hidden / m_.packing.group) * PackedMatrix::panelGroup(m_.packing);
    }
    std::vector<uint8_t> workspace(rebuildWorkspaceBytes(Backend::Host, capacity, args.n(), m_.hidden, 4));
    args.workspace = workspace.data();
    runKernel(Op::RebuildKv, isa_, &args, workspace.size());
    return kv;
  }

private:
  const HostIsa isa_;
  const HybridModel m_;
  Matrix weights_;
  std::optional<PackedMatrix> packed_; // in their place
  Floats bias_, frequencies_, norms_;
};

std::vector<HybridModel> hybridModels() {
  std::vector<HybridModel> all;
  for (const Elem elem : kAllElems)
    for (const Order order : kAllOrders)
      all.push_back({.elem = elem, .kvElem = elem, .order = order, .bias = order == Order::Panel16, .norms = true});
  all.push_back({.heads = 8, .rotates = false});                          // 48 rows of q: k's first is a panel's first
  all.push_back({.hidden = 300, .heads = 5, .kvHeads = 1, .headDim = 2}); // two blocks of k; six rows of the product
  all.push_back({.kvElem = Elem::BF16, .bias = false});
  all.push_back({.hidden = 64, .packing = {4, 32}});
  all.push_back({.hidden = 320, .heads = 5, .kvHeads = 1, .headDim = 2, .packing = {8, 64}});
  return all;
}

HEADRACE_ON_EACH_ISA(RebuildKvTest);

// Three sequences whose blocks 0 are activation blocks and whose blocks 1 are not, of 4 tokens each, then 3 more of a
// third block that is: 11 tokens, 7 of them kept. They come in one iteration; in the next the kept ones are rebuilt.
TEST_P(RebuildKvTest, MakesTheSameBitsAsWhenTheTokensWereNew) {
  constexpr int64_t kKv = 4, kAct = 6; // KV blocks 0 to 3, activation blocks 4 to 9
  const std::vector<std::vector<int32_t>> blocks = {{9, 1, 4}, {5, 2, 7}, {8, 3, 6}};
  for (const HybridModel &m : hybridModels()) {
    HybridLayer layer(GetParam(), m);
    TestMeta first({{0, 11, blocks[0]}, {0, 11, blocks[1]}, {0, 11, blocks[2]}}, m.blockTokens);
    const Floats x = randomFloats(first->numTokens * m.hidden, 8);
    const Stored fresh = layer.append(first, x, kKv + kAct);
    const Floats act = layer.keep(first, x, kKv, kAct);
    TestMeta next({{11, 1, blocks[0]}, {11, 1, blocks[1]}, {11, 1, blocks[2]}}, m.blockTokens, 64, {kKv, kAct});
    ASSERT_EQ(next->numActBlocks, 6);
    EXPECT_EQ(next->numActRows, 24);
    const Stored again = layer.rebuild(next, act, kAct);
    for (int64_t block = 0; block < kAct; ++block)
      for (int64_t plane = 0; plane < 2 * m.kvHeads; ++plane)
        for (int64_t line = 0; line < m.blockTokens; ++line) {
          // The third block of a sequence has three tokens; its fourth row is the next iteration's.
          const bool third = block + kKv == 4 || block + kKv == 7 || block + kKv == 6;
          for (int64_t d = 0; d < m.headDim; ++d) {
            const int64_t at = (plane * m.blockTokens + line) * m.headDim + d;
            const float made = again.value(block * m.blockElements() + at);
            if (third && line == 3)
              EXPECT_EQ(made, 99.0f) << "block " << block << " plane " << plane;
            else
              ASSERT_EQ(made, fresh.value((kKv + block) * m.blockElements() + at))
                  << "hidden " << m.hidden << " block " << block << " plane " << plane << " line " << line;
          }
        }
  }
}

// In caches that are packed, too: whole blocks of them, so that all that is compared was written.
TEST_P(RebuildKvTest, PacksWhatItMakesAsRopeAppendPacksIt) {
  constexpr int64_t kKv = 3, kAct = 4;
  const std::vector<std::vector<int32_t>> blocks = {{6, 1, 4}, {5, 2, 3}};
  for (const Packing &packing : {Packing{4, 64}, Packing{8, 32}}) {
    const HybridModel m{.hidden = 64, .headDim = packing.group, .kvPacking = packing};
    HybridLayer layer(GetParam(), m);
    TestMeta first({{0, 12, blocks[0]}, {0, 12, blocks[1]}}, m.blockTokens);
    const Floats x = randomFloats(first->numTokens * m.hidden, 8);
    EXPECT_TRUE(sameInTeams([&] {
      const Stored fresh = layer.append(first, x, kKv + kAct);
      const Floats act = layer.keep(first, x, kKv, kAct);
      // The new tokens' blocks, of keys and values, stand behind those that are rebuilt.
      TestMeta next({{12, 1, {6, 1, 4, 0}}, {12, 1, {5, 2, 3, 0}}}, m.blockTokens, 64, {kKv, kAct});
      const Stored again = layer.rebuild(next, act, kAct);
      return std::equal(again.bytes.begin(), again.bytes.end(), fresh.bytes.begin() + kKv * m.blockElements() * 4,
                        fresh.bytes.end());
    }));
  }
}

// More rows than are taken at a time: 192 and some.
TEST_P(RebuildKvTest, GoesThroughItsRowsInChunks) {
  const HybridModel m{.blockTokens = 16};
  constexpr int64_t kAct = 30;
  std::vector<int32_t> table;
  for (int32_t b = 0; b < kAct; ++b)
    table.push_back(1 + (b * 7) % kAct); // any order
  HybridLayer layer(GetParam(), m);
  TestMeta first({{0, 469, table}}, m.blockTokens);
  const Floats x = randomFloats(469 * m.hidden, 9);
  const Stored fresh = layer.append(first, x, 1 + kAct);
  const Floats act = layer.keep(first, x, 1, kAct);
  TestMeta next({{469, 1, table}}, m.blockTokens, 64, {1, kAct});
  ASSERT_EQ(next->numActBlocks, kAct); // 29 whole ones and five tokens
  const Stored again = layer.rebuild(next, act, kAct);
  for (int64_t t = 0; t < 469; ++t)
    for (int64_t plane = 0; plane < 2 * m.kvHeads; ++plane)
      for (int64_t d = 0; d < m.headDim; ++d) {
        const int64_t block = table[t / 16], at = (plane * 16 + t % 16) * m.headDim + d;
        ASSERT_EQ(again.value((block - 1) * m.blockElements() + at), fresh.value(block * m.blockElements() + at)) << t;
      }
}

// Of all that an activation block goes through.
TEST_P(RebuildKvTest, AnyCutInAnyOrderGivesTheSameBits) {
  constexpr int64_t kAct = 30;
  std::vector<int32_t> table;
  for (int32_t b = 0; b < kAct; ++b)
    table.push_back(1 + (b * 7) % kAct);
  for (const Elem elem : kAllElems) {
    const HybridModel m{.blockTokens = 16, .elem = elem, .kvElem = elem, .norms = true};
    HybridLayer layer(GetParam(), m);
    const Floats x = randomFloats(469 * m.hidden, 9);
    EXPECT_TRUE(sameInTeams([&] {
      TestMeta first({{0, 469, table}}, m.blockTokens), next({{469, 1, table}}, m.blockTokens, 64, {1, kAct});
      const Stored fresh = layer.append(first, x, 1 + kAct);
      const Floats act = layer.keep(first, x, 1, kAct);
      return std::tuple(fresh.bytes, bitsOf(act), layer.rebuild(next, act, kAct).bytes);
    })) << int(elem);
  }
}

TEST_P(RebuildKvTest, KeepsRowsOfActivationBlocksAlone) {
  const HybridModel m;
  HybridLayer layer(GetParam(), m);
  TestMeta meta({{2, 5, {3, 1}}, {0, 2, {4}}}, m.blockTokens); // positions 2 to 6 of blocks 3 and 1; 0 and 1 of block 4
  const Floats x = randomFloats(7 * m.hidden, 10);
  const Floats act = layer.keep(meta, x, 3, 2);
  const auto row = [&](int64_t slot) { return act.data() + slot * m.hidden; };
  EXPECT_TRUE(sameBits(row(2), x.data(), 2 * m.hidden));                // block 3, rows 2 and 3: tokens 0 and 1
  EXPECT_TRUE(sameBits(row(4), x.data() + 5 * m.hidden, 2 * m.hidden)); // block 4, rows 0 and 1: tokens 5 and 6
  for (const int64_t untouched : {0, 1, 6, 7})
    for (int64_t i = 0; i < m.hidden; ++i)
      ASSERT_EQ(row(untouched)[i], 77.0f);
}

TEST_P(RebuildKvTest, DoesNothingWithoutBlocks) {
  const HybridModel m;
  HybridLayer layer(GetParam(), m);
  TestMeta meta({{0, 3, {5}}}, m.blockTokens, 64, {4, 2}); // all of its tokens are new
  ASSERT_EQ(meta->numActBlocks, 0);
  const Stored made = layer.rebuild(meta, Floats(2 * m.blockTokens * m.hidden, kNan), 2);
  for (size_t i = 0; i < made.size(); ++i)
    ASSERT_EQ(made.value(i), 99.0f);
  EXPECT_EQ(layer.rebuild(meta, {}, 0).size(), 0u); // nor without room for any
}

} // namespace
} // namespace headrace::kernels
