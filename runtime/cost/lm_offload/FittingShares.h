// SPDX-License-Identifier: Apache-2.0
//
// Shares that memory holds, by whole layers: so many layers' weights away, and as much of the KV cache on the device as
// there is then room for; none of it where the CPU attends, as plans have it.
//
//   layers away   0        1        2     ... 4       of 4 layers; KV on the device, of all, beside them
//   KV            none     20%      60%       100%
#pragma once

#include <optional>

#include "runtime/cost/lm_offload/ClosedForm.h"

namespace headrace::cost {

// None: neither memory holds that. Hidden states as the setting has them; its other shares are not looked at.
std::optional<model::Percent> sharesWithAway(const OffloadModel &model, const OffloadMachine &machine,
                                             OffloadSetting setting, int64_t away);
// Of any number of layers those with the least time an iteration at the mean context; the fewest of several. None:
// nothing fits, or the closed form refuses the setting.
std::optional<model::Percent> fastestShares(const OffloadModel &model, const OffloadMachine &machine,
                                            const FlexGenRuntime &runtime, const OffloadSetting &setting);

// The shortest prompt with which the CPU attends faster than the device, each with its fastest shares, of which both
// know one; none: nowhere up to the longest context that memory holds. `setting`: of a prompt of any length.
std::optional<int64_t> attendsOnCpuFrom(const OffloadModel &model, const OffloadMachine &machine,
                                        const FlexGenRuntime &runtime, OffloadSetting setting);

} // namespace headrace::cost
