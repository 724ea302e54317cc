// SPDX-License-Identifier: Apache-2.0
//
// What the part `steps` is made of: tasks that the report tries one by one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "bench/cuda/Gpu.h"
#include "bench/figures/Bound.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::bench {

using Tasks = std::vector<Report::Task>;
struct StepsOf { // what all of them need; outlives the tasks
  Timer &timer;
  Peaks peaks;
  model::ModelSpec spec; // Llama-3.1-8B's shape
};

void addAttentionSteps(Tasks &tasks, const StepsOf &of);
void addProductCandidates(Tasks &tasks, const StepsOf &of);
void addChains(Tasks &tasks, const StepsOf &of);

// Each once, none above what the model has positions for.
inline std::vector<int64_t> within(int64_t most, std::vector<int64_t> values) {
  std::vector<int64_t> kept;
  for (const int64_t value : values)
    if (const int64_t one = std::min(value, most); std::find(kept.begin(), kept.end(), one) == kept.end())
      kept.push_back(one);
  return kept;
}

// How many of a step in a row.
inline size_t inRow() { return timesCount() ? 32 : 1; }

// Microseconds of a node, of `count` in a graph that is a chain of them: add(graph, node before, its number).
template <typename F> double chainUs(Timer &timer, size_t count, F add) {
  BenchGraph graph;
  cudaGraphNode_t last = nullptr;
  for (size_t i = 0; i < count; ++i)
    last = add(graph, last, i);
  graph.build(timer.stream());
  return timer.medianMs(5, [&](cudaStream_t stream) { graph.launch(stream); }) / static_cast<double>(count) * 1e3;
}

} // namespace headrace::bench
