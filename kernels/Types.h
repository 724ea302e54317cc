// SPDX-License-Identifier: Apache-2.0
//
// What plans, prices and devices say about kernels without knowing any op's name or arguments (Kernels.h has those): a
// new op, or a new argument, does not rebuild who includes only this.
#pragma once

#include <cstdint>

#include "kernels/HostDevice.h"

namespace headrace::kernels {

// Element types; the values are those of model::DType.
enum class Elem : uint8_t { F32 = 0, F16 = 1, BF16 = 2 };
// Order of a matrix operand; the values are those of model::MatrixOrder (WeightLayout.h describes them).
enum class Order : uint8_t { RowMajor = 0, Panel16 = 1 };
inline constexpr Order kHostOrder = Order::Panel16; // of linear operands on the host

// How a matrix operand is packed: in groups of so many in features of one out feature, codes of so many bits, with a
// scale and a minimum of F16 each (docs/encodings.md). Bits 0: it is not, its elements are of an Elem.
struct Packing {
  int32_t codeBits = 0, group = 0;

  // Of so many elements of rows, whole groups: each its scale, its minimum, its codes.
  HEADRACE_HD constexpr int64_t groupBytes() const { return 2 * 2 + int64_t{group} * codeBits / 8; }
  HEADRACE_HD constexpr int64_t bytes(int64_t elements) const { return elements / group * groupBytes(); }
};

enum class Op : uint8_t;   // the op of a compute step
const char *opName(Op op); // "embed", "norm", ...

// Whose kernels; the values are those of model::DeviceKind.
enum class Backend : uint8_t { Host = 0, Cuda = 1 };

// Workspace of an op in bytes, 0 where none is needed; the plan counts it. None shrinks as an argument grows.
// `unpackedBytes`: of an element that packed weights are unpacked to, 0 where they are not packed.
uint64_t linearWorkspaceBytes(Backend backend, int64_t capacity, int64_t n, int64_t k, int64_t unpackedBytes = 0);
uint64_t attentionWorkspaceBytes(Backend backend, int64_t sequences, int64_t heads, int64_t headDim,
                                 int64_t maxContext);
uint64_t sampleWorkspaceBytes(Backend backend, int64_t sequences, int64_t vocab);
// Rows that RebuildKv takes at a time, and its workspace: of n columns of k and v, the rest of the first panel
// included, from rows of `hidden` elements of `activationBytes`, with weights that are packed or not.
int64_t rebuildRows(Backend backend, int64_t capacity);
uint64_t rebuildWorkspaceBytes(Backend backend, int64_t capacity, int64_t n, int64_t hidden, int64_t activationBytes,
                               bool packed = false);

} // namespace headrace::kernels
