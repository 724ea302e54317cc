// SPDX-License-Identifier: Apache-2.0
//
// Shapes and hardware profiles as TOML keys and values, in the order in which their headers document them. Read back
// (Shape.h, Hardware.h) they give the same values.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/job/Hardware.h"

namespace headrace::model {

struct ModelSpec;

using TomlEntries = std::vector<std::pair<std::string, std::string>>; // key, TOML value

TomlEntries shapeEntries(const ModelSpec &spec);
// Without `gpus`, and without a reserve or a host memory that there is none of.
TomlEntries hardwareEntries(const Hardware &hardware);

std::string tomlText(std::string_view value);   // quoted and escaped
std::string tomlNumber(double value);           // the shortest text that reads back as the same value
std::string toToml(const TomlEntries &entries); // one "key = value" a line

} // namespace headrace::model
