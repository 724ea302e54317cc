// SPDX-License-Identifier: Apache-2.0
//
// checkCheckpoint: what a checkpoint has beyond its model.
#include <algorithm>
#include <optional>
#include <set>

#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/model/CheckpointFiles.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/model/WeightSource.h"

namespace headrace::model {
namespace {

constexpr std::string_view kHead = "lm_head.weight";
constexpr size_t kNamed = 3; // of several tensors that nobody uses

// The layer of "model.layers.3.mlp.up_proj.weight"; none for what is no decoder layer's.
std::optional<int64_t> layerOf(std::string_view name) {
  for (std::string_view prefix : {"model.", "decoder."})
    if (name.starts_with(prefix))
      name.remove_prefix(prefix.size());
  if (!name.starts_with("layers."))
    return std::nullopt;
  name.remove_prefix(7);
  int64_t layer = 0;
  size_t digits = 0;
  for (; digits < name.size() && digits < 9 && name[digits] >= '0' && name[digits] <= '9'; ++digits)
    layer = layer * 10 + (name[digits] - '0');
  if (digits == 0 || digits == name.size() || name[digits] != '.')
    return std::nullopt;
  return layer;
}

// Buffers that older versions of transformers saved beside the weights.
bool isKnownBuffer(std::string_view name) {
  return name.ends_with("rotary_emb.inv_freq") || name.ends_with("position_ids") || name.ends_with("decoder.version");
}

// A tied head's copy is looked at in rows spread over the table: a head that was trained by itself differs in all.
absl::Status checkTiedHead(const FoundTensor &head, const FoundTensor &table) {
  constexpr uint64_t kRows = 16;
  const auto refuse = [&](const std::string &what) {
    return absl::InvalidArgumentError(
        cat(head.where(), " ", what, " ", table.tensor->name,
            ", and config.json ties them: expected tie_word_embeddings = false, or the table's values"));
  };
  if (head.tensor->shape != table.tensor->shape || head.tensor->dtype != table.tensor->dtype)
    return refuse("has not the shape and type of");
  const auto rows = static_cast<uint64_t>(table.tensor->shape[0]);
  std::vector<std::byte> ofHead(table.tensor->bytes() / rows), ofTable(ofHead.size());
  for (uint64_t i = 0; i < kRows; ++i) {
    const uint64_t row = i * (rows - 1) / (kRows - 1);
    RETURN_IF_ERROR(head.read(row * ofHead.size(), absl::MakeSpan(ofHead)));
    RETURN_IF_ERROR(table.read(row * ofTable.size(), absl::MakeSpan(ofTable)));
    if (ofHead != ofTable)
      return refuse(cat("differs in row ", row, " from"));
  }
  return absl::OkStatus();
}

} // namespace

absl::StatusOr<std::vector<std::string>> checkCheckpoint(const CheckpointFiles &files, const ModelSpec &spec,
                                                         const WeightLayout &layout) {
  std::set<const StoredTensor *> used;
  for (const Unit &unit : layout.units)
    for (const Tensor &tensor : unit.tensors) {
      absl::StatusOr<std::vector<FoundTensor>> sources = files.sources(tensor);
      if (!sources.ok())
        return sources.status();
      for (const FoundTensor &source : *sources)
        used.insert(source.tensor);
    }

  const StoredTensor *beyond = nullptr;
  const SafetensorsFile *beyondFile = nullptr;
  int64_t most = spec.layers - 1;
  std::vector<std::string> unused;
  for (const auto &[name, file] : files.byName()) {
    const StoredTensor *tensor = file->header().find(name);
    if (used.contains(tensor))
      continue;
    if (const std::optional<int64_t> layer = layerOf(name); layer && *layer >= spec.layers) {
      most = std::max(most, *layer);
      if (beyond == nullptr)
        beyond = tensor, beyondFile = file;
    } else if (name == kHead && spec.tiedEmbeddings) {
      ASSIGN_OR_RETURN(table, files.source(layout.tokenTable(), 0));
      RETURN_IF_ERROR(checkTiedHead({file, tensor}, table));
    } else if (!isKnownBuffer(name)) {
      unused.push_back(name);
    }
  }
  if (beyond != nullptr)
    return absl::InvalidArgumentError(cat(FoundTensor{beyondFile, beyond}.where(), ": expected no layer beyond ",
                                          spec.layers - 1, ", as config.json says num_hidden_layers = ", spec.layers,
                                          "; the checkpoint has layers 0 to ", most));
  if (unused.empty())
    return std::vector<std::string>();
  std::string line = cat(files.folder(), ": ", unused.size(), unused.size() == 1 ? " tensor that" : " tensors that",
                         " no ", familyName(spec.family), " model of this config.json uses:");
  for (size_t i = 0; i < std::min(unused.size(), kNamed); ++i)
    line += cat(i == 0 ? " " : ", ", escaped(unused[i]));
  if (unused.size() > kNamed)
    line += cat(" and ", unused.size() - kNamed, " more");
  return std::vector<std::string>{line};
}

} // namespace headrace::model
