// SPDX-License-Identifier: Apache-2.0
//
// A plan of a device in virtual time whose times can be told by heart.
#pragma once

#include "runtime/core/Device.h"
#include "tests/unit/sim/Schedules.h"

namespace headrace::sim {

// A link of 1 byte/ns without latency, and one variant: 10 ns of compute, the tokens, a tail copy of 40 bytes.
//
//   compute  [ 10 ][publish 0]
//   h2d            [    40    ]
//
// and a transition that copies 25 bytes.
inline plan::Plan smallPlan() {
  plan::Plan plan;
  plan.hardware.name = "round";
  plan.hardware.memoryBytes = 1000;
  plan.hardware.hostMemoryBytes = 2000;
  plan.hardware.h2dBandwidth = plan.hardware.d2hBandwidth = 1e9;
  plan.hardware.duplexBandwidth = 2e9;
  plan.model->vocab = 100;
  plan.metaLayout = {8, 4, 2};
  plan.arenaBytes = 600;
  plan.hostBytes = 700;

  HandMade iteration;
  const uint32_t work = iteration.compute(10);
  iteration.publish(0);
  iteration.h2d(40, {work});
  iteration.schedule.steps[2].linkBytes = 40;
  plan.schedules.push_back(iteration.schedule);
  plan::Variant variant;
  variant.newTokens = 8;
  variant.sequences = 4;
  variant.durationsNs = iteration.durations;
  plan.variants.push_back(variant);

  HandMade move;
  move.h2d(25);
  move.schedule.steps[0].linkBytes = 25;
  move.schedule.iterationClass = plan::IterationClass::Transition;
  plan.schedules.push_back(move.schedule);
  plan::Transition transition;
  transition.schedule = 1;
  transition.durationsNs = move.durations;
  plan.transitions.push_back(transition);
  return plan;
}

// Two rows of two sequences, of requests with seeds 5 and 6, whose next tokens are at these positions.
inline void fillSmall(core::Device &device, int32_t position0, int32_t position1) {
  kernels::IterationMeta *meta = device.meta();
  meta->numTokens = meta->numSequences = meta->numSampled = 2;
  meta->array<uint64_t>(meta->seed)[0] = 5;
  meta->array<uint64_t>(meta->seed)[1] = 6;
  meta->array<int32_t>(meta->samplePosition)[0] = position0;
  meta->array<int32_t>(meta->samplePosition)[1] = position1;
}

} // namespace headrace::sim
