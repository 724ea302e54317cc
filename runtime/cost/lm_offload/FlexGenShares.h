// SPDX-License-Identifier: Apache-2.0
//
// FlexGen's linear programme: the shares of weights and KV cache on the device with which a block of sequences takes
// least time (FlexGen, section 4.3; its public cost model).
//
//   least   layers T_pre + layers (n - 1) T_gen
//   with    T_pre >= h2d, d2h, device              the closed form's tasks, which are linear in wg and cg,
//           T_gen >= h2d + d2h, h2d + device + cpu at the mean context s + n / 2
//           bytes of device and host memory, 0 <= wg, cg <= 1
//
// T_gen has loads before the rest, as the cost model has it: it is what FlexGen's runtime does. Hidden states are one
// buffer here, so the programme is solved with hg = 0 and hg = 100; FlexGen lets hg be any number. No disk.
#pragma once

#include "absl/status/statusor.h"
#include "runtime/cost/lm_offload/ClosedForm.h"

namespace headrace::cost {

struct FlexGenShares {
  model::Percent percent;
  double prefillLayer = 0, decodeLayer = 0; // T_pre, T_gen: seconds
  double generate = 0;                      // layers T_pre + layers (n - 1) T_gen
};

// Shares that are left to it, in percent.
struct ShareLimits {
  double mostCg = 100, leastHg = 0;
};

// setting.percent is not looked at. As closedForm(), and kResourceExhausted where no shares fit, with the bytes that
// everything on the host takes.
absl::StatusOr<FlexGenShares> flexGenShares(const OffloadModel &model, const OffloadMachine &machine,
                                            const OffloadSetting &setting, const ShareLimits &limits = {});

} // namespace headrace::cost
