// SPDX-License-Identifier: Apache-2.0
//
// The CUDA kernels behind the ops of Kernels.h: every own op is exactly one kernel node, whose one parameter is the
// op's struct of arguments by value. Linear is a library call (runtime/cuda) but of a few rows and packed weights;
// BiasActivate is what follows it where the
// library has no fused epilogue for the types.
//
// Which kernel and how it is launched is plain C++ and needs no CUDA (CudaLaunch, cudaLaunch); the entry it names
// exists where the kernels are built (cudaEntry). All sizes that change from iteration to iteration are read on the
// device from the meta buffer; grids cover the bucket's maximum.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/Kernels.h"

namespace headrace::kernels {

// What a graph is built for: a variant's bucket. In a decode bucket every sequence has one row.
struct CudaShape {
  int64_t tokens = 0, sequences = 0, context = 0;
  bool decode() const { return tokens == sequences; }
};

// Kernels: an op has several where types or shapes call for different code.
struct CudaLaunch {
  const char *kernel = nullptr; // "attention_decode_bf16_128": cudaEntry's key, and what errors and recordings print
  uint32_t grid[3] = {1, 1, 1};
  uint32_t block[3] = {1, 1, 1};
  uint32_t sharedBytes = 0; // dynamic; above 48 KiB the entry's attribute must be raised before
};

// y[t, n] = epilogue(y[t, n] + bias[n]) in place, rows [0, *count), at most capacity
struct BiasActivateArgs {
  const int32_t *count;
  void *y;          // [capacity, n], result
  const void *bias; // [n] or null, result
  int64_t n, capacity;
  Epilogue epilogue;
  Elem result;

  template <typename F> void pointers(F f) const {
    f("count", count);
    f("y", y);
    f("bias", bias);
  }
};

// out = the values of packed weights, rounded to the nearest of `activation`, ties to even.
struct UnpackArgs {
  const void *w; // [rows, k] packed, RowMajor
  void *out;     // [rows, k], activation
  int64_t rows, k;
  Packing packing;
  Elem activation;

  template <typename F> void pointers(F f) const {
    f("w", w);
    f("out", out);
  }
};

// RebuildKv is a chunk of rows at a time: rows of activation blocks one behind the other, a product of the library,
// and what RopeAppend does with k and v. Row r is token r % blockTokens of listed block r / blockTokens; of rows that
// no block has, or that are this iteration's, anything is made and nothing is kept.
struct GatherActArgs {
  const IterationMeta *meta;
  const void *act; // [activation blocks, blockTokens, hidden], activation
  void *x;         // [rows, hidden], activation
  int64_t hidden, blockTokens;
  int64_t firstRow, rows;
  Elem activation;

  template <typename F> void pointers(F f) const {
    f("meta", meta);
    f("act", act);
    f("x", x);
  }
};
struct AppendActArgs {
  RopeAppendArgs rope; // no heads of q; its qkv is [rows, lead + 2 kvHeads * headDim], k behind `lead`
  int64_t lead;
  int64_t firstRow, rows;

  template <typename F> void pointers(F f) const { rope.pointers(f); }
};
struct RebuildCalls {
  GatherActArgs gather;
  LinearArgs product;
  AppendActArgs append;
};
// Of the chunk that begins at `firstRow`, a multiple of rebuildRows() below args.capacity.
RebuildCalls rebuildCalls(const RebuildKvArgs &args, int64_t firstRow);

// Copies the iteration's tokens and then its number to mapped host memory: slot iteration % kPublishSlots of each
// array. The number is visible to the host only after the tokens are.
inline constexpr int64_t kPublishSlots = 4;
struct PublishArgs {
  const IterationMeta *meta;
  const IterationMeta *last; // of the last mini-batch: its tokens are the last
  const int32_t *output;     // [maxSequences], which is of all mini-batches
  int32_t *tokens;           // mapped host memory: [kPublishSlots, maxSequences]
  uint64_t *iterations;      // mapped host memory: [kPublishSlots]
  int64_t maxSequences;

  template <typename F> void pointers(F f) const {
    f("meta", meta);
    f("last", last);
    f("output", output);
    f("tokens", tokens);
    f("iterations", iterations);
  }
};

// How an op with these arguments is launched. Linear and RebuildKv have no one kernel: here theirs is null.
// Unsupported combinations (a head size without an instance, say) have a null kernel too, and `why` says what is
// supported.
CudaLaunch cudaLaunch(Op op, const void *args, const CudaShape &shape, const char **why);
// `why`, with the number where it is of one: how far a KV cache spans.
std::string cudaRefusal(Op op, const void *args, const char *why);
// Why the library is not asked for y[m, n] = x[m, k] W[n, k]^T: a matrix of 2^31 elements or more, which not all of its
// kernels count. Empty: it is. Of packed weights W is the part that is unpacked at a time.
std::string productRefusal(int64_t m, int64_t n, int64_t k);
std::string productRefusal(const LinearArgs &args);
// A few rows and packed weights: one kernel that unpacks them on the way. Null: a library call, or several.
CudaLaunch cudaLaunch(const LinearArgs &args);
CudaLaunch cudaLaunch(const BiasActivateArgs &args);
CudaLaunch cudaLaunch(const UnpackArgs &args);
CudaLaunch cudaLaunch(const PublishArgs &args);
CudaLaunch cudaLaunch(const GatherActArgs &args);
CudaLaunch cudaLaunch(const AppendActArgs &args, const char **why);

// The __global__ function of that name, for cudaLaunchKernel and cudaGraphAddKernelNode; null if there is none.
const void *cudaEntry(const char *kernel);

} // namespace headrace::kernels
