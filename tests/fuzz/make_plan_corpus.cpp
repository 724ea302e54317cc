// SPDX-License-Identifier: Apache-2.0
//
// Writes the seeds of fuzz_plan, without a file's end, which fuzz_plan puts behind them: make_plan_corpus
// tests/fuzz/corpus/fuzz_plan
#include <cstdio>
#include <filesystem>

#include "runtime/base/ReplaceFile.h"
#include "runtime/plan/PlanBytes.h"
#include "tests/support/ShuffleBuffers.h"
#include "tests/unit/plan/MakePlan.h"
#include "tests/unit/plan/WriteBackPlan.h"

namespace {

// Three layers: a cycle of two with tails ahead of their homes, and all blocks on the host in turns through two slots.
headrace::plan::Plan writtenBack() {
  using namespace headrace::plan::test;
  std::vector<PlacementOptions> placements(2);
  placements[0].name = "cycle";
  placements[1].name = "in turns";
  headrace::plan::Plan plan = makePlan({tinyLlama(3), placements});
  moveTails(plan, {{1, 3, 2, false, rotating(WriteBack::All)}, {0, 3, 2, false, {inTurns(3, 2, WriteBack::Dirty)}}});
  return plan;
}

} // namespace

int main(int argc, char **argv) {
  using namespace headrace::plan;
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
    return 2;
  }
  std::error_code error;
  std::filesystem::create_directories(argv[1], error);
  const auto write = [&](std::string file, const Plan &plan) {
    for (char &c : file)
      c = c == ' ' || c == ',' ? '-' : c;
    const absl::Status status = headrace::model::replaceFile(std::string(argv[1]) + "/" + file, encode(plan));
    if (!status.ok())
      std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
    return status.ok();
  };
  // A few that have what the others have: seeds are small.
  bool written = write("caches that grow", test::makePlan(test::growingCaches()));
  written = written && write("a cycle, written back", writtenBack());
  for (const test::NamedOptions &named : test::splitPlans())
    if (named.name == "two splits" || named.name == "without the tail beside weights, two classes")
      written = written && write(named.name, test::makePlan(named.options));
  for (const test::NamedOptions &named : test::variedPlans())
    if (named.name == "resident" || named.name == "paper, interval 2" || named.name == "two classes and two placements")
      written = written && write(named.name, test::makePlan(named.options));
    else if (named.name == "one layer, cut in a unit")
      written =
          written && write(named.name + ", shuffled", test::withShuffledBuffers(test::makePlan(named.options), 1));
  return written ? 0 : 1;
}
