// SPDX-License-Identifier: Apache-2.0
//
// Ranges for profilers, in NVTX's domain "headrace". The header loads the profiler's library where one is attached;
// else a range costs a branch.
#pragma once

#include <nvtx3/nvToolsExt.h>

#include <string>

namespace headrace::cuda {

// A name made once; a range with it allocates nothing.
class NvtxName {
public:
  NvtxName() = default;
  explicit NvtxName(const std::string &name);

private:
  friend class NvtxRange;
  friend class NvtxSpan;
  nvtxEventAttributes_t attributes() const;
  nvtxStringHandle_t handle_ = nullptr;
};

// While it lives, on this thread; ranges nest.
class NvtxRange {
public:
  explicit NvtxRange(const NvtxName &name);
  NvtxRange(const NvtxRange &) = delete;
  NvtxRange &operator=(const NvtxRange &) = delete;
  ~NvtxRange();
};

// The same over calls that do not nest.
class NvtxSpan {
public:
  NvtxSpan() = default;
  NvtxSpan(const NvtxSpan &) = delete;
  NvtxSpan &operator=(const NvtxSpan &) = delete;
  ~NvtxSpan() { end(); }
  void begin(const NvtxName &name); // ends the one before
  void end();

private:
  bool open_ = false;
  nvtxRangeId_t id_ = 0;
};

} // namespace headrace::cuda
