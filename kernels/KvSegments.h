// SPDX-License-Identifier: Apache-2.0
//
// Where a layer's blocks of keys and values lie: up to three runs of blocks, each (base, stride, first block). One
// function says where a block begins; the kernels that append and attend ask it. (Plans have one run; a hand-over
// counts on that.)
//
//   one run     | 0 | 1 | 2 | 3 | 4 |                          a block's size apart
//   split at 3  | 0 : . | 1 : . | 2 : . |   ...   | 3 | 4 |    apart, with others' blocks between; a tail elsewhere
//   and         | 5 | 6 |                                      activation blocks, rebuilt
#pragma once

#include <cstdint>

#include "kernels/HostDevice.h"
#include "kernels/Types.h"

namespace headrace::kernels {

// In elements of the cache's type, of a packed cache in bytes, from its pointer, which is that of the run that lies
// lower: none is negative.
struct KvSegments {
  int64_t start = 0, stride = 0;    // block b < split begins at start + b * stride
  int64_t tail = 0, tailStride = 0; // block b >= split at tail + (b - split) * tailStride
  int32_t split = INT32_MAX;        // none: one run
  int64_t act = 0, actStride = 0;   // block b >= firstAct at act + (b - firstAct) * actStride
  int32_t firstAct = INT32_MAX;     // none: no activation blocks
  int64_t end = 0;                  // behind the last element of any block

  HEADRACE_HD constexpr int64_t of(int64_t block) const {
    return block >= firstAct ? act + (block - firstAct) * actStride
           : block < split   ? start + block * stride
                             : tail + (block - split) * tailStride;
  }
  // Whether every block begins at a multiple of so many elements.
  HEADRACE_HD constexpr bool multipleOf(int64_t elements) const {
    return start % elements == 0 && stride % elements == 0 && tail % elements == 0 && tailStride % elements == 0 &&
           act % elements == 0 && actStride % elements == 0;
  }
};

HEADRACE_HD constexpr int64_t kvBlockElements(int64_t kvHeads, int64_t blockTokens, int64_t headDim) {
  return 2 * kvHeads * blockTokens * headDim;
}

// A block of a packed cache, in bytes (docs/encodings.md): rows of codes, then their groups' scales and minima, F16
// each. A row is a token's head of k or of v; of codes of 4 bits each 16 dimensions are 8 bytes, the first 8 of them
// the lower halves.
//
//   [k, v][kvHeads][blockTokens][codes]  [k, v][kvHeads][blockTokens][headDim / group][scale, minimum]
inline constexpr int64_t kPackedKvHeader = 4, kMostKvGroup = 64;
inline constexpr float kMostPacked = 65504.0f; // the largest magnitude that has a code
class PackedKvBlock {
public:
  HEADRACE_HD constexpr PackedKvBlock(const Packing &of, int64_t kvHeads, int64_t blockTokens, int64_t headDim)
      : rows_(2 * kvHeads * blockTokens), codeBytes_(headDim * of.codeBits / 8),
        scaleBytes_(headDim / of.group * kPackedKvHeader) {}

  HEADRACE_HD constexpr int64_t bytes() const { return rows_ * (codeBytes_ + scaleBytes_); }
  // Of a row, plane x blockTokens + the token in the block: where its codes and its scales begin.
  HEADRACE_HD constexpr int64_t codes(int64_t row) const { return row * codeBytes_; }
  HEADRACE_HD constexpr int64_t scales(int64_t row) const { return rows_ * codeBytes_ + row * scaleBytes_; }
  HEADRACE_HD constexpr int64_t codeBytes() const { return codeBytes_; }
  HEADRACE_HD constexpr int64_t scaleBytes() const { return scaleBytes_; }

private:
  int64_t rows_, codeBytes_, scaleBytes_;
};

// A block's size as KvSegments count: elements, or of a packed cache bytes.
HEADRACE_HD constexpr int64_t kvBlockUnits(const Packing &of, int64_t kvHeads, int64_t blockTokens, int64_t headDim) {
  return of.codeBits == 0 ? kvBlockElements(kvHeads, blockTokens, headDim)
                          : PackedKvBlock(of, kvHeads, blockTokens, headDim).bytes();
}

// Blocks one behind the other.
constexpr KvSegments oneRun(int64_t blocks, int64_t blockElements) {
  KvSegments out;
  out.stride = blockElements;
  out.end = blocks * blockElements;
  return out;
}

} // namespace headrace::kernels
