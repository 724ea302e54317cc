// SPDX-License-Identifier: Apache-2.0
//
// What the process does when the system grants it no more memory.
#pragma once

namespace headrace::tools {

// From here on it ends with exit status 1 and a message, on whatever thread it runs out and whoever asked: MLIR writes
// to what malloc() gives without a look. `json`: on standard output, too. Half-written files go.
void endWhereMemoryEnds(bool json);

} // namespace headrace::tools
