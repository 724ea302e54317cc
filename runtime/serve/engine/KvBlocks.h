// SPDX-License-Identifier: Apache-2.0
//
// The pool of KV blocks is the runtime's, which knows how many a placement has (core/KvBlocks.h).
#pragma once

#include "runtime/core/KvBlocks.h"

namespace headrace::serve {

using core::KvBlocks;

} // namespace headrace::serve
