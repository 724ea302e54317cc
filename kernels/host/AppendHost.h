// SPDX-License-Identifier: Apache-2.0
//
// Op::Rotate and Op::Append on the host: the halves of Op::RopeAppend. Append takes rows as CUDA devices have them,
// too.
#pragma once

#include "kernels/host/HostEntry.h"
#include "kernels/host/RopeAppendHost.h"

namespace headrace::kernels {

// By rows.
template <typename V> struct Rotate {
  static HostWork work(const void *opaque, const HostTeam &team) {
    const auto &args = *static_cast<const RotateArgs *>(opaque);
    const int64_t angles = args.inverseFrequencies == nullptr ? 0 : args.headDim * 10; // cosines and sines of a row
    return HostUnits::of(args.meta->numTokens, angles + (args.heads + args.kvHeads) * args.headDim / 2, team);
  }
  static void run(const void *opaque, const HostWork &work, int64_t, int64_t unit, float *) {
    const auto &args = *static_cast<const RotateArgs *>(opaque);
    const int32_t *positions = args.meta->array<int32_t>(args.meta->positions);
    const int64_t rowLength = (args.heads + 2 * args.kvHeads) * args.headDim;
    const HostUnits::Run rows = HostUnits::run(work, unit, args.meta->numTokens);
    for (int64_t t = rows.first; t < rows.end; ++t)
      rotateRow<V>(args, static_cast<float *>(args.qkv) + t * rowLength, positions[t]);
  }
};

template <typename V> struct Append {
  static HostWork work(const void *opaque, const HostTeam &team) {
    const auto &args = *static_cast<const AppendArgs *>(opaque);
    return HostUnits::of(args.meta->numTokens, args.kvHeads * args.headDim, team);
  }
  static void run(const void *opaque, const HostWork &work, int64_t, int64_t unit, float *) {
    const auto &args = *static_cast<const AppendArgs *>(opaque);
    const int32_t *slots = args.meta->array<int32_t>(args.meta->kvSlot);
    const int64_t rowLength = (args.heads + 2 * args.kvHeads) * args.headDim;
    const KvRows<V> kept = {2 * args.kvHeads, args.headDim, args.blockTokens, args.kvElem, args.kvPacking};
    const HostUnits::Run rows = HostUnits::run(work, unit, args.meta->numTokens);
    for (int64_t t = rows.first; t < rows.end; ++t) {
      const int64_t at = t * rowLength + args.heads * args.headDim, line = slots[t] % args.blockTokens;
      const int64_t start = args.segments.of(slots[t] / args.blockTokens);
      if (args.activation == Elem::F32)
        kept.append(static_cast<const float *>(args.qkv) + at, args.kv, start, line);
      else
        kept.appendFrom(args.qkv, at, args.activation, args.kv, start, line);
    }
  }
};

template <typename V> struct HostEntry<V, RotateArgs> {
  static constexpr HostKernel kKernel = {Rotate<V>::work, sameUnits, Rotate<V>::run};
};
template <typename V> struct HostEntry<V, AppendArgs> {
  static constexpr HostKernel kKernel = {Append<V>::work, sameUnits, Append<V>::run};
};

} // namespace headrace::kernels
