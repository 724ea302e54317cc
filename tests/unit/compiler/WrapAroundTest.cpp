// SPDX-License-Identifier: Apache-2.0
//
// The cut is planned with a recurrence of its own; here its times are compared with what the simulator makes of the
// finished schedule.
#include "compiler/PlanWrapAround.h"

#include <algorithm>

#include "compiler/EmitPlan.h"
#include "compiler/LowerModel.h"
#include "compiler/Pipeline.h"
#include "runtime/sim/Simulator.h"
#include "tests/unit/compiler/Requests.h"
#include "gtest/gtest.h"

namespace headrace::compiler {
namespace {

TEST(WrapAround, TheRecurrenceAndTheSimulatorAgreeForEveryCut) {
  const CompileRequest r = request(tinyLlama(6));
  const absl::StatusOr<Target> target = resolveGoal(r);
  ASSERT_TRUE(target.ok()) << target.status();
  const model::WeightLayout layout = model::layoutWeights(r.model);
  const cost::Roofline costs(r.model, r.hardware, target->activation, target->kv);
  Prices prices(costs);
  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  context.loadDialect<ir::HeadraceDialect>();
  const std::vector<cost::Shape> shapes{{2, 2, 64}};

  for (const std::vector<int64_t> &layers : {std::vector<int64_t>{1, 3, 5}, {0, 1, 2, 3, 4, 5}, {5}})
    for (const int64_t slots : {1, 2})
      for (const algorithms::Cut cut : {algorithms::Cut{0, 0}, {0, 4096}, {2, 0}, {3, 1024}, {4, 0}}) {
        mlir::OwningOpRef<mlir::ModuleOp> module = mlir::ModuleOp::create(mlir::UnknownLoc::get(&context));
        ir::IterationOp iteration = lowerModel(
            *module, "decode",
            {&r.model, &layout, &*target, r.hardware.kind, model::StartRule::Eager, ir::Shape::Decode, shapes[0]});
        uint64_t planned = 0;
        PipelineOptions options;
        options.layers = layers;
        options.slots = slots;
        options.planCut = [&](ir::IterationOp homes) -> absl::StatusOr<algorithms::Cut> {
          const absl::StatusOr<WrapAround> wrap = wrapAroundOf(homes, shapes, slots, prices);
          if (!wrap.ok())
            return wrap.status();
          EXPECT_GE(algorithms::longestPrefix(wrap->problem.units), 4u);
          planned = algorithms::iterationNs(wrap->problem, 0, cut);
          // The best cut is no worse than this one.
          EXPECT_LE(algorithms::iterationNs(wrap->problem, 0, algorithms::planCut(wrap->problem)), planned);
          return cut;
        };
        const absl::Status status = runPipeline(*module, options);
        ASSERT_TRUE(status.ok()) << status;
        plan::Plan plan;
        plan.model = r.model;
        PlanEmitter emitter(layout, *target, plan);
        const uint32_t placement = emitter.addPlacement(iteration, {});
        const EmittedSchedule emitted = emitter.addSchedule(iteration, "decode", placement);
        const plan::Schedule &schedule = plan.schedules[emitted.schedule];
        const sim::Timeline timeline =
            sim::Simulator(schedule).run(prices.durations(schedule, emitted.sites, shapes[0]), prices.duplexShare());
        EXPECT_EQ(timeline.iterationNs, planned) << layers.size() << " layers, " << slots << " slots, cut " << cut.units
                                                 << " units and " << cut.bytes << " bytes";
        EXPECT_EQ(schedule.entryState, schedule.exitState);
        EXPECT_EQ(schedule.entryState != 0, cut != algorithms::Cut{});
      }
}

} // namespace
} // namespace headrace::compiler
