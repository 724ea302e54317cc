// SPDX-License-Identifier: Apache-2.0
//
// A job's sections, key by key. What a key says is laid over what stands there already, so that a file's sections are
// read first and flags, which are the same keys, after them.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "runtime/base/TomlReader.h"
#include "runtime/job/JobFile.h"
#include "runtime/job/TomlText.h"

namespace headrace::model {

// Each refuses unknown keys and values out of range. Paths are relative to `folder`.
absl::Status readGoal(TomlReader &table, const std::string &folder, Goal &goal);
absl::Status readPolicy(TomlReader &table, Policy &policy);
absl::Status readBuckets(TomlReader &table, Buckets &buckets);

// What differs from a section without keys, a policy's name in any case; read back they give the same values. Without
// the record, a path.
TomlEntries goalEntries(const Goal &goal);
TomlEntries policyEntries(const Policy &policy);

} // namespace headrace::model
