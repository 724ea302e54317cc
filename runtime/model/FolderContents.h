// SPDX-License-Identifier: Apache-2.0
//
// What a folder has that is no Hugging Face model with safetensors, or comes beside one. For messages: what was found,
// and what to do.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace headrace::model {

// How a model's folder is opened (HfConfig.h).
struct FolderOptions {
  bool ignoreAdapter = false; // an adapter_config.json beside the model is noted, not refused
};

// Behind "<folder>/config.json: no such file": "; there is an adapter alone ...". Empty where nothing is known.
std::string otherContentsText(const std::string &folder);
// Of a folder without a checkpoint (hasCheckpoint): "<folder>: no model.safetensors or ...", and what it has instead.
std::string missingWeightsText(const std::string &folder);
// Of a file that was given in place of a folder: whose it is, by its ending. Empty for one that is no model's.
std::string modelFileText(const std::string &path);

// A PEFT adapter in the folder, whose weights change the model's: refused by name, with its kind and base. What the
// file says only words the message; one that cannot be read is refused as such. OK where there is none.
absl::Status refuseAdapter(const std::string &folder);

} // namespace headrace::model
