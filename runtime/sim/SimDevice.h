// SPDX-License-Identifier: Apache-2.0
//
// The device of virtual time: it plays every launch with the Simulator's timeline and holds no data, so a plan for any
// hardware and any size of model runs on any machine, an hour of traffic in seconds.
//
// Its clock starts at zero and stands still between calls. A launch costs the caller no time; it runs behind the launch
// before it. Waiting (awaitTokens, drain, a staging copy still in use) moves the clock to when what is waited for is
// there. Each graph's timeline is made when the graph is built, and again where a launch changes sizes: else it is
// looked up.
//
// With core::Pricing::Rows compute steps take what their iteration runs (RowPrices.h): the plan's price of the bucket
// in the proportions of the roofline. An iteration that only computes is then the sum of its steps; one with copies is
// played wherever a price is not that of the same graph's launch before.
//
// Tokens are made up from the request's seed and the position, so a request gets the same tokens in every batch and
// under every placement.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/core/Device.h"

namespace headrace::sim {

std::unique_ptr<core::Device> makeSimDevice();

// The made-up token of a request with this seed at this position, in [0, vocab).
int32_t madeUpToken(uint64_t seed, uint32_t position, int64_t vocab);

// Durations with the link at `linkBandwidth` bytes/s a direction instead of the profile's: of a copy what is beyond
// copyLatency, of a direct step (taken as bound by the link) what is beyond launchOverhead, is scaled by the ratio of
// the two. A direct step that writes computes as well: one that is priced above what its linkBytes take is bound by
// that, and lasts as long or as its linkBytes do. 0 leaves all as they are.
std::vector<uint64_t> pacedDurations(const plan::Schedule &schedule, absl::Span<const uint64_t> durationsNs,
                                     const model::Hardware &hardware, double linkBandwidth);

} // namespace headrace::sim
