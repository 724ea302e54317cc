// SPDX-License-Identifier: Apache-2.0
//
// Golden models whose caches are written back: how many blocks stay on the device (none of them: whole layers move),
// how the rows of either class get home, weights away as well.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/golden/SplitCase.h"
#include "tests/support/LongRun.h"

namespace headrace::golden {

// With HEADRACE_LONG one in `oneIn` of all there are; else two for each two of all, dirty and mirror: one with no block
// on the device, and one with some. Drawn by the model's name.
inline std::vector<SplitCase> writeBackCases(const std::string &model, int64_t blocks, int64_t mixedTokens, bool poison,
                                             int64_t oneIn) {
  using algorithms::WriteBack;
  const bool all = longRun();
  std::vector<SplitCase> out;
  std::seed_seq seed(model.begin(), model.end());
  std::mt19937_64 random(seed);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  for (const WriteBack decode : {WriteBack::All, WriteBack::Dirty, WriteBack::Mirror})
    for (const WriteBack mixed : {WriteBack::All, WriteBack::Dirty, WriteBack::Mirror}) {
      const std::pair<int64_t, int64_t> drawn[] = {{0, below(4)}, {1 + below(blocks - 1), below(4)}};
      for (int64_t resident = 0; resident < blocks; ++resident)
        for (const int64_t interval : {0, 1, 2, 3}) {
          SplitCase added{.resident = resident, .interval = interval, .decode = decode, .mixed = mixed};
          added.slots = below(5);
          added.wrap = below(3) != 0;
          added.mixedTokens = below(7) < 3 ? mixedTokens : 0;
          added.poison = poison && below(2) == 0;
          const bool mirrored = decode == WriteBack::Mirror && mixed == WriteBack::Mirror && resident > 0;
          const std::pair one(resident, interval);
          if (!mirrored && (all ? below(oneIn) == 0 : one == drawn[0] || one == drawn[1]))
            out.push_back(added);
        }
    }
  return out;
}

} // namespace headrace::golden
