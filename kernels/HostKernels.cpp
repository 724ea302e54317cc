// SPDX-License-Identifier: Apache-2.0
#include "kernels/AttentionHost.h"
#include "kernels/CudaWorkspace.h"
#include "kernels/HostIsa.h"
#include "kernels/Kernels.h"
#include "kernels/LinearHost.h"

namespace headrace::kernels {

const char *opName(Op op) {
  switch (op) {
  case Op::Embed:
    return "embed";
  case Op::Norm:
    return "norm";
  case Op::Linear:
    return "linear";
  case Op::RopeAppend:
    return "rope_append";
  case Op::Attention:
    return "attention";
  case Op::Activate:
    return "activate";
  case Op::GatherRows:
    return "gather_rows";
  case Op::Sample:
    return "sample";
  case Op::Count:
    break;
  }
  return "unknown";
}

bool isaSupported(HostIsa isa) {
  if (isa == HostIsa::Portable)
    return true;
#ifdef HEADRACE_HAVE_AVX2
  // Every processor with AVX2 has F16C, which clang's builtin does not know by name.
  static const bool supported = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return supported;
#else
  return false;
#endif
}

HostIsa bestIsa() { return isaSupported(HostIsa::Avx2) ? HostIsa::Avx2 : HostIsa::Portable; }

HostKernel hostKernel(Op op, HostIsa isa) {
#ifdef HEADRACE_HAVE_AVX2
  if (isa == HostIsa::Avx2)
    return avx2Kernel(op);
#endif
  (void)isa;
  return portableKernel(op);
}

HostKernel hostKernel(Op op) { return hostKernel(op, bestIsa()); }

uint64_t linearWorkspaceBytes(Backend backend, int64_t capacity, int64_t n, int64_t k) {
  if (backend == Backend::Cuda)
    return CudaWorkspace::kLinearBytes;
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

// Philox4x32-10 (Salmon et al. 2011): key = seed, counter = position; the first 53 bits of the output.
double uniformAt(uint64_t seed, uint64_t position) {
  uint32_t key[2] = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
  uint32_t c[4] = {static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), 0, 0};
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53u} * c[0], b = uint64_t{0xCD9E8D57u} * c[2];
    const uint32_t next[4] = {static_cast<uint32_t>(b >> 32) ^ c[1] ^ key[0], static_cast<uint32_t>(b),
                              static_cast<uint32_t>(a >> 32) ^ c[3] ^ key[1], static_cast<uint32_t>(a)};
    for (int i = 0; i < 4; ++i)
      c[i] = next[i];
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  const uint64_t bits = (uint64_t{c[0]} << 32 | c[1]) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

} // namespace headrace::kernels
