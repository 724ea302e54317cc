// SPDX-License-Identifier: Apache-2.0
//
// Enumerations that stand once in the IR (TableGen makes them) and once below LLVM: held together here, and turned into
// each other here and nowhere else. runtime/plan/value/Mirrors.h does the same for kernels and models.
#pragma once

#include "compiler/evaluate/Steps.h"
#include "ir/Headrace.h"
#include "passes/algorithms/CycleOf.h"
#include "passes/algorithms/Residency.h"
#include "runtime/base/EnumCount.h"
#include "runtime/plan/value/Mirrors.h"
#include "runtime/plan/value/Plan.h"

namespace headrace::compiler {

static_assert(model::mirrors<ir::Lane, plan::Lane>());
static_assert(model::mirrors<ir::Arg, plan::Arg>());
static_assert(model::mirrors<ir::AccessKind, plan::Access>());
static_assert(model::mirrors<ir::MemorySpace, plan::Space>());
static_assert(model::mirrors<ir::Encoding, Elements>());
static_assert(model::mirrors<ir::Part, plan::Part>());
static_assert(model::mirrors<ir::IoRole, plan::Io>());
static_assert(model::mirrors<ir::StagingRole, Staging>());
static_assert(model::mirrors<ir::IterationClass, plan::IterationClass>());
static_assert(model::mirrors<ir::UnitRole, model::UnitRole>());
static_assert(model::mirrors<algorithms::StartRule, model::StartRule>());
static_assert(model::mirrors<algorithms::Space, ir::MemorySpace>());
static_assert(algorithms::kMostPeriod == plan::kMostPhases);
static_assert(model::extends<plan::EdgeKind, ir::WaitKind>()); // program order is no edge
static_assert(model::extends<model::DType, ir::Encoding>());   // bytes are no element

constexpr plan::Lane toPlan(ir::Lane lane) { return static_cast<plan::Lane>(lane); }
constexpr plan::Arg toPlan(ir::Arg arg) { return static_cast<plan::Arg>(arg); }
constexpr plan::Access toPlan(ir::AccessKind access) { return static_cast<plan::Access>(access); }
constexpr plan::Space toPlan(ir::MemorySpace space) { return static_cast<plan::Space>(space); }
constexpr plan::Io toPlan(ir::IoRole role) { return static_cast<plan::Io>(role); }
constexpr plan::Part toPlan(ir::Part part) { return static_cast<plan::Part>(part); }
constexpr plan::IterationClass toPlan(ir::IterationClass iterationClass) {
  return static_cast<plan::IterationClass>(iterationClass);
}
constexpr plan::EdgeKind toPlan(ir::WaitKind kind) { return static_cast<plan::EdgeKind>(kind); }
constexpr model::StartRule toModel(algorithms::StartRule rule) { return static_cast<model::StartRule>(rule); }
constexpr model::UnitRole toModel(ir::UnitRole role) { return static_cast<model::UnitRole>(role); }
constexpr ir::UnitRole toIr(model::UnitRole role) { return static_cast<ir::UnitRole>(role); }
constexpr ir::Encoding toIr(Elements elements) { return static_cast<ir::Encoding>(elements); }
constexpr ir::Part toIr(plan::Part part) { return static_cast<ir::Part>(part); }
constexpr ir::StagingRole toIr(Staging role) { return static_cast<ir::StagingRole>(role); }
constexpr ir::IoRole toIr(plan::Io role) { return static_cast<ir::IoRole>(role); }
constexpr ir::IterationClass toIr(plan::IterationClass iterationClass) {
  return static_cast<ir::IterationClass>(iterationClass);
}

// What a lane may run is said twice, as the IR's verifier sees no plan: the same for every lane.
constexpr bool lanesMayRunTheSame() {
  for (int i = 0; i < plan::kLanes; ++i) {
    const plan::LaneTraits &traits = plan::traitsOf(static_cast<plan::Lane>(i));
    const auto lane = static_cast<ir::Lane>(i);
    if (traits.computes != ir::computes(lane) || traits.prefetches != ir::prefetches(lane) ||
        traits.evicts != ir::evicts(lane))
      return false;
  }
  return true;
}
static_assert(lanesMayRunTheSame());

} // namespace headrace::compiler
