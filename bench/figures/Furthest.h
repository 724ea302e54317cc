// SPDX-License-Identifier: Apache-2.0
//
// Which of the measured iterations are furthest from what bounds them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "bench/figures/Report.h"

namespace headrace::bench {

struct Far {
  std::string model, cell, placement; // as the figure has them
  int64_t sequences = 0;
  double ratio = 0; // by what bounds it
};

// Of figures with the fields model, cell, placement, sequences and ratio: all whose ratio is above `target`, and of the
// others as many as make `least`; the furthest first, but those of a model together.
std::vector<Far> furthest(const Json &figures, size_t least, double target);

} // namespace headrace::bench
