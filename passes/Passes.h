// SPDX-License-Identifier: Apache-2.0
//
// Passes over headrace.iteration. docs/ir.md shows what each does to a small model; compiler/ runs them in this order:
//
//   model     LowerModel's output           every weight at home on the device
//   homes     ChooseHomes                   some at home on the host; on_device where they are needed
//             PriceDirect              what reads over the link has the amounts of that
//   movement  InsertMovement                carry, prefetch, wait, release, carry_out; slots
//   lanes     AssignLanes, InsertWaits, ElideWaits
//   offsets   PlaceOnHost, PlaceBuffers     addresses
//
// VerifyPhase closes each, VerifyCycles the last. All passes but VerifyCycles and PlaceBuffers run on one iteration at
// a time.
#pragma once

#include <memory>

#include "ir/Headrace.h"
#include "mlir/Pass/Pass.h"
#include "passes/ValueOptions.h"

namespace headrace::passes {

#define GEN_PASS_DECL
#include "passes/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "passes/Passes.h.inc"

} // namespace headrace::passes
