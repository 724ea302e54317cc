// SPDX-License-Identifier: Apache-2.0
//
// LM-Offload's three decisions (section 3.2, "How to use the models"), by the closed form: are weights packed, is the
// KV cache packed, where is attention? Settings differ also in what fits beside them (an attention on the CPU leaves
// the device more room for weights), so each decision is between the fastest setting that says yes and the fastest that
// says no.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/cost/lm_offload/ClosedForm.h"

namespace headrace::cost {

// Of settings by their place in the list.
struct Decision {
  std::optional<size_t> yes, no; // the fastest that fits; none: no such setting fits
};

struct Decisions {
  size_t best = 0; // the fastest; the first of several
  Decision packWeights, packKv, attendOnCpu;
  std::vector<std::optional<ClosedForm>> forms; // of each setting; none where it does not fit
};

// kInvalidArgument: no settings, and as closedForm(). kResourceExhausted: none fits, with the bytes of the first.
absl::StatusOr<Decisions> decide(const OffloadModel &model, const OffloadMachine &machine,
                                 const FlexGenRuntime &runtime, absl::Span<const OffloadSetting> settings);

// Three lines: each decision, both sides' tokens/s, the lane that limits each.
std::string decisionsText(const Decisions &decisions);

} // namespace headrace::cost
