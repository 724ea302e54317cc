// SPDX-License-Identifier: Apache-2.0
//
// What make_goldens.py recorded of one golden model (README.md), and how a run is compared with it.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/serve/engine/BatchEngine.h"

namespace headrace::golden {

struct Reference {
  std::string name;
  std::string folder;   // a Hugging Face folder, with the reference's two files beside the checkpoint
  double tolerance = 0; // of a logit
  std::vector<std::vector<int32_t>> prompts;
  std::vector<std::vector<int32_t>> tokens;   // per prompt, greedy
  std::vector<std::vector<float>> logits;     // per prompt: tokens x vocab
  std::vector<std::vector<float>> bf16Logits; // the same of transformers in BF16; empty for F32 checkpoints
  double bf16Bound = 0;                       // their largest difference
  // The same of transformers in the checkpoint's own type, where no step's two best logits are nearer than twice that:
  // whoever computes as well gets the same tokens. 0: of other checkpoints.
  double ownTypeBound = 0;
  std::map<std::string, double> mutations; // fault -> largest logit difference it makes in transformers
  std::string checkpointType;              // "f32", "f16", "bf16"
};

// Models under tests/golden: ten of 7 or 12 layers and small heads; five of two layers and the heads that tensor-core
// kernels are for; all.
const std::vector<std::string> &modelNames();
const std::vector<std::string> &tensorCoreModels();
std::vector<std::string> allModels();
// Of all of them those that between them run each CUDA kernel: the second five, and of small heads, whose kernels are
// for any size, one in F32 and one in F16. All with HEADRACE_LONG.
std::vector<std::string> modelsOfEachKernel();
std::string goldenFolder();

// Names of the attention kernels that the CUDA device has to take for a model, each once: of iterations with a row a
// sequence, and of others.
std::set<std::string> attentionKernels(const Reference &reference);
// Of those models the ones whose head size has tiles of 128 queries too; and `kernels` with them in the place of tiles
// of 64, as in buckets of many rows.
std::vector<std::string> largeTileModels();
std::set<std::string> withLargeTiles(const std::set<std::string> &kernels);
// Those of `kernels` that are of attention.
std::set<std::string> ofAttention(const std::set<std::string> &kernels);

// Refuses files that are missing or do not fit each other.
absl::StatusOr<Reference> readReference(const std::string &name);

struct Comparison {
  bool tokensEqual = true;
  // Over the steps up to and including the first at which the tokens differ: from there on the inputs differ too.
  double largestDifference = 0;
  std::string firstDifference; // of tokens, for messages

  bool good(double tolerance) const { return tokensEqual && largestDifference <= tolerance; }
};
// `result` holds as many new tokens as the reference, and their logits.
Comparison compare(const Reference &reference, const serve::GenerateResult &result);

// max |a - b|; infinite where sizes differ or an element is not a number.
double largestDifference(const std::vector<float> &a, const std::vector<float> &b);

} // namespace headrace::golden
