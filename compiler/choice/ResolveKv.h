// SPDX-License-Identifier: Apache-2.0
//
// Of resolve() the caches: how many blocks there are, of keys and values and of activations, how large they are, and
// how many of them stay on the device where it is stated what KV may take of it.
#pragma once

#include "absl/status/status.h"
#include "compiler/choice/Resolve.h"

namespace headrace::compiler {

// Blocks of every sequence at its longest, or of the tokens asked for, and the scratch block 0. The target has its
// choice, batch and context. InvalidArgument names the key.
absl::Status resolveKv(const CompileRequest &request, bool swapsLayers, Target &target);

} // namespace headrace::compiler
