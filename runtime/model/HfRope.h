// SPDX-License-Identifier: Apache-2.0
//
// The rotary embedding of a config.json (HfConfig.h), in both of its spellings. For .cpp files only.
#pragma once

#include <string_view>

#include "runtime/base/JsonReader.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::model {

// Fills in spec.rope from rope_theta, rope_scaling and rope_parameters, which must agree where several say the same,
// and raises spec.maxPositions to what linear scaling makes of the original ones. Parameters by layer type are taken
// where all layers are of one: not where one `slides`. `where` begins the reader's messages. Refusals are the reader's.
void readRope(JsonReader &config, std::string_view where, bool slides, ModelSpec &spec);

} // namespace headrace::model
