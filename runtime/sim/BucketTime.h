// SPDX-License-Identifier: Apache-2.0
//
// What an iteration takes at the most, which its bucket bounds: no sequence has more than the bucket's context, so no
// more of KV is brought from the host than that.
//
//   a cache of 100 blocks of 16 tokens, 40 of them on the device; decode of 2 at a context of 320: 2 x 20 + 1 = 41
//   blocks may be in use, so that one of the 60 on the host is brought. Variant::predictedNs is with all 60.
#pragma once

#include <cstdint>

#include "runtime/core/InUse.h"
#include "runtime/plan/value/Plan.h"

namespace headrace::sim {

// Of each mini-batch.
core::InUse mostInUse(const plan::Plan &plan, const plan::Variant &variant);
// An iteration with so much in use: until its last step ends, and until its tokens are visible.
struct InUseTimes {
  uint64_t iterationNs = 0, headNs = 0;
};
InUseTimes timesInUse(const plan::Plan &plan, uint32_t variant, const core::InUse &inUse);
// At most what is predicted with all of it in use. The plan is one that PlanVerifier accepts.
uint64_t bucketNs(const plan::Plan &plan, uint32_t variant);

} // namespace headrace::sim
