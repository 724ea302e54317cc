// SPDX-License-Identifier: Apache-2.0
#include "compiler/emit/EmitPlan.h"

#include "compiler/lower/LowerModel.h"
#include "compiler/lower/Pipeline.h"
#include "runtime/model/ModelSpec.h"
#include "tests/unit/compiler/Requests.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace headrace::compiler {
namespace {

using ::testing::HasSubstr;

class EmitPlan : public ::testing::Test {
protected:
  EmitPlan() : context_(mlir::MLIRContext::Threading::DISABLED), request_(request(tinyLlama(2))) {
    context_.loadDialect<ir::HeadraceDialect>();
    layout_ = model::layoutWeights(request_.model);
    target_ = *resolveGoal(request_);
    module_ = mlir::ModuleOp::create(mlir::UnknownLoc::get(&context_));
  }

  // An iteration in the offsets phase.
  ir::IterationOp placed() {
    ir::IterationOp iteration = lowerModel(*module_, "decode",
                                           {&*request_.model, &layout_, &target_, request_.hardware.kind,
                                            ir::IterationClass::Decode, Target::limits(target_.decode)});
    const absl::Status status = runPipeline(*module_, {});
    EXPECT_TRUE(status.ok()) << status;
    return iteration;
  }
  absl::Status emit(ir::IterationOp iteration) {
    plan::Plan plan;
    plan.model = request_.model;
    PlanEmitter emitter(layout_, target_, plan);
    return emitter.addSchedule(iteration, "decode", emitter.addPlacement(iteration, {})).status();
  }
  mlir::OpBuilder builderBefore(mlir::Operation *op) {
    mlir::OpBuilder builder(op);
    return builder;
  }
  ir::BufferType type(uint64_t bytes, ir::Encoding encoding) {
    return ir::BufferType::get(&context_, ir::MemorySpace::Device, bytes, encoding);
  }
  static ir::StepInfo onComputeLane() {
    ir::StepInfo info;
    info.lane = ir::Lane::Compute;
    return info;
  }

  mlir::MLIRContext context_;
  CompileRequest request_;
  model::WeightLayout layout_;
  Target target_;
  mlir::OwningOpRef<mlir::ModuleOp> module_;
};

TEST_F(EmitPlan, EveryStepOfALoweredModelHasAForm) {
  ir::IterationOp iteration = placed();
  for (ir::StepInterface step : iteration.block().getOps<ir::StepInterface>()) {
    const absl::StatusOr<StepForm> form = stepForm(step);
    ASSERT_TRUE(form.ok()) << form.status();
    EXPECT_EQ(form->kind == plan::StepKind::Compute, form->site.has_value());
    EXPECT_EQ(step.resultAddress() != nullptr, form->result != nullptr) << step->getName().getStringRef().str();
  }
  EXPECT_TRUE(emit(iteration).ok());
}

TEST_F(EmitPlan, RefusesOpsThatNoPlanCanSayByTheirNames) {
  ir::IterationOp iteration = placed();
  auto rope = *iteration.block().getOps<ir::RopeAppendOp>().begin();
  mlir::OpBuilder builder = builderBefore(rope);
  const mlir::Location loc = rope.getLoc();
  const auto refused = [&](mlir::Operation *op) {
    const absl::Status status = emit(iteration);
    op->erase();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
    return std::string(status.message());
  };
  const mlir::Value x = rope.getQkv();
  const mlir::Value packed =
      ir::QuantiseOp::create(builder, loc, type(1 << 20, ir::Encoding::Bytes), 8, 64, x, onComputeLane(), {256});
  EXPECT_THAT(refused(packed.getDefiningOp()),
              HasSubstr("schedule 'decode': no plan can say the op 'headrace.quantise'"));
  const mlir::Value plain = ir::DequantiseOp::create(builder, loc, type(256, ir::Encoding::F32), 8, 64, rope.getMeta(),
                                                     onComputeLane(), {256});
  EXPECT_THAT(refused(plain.getDefiningOp()), HasSubstr("'headrace.dequantise'"));
  EXPECT_TRUE(emit(iteration).ok());
}

TEST_F(EmitPlan, RefusesAStepWithoutALane) {
  ir::IterationOp iteration = placed();
  auto rope = *iteration.block().getOps<ir::RopeAppendOp>().begin();
  rope.stepInfo().lane = std::nullopt;
  EXPECT_EQ(emit(iteration).message(),
            "schedule 'decode': the op 'headrace.rope_append' has no lane: its phase is not offsets");
}

} // namespace
} // namespace headrace::compiler
