// SPDX-License-Identifier: Apache-2.0
//
// What a hardware profile (runtime/job/Hardware.h) makes of a machine for the closed form: the rates that plans are
// priced with (the roofline), which has more of them.
//
//   link               h2d, d2h and both, times link_efficiency
//   linear ops         peak flops and memory bandwidth, by the products' efficiencies; attention reads at the same rate
//   packed weights     cuda: up to 8 rows read codes as they are; else codes are read and elements written, both at the
//                      memory's rate. host: two flops a code, beside the product
//   starts of ops      a layer's pass has eight and attention; a card unpacks a matrix in parts, two starts each
//   packed K and V     read as they are; two flops a code where the profile says what unpacking reaches
//
// Attention on the CPU has no rate in a profile: settings with it are refused.
#pragma once

#include "runtime/cost/lm_offload/ClosedForm.h"
#include "runtime/job/Hardware.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::cost {

// With caches and hidden states as plans hold them: F32 on the host, hidden states on every device.
OffloadModel plannedModel(const model::ModelSpec &spec, const model::Hardware &hardware);
// Of so many sequences in so many parts, as plans of this model and these caches are: hidden states stay, attention is
// the device's, one token a sequence is decoded. Prompt and other shares are left to the caller.
OffloadSetting plannedSetting(const model::ModelSpec &spec, const model::Encoding &kv, int64_t block,
                              int64_t miniBatches);
// `weights`: in what they are packed. `deviceBytes`: that plans may use.
OffloadMachine offloadMachine(const model::Hardware &hardware, const model::ModelSpec &spec,
                              const std::optional<model::Encoding> &weights, const std::optional<model::Encoding> &kv,
                              uint64_t deviceBytes);

// What plans do: copies beside compute, and each mini-batch's products unpack for themselves.
inline constexpr FlexGenRuntime kPlannedRuntime = {.serial = false, .unpackPerMiniBatch = true};

} // namespace headrace::cost
