// SPDX-License-Identifier: Apache-2.0
//
// A job's sections as TOML keys and values, in the order in which the job file documents them. Read back by the model
// readers they give the same job: this is how flags are laid over a file (JobFlags.h), how settings are printed, and
// what a model's hash is taken of.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "runtime/model/JobFile.h"

namespace headrace::tools {

using TomlEntries = std::vector<std::pair<std::string, std::string>>; // key, TOML value

TomlEntries shapeEntries(const model::ModelSpec &spec);
TomlEntries hardwareEntries(const model::Hardware &hardware);
TomlEntries goalEntries(const model::Goal &goal);       // keys that are set only
TomlEntries policyEntries(const model::Policy &policy); // keys that are set only
TomlEntries bucketEntries(const model::Buckets &buckets);

std::string tomlText(const std::string &value); // quoted and escaped
std::string tomlNumber(double value);           // the shortest text that reads back as the same value
std::string toToml(const TomlEntries &entries); // one "key = value" a line

} // namespace headrace::tools
