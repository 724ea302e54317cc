// SPDX-License-Identifier: Apache-2.0
//
// Enumerations that stand once with the kernels and once with models and plans, as neither room sees the other: held
// together here, and turned into each other here and nowhere else.
#pragma once

#include "kernels/Kernels.h"
#include "runtime/base/Encoding.h"
#include "runtime/base/EnumCount.h"
#include "runtime/job/Hardware.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/model/WeightLayout.h"
#include "runtime/plan/value/Plan.h"

namespace headrace::plan {

static_assert(model::mirrors<model::DType, kernels::Elem>());
static_assert(model::mirrors<model::MatrixOrder, kernels::Order>());
static_assert(model::mirrors<model::DeviceKind, kernels::Backend>());

constexpr kernels::Elem elemOf(model::DType dtype) { return static_cast<kernels::Elem>(dtype); }
constexpr kernels::Packing packingOf(const model::Encoding &encoding) {
  return encoding.packed() ? kernels::Packing{encoding.codeBits, encoding.group} : kernels::Packing{};
}
constexpr kernels::Order orderOf(model::MatrixOrder order) { return static_cast<kernels::Order>(order); }
constexpr model::MatrixOrder orderOf(kernels::Order order) { return static_cast<model::MatrixOrder>(order); }
// Of the up projection; a gate is an op of its own.
constexpr kernels::Epilogue epilogueOf(model::Activation activation) {
  switch (activation) {
  case model::Activation::Relu:
    return kernels::Epilogue::Relu;
  case model::Activation::Gelu:
    return kernels::Epilogue::Gelu;
  case model::Activation::GeluTanh:
    return kernels::Epilogue::GeluTanh;
  case model::Activation::SiluGate:
    break;
  }
  return kernels::Epilogue::None;
}
constexpr kernels::Backend backendOf(model::DeviceKind kind) { return static_cast<kernels::Backend>(kind); }

} // namespace headrace::plan
