// SPDX-License-Identifier: Apache-2.0
//
// What `headrace drift` says.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/report/Drift.h"

namespace headrace::tools {

// How one of both models holds its weights and its cache.
struct DriftSide {
  std::string weights; // "bf16", or what is packed: "q4", "qkv=q4,head=q8"
  uint64_t weightBytes = 0;
  std::string kv; // "f32"
};

struct DriftReport {
  std::string model, hardware, device;
  DriftSide packed, full;
  int64_t prompts = 0;
  std::vector<PositionDrift> positions; // one at least, prompt after prompt

  // `each`: every position as well.
  std::string text(bool each) const;
  std::string json(bool each) const; // one line
  std::string svg() const;           // over positions
};

} // namespace headrace::tools
