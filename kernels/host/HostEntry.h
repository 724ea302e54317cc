// SPDX-License-Identifier: Apache-2.0
//
// What an op's header leaves for the table of HostTable.h.
#pragma once

#include "kernels/Kernels.h"

namespace headrace::kernels {

// Each op's header specialises this for its struct of arguments: kRun, its HostKernel for the lane type V.
template <typename V, typename Args> struct HostEntry;

} // namespace headrace::kernels
