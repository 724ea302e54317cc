// SPDX-License-Identifier: Apache-2.0
//
// The amounts of one op, exactly (saturating at 2^64 - 1), and none where it has no rows. T tokens, S sampled rows, h
// hidden; rows = T, and S behind GatherRows (the head's Norm and Linear). a, w: bytes of an activation and a checkpoint
// element; C: of a token's keys and values in a layer's cache.
//
//   op          flops                            device bytes
//   Embed       T h with learned positions       T h (w, once more with learned positions) + 4 T h
//   Norm        rows h x (LayerNorm 7, RMS 4)    rows h (4 + a) + 4 h (LayerNorm 8 h)
//   Linear      2 n k rows                       W (+ n b bias) + rows k a + rows n a (residual: 8 rows n)
//               packed: + 2 n16 k
//   RopeAppend  3 T (q + kv) where rotated,      T (2 (q + kv) + kv) a, neither rotated nor normalised T 2 kv a;
//               + 4 T (q + kv) where normalised  + T C; normalised + 8 headDim
//               cache packed: + 6 T 2 kv
//   Rotate      RopeAppend's but the packing     T 2 (q + kv) a; normalised + 8 headDim
//   Append      cache packed: 6 T 2 kv           T 2 kv a + T C
//   Attention   4 headDim heads pairs            contexts C + 2 T q a
//               cache packed: + 2 contexts 2 kv
//   Activate    5 T intermediate                 3 T intermediate a
//   ActAppend   0                                2 kept h a
//   RebuildKv act (4 h kv + (3 where rotated   act (3 h a + 4 kv a + C), W of 2 kv rows (+ 2 kv bias)
//               + 4 where normalised) kv)
//               packed: + 4 kv h; cache packed: + 6 act 2 kv
//   GatherRows  0                                8 S h
//   FetchRows   0                                T q a, and as much over the link
//   KeepIds     0                                12 T
//   Sample      S vocab                          4 S vocab + 8 S
//
// C is 2 kv elements, or what their encoding takes; a value that is packed is compared twice, and takes a difference, a
// quotient, a rounding and a bound. What is unpacked is unpacked in each pass, a product and a sum a value.
//
// W: the matrix' bytes, n16 k w or its encoding's; a packed one is unpacked in each pass, a product and a sum a weight.
// kept, act: rows of activation blocks, new ones and those of earlier iterations; without any, RebuildKv does
// nothing. A direct RopeAppend writes C of each home row over the link beside what it does on the device; a direct
// ActAppend its rows, kept h a, and no more than reads them on the device.
//
// n and k are a linear's out and in features, n16 is n rounded up to the stored rows (model::kPanelRows); q and kv are
// qRows() and kvRows(). Out and Down read the residual stream as well as write it. The residual stream and
// logits are F32 whatever `activation` is.
//
// Under the causal mask the last r rows of a context C have r C - r (r - 1) / 2 pairs. A bucket of T tokens has S' =
// min(sequences, T) sequences with rows, contexts = S' C and pairs = T C - T (T - S') / (2 S'); no sequence has more
// rows than C.
#include <algorithm>
#include <limits>

#include "kernels/Kernels.h"
#include "runtime/cost/CostModel.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::cost {
namespace {

// Unsigned arithmetic that stays at the largest value instead of wrapping round.
class Amount {
public:
  Amount(uint64_t v) : value_(v) {}
  Amount(int64_t v) : value_(v < 0 ? 0 : static_cast<uint64_t>(v)) {}
  Amount(int v) : Amount(static_cast<int64_t>(v)) {}
  uint64_t get() const { return value_; }

  friend Amount operator*(Amount a, Amount b) {
    uint64_t r;
    return __builtin_mul_overflow(a.value_, b.value_, &r) ? Amount(std::numeric_limits<uint64_t>::max()) : Amount(r);
  }
  friend Amount operator+(Amount a, Amount b) {
    uint64_t r;
    return __builtin_add_overflow(a.value_, b.value_, &r) ? Amount(std::numeric_limits<uint64_t>::max()) : Amount(r);
  }

private:
  uint64_t value_;
};

struct LinearShape {
  int64_t n = 0, k = 0;
  bool bias = false, residual = false;
};

LinearShape linearShape(const model::ModelSpec &spec, model::UnitRole unit) {
  using model::UnitRole;
  switch (unit) {
  case UnitRole::Qkv:
    return {spec.qkvRows(), spec.hidden, spec.qkvBias, false};
  case UnitRole::Out:
    return {spec.hidden, spec.qRows(), spec.outBias, true};
  case UnitRole::Up:
    return {spec.upRows(), spec.hidden, spec.mlpBias, false};
  case UnitRole::Down:
    return {spec.hidden, spec.intermediate, spec.mlpBias, true};
  case UnitRole::Head:
    return {spec.vocab, spec.hidden, false, false};
  case UnitRole::Embedding:
    break;
  }
  return {};
}

model::Encoding encodingOf(const model::ModelSpec &spec, model::UnitRole unit) {
  return spec.encodings[unit].value_or(model::Encoding(spec.dtype));
}

Amount unpacking(const model::ModelSpec &spec, model::UnitRole unit, int64_t rows, int64_t cols) {
  return encodingOf(spec, unit).packed() ? Amount(2) * Amount(rows) * Amount(cols) : Amount(0);
}

// Query-key pairs under the causal mask, the rows spread evenly over the sequences that have any.
uint64_t attentionPairs(const Bucket &bucket) {
  using Wide = unsigned __int128;
  const Wide context = static_cast<Wide>(std::max<int64_t>(bucket.context, 0));
  const Wide sequences = static_cast<Wide>(std::max<int64_t>(std::min(bucket.sequences, bucket.tokens), 0));
  if (sequences == 0)
    return 0;
  const Wide rows = std::min<Wide>(static_cast<Wide>(bucket.tokens), sequences * context); // <= C rows a sequence
  if (rows < sequences)
    return 0;
  const Wide pairs = rows * context - rows * (rows - sequences) / (2 * sequences);
  return pairs > std::numeric_limits<uint64_t>::max() ? std::numeric_limits<uint64_t>::max()
                                                      : static_cast<uint64_t>(pairs);
}

} // namespace

Rows rowsOf(const Bucket &bucket) {
  const uint64_t tokens = Amount(bucket.tokens).get();
  return {.tokens = tokens,
          .sampled = Amount(bucket.sequences).get(),
          .contexts = (Amount(std::min(bucket.sequences, bucket.tokens)) * Amount(bucket.context)).get(),
          .pairs = attentionPairs(bucket),
          .homeRows = tokens,
          .keptRows = bucket.actRows > 0 ? tokens : 0,
          .actRows = Amount(bucket.actRows).get()};
}

Work workOf(const model::ModelSpec &spec, const OpSite &site, const Rows &running, model::DType activation,
            const model::Encoding &kv, bool direct) {
  using kernels::Op;
  const Amount a(model::dtypeBytes(activation)), w(model::dtypeBytes(spec.dtype));
  const Amount stream(sizeof(float)); // an element of the residual stream
  const Amount tokens(running.tokens), sampled(running.sampled), hidden(spec.hidden);
  const bool head = site.unit == model::UnitRole::Head;
  const bool ofSampled = (head && site.op != Op::KeepIds) || site.op == Op::GatherRows || site.op == Op::Sample;
  const Amount rows = ofSampled ? sampled : tokens;
  if (rows.get() == 0)
    return {};
  const Amount q(spec.qRows()), kvRows(spec.kvRows());
  const Amount cached(kv.bytes(2 * spec.kvHeads, spec.headDim)); // a token's in a layer
  const Amount packing(kv.packed() ? 6 : 0), unpackingKv(kv.packed() ? 2 : 0);

  Amount flops(0), unpack(0), device(0), weights(0), appended(0);
  Work work;
  const auto packed = [&](int64_t matrixRows, int64_t cols) {
    if (!encodingOf(spec, site.unit).packed())
      return;
    work.packedRows = matrixRows, work.packedCols = cols;
    work.packedBytes = encodingOf(spec, site.unit).bytes(matrixRows, cols);
  };
  switch (site.op) {
  case Op::Embed: {
    const Amount gathered = tokens * hidden;
    flops = spec.learnedPositions ? gathered : Amount(0);
    weights = gathered * w * Amount(spec.learnedPositions ? 2 : 1);
    device = gathered * stream;
    break;
  }
  case Op::Norm: {
    const bool layerNorm = spec.norm == model::NormKind::LayerNorm;
    flops = rows * hidden * Amount(layerNorm ? 7 : 4);
    device = rows * hidden * (stream + a) + hidden * Amount(layerNorm ? 8 : 4);
    break;
  }
  case Op::Linear: {
    const LinearShape linear = linearShape(spec, site.unit);
    const Amount n(linear.n), k(linear.k);
    const auto stored = static_cast<int64_t>(model::alignUp(static_cast<uint64_t>(linear.n), model::kPanelRows));
    unpack = unpacking(spec, site.unit, stored, linear.k);
    flops = Amount(2) * n * k * rows + unpack;
    weights = Amount(encodingOf(spec, site.unit).bytes(stored, linear.k)) +
              (linear.bias ? n * Amount(model::dtypeBytes(model::biasType(site.unit, spec.dtype))) : Amount(0));
    device = rows * k * a + rows * n * (head ? Amount(4) : linear.residual ? Amount(2) * stream : a);
    packed(stored, linear.k);
    break;
  }
  case Op::RopeAppend:
    flops = Amount((spec.rope.enabled ? 3 : 0) + (spec.qkNorm ? 4 : 0)) * tokens * (q + kvRows);
    device = spec.rope.enabled || spec.qkNorm ? tokens * (Amount(2) * (q + kvRows) + kvRows) * a
                                              : tokens * Amount(2) * kvRows * a;
    flops = flops + packing * tokens * Amount(2) * kvRows;
    appended = Amount(running.homeRows) * cached;
    device = device + tokens * cached + Amount(spec.qkNorm ? 8 : 0) * Amount(spec.headDim);
    break;
  case Op::Rotate:
    flops = Amount((spec.rope.enabled ? 3 : 0) + (spec.qkNorm ? 4 : 0)) * tokens * (q + kvRows);
    device = tokens * Amount(2) * (q + kvRows) * a + Amount(spec.qkNorm ? 8 : 0) * Amount(spec.headDim);
    break;
  case Op::Append:
    flops = packing * tokens * Amount(2) * kvRows;
    device = tokens * (Amount(2) * kvRows * a + cached);
    break;
  case Op::FetchRows:
    device = weights = tokens * q * a;
    break;
  case Op::ActAppend:
    appended = Amount(running.keptRows) * hidden * a;
    device = direct ? appended : Amount(2) * appended;
    break;
  case Op::RebuildKv: {
    const Amount rebuilt(running.actRows), columns = Amount(2) * kvRows;
    if (running.actRows == 0)
      break;
    flops =
        rebuilt * (Amount(2) * hidden * columns + Amount((spec.rope.enabled ? 3 : 0) + (spec.qkNorm ? 4 : 0)) * kvRows);
    unpack = unpacking(spec, site.unit, 2 * spec.kvRows(), spec.hidden);
    flops = flops + unpack + packing * rebuilt * columns;
    weights = Amount(encodingOf(spec, site.unit).bytes(2 * spec.kvRows(), spec.hidden)) +
              (spec.qkvBias ? columns * Amount(model::dtypeBytes(model::biasType(site.unit, spec.dtype))) : Amount(0));
    device = rebuilt * (Amount(3) * hidden * a + Amount(2) * columns * a + cached);
    packed(2 * spec.kvRows(), spec.hidden);
    break;
  }
  case Op::Attention:
    unpack = unpackingKv * Amount(running.contexts) * Amount(2) * kvRows;
    flops = Amount(4) * q * Amount(running.pairs) + unpack;
    device = Amount(running.contexts) * cached + Amount(2) * tokens * q * a;
    break;
  case Op::Activate:
    flops = Amount(5) * tokens * Amount(spec.intermediate);
    device = Amount(3) * tokens * Amount(spec.intermediate) * a;
    break;
  case Op::GatherRows:
    device = Amount(2) * rows * hidden * stream;
    break;
  case Op::KeepIds: // id, slot, id
    device = Amount(12) * tokens;
    break;
  case Op::Sample:
    flops = rows * Amount(spec.vocab);
    device = Amount(4) * rows * Amount(spec.vocab) + Amount(8) * rows;
    break;
  }
  work.flops = flops.get();
  work.unpackFlops = unpack.get();
  if (site.op == Op::Attention)
    work.keptValues = (Amount(running.contexts) * Amount(2) * kvRows).get();
  work.deviceBytes = (direct ? device : device + weights).get();
  work.toHost = direct && (site.op == Op::RopeAppend || site.op == Op::ActAppend);
  work.linkBytes = work.toHost ? appended.get() : direct ? weights.get() : 0;
  return work;
}

} // namespace headrace::cost
