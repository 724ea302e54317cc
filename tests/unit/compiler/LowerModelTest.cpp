// SPDX-License-Identifier: Apache-2.0
#include "compiler/lower/LowerModel.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "kernels/Kernels.h"
#include "mlir/IR/Verifier.h"
#include "runtime/model/ModelSpec.h"
#include "tests/unit/compiler/Requests.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace headrace::compiler {
namespace {

using ::testing::ElementsAre;

class LowerModel : public ::testing::Test {
protected:
  LowerModel() : context_(mlir::MLIRContext::Threading::DISABLED) { context_.loadDialect<ir::HeadraceDialect>(); }

  ir::IterationOp lower(const CompileRequest &r) {
    request_ = r;
    layout_ = model::layoutWeights(r.model);
    target_ = *resolve(request_);
    module_ = mlir::ModuleOp::create(mlir::UnknownLoc::get(&context_));
    return lowerModel(
        *module_, "decode",
        {&*request_.model, &layout_, &target_, r.hardware.kind, plan::IterationClass::Decode, {2, 2, 64}});
  }
  // The steps' names behind "headrace.", those of one layer or of none.
  static std::vector<std::string> steps(ir::IterationOp iteration, int32_t layer) {
    std::vector<std::string> names;
    for (mlir::Operation &op : iteration.block())
      if (auto step = llvm::dyn_cast<ir::StepInterface>(op); step && step.stepInfo().layer == layer)
        names.push_back(op.getName().stripDialect().str());
    return names;
  }

  mlir::MLIRContext context_;
  CompileRequest request_;
  model::WeightLayout layout_;
  Target target_;
  mlir::OwningOpRef<mlir::ModuleOp> module_;
};

TEST(MovableKinds, AreNamedAlikeInTheIrAndInPlainValues) {
  ASSERT_EQ(ir::getMaxEnumValForMovableKind() + 1, algorithms::kMovables.size());
  for (const algorithms::MovableTraits &of : algorithms::kMovables)
    EXPECT_EQ(ir::stringifyMovableKind(static_cast<ir::MovableKind>(of.kind)).str(), of.name);
}

TEST_F(LowerModel, EveryKernelIsAnOpOfTheDialectByItsName) {
  for (const kernels::Op op : kernels::kOps) {
    const std::string name = absl::StrCat("headrace.", kernels::opName(op));
    EXPECT_TRUE(mlir::RegisteredOperationName::lookup(name, &context_).has_value()) << name;
  }
}

// One that no family has is left over, or was forgotten in LowerModel.
TEST_F(LowerModel, EveryKernelStandsInSomeModel) {
  std::set<std::string> stand;
  for (const model::ModelSpec &spec : {tinyLlama(1), tinyOpt(1), tinyQwen3(1)}) {
    ir::IterationOp iteration = lower(request(spec));
    for (const int32_t layer : {-1, 0})
      for (const std::string &name : steps(iteration, layer))
        stand.insert(name);
  }
  CompileRequest keeping = request(tinyLlama(1));
  keeping.policy.actRatio = model::ActRatio{1, 2};
  ir::IterationOp iteration = lower(keeping);
  for (const std::string &name : steps(iteration, 0))
    stand.insert(name);
  CompileRequest onCpu = request(tinyLlama(1));
  onCpu.goal.kvDeviceMemory = 0;
  onCpu.policy.attention = model::Attention::Cpu;
  iteration = lower(onCpu);
  EXPECT_TRUE(mlir::succeeded(mlir::verify(*module_)));
  for (const std::string &name : steps(iteration, 0))
    stand.insert(name);
  iteration = lower(request(model::stageOf(tinyLlama(2), 1, 1)));
  for (const std::string &name : steps(iteration, -1))
    stand.insert(name);
  for (const kernels::Op op : kernels::kOps)
    EXPECT_TRUE(stand.contains(kernels::opName(op))) << kernels::opName(op);
}

TEST_F(LowerModel, AGatedLayerHasAnActivationOfItsOwn) {
  ir::IterationOp iteration = lower(request(tinyLlama(2)));
  EXPECT_TRUE(mlir::succeeded(mlir::verify(*module_)));
  EXPECT_THAT(steps(iteration, 1), ElementsAre("norm", "linear", "rope_append", "attention", "linear", "norm", "linear",
                                               "activate", "linear"));
  EXPECT_THAT(steps(iteration, -1), ElementsAre("embed", "gather_rows", "norm", "linear", "sample", "publish"));
}

TEST_F(LowerModel, ActivationBlocksAreRebuiltFirstAndKeptBehindTheNorm) {
  CompileRequest keeping = request(tinyLlama(2));
  keeping.policy.actRatio = model::ActRatio{1, 3};
  ir::IterationOp iteration = lower(keeping);
  EXPECT_TRUE(mlir::succeeded(mlir::verify(*module_)));
  EXPECT_THAT(steps(iteration, 1), ElementsAre("rebuild_kv", "norm", "act_append", "linear", "rope_append", "attention",
                                               "linear", "norm", "linear", "activate", "linear"));
}

TEST_F(LowerModel, ReluIsTheEpilogueOfTheUpProjection) {
  ir::IterationOp iteration = lower(request(tinyOpt(2)));
  EXPECT_TRUE(mlir::succeeded(mlir::verify(*module_)));
  EXPECT_THAT(steps(iteration, 0),
              ElementsAre("norm", "linear", "rope_append", "attention", "linear", "norm", "linear", "linear"));
  for (ir::LinearOp linear : iteration.block().getOps<ir::LinearOp>())
    EXPECT_EQ(linear.getEpilogue(), linear.getRole() == ir::UnitRole::Up ? ir::Epilogue::Relu : ir::Epilogue::None);
}

TEST_F(LowerModel, ATiedHeadReadsTheTable) {
  ir::IterationOp iteration = lower(request(tinyOpt(1)));
  for (ir::LinearOp linear : iteration.block().getOps<ir::LinearOp>())
    if (linear.getRole() == ir::UnitRole::Head) {
      EXPECT_EQ(linear.getUnit().getDefiningOp<ir::WeightOp>().getRole(), ir::UnitRole::Embedding);
      EXPECT_EQ(linear.getWeight().bytes, uint64_t{256} * 64 * 4);
    }
}

TEST_F(LowerModel, StepsSayHowMuchTheyDo) {
  ir::IterationOp iteration = lower(request(tinyLlama(1)));
  for (ir::LinearOp linear : iteration.block().getOps<ir::LinearOp>())
    if (linear.getRole() == ir::UnitRole::Qkv) {
      // 2 rows x 64 in x (4 + 2 x 2) x 16 out features x 2
      EXPECT_EQ(linear.getStep().flops, uint64_t{2} * 2 * 64 * 128);
      EXPECT_EQ(linear.getStep().linkBytes, 0u);
      EXPECT_EQ(ir::bufferType(linear.getY()).getBytes(), uint64_t{2} * 128 * 4);
    }
}

TEST_F(LowerModel, EverythingIsAtHomeOnTheDevice) {
  ir::IterationOp iteration = lower(request(tinyQwen(3, false)));
  int weights = 0;
  for (ir::WeightOp weight : iteration.block().getOps<ir::WeightOp>()) {
    ++weights;
    EXPECT_TRUE(ir::bufferType(weight.getBuffer()).isOnDevice());
    EXPECT_EQ(ir::bufferType(weight.getBuffer()).getEncoding(), ir::Encoding::BF16);
    EXPECT_EQ(weight.sizeInBytes(), layout_.units[static_cast<size_t>(weight.getUnit())].bytes);
  }
  EXPECT_EQ(weights, 3 * 4 + 2);
}

} // namespace
} // namespace headrace::compiler
