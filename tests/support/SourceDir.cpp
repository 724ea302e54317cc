// SPDX-License-Identifier: Apache-2.0
#include "tests/support/SourceDir.h"

namespace headrace {

std::string sourceDir() { return HEADRACE_SOURCE_DIR; }

} // namespace headrace
