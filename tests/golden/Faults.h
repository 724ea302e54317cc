// SPDX-License-Identifier: Apache-2.0
//
// The faults of the mutation test, by the names that make_goldens.py records them under (Reference::mutations).
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "runtime/model/ModelSpec.h"
#include "tests/golden/GoldenRun.h"

namespace headrace::golden {

// The faults that concern a model, from its spec alone:
//   eps_x10                   the eps of every norm ten times as large
//   rope_scaling_removed      plain rotary embedding where the model scales it
//   gqa_mapping               query head h reads key/value head h % kvHeads instead of h / (heads / kvHeads)
//   decode_positions_plus_1   positions of generated tokens one too high (all together would not show under rotation)
//   all_positions_plus_1      all positions one too high (learned positions only)
//   bias_dropped.<module>     the module's bias zero in all layers
//   head_norms_removed        q and k rotated as their projections leave them (norms of heads only)
//   norm_weight_dropped.<m>   the weight of q_norm or k_norm one in all layers
std::vector<std::string> faultsOf(const model::ModelSpec &spec);

// Puts the fault into `setup`, whose spec and folder are set. InvalidArgument if the name is none of the above.
absl::Status inject(const std::string &fault, RunSetup &setup);

} // namespace headrace::golden
