// SPDX-License-Identifier: Apache-2.0
#include "runtime/model/CheckpointFiles.h"

#include <algorithm>

#include "absl/strings/str_join.h"
#include "runtime/base/FileIo.h"
#include "runtime/base/JsonReader.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/model/FolderContents.h"
#include "runtime/model/HfConfig.h"

namespace headrace::model {
namespace {

constexpr char kSingleFile[] = "model.safetensors";
constexpr char kIndexFile[] = "model.safetensors.index.json";

std::string shapeText(absl::Span<const int64_t> shape) { return cat("[", absl::StrJoin(shape, ", "), "]"); }

// One source tensor of a layout's tensor, with the shape and type that it must have.
absl::Status checkSource(const Tensor &tensor, int64_t rows, const FoundTensor &found) {
  const bool vector = !isMatrix(tensor.role);
  const std::vector<int64_t> expected = vector ? std::vector<int64_t>{rows} : std::vector<int64_t>{rows, tensor.cols};
  if (found.tensor->shape != expected)
    return absl::InvalidArgumentError(cat(found.where(), ": shape = ", shapeText(found.tensor->shape), ": expected ",
                                          shapeText(expected), ", as config.json says"));
  if (!vector && found.dtype() != tensor.dtype)
    return absl::InvalidArgumentError(cat(found.where(), ": dtype = ", found.tensor->dtype, ": expected ",
                                          dtypeName(tensor.dtype),
                                          ", the type of the token table: all "
                                          "matrices of a model must have one type"));
  return absl::OkStatus();
}

} // namespace

std::optional<DType> dtypeFromStored(std::string_view name) {
  if (name == "F32")
    return DType::F32;
  if (name == "F16")
    return DType::F16;
  if (name == "BF16")
    return DType::BF16;
  return std::nullopt;
}

std::string FoundTensor::where() const { return cat(file->path(), ": tensor \"", escaped(tensor->name), "\""); }

absl::Status FoundTensor::forEachPiece(const std::function<void(absl::Span<const std::byte>)> &take) const {
  file->willNeed(*tensor);
  std::vector<std::byte> room(std::min(kPieceBytes, tensor->bytes()));
  for (uint64_t at = 0; at < tensor->bytes(); at += room.size()) {
    const absl::Span<std::byte> piece = absl::MakeSpan(room).first(std::min(kPieceBytes, tensor->bytes() - at));
    RETURN_IF_ERROR(read(at, piece));
    take(piece);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const CheckpointFiles>> CheckpointFiles::open(const std::string &folder) {
  auto files = std::make_shared<CheckpointFiles>();
  files->folder_ = folder;
  if (!hasCheckpoint(folder))
    return absl::NotFoundError(missingWeightsText(folder));
  // A link to nothing is opened, and refused by name, where there is nothing else.
  const bool single = isRegularFile(joinPath(folder, kSingleFile)) || !isThere(joinPath(folder, kIndexFile));
  RETURN_IF_ERROR(single ? files->openSingle() : files->openIndexed());
  return files;
}

absl::StatusOr<FoundTensor> CheckpointFiles::find(const std::string &name) const {
  const std::string_view bare = name.starts_with("model.") ? std::string_view(name).substr(6) : name;
  for (std::string_view candidate : {std::string_view(name), bare}) {
    const auto at = fileOf_.find(candidate);
    if (at == fileOf_.end())
      continue;
    const StoredTensor *tensor = at->second->header().find(candidate);
    if (!dtypeFromStored(tensor->dtype))
      return absl::InvalidArgumentError(cat(at->second->path(), ": tensor \"", candidate, "\": dtype = ", tensor->dtype,
                                            ": expected F32, F16 or BF16"));
    return FoundTensor{at->second, tensor};
  }
  return absl::NotFoundError(cat(folder_, ": tensor \"", name, "\"", bare == name ? "" : cat(" (or \"", bare, "\")"),
                                 " is missing: expected it in ", listing_));
}

absl::StatusOr<FoundTensor> CheckpointFiles::source(const Tensor &tensor, size_t i) const {
  absl::StatusOr<FoundTensor> found = find(tensor.sources[i]);
  const bool tied = tensor.role == TensorRole::TokenTable && tensor.linearOperand;
  if (!tied || !absl::IsNotFound(found.status()))
    return found;
  absl::StatusOr<FoundTensor> head = find("lm_head.weight");
  return absl::IsNotFound(head.status()) ? found : head;
}

absl::StatusOr<std::vector<FoundTensor>> CheckpointFiles::sources(const Tensor &tensor) const {
  std::vector<FoundTensor> sources;
  for (size_t i = 0; i < tensor.sources.size(); ++i) {
    ASSIGN_OR_RETURN(found, source(tensor, i));
    RETURN_IF_ERROR(checkSource(tensor, tensor.sourceRows[i], found));
    sources.push_back(found);
  }
  return sources;
}

absl::Status CheckpointFiles::openSingle() {
  auto file = SafetensorsFile::open(joinPath(folder_, kSingleFile));
  if (!file.ok())
    return file.status();
  for (const StoredTensor &tensor : (*file)->header().tensors)
    fileOf_.emplace(tensor.name, file->get());
  files_.push_back(*std::move(file));
  listing_ = kSingleFile;
  return absl::OkStatus();
}

absl::Status CheckpointFiles::openIndexed() {
  const std::string path = joinPath(folder_, kIndexFile);
  absl::StatusOr<std::string> text = readTextFile(path);
  if (!text.ok())
    return text.status();
  absl::StatusOr<nlohmann::json> document = parseJson(*text, path);
  if (!document.ok())
    return document.status();
  JsonReader index(*document, path);
  const nlohmann::json *map = index.find("weight_map");
  if (map == nullptr || !map->is_object() || map->empty())
    index.refuse("weight_map", "an object from tensor to file name");
  if (!index.ok())
    return index.status();

  std::map<std::string, const SafetensorsFile *> byName;
  for (const auto &[tensor, file] : map->items()) {
    const std::string *name = file.is_string() ? file.get_ptr<const std::string *>() : nullptr;
    if (name == nullptr || name->empty() || *name == "." || *name == ".." || name->find('/') != std::string::npos ||
        name->find('\0') != std::string::npos)
      return absl::InvalidArgumentError(cat(path, ": weight_map[\"", escaped(tensor), "\"] = ", jsonText(file),
                                            ": expected the name of a file beside it"));
    auto [at, isNew] = byName.emplace(*name, nullptr);
    if (isNew) {
      auto opened = SafetensorsFile::open(joinPath(folder_, *name));
      if (!opened.ok())
        return absl::Status(opened.status().code(), cat(opened.status().message(), " (named by ", kIndexFile, ")"));
      at->second = opened->get();
      files_.push_back(*std::move(opened));
    }
    if (at->second->header().find(tensor) != nullptr)
      fileOf_.emplace(tensor, at->second);
  }
  std::sort(files_.begin(), files_.end(), [](const auto &a, const auto &b) { return a->path() < b->path(); });
  // As transformers reads them: whole, each over those before it.
  for (auto file = files_.rbegin(); file != files_.rend(); ++file)
    for (const StoredTensor &tensor : (*file)->header().tensors)
      fileOf_.emplace(tensor.name, file->get());
  for (const auto &[tensor, file] : map->items())
    if (!fileOf_.contains(tensor))
      return absl::NotFoundError(cat(byName.at(file.get<std::string>())->path(), ": tensor \"", escaped(tensor),
                                     "\" is missing: expected it there by ", kIndexFile));
  listing_ = cat("the ", files_.size(), " files that ", kIndexFile, " names");
  return absl::OkStatus();
}

bool hasCheckpoint(const std::string &folder) {
  return isThere(joinPath(folder, kSingleFile)) || isThere(joinPath(folder, kIndexFile));
}

} // namespace headrace::model
