// SPDX-License-Identifier: Apache-2.0
//
// What an op's header leaves for the table of HostTable.h.
#pragma once

#include "kernels/Kernels.h"
#include "kernels/host/HostUnits.h"

namespace headrace::kernels {

// Each op's header specialises this for its struct of arguments: kKernel, its HostKernel for the lane type V.
template <typename V, typename Args> struct HostEntry;

} // namespace headrace::kernels
