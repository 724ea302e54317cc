// SPDX-License-Identifier: Apache-2.0
//
// Logits as a safetensors file: "logits.<prompt>", F32 [new tokens, vocab].
#pragma once

#include <string>
#include <vector>

namespace headrace::tools {

std::string logitsFile(const std::vector<std::vector<float>> &logits, int64_t vocab); // the file's bytes

} // namespace headrace::tools
