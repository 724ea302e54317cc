// SPDX-License-Identifier: Apache-2.0
//
// The kernels' interface: one struct of arguments an op, the same for every device, and a table from op to entry.
//
// A plan's compute step is (op, operands); core/BindStep.h turns it into one of these structs once, when a graph is
// built, and the device calls the entry on every iteration. Addresses in the structs are fixed; everything that changes
// from iteration to iteration is read through them from the `meta` buffer (IterationMeta.h), on the device. So the same
// struct can be baked into a CUDA Graph.
//
//   rows      [T, n] means T rows of n elements, row-major, T = the iteration's tokens unless a comment says sequences.
//   capacity  rows the buffers were laid out for (the variant's bucket); the actual number, at most that, is *count.
//
//   activations  the residual stream (what Embed and a linear with a residual write, what Norm and GatherRows read) and
//             the logits are F32 on every device. The rest, between two ops of a layer, is `activation`: F32 on the
//             host, the checkpoint's 16-bit type on CUDA, where sums are F32 too and are rounded once, when they are
//             stored.
//
// Host kernels compute in F32 and are batch-invariant: what a row holds does not depend on the other rows, on how many
// there are, on capacity or on addresses. Reductions split at fixed positions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/HostKernel.h"
#include "kernels/IterationMeta.h"
#include "kernels/KvSegments.h"
#include "kernels/Types.h"

namespace headrace::kernels {

// The ops of compute steps: OP(name, value, text). The argument struct of `Embed` is `EmbedArgs`, and so on; `text` is
// also the mnemonic of the op in IR. Values are stored in plan files: append, never renumber.
#define HEADRACE_OPS(OP)                                                                                               \
  OP(Embed, 0, "embed")            /* token (and position) rows -> residual stream */                                  \
  OP(Norm, 1, "norm")              /* LayerNorm or RMSNorm */                                                          \
  OP(Linear, 2, "linear")          /* y = act(x W^T + bias) (+ residual) */                                            \
  OP(RopeAppend, 3, "rope_append") /* (norm,) rotate q and k in place, write k and v to the paged KV cache */          \
  OP(Attention, 4, "attention")    /* paged attention over the cache */                                                \
  OP(Activate, 5, "activate")      /* silu(gate) * up */                                                               \
  OP(GatherRows, 6, "gather_rows") /* rows whose logits are wanted, one a sequence */                                  \
  OP(Sample, 7, "sample")          /* logits -> token */                                                               \
  OP(ActAppend, 8, "act_append")   /* rows of the norm to activation blocks */                                         \
  OP(RebuildKv, 9, "rebuild_kv")   /* k and v of earlier tokens from their activation blocks */                        \
  OP(Rotate, 10, "rotate")         /* rope_append's first half: (norm,) rotate q and k in place */                     \
  OP(Append, 11, "append")         /* its second: write k and v to the paged KV cache; the CPU's, beside attention */  \
  OP(FetchRows, 12, "fetch_rows")  /* rows that the CPU has made, from host memory */                                  \
  OP(KeepIds, 13, "keep_ids")      /* embed's other half: tokens' ids, for sample, where another device embeds */

enum class Op : uint8_t {
#define HEADRACE_OP(name, value, text) name = value,
  HEADRACE_OPS(HEADRACE_OP)
#undef HEADRACE_OP
};
inline constexpr Op kOps[] = {
#define HEADRACE_OP(name, value, text) Op::name,
    HEADRACE_OPS(HEADRACE_OP)
#undef HEADRACE_OP
};
inline constexpr int kOpCount = sizeof(kOps) / sizeof(kOps[0]);
constexpr bool opsCountFromZero() {
  for (int i = 0; i < kOpCount; ++i)
    if (static_cast<int>(kOps[i]) != i)
      return false;
  return true;
}
static_assert(opsCountFromZero());

// Each struct of arguments says what it points to and what it writes, for who looks at any op's (recordings, rules of
// graphs, the search for a wrong number):
//   pointers(f)  f(field, address), null where the op has none
//   results(f)   f(base, first, elements, elem, row, column) for each run of elements in memory that row `row` of the
//                result is written to, from its column `column` on; reads the meta buffer, so call it after the op
template <typename F> void eachRow(const void *base, int64_t rows, int64_t columns, Elem elem, F f) {
  for (int64_t row = 0; row < rows; ++row)
    f(base, row * columns, columns, elem, row, int64_t{0});
}

// x[t, :] = table[token(t), :] (+ positions[position(t) + positionOffset, :])
// A token id below zero, -1 - r, means "what request slot r sampled last": sampled[r]. So an iteration can be launched
// before the host has read the tokens of the one before it. The row's id is left at history[kvSlot(t)], for Sample.
struct EmbedArgs {
  const IterationMeta *meta;
  const void *table;      // [vocab, hidden], elem, order
  const void *positions;  // [maxPositions + positionOffset, hidden] elem, RowMajor; null without learned positions
  const int32_t *sampled; // [request slots]
  int32_t *history;       // [KV blocks, blockTokens], or null: ids are not kept
  float *x;               // [T, hidden]
  int64_t vocab, hidden, positionOffset;
  Elem elem;
  Order order; // Panel16 where the table is also the head's operand

  template <typename F> void pointers(F f) const {
    f("meta", meta);
    f("table", table);
    f("positions", positions);
    f("sampled", sampled);
    f("history", history);
    f("x", x);
  }
  template <typename F> void results(F f) const { eachRow(x, meta->numTokens, hidden, Elem::F32, f); }
};

// y[t, :] = normalised x[t, :] * weight (+ bias). LayerNorm where bias is not null, RMSNorm where it is:
//   LayerNorm  (x - mean) / sqrt(variance + eps),  RMSNorm  x / sqrt(mean of squares + eps)
struct NormArgs {
  const int32_t *count; // rows: &meta->numTokens or &meta->numSampled
  const float *x;       // [rows, hidden]
  const float *weight;  // [hidden]
  const float *bias;    // [hidden] or null
  void *y;              // [rows, hidden], activation
  int64_t hidden;
  float eps;
  Elem activation;

  template <typename F> void pointers(F f) const {
    f("count", count);
    f("x", x);
    f("weight", weight);
    f("bias", bias);
    f("y", y);
  }
  template <typename F> void results(F f) const { eachRow(y, *count, hidden, activation, f); }
};

// A head of k or of v of row `row` as a cache has it, in the block that begins at `start`: its elements, or where it is
// packed each group's minimum, which is NaN where a value had no code.
template <typename F>
void keptRow(const void *kv, int64_t start, int64_t kvHeads, int64_t blockTokens, int64_t headDim, int64_t plane,
             int64_t line, Elem elem, const Packing &packing, int64_t row, int64_t column, F f) {
  const int64_t at = plane * blockTokens + line;
  if (packing.codeBits == 0)
    return f(kv, start + at * headDim, headDim, elem, row, column);
  const int64_t scales = start + PackedKvBlock(packing, kvHeads, blockTokens, headDim).scales(at);
  for (int64_t group = 0; group < headDim / packing.group; ++group)
    f(kv, (scales + group * kPackedKvHeader) / 2 + 1, int64_t{1}, Elem::F16, row, column + group * packing.group);
}

enum class Epilogue : uint8_t { None = 0, Relu = 1, Gelu = 2, GeluTanh = 3 };

// y[t, n] = epilogue(sum over k of x[t, k] * w[n, k] + bias[n]) + residual[t, n], k ascending in blocks of fixed
// length. residual may be y itself (the residual stream is updated in place).
struct LinearArgs {
  const int32_t *count;
  const void *x;         // [rows, k], activation
  const void *w;         // [n rounded up to 16, k], elem, or packed, and order
  const void *bias;      // [n rounded up to 16], biasElem, or null
  const float *residual; // [rows, n] or null; then `result` is F32
  void *y;               // [rows, n], result
  void *workspace;       // linearWorkspaceBytes(...) bytes, or null when that is 0
  int64_t n, k, capacity;
  Elem elem;
  Order order;
  Epilogue epilogue;
  Elem activation, result;
  Elem biasElem;
  Packing packing = {}; // of w; where it is packed `elem` says nothing

  template <typename F> void pointers(F f) const {
    f("count", count);
    f("x", x);
    f("w", w);
    f("bias", bias);
    f("y", y);
    f("residual", residual);
    f("workspace", workspace);
  }
  template <typename F> void results(F f) const { eachRow(y, *count, n, result, f); }
};

// Each head of q and of k is normalised where headNorms is not null, as RMSNorm of NormArgs has it; then rotated, where
// inverseFrequencies is not null: the scaled inverse frequencies, made once at build.
struct RopeAppendArgs {
  const IterationMeta *meta;
  void *qkv; // [T, (heads + 2 kvHeads) * headDim], activation; q and k are changed in place ("rotate half" pairs j, j +
             // headDim/2)
  const float *inverseFrequencies; // [headDim / 2], or null: no rotation
  const float *headNorms;          // [2, headDim]: the weights of q's norm and of k's, or null: no norms
  void *kv;                        // this layer's cache: see AttentionArgs
  KvSegments segments;             // where its blocks lie
  // Rows of blocks [homeFirst, homeEnd) are written here as well, in the same bits; null: none are. Block b begins at
  // element (b - homeFirst) * homeStride. On CUDA mapped host memory.
  void *home;
  int64_t homeFirst, homeEnd, homeStride;
  int64_t heads, kvHeads, headDim, blockTokens;
  float eps; // of the norms
  Elem kvElem;
  Elem activation;
  Packing kvPacking = {}; // of the cache; where it is packed `kvElem` says nothing

  template <typename F> void pointers(F f) const {
    f("meta", meta);
    f("qkv", qkv);
    f("inverseFrequencies", inverseFrequencies);
    f("headNorms", headNorms);
    f("kv", kv);
    f("home", home);
  }
  template <typename F> void results(F f) const {
    eachRow(qkv, meta->numTokens, (heads + 2 * kvHeads) * headDim, activation, f);
    // k and v once more, as the cache (and the home) has them: its type may hold less than theirs.
    const int32_t *slots = meta->array<int32_t>(meta->kvSlot);
    for (int64_t row = 0; row < meta->numTokens; ++row)
      for (int64_t plane = 0; plane < 2 * kvHeads; ++plane) {
        const int64_t block = slots[row] / blockTokens, at = slots[row] % blockTokens;
        keptRow(kv, segments.of(block), kvHeads, blockTokens, headDim, plane, at, kvElem, kvPacking, row,
                (heads + plane) * headDim, f);
      }
  }
};

// Where the CPU attends, RopeAppend in two: what the device does to q and k, and where k and v then go. The two
// together leave the same bits, where rows are of F32 or kept in their own type.
struct RotateArgs {
  const IterationMeta *meta;
  void *qkv;                       // as RopeAppendArgs has these
  const float *inverseFrequencies; // one of the two is not null
  const float *headNorms;
  int64_t heads, kvHeads, headDim;
  float eps;
  Elem activation;

  template <typename F> void pointers(F f) const {
    f("meta", meta);
    f("qkv", qkv);
    f("inverseFrequencies", inverseFrequencies);
    f("headNorms", headNorms);
  }
  template <typename F> void results(F f) const {
    eachRow(qkv, meta->numTokens, (heads + 2 * kvHeads) * headDim, activation, f);
  }
};
struct AppendArgs {
  const IterationMeta *meta;
  const void *qkv; // [T, (heads + 2 kvHeads) * headDim], activation, k rotated
  void *kv;        // this layer's cache, in host memory: see AttentionArgs
  KvSegments segments;
  int64_t heads, kvHeads, headDim, blockTokens;
  Elem kvElem;
  Elem activation;
  Packing kvPacking = {};

  template <typename F> void pointers(F f) const {
    f("meta", meta);
    f("qkv", qkv);
    f("kv", kv);
  }
  template <typename F> void results(F f) const {
    const int32_t *slots = meta->array<int32_t>(meta->kvSlot);
    for (int64_t row = 0; row < meta->numTokens; ++row)
      for (int64_t plane = 0; plane < 2 * kvHeads; ++plane) {
        const int64_t block = slots[row] / blockTokens, at = slots[row] % blockTokens;
        keptRow(kv, segments.of(block), kvHeads, blockTokens, headDim, plane, at, kvElem, kvPacking, row,
                plane * headDim, f);
      }
  }
};

// One layer's KV cache: blocks of [k = 0, v = 1][kvHead][token in block][headDim], kvElem, or packed (PackedKvBlock),
// each where `segments` says.
// Token t of a sequence is in block blockTable[sequence][t / blockTokens], row t % blockTokens. Block 0 is the scratch
// block: padded rows write there, nothing reads it. Activation blocks are there as RebuildKv has made them.
struct AttentionArgs {
  const IterationMeta *meta;
  const void *qkv; // [T, (heads + 2 kvHeads) * headDim], activation, q rotated
  const void *kv;
  KvSegments segments;
  void *out;       // [T, heads * headDim], activation
  void *workspace; // attentionWorkspaceBytes(...) bytes
  // CUDA: CudaWorkspace::kArrivals words, all zero between launches; launches that use the same ones run one behind the
  // other. Null elsewhere.
  uint32_t *arrivals;
  int64_t heads, kvHeads, headDim, blockTokens, maxContext;
  float scale; // 1 / sqrt(headDim)
  Elem kvElem;
  Elem activation;
  Packing kvPacking = {}; // as RopeAppendArgs has it

  template <typename F> void pointers(F f) const {
    f("meta", meta);
    f("qkv", qkv);
    f("kv", kv);
    f("out", out);
    f("workspace", workspace);
    f("arrivals", arrivals);
  }
  template <typename F> void results(F f) const { eachRow(out, meta->numTokens, heads * headDim, activation, f); }
};

// Activation blocks (HybridServe, 4.1): of a token whose block is one, not k and v are kept but what they are made
// from, the output of the norm in front of qkv, as qkv reads it. A layer's lie one behind the other, [token in
// block][hidden]; in tables and slots they are the blocks from number firstAct on.

// act[kvSlot(t)] = x[t, :] for the rows whose block is an activation block
struct ActAppendArgs {
  const IterationMeta *meta;
  const void *x; // [T, hidden], activation
  void *act;     // [activation blocks, blockTokens, hidden], activation
  int64_t hidden, blockTokens, firstAct;
  Elem activation;

  template <typename F> void pointers(F f) const {
    f("meta", meta);
    f("x", x);
    f("act", act);
  }
  template <typename F> void results(F f) const {
    const int32_t *slots = meta->array<int32_t>(meta->kvSlot);
    for (int64_t row = 0; row < meta->numTokens; ++row)
      if (const int64_t at = slots[row] - firstAct * blockTokens; at >= 0)
        f(act, at * hidden, hidden, activation, row, int64_t{0});
  }
};

// k and v of the tokens that meta->actBlock lists: act W^T + bias of the k and v rows of qkv's operand, then as
// RopeAppend has them, in blocks as those of the cache. What this iteration's tokens have in these blocks RopeAppend
// writes. In chunks of rebuildRows() rows, so that the workspace does not grow with the context.
struct RebuildKvArgs {
  const IterationMeta *meta;
  const void *act; // as ActAppendArgs has it
  const void *w; // [n, hidden], elem, or packed, and order: rows of qkv's operand from the one `lead` before k's first
  const void *bias;                // [n rounded up to 16], biasElem, or null
  const float *inverseFrequencies; // as RopeAppendArgs has them
  const float *headNorms;          // likewise: k's are the second
  void *kv;                        // [activation blocks], each as AttentionArgs has it
  void *workspace;                 // rebuildWorkspaceBytes(...)
  int64_t hidden, lead, kvHeads, headDim, blockTokens;
  int64_t capacity; // rows: blocks that are listed x blockTokens
  float eps;        // of the norms
  Elem elem;
  Order order;
  Elem biasElem;
  Elem kvElem;
  Elem activation;
  Packing packing = {};   // of w
  Packing kvPacking = {}; // as RopeAppendArgs has it

  int64_t n() const { return lead + 2 * kvHeads * headDim; }
  template <typename F> void pointers(F f) const {
    f("meta", meta);
    f("act", act);
    f("w", w);
    f("bias", bias);
    f("inverseFrequencies", inverseFrequencies);
    f("headNorms", headNorms);
    f("kv", kv);
    f("workspace", workspace);
  }
  template <typename F> void results(F f) const {
    const int32_t *blocks = meta->array<int32_t>(meta->actBlock), *tokens = meta->array<int32_t>(meta->actTokens);
    for (int64_t i = 0; i < meta->numActBlocks; ++i)
      for (int64_t plane = 0; plane < 2 * kvHeads; ++plane)
        for (int64_t line = 0; line < tokens[i]; ++line)
          keptRow(kv, blocks[i] * kvBlockUnits(kvPacking, kvHeads, blockTokens, headDim), kvHeads, blockTokens, headDim,
                  plane, line, kvElem, kvPacking, i * blockTokens + line, plane * headDim, f);
  }
};

// y[t, i] = silu(gateUp[t, i]) * gateUp[t, intermediate + i]
struct ActivateArgs {
  const int32_t *count;
  const void *gateUp; // [rows, 2 * intermediate], activation
  void *y;            // [rows, intermediate], activation
  int64_t intermediate;
  Elem activation;

  template <typename F> void pointers(F f) const {
    f("count", count);
    f("gateUp", gateUp);
    f("y", y);
  }
  template <typename F> void results(F f) const { eachRow(y, *count, intermediate, activation, f); }
};

// y[t, :] = x[t, :], from host memory to the device's: rows in use alone cross the link, and no copy in front of them
// holds them up.
struct FetchRowsArgs {
  const IterationMeta *meta;
  const void *x; // [T, columns], activation; on CUDA mapped host memory
  void *y;       // [T, columns], activation
  int64_t columns;
  Elem activation;

  template <typename F> void pointers(F f) const {
    f("meta", meta);
    f("x", x);
    f("y", y);
  }
  template <typename F> void results(F f) const { eachRow(y, meta->numTokens, columns, activation, f); }
};

// y[s, :] = x[meta->sampleRow[s], :] for s < numSampled
struct GatherRowsArgs {
  const IterationMeta *meta;
  const float *x; // [T, hidden]
  float *y;       // [sequences, hidden]
  int64_t hidden;

  template <typename F> void pointers(F f) const {
    f("meta", meta);
    f("x", x);
    f("y", y);
  }
  template <typename F> void results(F f) const { eachRow(y, meta->numSampled, hidden, Elem::F32, f); }
};

// One token for each s < numSampled, by the sequence's parameters: the same token whatever the batch. Written to
// sampled[meta->requestSlot[s]] and output[s]. In this order, as vLLM has it:
//
//   repetition   of tokens that the prompt or what was generated has, once each: logit / r where it is above 0, else
//                logit * r
//   frequency, presence   of tokens that were generated: logit - f * (how often) - p
//   temperature  0 takes the largest logit, the lowest id among equals, and nothing below counts. Else a token's weight
//                is exp((logit - largest) / temperature): the likeliest has weight 1.
//
// Tokens are ranked by logit (penalties included), lower ids first among equals. The candidates are a prefix of that
// ranking, the shortest of
//
//   minP   up to the last token whose weight reaches minP; 0: all
//   topK   the first topK tokens; 0: all
//   topP   as many, one at least, as it takes to reach topP of the weights of what these two leave; 1: all
//
// One of them is taken in proportion to their weights by a counter-based uniform number on (seed, position). `logits`
// stays what the model has made. A row without penalties reads no history.
//
// Where any logit of the row is not finite (NaN or either infinity: no op masks logits, so minus infinity is as wrong),
// output[s] is kNotFinite instead: what follows from wrong numbers is no token. `sampled` gets an id below vocab even
// then, since the next iteration may read it before the host has seen the marker.
inline constexpr int32_t kNotFinite = -1;
struct SampleArgs {
  const IterationMeta *meta;
  const float *logits;    // [sequences, vocab]
  const int32_t *history; // as EmbedArgs has it; position p of a sequence is where AttentionArgs has its keys
  int32_t *sampled;       // [request slots]
  int32_t *output;        // [sequences]: read by the host
  void *workspace;        // sampleWorkspaceBytes(vocab)
  int64_t vocab, blockTokens;

  template <typename F> void pointers(F f) const {
    f("meta", meta);
    f("logits", logits);
    f("history", history);
    f("sampled", sampled);
    f("output", output);
    f("workspace", workspace);
  }
  template <typename F> void results(F) const {} // ids of tokens
};

// history[kvSlot(t)] = token(t), as Embed leaves it, where another device embeds.
struct KeepIdsArgs {
  const IterationMeta *meta;
  const int32_t *sampled; // [request slots]
  int32_t *history;       // [KV blocks, blockTokens]

  template <typename F> void pointers(F f) const {
    f("meta", meta);
    f("sampled", sampled);
    f("history", history);
  }
  template <typename F> void results(F) const {} // ids of tokens
};

// The uniform number in [0, 1) that sampling uses; exposed so that tests and other devices can agree with it.
double uniformAt(uint64_t seed, uint64_t position);

} // namespace headrace::kernels
