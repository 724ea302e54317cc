// SPDX-License-Identifier: Apache-2.0
#include "runtime/model/ModelSpec.h"
#include "tests/unit/plan/OracleMemory.h"

namespace headrace::plan::test {

bool kvEncodingIsRight(const Plan &plan) {
  const model::Encoding &of = plan.kvEncoding;
  const int64_t head = plan.model->headDim, group = head % 64 == 0 ? 64 : head % 32 == 0 ? 32 : 0;
  return of.group == 0 ? of == model::Encoding(of.element)
                       : (of.codeBits == 4 || of.codeBits == 8) && of.group == group;
}

bool encodingsAreRight(const Plan &plan) {
  const model::WeightLayout layout = model::layoutWeights(plan.model);
  bool ok = true;
  for (const Buffer &buffer : plan.buffers) {
    uint64_t bytes = 0;
    if (buffer.kind == BufferKind::Kv) {
      uint64_t bits = 0; // of one token's head
      for (int64_t d = 0; d < plan.model->headDim; ++d)
        bits += plan.kvEncoding.codeBits + (plan.kvEncoding.packed() && d % plan.kvEncoding.group == 0 ? 32 : 0);
      bytes = static_cast<uint64_t>(plan.kvBlocks * plan.blockTokens * 2 * plan.model->kvHeads) * bits / 8;
      ok &= buffer.bytes == (bytes + 255) / 256 * 256;
    }
    if (buffer.kind != BufferKind::Weight)
      continue;
    for (const model::Tensor &tensor : layout.units[buffer.index].tensors) {
      const std::optional<model::Encoding> &packed = plan.model->encodings[layout.units[buffer.index].role];
      uint64_t bits = 0; // of a row
      for (int64_t c = 0; c < tensor.cols; ++c)
        if (tensor.role == model::TensorRole::Matrix && packed)
          bits += packed->codeBits + (c % packed->group == 0 ? 32 : 0);
        else
          bits += tensor.dtype == model::DType::F32 ? 32 : 16;
      bytes += (static_cast<uint64_t>(tensor.paddedRows) * bits / 8 + 255) / 256 * 256;
    }
    ok &= buffer.bytes == bytes;
  }
  return ok;
}

} // namespace headrace::plan::test
