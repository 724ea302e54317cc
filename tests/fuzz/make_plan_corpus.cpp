// SPDX-License-Identifier: Apache-2.0
//
// Writes the seeds of fuzz_plan, without a file's end, which fuzz_plan puts behind them: make_plan_corpus
// tests/fuzz/corpus/fuzz_plan
#include <cstdio>
#include <filesystem>

#include "runtime/base/ReplaceFile.h"
#include "runtime/plan/value/PlanBytes.h"
#include "tests/support/ShuffleBuffers.h"
#include "tests/unit/plan/MakePlan.h"

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
      c = c == ' ' || c == ',' || c == ':' || c == '=' ? '-' : c;
    const absl::Status status = headrace::model::replaceFile(std::string(argv[1]) + "/" + file, encode(plan));
    if (!status.ok())
      std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
    return status.ok();
  };
  // A few that have what the others have: seeds are small.
  bool written = write("caches that grow", test::makePlan(test::growingCaches()));
  for (const test::NamedOptions &named : test::splitPlans())
    if (named.name == "two splits" || named.name == "without the tail beside weights, two classes")
      written = written && write(named.name, test::makePlan(named.options));
  for (const test::NamedOptions &named : test::writeBackPlans())
    if (named.name == "every second layer evicts, beside weights" || named.name == "evict all that there is, late" ||
        named.name == "no block on the device, evict dirty" ||
        named.name == "a cycle, without the tail, and another split")
      written = written && write(named.name, test::makePlan(named.options));
  for (const test::NamedOptions &named : test::variedPlans())
    if (named.name == "resident" || named.name == "paper, interval 2" || named.name == "two classes and two placements")
      written = written && write(named.name, test::makePlan(named.options));
    else if (named.name == "one layer, cut in a unit")
      written =
          written && write(named.name + ", shuffled", test::withShuffledBuffers(test::makePlan(named.options), 1));
  for (const test::NamedOptions &named : test::cpuPlans())
    if (named.name == "beside prefill, evict dirty")
      written = written && write("on the cpu, " + named.name, test::makePlan(named.options));
  // One for all roles, one by role.
  int packed = 0;
  for (const test::NamedOptions &named : test::packedPlans())
    if (named.name.ends_with("packed q4:32") ? packed == 0
                                             : packed == 1 && named.name.ends_with("head=q8:32, caches too")) {
      written = written && write(named.name, test::makePlan(named.options));
      ++packed;
    }
  return written && packed == 2 ? 0 : 1;
}
