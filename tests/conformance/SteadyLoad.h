// SPDX-License-Identifier: Apache-2.0
//
// Requests that join an engine, are cancelled and end; once as many were known at a time as ever will be, what it
// allocates is counted. For binaries that count every call of the allocator.
#pragma once

#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/serve/engine/Engine.h"
#include "tests/support/CountAllocations.h"

namespace headrace::serve {

struct SteadyLoad {
  uint64_t requests = 60;
  uint64_t first = 10, more = 5; // come at once; and then so many more than have ended
  size_t room = 30;              // of a prompt with its new tokens
  int64_t maxNewTokens = 15;
  std::vector<int32_t> stopTokens = {1};
};

// From the request behind the `first` on.
struct Steady {
  uint64_t allocations = 0, preemptions = 0;
};

// Until all have ended, as `ended` counts them. Of every seventh request the one two before is cancelled.
inline void runSteadily(Engine &engine, const SteadyLoad &load, const uint64_t &ended, Steady &out) {
  std::vector<EngineRequest> requests(load.requests);
  for (size_t r = 0; r < requests.size(); ++r) {
    requests[r].prompt.reserve(load.room);
    requests[r].prompt.assign(2 + r % 10, static_cast<int32_t>(r));
    requests[r].maxNewTokens = load.maxNewTokens;
    requests[r].stopTokens = load.stopTokens;
  }
  uint64_t submitted = 0, before = 0, preempted = 0;
  while (ended < load.requests) {
    while (submitted < load.requests && (submitted < load.first || submitted < ended + load.more)) {
      if (submitted == load.first) {
        before = allocations.load();
        preempted = engine.counters().preemptions;
      }
      const auto id = engine.submit(std::move(requests[submitted++]));
      ASSERT_TRUE(id.ok()) << id.status();
      if (*id % 7 == 0) {
        ASSERT_TRUE(engine.cancel(*id - 2).ok());
      }
    }
    const auto more = engine.step();
    ASSERT_TRUE(more.ok() && *more) << more.status();
  }
  out = {allocations.load() - before, engine.counters().preemptions - preempted};
}

} // namespace headrace::serve
