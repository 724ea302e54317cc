// SPDX-License-Identifier: Apache-2.0
#include <initializer_list>

#include "kernels/CudaWorkspace.h"
#include "kernels/Kernels.h"
#include "kernels/Philox.h"
#include "kernels/host/AttentionHost.h"
#include "kernels/host/HostIsa.h"
#include "kernels/host/LinearHost.h"
#include "kernels/host/RebuildKvHost.h"

namespace headrace::kernels {

const char *opName(Op op) {
  switch (op) {
#define HEADRACE_OP(name, value, text)                                                                                 \
  case Op::name:                                                                                                       \
    return text;
    HEADRACE_OPS(HEADRACE_OP)
#undef HEADRACE_OP
  }
  return "unknown"; // a value that no op has
}

bool isaSupported(HostIsa isa) {
#ifdef HEADRACE_HAVE_AVX2
  // Every processor with AVX2 has F16C, which clang's builtin does not know by name.
  static const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  static const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (isa == HostIsa::Avx512)
    return avx512;
  if (isa == HostIsa::Avx2)
    return avx2;
#endif
  return isa == HostIsa::Portable;
}

HostIsa bestIsa() {
  for (const HostIsa isa : {HostIsa::Avx512, HostIsa::Avx2})
    if (isaSupported(isa))
      return isa;
  return HostIsa::Portable;
}

HostKernel hostKernel(Op op, HostIsa isa) {
#ifdef HEADRACE_HAVE_AVX2
  if (isa == HostIsa::Avx512)
    return avx512Kernel(op);
  if (isa == HostIsa::Avx2)
    return avx2Kernel(op);
#endif
  (void)isa;
  return portableKernel(op);
}

HostKernel hostKernel(Op op) { return hostKernel(op, bestIsa()); }

void HostKernel::operator()(const void *args) const {
  const HostWork how = work(args, HostTeam{});
  for (int64_t phase = 0; phase < how.phases; ++phase)
    for (int64_t unit = 0, count = units(args, how, phase); unit < count; ++unit)
      run(args, how, phase, unit, nullptr);
}

uint64_t hostTeamBytes(int64_t heads, int64_t kvHeads, int64_t headDim) {
  return kvHeads > 0 ? AttentionChunksShape::sharedBytes(heads / kvHeads, headDim) : 0;
}

uint64_t linearWorkspaceBytes(Backend backend, int64_t capacity, int64_t n, int64_t k, int64_t unpackedBytes) {
  if (backend == Backend::Cuda)
    return CudaWorkspace::linearBytes(capacity, n, k, unpackedBytes);
  return LinearShape::workspaceBytes(capacity, n, k);
}

uint64_t attentionWorkspaceBytes(Backend backend, int64_t sequences, int64_t heads, int64_t headDim,
                                 int64_t maxContext) {
  if (backend == Backend::Cuda)
    return CudaWorkspace::attentionBytes(sequences, heads, headDim, maxContext);
  return static_cast<uint64_t>(AttentionShape::workspaceFloats(headDim)) * sizeof(float);
}

uint64_t sampleWorkspaceBytes(Backend backend, int64_t sequences, int64_t vocab) {
  if (backend == Backend::Cuda)
    return CudaWorkspace::sampleBytes(sequences, vocab);
  return static_cast<uint64_t>(vocab) * sizeof(float);
}

int64_t rebuildRows(Backend backend, int64_t capacity) {
  const int64_t most = backend == Backend::Cuda ? CudaWorkspace::kRebuildRows : RebuildShape::kRows;
  return capacity < most ? capacity : most;
}

uint64_t rebuildWorkspaceBytes(Backend backend, int64_t capacity, int64_t n, int64_t hidden, int64_t activationBytes,
                               bool packed) {
  const int64_t rows = rebuildRows(backend, capacity);
  if (backend == Backend::Cuda)
    return CudaWorkspace::rebuildBytes(rows, n, hidden, activationBytes, packed);
  return RebuildShape::workspaceBytes(rows, n, hidden);
}

double uniformAt(uint64_t seed, uint64_t position) { return philoxUniform(seed, position); }

} // namespace headrace::kernels
