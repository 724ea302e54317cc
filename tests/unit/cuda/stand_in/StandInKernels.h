// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace headrace::stand_in {

// The name under which cudaEntry gave this function; empty if it gave none such.
std::string kernelName(const void *function);

} // namespace headrace::stand_in
