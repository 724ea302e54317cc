// SPDX-License-Identifier: Apache-2.0
//
// Element types of checkpoints, KV cache and activations.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace headrace::model {

enum class DType : uint8_t { F32 = 0, F16 = 1, BF16 = 2 };
constexpr uint64_t dtypeBytes(DType t) { return t == DType::F32 ? 4 : 2; }
std::string_view dtypeName(DType t); // "f32", "f16", "bf16"
std::optional<DType> dtypeFromName(std::string_view name);

} // namespace headrace::model
