// SPDX-License-Identifier: Apache-2.0
//
// The table from op to entry for one lane type. Included by one file for each instruction set.
#pragma once

#include "kernels/host/ActivateHost.h"
#include "kernels/host/AttentionHost.h"
#include "kernels/host/EmbedHost.h"
#include "kernels/host/GatherRowsHost.h"
#include "kernels/host/LinearHost.h"
#include "kernels/host/NormHost.h"
#include "kernels/host/RopeAppendHost.h"
#include "kernels/host/SampleHost.h"

namespace headrace::kernels {

template <typename V> HostKernel kernelFor(Op op) {
  switch (op) {
  case Op::Embed:
    return embed<V>;
  case Op::Norm:
    return norm<V>;
  case Op::Linear:
    return Linear<V>::run;
  case Op::RopeAppend:
    return ropeAppend<V>;
  case Op::Attention:
    return Attention<V>::run;
  case Op::Activate:
    return activate<V>;
  case Op::GatherRows:
    return gatherRows<V>;
  case Op::Sample:
    return sample<V>;
  case Op::Count:
    break;
  }
  return nullptr;
}

} // namespace headrace::kernels
