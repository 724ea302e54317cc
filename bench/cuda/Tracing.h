// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "runtime/cuda/CudaDevice.h"

namespace headrace::bench {

// Why steps cannot be measured this way here; empty where they can.
std::string whyNot(cuda::TraceBy by);

} // namespace headrace::bench
