// SPDX-License-Identifier: Apache-2.0
//
// The table from op to entry for one lane type. Included by one file for each instruction set.
#pragma once

#include "kernels/ActivateHost.h"
#include "kernels/AttentionHost.h"
#include "kernels/EmbedHost.h"
#include "kernels/GatherRowsHost.h"
#include "kernels/LinearHost.h"
#include "kernels/NormHost.h"
#include "kernels/RopeAppendHost.h"
#include "kernels/SampleHost.h"

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
