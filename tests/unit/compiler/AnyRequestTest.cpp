// SPDX-License-Identifier: Apache-2.0
//
// Whatever is asked for, the answer is a plan that verifies and fits, or a refusal for a reason; never a broken
// invariant.
#include <algorithm>

#include "compiler/Compile.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/plan/proof/PlanVerifier.h"
#include "tests/support/StatedPlacements.h"
#include "tests/unit/compiler/Requests.h"
#include "gtest/gtest.h"
#include <rapidcheck/gtest.h>

namespace headrace::compiler {
namespace {

template <typename T> std::optional<T> maybe(const rc::Gen<T> &gen) {
  return *rc::gen::arbitrary<bool>() ? std::optional<T>(*gen) : std::nullopt;
}

model::ModelSpec anyModel() {
  const int64_t layers = *rc::gen::inRange<int64_t>(1, 9);
  model::ModelSpec spec =
      *rc::gen::element(tinyLlama(layers), tinyOpt(layers), tinyQwen(layers, true), tinyQwen(layers, false));
  spec.headDim = *rc::gen::element<int64_t>(4, 10, 16);
  spec.hidden = *rc::gen::inRange<int64_t>(8, 100);
  spec.intermediate = *rc::gen::inRange<int64_t>(8, 300);
  spec.vocab = *rc::gen::inRange<int64_t>(5, 3000);
  return spec;
}

CompileRequest anyRequest() {
  CompileRequest r = request(anyModel());
  r.hardware.kind = *rc::gen::element(model::DeviceKind::Host, model::DeviceKind::Cuda);
  if (r.hardware.kind == model::DeviceKind::Cuda)
    r.hardware.memoryBytes = uint64_t{4} << 30; // its library asks for workspace
  r.hardware.h2dBandwidth = r.hardware.d2hBandwidth = *rc::gen::element(1e7, 1e9, 1e11);
  r.hardware.duplexBandwidth = r.hardware.h2dBandwidth * *rc::gen::element(1.0, 1.5, 2.0);
  r.hardware.copyLatency = *rc::gen::element(0.0, 1e-6, 1e-3);
  r.goal.batch = *rc::gen::inRange<int64_t>(1, 20);
  r.goal.context = *rc::gen::inRange<int64_t>(1, 300);
  r.goal.blockTokens = *rc::gen::element<int64_t>(1, 8, 16, 100);
  r.goal.kvTokens = maybe(rc::gen::inRange<int64_t>(300, 5000));
  r.policy.startRule = *rc::gen::element(model::StartRule::Paper, model::StartRule::Eager);
  r.policy.slots = maybe(rc::gen::inRange<int64_t>(1, r.model->layers + 2));
  switch (*rc::gen::inRange(0, 4)) {
  case 0:
    r.policy.interval = *rc::gen::inRange<int64_t>(1, r.model->layers + 1);
    break;
  case 1:
    r.policy.offloadLayers = *rc::gen::inRange<int64_t>(0, r.model->layers + 1);
    break;
  default:
    break; // the fewest that fit
  }
  r.policy.offloadEmbedding = *rc::gen::element(model::AutoOnOff::Auto, model::AutoOnOff::On, model::AutoOnOff::Off);
  r.policy.offloadHead = *rc::gen::element(model::AutoOnOff::Auto, model::AutoOnOff::On, model::AutoOnOff::Off);
  if (r.model->tiedEmbeddings && r.policy.offloadHead != model::AutoOnOff::Auto)
    r.policy.offloadEmbedding = r.policy.offloadHead; // one matrix: opposite choices are refused
  return r;
}

RC_GTEST_PROP(AnyRequest, GivesAPlanThatFitsOrAReason, ()) {
  CompileRequest r = anyRequest();
  const auto least = leastMemory(r);
  RC_ASSERT(least.ok());
  if (*rc::gen::inRange(0, 4) == 0) { // two placements together
    model::Policy other;
    other.offloadLayers = *rc::gen::inRange<int64_t>(0, r.model->layers + 1);
    r.placements = stated(r.model, {r.policy, other});
  }
  // Budgets from below the minimum to plenty.
  r.goal.deviceMemory = *least / 256 * 256 + 256 * *rc::gen::inRange<int64_t>(-20, 4000);
  const auto plan = compile(r);
  if (!plan.ok()) {
    if (plan.status().code() != absl::StatusCode::kResourceExhausted)
      RC_FAIL(r.model->name + ": " + plan.status().ToString());
    RC_ASSERT(*r.goal.deviceMemory < *least || !r.placements.empty());
    return;
  }
  RC_ASSERT(plan->arenaBytes <= *r.goal.deviceMemory);
  RC_ASSERT(plan::verifyPlan(*plan, "plan").ok());
  for (const plan::Variant &variant : plan->variants)
    RC_ASSERT(variant.predictedNs >= std::max(variant.computeAloneNs, variant.linkAloneNs));
}

} // namespace
} // namespace headrace::compiler
