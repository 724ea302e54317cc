// SPDX-License-Identifier: Apache-2.0
//
// A job's sections as TOML keys and values, in the order in which the job file documents them. Read back by the model
// readers they give the same job: this is how flags are laid over a file (JobFlags.h), how settings are printed, and
// what a model's hash is taken of.
#pragma once

#include <string>
#include <vector>

#include "runtime/job/JobFile.h"
#include "runtime/job/TomlText.h"

namespace headrace::tools {

using model::hardwareEntries;
using model::shapeEntries;
using model::TomlEntries; // key, TOML value
using model::tomlNumber;
using model::tomlText;
using model::toToml;

TomlEntries goalEntries(const model::Goal &goal);       // keys that are set only
TomlEntries policyEntries(const model::Policy &policy); // keys that are set only
TomlEntries bucketEntries(const model::Buckets &buckets);

} // namespace headrace::tools
