// SPDX-License-Identifier: Apache-2.0
//
// The graphs that a profile launches keep every rule: iterations, copies beside them, copies of both directions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/cuda/GraphRules.h"
#include "runtime/profile/AnalyzerPlan.h"
#include "tests/unit/cuda/TinyGraph.h"

namespace headrace::cuda {
namespace {

using cost::Phase;

TEST(AnalyzerGraph, EveryGraphOfAProfileKeepsTheRules) {
  for (const model::ModelSpec &spec : {core::tinyLlama(3), core::tinyOpt(3)}) {
    TinyGraph tiny({.spec = spec, .batch = 2, .promptTokens = 16});
    const std::vector<cost::CellKey> cells = {
        {Phase::Prefill, 1, 8}, {Phase::Prefill, 2, 8}, {Phase::Decode, 1, 8}, {Phase::Decode, 2, 8}};
    const std::vector<uint64_t> sizes = {4096, 16384, 100'000};
    tiny.plan.hardware.flopsF16 = tiny.plan.hardware.flopsF32 = tiny.plan.hardware.memoryBandwidth = 1e9;
    tiny.plan.hardware.flopsEfficiency = tiny.plan.hardware.memoryEfficiency = tiny.plan.hardware.linkEfficiency = 1;
    const profile::AnalyzerPlan made = profile::makeAnalyzerPlan(tiny.plan, cells, sizes, 100'000);
    tiny.plan = made.plan;
    std::vector<core::GraphKey> keys = made.cellGraphs;
    for (const profile::CopyGraphs &copies : made.copies)
      keys.insert(keys.end(), {copies.alone[0], copies.alone[1], copies.beside[0], copies.beside[1], copies.both});
    ASSERT_TRUE(made.starts.has_value());
    keys.push_back(*made.starts);
    ASSERT_EQ(keys.size(), 4u + 3 * 5 + 1);
    for (const core::GraphKey &key : keys)
      for (const bool stamps : {false, true}) {
        const RecordedGraph graph = tiny.recorded(key, stamps);
        for (const GraphFault &fault : findFaults(graph))
          ADD_FAILURE() << graphRuleName(fault.rule) << ": " << fault.message;
        size_t copies = 0;
        for (const RecordedNode &node : graph.nodes)
          copies += node.lane != plan::Lane::Compute;
        EXPECT_EQ(copies != 0, key.transition || key.index >= made.cells.size());
      }
  }
}

} // namespace
} // namespace headrace::cuda
