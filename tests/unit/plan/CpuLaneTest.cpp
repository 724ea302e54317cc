// SPDX-License-Identifier: Apache-2.0
//
// The cpu lane: what the verifier accepts of it, and one plan wrong in one way at a time.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/Kernels.h"
#include "runtime/model/WeightLayout.h"
#include "runtime/plan/PlanFile.h"
#include "runtime/plan/proof/PlanVerifier.h"
#include "tests/unit/plan/BrokenPlan.h"
#include "tests/unit/plan/CacheSpots.h"
#include "tests/unit/plan/MakePlan.h"
#include "tests/unit/plan/PlanText.h"

namespace headrace::plan {
namespace {

using kernels::Op;
using test::Broken;
using test::Spot;

// Of three layers, decoding four rows of 64 columns of q, k and v (1,024 bytes) and 32 of attention's (512):
//
//   compute | .. rotate |           | fetch_rows ..
//   d2h     | meta      | qkv |
//   cpu                       | append | attention |
Plan somePlan() { return test::makePlan(test::cpuPlans()[0].options); }

Spot stepOf(Plan &p, Op op) {
  return test::spots(
      p, [&](const Spot &s) { return test::stepAt(p, s).kind == StepKind::Compute && test::stepAt(p, s).op == op; })[0];
}
Step &step(Plan &p, Op op) { return test::stepAt(p, stepOf(p, op)); }
Operand &operand(Plan &p, Op op, Arg arg) { return *test::part(p, stepOf(p, op), arg); }
Spot copyOf(Plan &p, const char *buffer) {
  return test::spots(p, [&](const Spot &s) {
    return test::stepAt(p, s).kind == StepKind::Copy &&
           p.buffer(test::scheduleAt(p, s), test::source(p, s).buffer).name == buffer;
  })[0];
}
Local &local(Plan &p, const char *name) {
  auto &locals = p.schedules[0].locals;
  return *std::find_if(locals.begin(), locals.end(), [&](const Local &l) { return l.buffer.name == name; });
}

TEST(CpuLane, IsAccepted) {
  for (const test::NamedOptions &named : test::cpuPlans())
    test::expectAccepted(test::makePlan(named.options), named.name);
}

TEST(CpuLane, IsReadAsItWasWritten) {
  const Plan plan = somePlan();
  const std::string bytes = serialize(plan);
  const absl::StatusOr<Plan> read = parse(test::bytesOf(bytes), "a.plan");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(serialize(*read), bytes);
  EXPECT_EQ(read->metaOnHost, plan.metaOnHost);
  Plan p = *read;
  EXPECT_TRUE(local(p, "qkv").staged());
  EXPECT_EQ(local(p, "cpu workspace").address, kNowhere);
  EXPECT_EQ(local(p, "x").hostAddress, kNowhere);
}

TEST(CpuLane, WhatItsPlansAreIsRefused) {
  for (const Broken &broken :
       {Broken{"a transient that is nowhere", Rule::Structure, "is nowhere, expected an address",
               [](Plan &p) { local(p, "x").address = kNowhere; }},
        {"a workspace in both memories", Rule::Structure, "is a workspace on the device and on the host",
         [](Plan &p) { local(p, "cpu workspace").address = 0; }},
        {"an address that is not aligned", Rule::Structure, ".host_address is 100, expected a multiple of 256",
         [](Plan &p) { local(p, "qkv").hostAddress = 100; }},
        {"meta that is not aligned", Rule::Structure, "meta_on_host is 100, expected a multiple of 256",
         [](Plan &p) { p.metaOnHost = 100; }},
        {"rows of a transient of one memory", Rule::Structure, "where the transient buffer has no range",
         [](Plan &p) { local(p, "attn").hostAddress = kNowhere; }},
        {"rows that are copied up", Rule::Structure, "copies qkv, expected from the device to the host",
         [](Plan &p) {
           const Spot copy = copyOf(p, "qkv");
           std::swap(test::source(p, copy).space, test::destination(p, copy).space);
           std::swap(test::source(p, copy).address, test::destination(p, copy).address);
         }},
        {"a part of the rows", Rule::Structure, "copies bytes [0, 768) of qkv, expected [0, 1024)",
         [](Plan &p) {
           const Spot copy = copyOf(p, "qkv");
           test::source(p, copy).bytes = test::destination(p, copy).bytes = 768;
         }},
        {"meta of a size in use", Rule::Structure, ".resizable is set, but it copies meta",
         [](Plan &p) { test::stepAt(p, copyOf(p, "meta")).resizable = true; }},
        {"meta without a range", Rule::Structure, "copies meta, which has no range on the host",
         [](Plan &p) { p.metaOnHost = kNowhere; }}})
    test::expectRefused(somePlan(), broken);
}

// Of two mini-batches, whose headers lie apart by so many bytes: one copy brings the iteration buffer of both, and a
// step reads it from its own mini-batch's header to the end, where the block tables are.
TEST(CpuLane, OfMiniBatchesTheIterationBufferIsCopiedOnceAndReadToItsEnd) {
  const Plan plan = test::makePlan(test::cpuPlans()[6].options);
  ASSERT_EQ(plan.miniBatches, 2u);
  const uint64_t apart = kernels::metaFixedBytes(plan.metaLayout), bytes = kernels::metaBytes(plan.metaLayout, 2);
  const auto ofSecond = [](Plan &p, Op op) -> Operand & {
    const std::vector<Spot> steps = test::spots(p, [&](const Spot &s) {
      const Step &step = test::stepAt(p, s);
      return step.kind == StepKind::Compute && step.op == op && step.miniBatch == 1;
    });
    return *test::part(p, steps[0], Arg::Meta);
  };
  const std::string part = absl::StrCat("copies bytes [0, ", apart, ") of meta, expected [0, ", bytes, ")");
  for (const Broken &broken :
       {Broken{"the first one's alone", Rule::Structure, part.c_str(),
               [&](Plan &p) {
                 const Spot copy = copyOf(p, "meta");
                 test::source(p, copy).bytes = test::destination(p, copy).bytes = apart;
               }},
        {"the copy of the second", Rule::Structure, ".mini_batch is 1, expected 0, of what all have",
         [](Plan &p) { test::stepAt(p, copyOf(p, "meta")).miniBatch = 1; }},
        {"arrays without tables", Rule::Structure, "of mini-batch 1",
         [&](Plan &p) { ofSecond(p, Op::Append).bytes = apart; }},
        {"from the first one's header", Rule::Structure, "of mini-batch 1", [&](Plan &p) {
           Operand &meta = ofSecond(p, Op::Norm);
           meta.address -= apart, meta.bufferOffset = 0, meta.bytes = bytes;
         }}})
    test::expectRefused(plan, broken);
}

TEST(CpuLane, WhatItMayRunIsRefused) {
  for (const Broken &broken :
       {Broken{"a norm", Rule::Structure, "a compute step in lane cpu",
               [](Plan &p) { step(p, Op::Norm).lane = Lane::Cpu; }},
        {"an append by a kernel", Rule::Structure, "a compute step in lane compute",
         [](Plan &p) { step(p, Op::Append).lane = Lane::Compute; }},
        {"a direct step", Rule::Structure, "a compute step in lane cpu",
         [](Plan &p) { step(p, Op::Append).direct = true; }},
        {"device memory", Rule::WrongSpace, "is in device memory and the step is of lane cpu",
         [](Plan &p) {
           Operand &x = operand(p, Op::Append, Arg::X);
           x.space = Space::Device, x.address = local(p, "qkv").address;
         }},
        {"a fetch that is not direct", Rule::WrongSpace, "is in host memory and the step is not direct",
         [](Plan &p) { step(p, Op::FetchRows).direct = false; }},
        {"meta elsewhere", Rule::HostRange, "is not at",
         [](Plan &p) { operand(p, Op::Append, Arg::Meta).address += 256; }},
        {"a part of a cache", Rule::Structure, "operand kv home is kv.0",
         [](Plan &p) { operand(p, Op::Attention, Arg::KvHome).bytes -= p.kvBlockBytes(); }},
        {"rows of another buffer", Rule::Structure,
         "expected what is on the host of a buffer to where it is on the device", [](Plan &p) {
           Operand &x = operand(p, Op::FetchRows, Arg::X);
           x.buffer = operand(p, Op::Append, Arg::X).buffer, x.address = local(p, "qkv").hostAddress;
         }}})
    test::expectRefused(somePlan(), broken);
}

TEST(CpuLane, OrderThatRowsNeedIsRefused) {
  for (const Broken &broken :
       {Broken{"rows that are not rotated", Rule::Structure, "append: no step before it rotates the iteration's rows",
               [](Plan &p) { test::eraseStep(p, stepOf(p, Op::Rotate)); }},
        {"attention to rows that are not appended", Rule::Structure,
         "no step before it appends the iteration's rows to the cache",
         [](Plan &p) { test::eraseStep(p, stepOf(p, Op::Append)); }},
        {"rows that nobody copied", Rule::UseAfterRelease, "reads qkv [0, 1024) at",
         [](Plan &p) { test::eraseStep(p, copyOf(p, "qkv")); }},
        {"meta that nobody copied", Rule::UseAfterRelease, "reads meta",
         [](Plan &p) { test::eraseStep(p, copyOf(p, "meta")); }},
        {"output that nobody fetched", Rule::UseAfterRelease, "reads attn [0, 512) at",
         [](Plan &p) { test::eraseStep(p, stepOf(p, Op::FetchRows)); }},
        {"rows before their copy has ended", Rule::ReadBeforeReady, "of lane d2h has written it",
         [](Plan &p) {
           const Spot append = stepOf(p, Op::Append);
           std::erase_if(p.schedules[0].edges, [&](const Edge &e) { return e.to == append.step; });
         }},
        {"an output before attention has ended", Rule::ReadBeforeReady, "of lane cpu has written it", [](Plan &p) {
           const Spot fetch = stepOf(p, Op::FetchRows);
           std::erase_if(p.schedules[0].edges, [&](const Edge &e) { return e.to == fetch.step; });
         }}})
    test::expectRefused(somePlan(), broken);
}

TEST(CpuLane, TransientsOfTheSlabKeepApart) {
  const auto move = [](Plan &p, const char *name, uint64_t to) {
    Schedule &s = p.schedules[0];
    for (uint32_t i = 0; i < s.locals.size(); ++i) {
      if (s.locals[i].buffer.name != name)
        continue;
      s.locals[i].hostAddress = to;
      for (Operand &o : s.operands)
        if (o.buffer == p.buffers.size() + i && o.space == Space::Host)
          o.address = to;
    }
  };
  Plan over = somePlan();
  move(over, "attn", local(over, "qkv").hostAddress + 256);
  EXPECT_EQ(findViolations(over)[0].rule, Rule::Overlap);
  EXPECT_NE(findViolations(over)[0].message.find("shares bytes with qkv"), std::string::npos);
  Plan home = somePlan();
  move(home, "qkv", operand(home, Op::Append, Arg::KvHome).address / model::kAlign * model::kAlign);
  EXPECT_EQ(findViolations(home)[0].rule, Rule::HostRange);
  EXPECT_NE(findViolations(home)[0].message.find("in the host slab shares bytes with kv.0"), std::string::npos)
      << findViolations(home)[0].message;
  Plan beyond = somePlan();
  move(beyond, "qkv", beyond.hostBytes - beyond.hostBytes % model::kAlign);
  EXPECT_EQ(findViolations(beyond)[0].rule, Rule::HostRange);
}

// Where some blocks are at home on the device, the lane has only a part of what attention needs.
TEST(CpuLane, CachesThatAreNotWhollyOnTheHostAreRefused) {
  test::PlanOptions options = test::cpuPlans()[0].options;
  test::PlacementOptions more = options.placements[0];
  more.name = "more";
  more.allBlocksAway = false;
  more.blocksOnDevice = 2;
  options.placements = {more};
  const std::vector<Violation> found = findViolations(test::makePlan(options));
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found[0].rule, Rule::Structure);
  EXPECT_NE(found[0].message.find("expected where the whole cache is at home on the host"), std::string::npos)
      << found[0].message;
}

} // namespace
} // namespace headrace::plan
