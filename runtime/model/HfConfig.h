// SPDX-License-Identifier: Apache-2.0
//
// A Hugging Face model folder's config.json as a ModelSpec. `model_type` decides the family (Family.h);
// a missing key has the default that transformers' configuration class of that family documents.
//
// Both spellings are read: transformers 4's torch_dtype, rope_theta, rope_scaling {rope_type | type, ...}, and
// transformers 5's dtype, rope_parameters {rope_type, rope_theta, ...}.
//
// Refused by name, because a plan could not compute it: unknown model types, mixture of experts, quantised checkpoints,
// post-layer-norm OPT, OPT whose embedding width differs from hidden_size, rotary scaling other than default, linear
// and llama3 or not the same in all layers, partial rotary embedding, other activations, `architectures` other than
// model_type's ForCausalLM, and configurations that contradict themselves. A sliding window in use bounds the context
// (ModelSpec::window). Keys that do not change the arithmetic are ignored.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/model/FolderContents.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::model {

class CheckpointFiles;

// Of `text`, the content of the file `path`, which messages begin with. dtype is the config's, F32 if it says none
// (transformers' default). `name` becomes the spec's.
absl::StatusOr<ModelSpec> parseHfConfig(std::string_view text, const std::string &path, const std::string &name);

// Whether the folder has a checkpoint: anything named model.safetensors or model.safetensors.index.json.
bool hasCheckpoint(const std::string &folder);

struct HfFolder {
  ModelSpec spec;
  std::shared_ptr<const CheckpointFiles> checkpoint; // null: it has none
  std::vector<std::string> notes;                    // of checkCheckpoint(), and of an adapter that is ignored
};
// Of folder/config.json. Where the folder has a checkpoint, dtype is that of its matrices, whatever the config says,
// and the checkpoint is checked to be the model's. kNotFound without a config.json, with what is there in its place.
absl::StatusOr<HfFolder> readHfFolder(const std::string &folder, const FolderOptions &options = {});

} // namespace headrace::model
