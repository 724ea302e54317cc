// SPDX-License-Identifier: Apache-2.0
//
// What is best of all that other policies would consider, by one aim: searched elsewhere (compiler/search).

#include "compiler/search/Generator.h"

namespace headrace::compiler {

extern const Generator kJointGenerator;
const Generator kJointGenerator = {
    .name = "joint",
    .summary = "of all mechanisms together what takes the least time over the contexts that will run",
    .order = Order::LeastAim,
    .onePlacement = true,
    .allowsForSlowest = true,
    .weighsAttention = true,
    .splitsCaches = true,
    .colour = 6,
};

} // namespace headrace::compiler
