// SPDX-License-Identifier: Apache-2.0
//
// The cut is planned with a recurrence of its own; here its times are compared with what the simulator makes of the
// finished schedule.
#include "compiler/evaluate/PlanWrapAround.h"

#include <algorithm>

#include "compiler/emit/EmitPlan.h"
#include "compiler/lower/LowerModel.h"
#include "compiler/lower/Pipeline.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/sim/Simulator.h"
#include "tests/unit/compiler/Requests.h"
#include "gtest/gtest.h"

namespace headrace::compiler {
namespace {

// Iterations of the tiny model, compiled with a given cut, against the recurrence.
class WrapAroundTest : public testing::Test {
protected:
  WrapAroundTest() { context_.loadDialect<ir::HeadraceDialect>(); }

  // Compiles with `cut` and returns how many units could be carried.
  size_t compare(algorithms::Residency residency, const algorithms::Cut &cut) {
    mlir::OwningOpRef<mlir::ModuleOp> module = mlir::ModuleOp::create(mlir::UnknownLoc::get(&context_));
    const StepsRequest steps{&*request_.model, &layout_, &target_, request_.hardware.kind, plan::IterationClass::Decode,
                             shapes_[0]};
    ir::IterationOp iteration = lowerModel(*module, "decode", steps);
    uint64_t planned = 0;
    size_t longest = 0;
    PipelineOptions options;
    residency.wrap.around = true;
    options.residency = residency;
    Choice choice;
    choice.residency = residency;
    options.planCut = [&](ir::IterationOp) -> absl::StatusOr<algorithms::Cut> {
      const absl::StatusOr<WrapAround> wrap =
          wrapAroundOf(stepsOf(steps), {&choice, &target_, plan::IterationClass::Decode}, shapes_, prices_);
      if (!wrap.ok())
        return wrap.status();
      longest = algorithms::longestPrefix(wrap->problem.units);
      planned = algorithms::iterationNs(wrap->problem, 0, cut);
      // The best cut is no worse than this one.
      EXPECT_LE(algorithms::iterationNs(wrap->problem, 0, algorithms::planCut(wrap->problem)), planned);
      return cut;
    };
    const absl::Status status = runPipeline(*module, options);
    EXPECT_TRUE(status.ok()) << status;
    plan::Plan plan;
    plan.model = request_.model;
    PlanWriter writer(layout_, target_, plan);
    const uint32_t placement = addPlacement(iteration, {}, writer);
    const EmittedSchedule emitted = addSchedule(iteration, "decode", placement, writer).value();
    const plan::Schedule &schedule = plan.schedules[emitted.schedule];
    const sim::Timeline timeline =
        sim::Simulator(schedule).run(prices_.durations(plan, schedule, emitted.sites, shapes_[0]), prices_.sharing());
    EXPECT_EQ(timeline.iterationNs, planned)
        << algorithms::toText(residency) << ", cut " << cut.units << " units and " << cut.bytes << " bytes";
    EXPECT_EQ(schedule.entryState, schedule.exitState);
    EXPECT_EQ(schedule.entryState != 0, cut != algorithms::Cut{});
    return longest;
  }

  const CompileRequest request_ = request(tinyLlama(6));
  const Target target_ = *resolve(request_);
  const model::WeightLayout layout_ = model::layoutWeights(request_.model);
  const cost::Roofline costs_{request_.model, request_.hardware, target_.activation, target_.kv};
  const std::vector<cost::Bucket> shapes_{{2, 2, 64}};
  Prices prices_{costs_};
  mlir::MLIRContext context_{mlir::MLIRContext::Threading::DISABLED};
};

TEST_F(WrapAroundTest, TheRecurrenceAndTheSimulatorAgreeForEveryCut) {
  for (const std::vector<int64_t> &layers : {std::vector<int64_t>{1, 3, 5}, {0, 1, 2, 3, 4, 5}, {5}})
    for (const int64_t slots : {1, 2})
      for (const algorithms::Cut cut : {algorithms::Cut{0, 0}, {0, 4096}, {2, 0}, {3, 1024}, {4, 0}}) {
        algorithms::Residency residency;
        residency.setWeightsAway(unitsOfLayers(layout_, layers));
        residency.weights().setSlots(slots);
        EXPECT_GE(compare(residency, cut), 4u);
      }
}

// qkv 32.25 KiB, out 16, up 48.25, down 24 a layer.
TEST_F(WrapAroundTest, TheyAgreeForUnitsInRingsOfAnySize) {
  for (const std::vector<int32_t> &units :
       {std::vector<int32_t>{1, 2, 4, 5, 7, 11, 12, 16, 21, 24}, {2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24}, {3}})
    for (const uint64_t ring : {50 << 10, 64 << 10, 90 << 10, 150 << 10})
      for (const algorithms::Cut cut : {algorithms::Cut{0, 0}, {0, 4096}, {1, 0}}) {
        algorithms::Residency residency;
        residency.setWeightsAway(units);
        residency.weights().setRing(ring);
        EXPECT_GE(compare(residency, cut), 1u);
      }
}

} // namespace
} // namespace headrace::compiler
