// SPDX-License-Identifier: Apache-2.0
#include "passes/Passes.h"
namespace headrace::passes {
void registerPasses() {}
}
