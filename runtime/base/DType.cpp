// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/DType.h"

#include "runtime/base/EnumNames.h"

namespace headrace::model {
namespace {

constexpr std::pair<DType, std::string_view> kDTypes[] = {
    {DType::F32, "f32"}, {DType::F16, "f16"}, {DType::BF16, "bf16"}};

} // namespace

std::string_view dtypeName(DType t) { return nameOf<DType>(kDTypes, t); }
std::optional<DType> dtypeFromName(std::string_view name) { return fromName<DType>(kDTypes, name); }

} // namespace headrace::model
