// SPDX-License-Identifier: Apache-2.0
//
// A model without weights: its ModelSpec as TOML (examples/models/*.toml, or inline under [model] in a job).
//
//   family = "llama"            # one of Family.h; sets what is not stated below
//   layers = 32                 # required, as are hidden, heads, intermediate, vocab, max_positions
//   hidden = 4096
//   heads = 32
//   kv_heads = 8                # default: heads
//   head_dim = 128              # default: hidden / heads
//   intermediate = 14336
//   vocab = 128256
//   max_positions = 131072
//   dtype = "bf16"              # f32, f16, bf16; default f16
//   norm_eps = 1e-5             # default: opt 1e-5, others 1e-6
//   rope_theta = 500000.0       # default 10000; not in opt
//   rope_scaling = { type = "llama3", factor = 8.0, low_freq_factor = 1.0, high_freq_factor = 4.0,
//                    original_max_positions = 8192 }      # or { type = "linear", factor = 2.0 }
//   tied_embeddings = false     # default: opt true, others false
//   activation = "silu_gate"    # opt: relu (default), gelu, gelu_tanh
//   norm = "rmsnorm"            # default: opt layernorm, others rmsnorm
//   qkv_bias = false            # default: opt and qwen2 true
//   out_bias = false            # default: opt true, and so mlp_bias
//   mlp_bias = false
//   qk_norm = false             # default: qwen3 true; RMSNorm of each head of q and k before rotation
//   learned_positions = false   # default: opt true, with position_offset = 2
//   weight_encoding = "q4"      # default: as the checkpoint has them; or "q8:32", "qkv=q4,head=q8" (WeightEncodings.h)
//   name = "llama-3.1-8b"       # default: the file's name without .toml
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace headrace::model {

class TomlReader;
struct ModelSpec;

// Refuses unknown and missing keys and whatever validate() refuses, by file and key.
absl::StatusOr<ModelSpec> readShape(const std::string &path);
absl::StatusOr<ModelSpec> parseShape(std::string_view text, const std::string &path);
// The keys of one table; `where` (a file) begins the messages of validate(). With a base, keys that are missing keep
// its values. A plan's may be a stage, which users cut by --stages alone.
absl::StatusOr<ModelSpec> parseShapeTable(TomlReader &table, const std::string &where, const std::string &defaultName,
                                          const ModelSpec *base = nullptr, bool ofPlan = false);

} // namespace headrace::model
