// SPDX-License-Identifier: Apache-2.0
//
// Op::ActAppend on the host.
#pragma once

#include "kernels/host/HostEntry.h"
#include "kernels/host/RopeAppendHost.h"

namespace headrace::kernels {

template <typename V> void actAppend(const void *opaque) {
  const auto &args = *static_cast<const ActAppendArgs *>(opaque);
  const int32_t *slots = args.meta->array<int32_t>(args.meta->kvSlot);
  const int64_t first = args.firstAct * args.blockTokens;
  for (int64_t t = 0; t < args.meta->numTokens; ++t)
    if (slots[t] >= first)
      copyElems(args.act, (slots[t] - first) * args.hidden, args.x, t * args.hidden, args.hidden, args.activation);
}

template <typename V> struct HostEntry<V, ActAppendArgs> { static constexpr HostKernel kRun = actAppend<V>; };

} // namespace headrace::kernels
