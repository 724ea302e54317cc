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
    target_ = *resolve(request_);
    module_ = mlir::ModuleOp::create(mlir::UnknownLoc::get(&context_));
  }

  // An iteration in the offsets phase.
  ir::IterationOp placed() {
    ir::IterationOp iteration = lowerModel(*module_, "decode",
                                           {&*request_.model, &layout_, &target_, request_.hardware.kind,
                                            plan::IterationClass::Decode, Target::limits(target_.decode)});
    const absl::Status status = runPipeline(*module_, {});
    EXPECT_TRUE(status.ok()) << status;
    return iteration;
  }
  absl::Status emit(ir::IterationOp iteration) {
    plan::Plan plan;
    plan.model = request_.model;
    PlanWriter writer(layout_, target_, plan);
    return addSchedule(iteration, "decode", addPlacement(iteration, {}, writer), writer).status();
  }
  mlir::OpBuilder builderBefore(mlir::Operation *op) {
    mlir::OpBuilder builder(op);
    return builder;
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

TEST_F(EmitPlan, RefusesAStepWithoutALane) {
  ir::IterationOp iteration = placed();
  auto rope = *iteration.block().getOps<ir::RopeAppendOp>().begin();
  rope.stepInfo().lane = std::nullopt;
  EXPECT_EQ(emit(iteration).message(),
            "schedule 'decode': the op 'headrace.rope_append' has no lane: its phase is not offsets");
}

} // namespace
} // namespace headrace::compiler
