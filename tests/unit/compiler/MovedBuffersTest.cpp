// SPDX-License-Identifier: Apache-2.0
#include "compiler/evaluate/MovedBuffers.h"

#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/evaluate/IterationProgram.h"
#include "compiler/lower/LowerModel.h"
#include "compiler/lower/Pipeline.h"
#include "passes/Movables.h"
#include "passes/ProgramOf.h"
#include "runtime/model/ModelSpec.h"
#include "tests/unit/compiler/Requests.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace headrace::compiler {
namespace {

// Of an iteration with its movement.
std::string textOf(const algorithms::Program &program) {
  std::vector<std::string> lines;
  for (const algorithms::Program::Op &op : program.ops) {
    std::string line =
        absl::StrCat("kind ", static_cast<int>(op.kind), " on ", static_cast<int>(op.lane),
                     op.hasEvent ? "" : ", no event", op.keeps ? ", keeps" : "", " of ", op.of, ", ", op.from, " for ",
                     op.bytes, ", scratch ", op.workspaceBytes, ", uses ", absl::StrJoin(program.usesOf(op), " "));
    for (uint32_t made = op.firstMade; made < op.endMade; ++made) {
      const algorithms::Program::Version &of = program.versions[made];
      absl::StrAppend(&line, "; makes ", made, " of ", of.made, " after ", of.after, " holding ", of.held);
      if (of.range < 0)
        continue;
      const algorithms::Program::Range &in = program.ranges[static_cast<size_t>(of.range)];
      absl::StrAppend(&line, " in slot ", in.slot, " at ", in.offset, " for ", in.bytes, in.claimed ? " claimed" : "");
    }
    lines.push_back(line);
  }
  return absl::StrJoin(lines, "\n");
}

// All that is plain of it but names.
std::string textOf(const algorithms::Movables &movables) {
  std::vector<std::string> lines{absl::StrCat(movables.steps, " steps, layers from ", movables.layersBegin)};
  for (const algorithms::Moved &of : movables.moved)
    lines.push_back(absl::StrCat("kind ", static_cast<int>(of.kind), " of ", of.miniBatch, ", ", of.bytes,
                                 " bytes in item ", of.item, " at ", of.slotOffset, ", steps ", of.firstUse, " to ",
                                 of.lastUse, of.writtenBack ? ", written back" : "", of.made ? ", made" : ""));
  for (const algorithms::MovedItem &item : movables.items)
    lines.push_back(absl::StrCat("item of layer ", item.layer, ", kind ", static_cast<int>(item.kind), ", ", item.moved,
                                 " moved, steps ", item.firstStep, " to ", item.lastStep));
  lines.push_back(absl::StrCat("slots ", absl::StrJoin(movables.slots.slotBytes, " "), " of ",
                               absl::StrJoin(movables.slots.slotOf, " "), ", places from ", movables.firstPlace));
  lines.push_back(absl::StrCat("awaitable ", absl::StrJoin(movables.awaitable, " ")));
  return absl::StrJoin(lines, "\n");
}

class MovedBuffersTest : public testing::Test {
protected:
  MovedBuffersTest() : context_(mlir::MLIRContext::Threading::DISABLED) { context_.loadDialect<ir::HeadraceDialect>(); }

  int below(int end) { return static_cast<int>(generator_() % static_cast<unsigned>(end)); }
  bool oneIn(int n) { return below(n) == 0; }

  // What the passes find in the homes phase against what the list of steps says; then how many buffers were moved.
  size_t compare(const CompileRequest &r, const Choice &choice, bool noTails) {
    const model::WeightLayout layout = model::layoutWeights(r.model);
    const absl::StatusOr<Target> target = resolve(r, choice);
    EXPECT_TRUE(target.ok()) << target.status();
    const StepsRequest request{&*r.model,     &layout, &*target, r.hardware.kind, plan::IterationClass::Decode,
                               {2, 2, 64, 32}};
    mlir::OwningOpRef<mlir::ModuleOp> module = mlir::ModuleOp::create(mlir::UnknownLoc::get(&context_));
    const std::optional<int64_t> away = choice.residency.firstKvBlockAway();
    ir::IterationOp iteration = lowerModel(*module, "decode", request);
    if (noTails)
      iteration.setKvBlocks(*away);
    PipelineOptions options;
    options.residency = choice.residency;
    options.kv = {target->kvBlocks, target->kvBlockBytes, away};
    options.directWork = [](ir::StepInterface, ir::IterationOp) { return cost::Work(); };
    std::string found, program;
    std::vector<bool> direct;
    options.onPass = [&](ir::IterationOp of, llvm::StringRef pass) {
      if (pass != "assign-lanes")
        return;
      const mlir::FailureOr<passes::ProgramOf> read = passes::programOf(of);
      ASSERT_TRUE(mlir::succeeded(read));
      program = textOf(*read);
    };
    options.onPhase = [&](ir::IterationOp of, llvm::StringRef phase) {
      if (phase != "homes")
        return;
      const mlir::FailureOr<passes::Movables> movables = passes::findMovables(of, choice.residency);
      ASSERT_TRUE(mlir::succeeded(movables));
      found = textOf(*movables);
      for (mlir::Operation *op : movables->ops)
        direct.push_back(llvm::cast<ir::StepInterface>(op).stepInfo().direct);
    };
    const absl::Status ran = runToOffsets(*module, options);
    EXPECT_TRUE(ran.ok()) << ran;
    const Steps steps = stepsOf(request);
    const Homes homes{&choice, &*target, plan::IterationClass::Decode, !noTails, away};
    const absl::StatusOr<MovedBuffers> movables = movablesOf(steps, homes);
    EXPECT_TRUE(movables.ok()) << movables.status();
    if (!movables.ok())
      return 0;
    EXPECT_EQ(textOf(*movables), found);
    EXPECT_EQ(directSteps(steps, homes), direct);
    const algorithms::MovementPlan plan =
        algorithms::planIteration(*movables, choice.residency, {.back = writeBackOf(homes), .bringsTails = !noTails});
    EXPECT_EQ(plan.error, "");
    EXPECT_FALSE(program.empty());
    EXPECT_EQ(textOf(programOf(steps, homes, *movables, plan)), program);
    return movables->moved.size();
  }

  mlir::MLIRContext context_;
  std::mt19937 generator_{44};
};

TEST_F(MovedBuffersTest, AreWhatThePassesFind) {
  size_t moved = 0, nothing = 0;
  for (int i = 0; i < 300; ++i) {
    const int layers = 1 + below(5);
    const model::ModelSpec spec = oneIn(4)   ? tinyOpt(layers)
                                  : oneIn(3) ? tinyQwen(layers, oneIn(2))
                                  : oneIn(2) ? tinyQwen3(layers)
                                             : tinyLlama(layers);
    CompileRequest r = request(spec);
    Choice choice = askedChoice(r);
    choice.miniBatches = 1 + below(3);
    r.goal.batch = 2 * choice.miniBatches;
    algorithms::Residency &residency = choice.residency;
    const model::WeightLayout layout = model::layoutWeights(spec);
    std::vector<int32_t> units;
    const int32_t end = static_cast<int32_t>(layout.units.size()) - (spec.tiedEmbeddings ? 1 : 0);
    for (int32_t unit = 0; unit < end; ++unit)
      if (oneIn(3))
        units.push_back(unit);
    if (!oneIn(4))
      residency.setWeightsAway(units);
    const bool rings = choice.miniBatches == 1 && oneIn(3);
    if (rings)
      residency.weights().setRing(uint64_t{1} << (17 + below(3)));
    else
      residency.weights().setSlots(below(4));
    if (oneIn(3)) {
      choice.act = model::actShareOf(1, 1 + below(3));
      std::vector<int32_t> acts;
      for (int32_t layer = 0; layer < layers; ++layer)
        if (oneIn(2))
          acts.push_back(layer);
      residency.setActAway(acts);
    }
    if (oneIn(4))
      residency.residuals().setSlots(algorithms::kResidualSlots);
    const bool split = oneIn(2);
    if (split) {
      residency.setKvAway(layers, below(3));
      residency.kv().setSlots(below(4));
      if (oneIn(2))
        residency.kv().decodeBack = oneIn(2) ? algorithms::WriteBack::All : algorithms::WriteBack::Dirty;
    }
    const bool noTails = split && *residency.firstKvBlockAway() > 0 && oneIn(3);
    SCOPED_TRACE(absl::StrCat(spec.name, " of ", layers, " layers: ", toText(choice), noTails ? ", no tails" : ""));
    const size_t count = compare(r, choice, noTails);
    moved += count;
    nothing += count == 0;
    if (HasFailure())
      return;
  }
  EXPECT_GT(moved, 1500u);
  EXPECT_LT(nothing, 60u);
}

} // namespace
} // namespace headrace::compiler
