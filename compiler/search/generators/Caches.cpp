// SPDX-License-Identifier: Apache-2.0
//
// Blocks of caches on the host, all weights on the device: iterations bring what is in use of them.
#include "compiler/search/Generator.h"
#include "compiler/search/Space.h"

namespace headrace::compiler {

extern const Generator kCachesGenerator;
const Generator kCachesGenerator = {
    .name = "caches",
    .summary = "weights on the device, and on the host the KV blocks that then do not fit",
    .seeds = [](Space &, const Coordinates &origin) { return std::vector{origin}; },
    .holds = [](const Coordinates &at) { return at.listed == 0 && at.layers == 0 && at.actParts == 0; },
};

} // namespace headrace::compiler
