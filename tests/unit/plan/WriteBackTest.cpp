// SPDX-License-Identifier: Apache-2.0
//
// Plans whose tails are written back by copies, that go round in cycles, or that have no block of a cache at home on
// the device: what the verifier accepts, and one plan wrong in one way at a time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>

#include "kernels/Kernels.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/plan/PlacementTable.h"
#include "runtime/plan/PlanFile.h"
#include "runtime/plan/PlanVerifier.h"
#include "tests/unit/plan/BrokenPlan.h"
#include "tests/unit/plan/MakePlan.h"
#include "tests/unit/plan/WriteBackPlan.h"

namespace headrace::plan {
namespace {

using kernels::Op;
using test::Broken;
using test::expectAccepted;
using test::expectRefused;
using test::inTurns;
using test::Tails;
using test::WriteBack;

constexpr WriteBack kHow[] = {WriteBack::Mirror, WriteBack::All, WriteBack::Dirty};

const char *name(WriteBack how) {
  return how == WriteBack::Mirror ? "mirror" : how == WriteBack::All ? "all" : "dirty";
}

// Three blocks of 2048 bytes a layer.
Plan makePlan(int64_t layers, const std::vector<Tails> &tails, const std::vector<test::LimitOptions> &limits = {{}}) {
  std::vector<test::PlacementOptions> placements(tails.size());
  for (size_t p = 0; p < tails.size(); ++p) {
    placements[p].name = std::to_string(tails[p].resident) + " of " + std::to_string(tails[p].blocks);
    placements[p].limits = limits;
  }
  Plan plan = test::makePlan({test::tinyLlama(layers), placements});
  test::moveTails(plan, tails);
  return plan;
}
Tails turns(int64_t resident, WriteBack how, uint32_t slots = 2, int32_t layers = 4) {
  return {resident, 3, slots, how == WriteBack::Mirror, {inTurns(layers, slots, how)}};
}
Tails cycle(int64_t resident, WriteBack how) {
  return {resident, 3, 2, how == WriteBack::Mirror, test::rotating(how)};
}

TEST(WriteBack, IsAccepted) {
  for (const WriteBack how : kHow)
    for (const int64_t resident : {0, 1, 2}) {
      const std::string what = std::string(name(how)) + ", " + std::to_string(resident) + " resident";
      for (const uint32_t slots : {1u, 2u, 3u, 4u})
        expectAccepted(makePlan(4, {turns(resident, how, slots)}), what + ", slots " + std::to_string(slots));
      expectAccepted(makePlan(3, {cycle(resident, how)}), what + ", a cycle");
    }
}

} // namespace
} // namespace headrace::plan
