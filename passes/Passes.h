// SPDX-License-Identifier: Apache-2.0
#pragma once
namespace headrace::passes {
void registerPasses();
}
