// SPDX-License-Identifier: Apache-2.0
//
// openCheckpoint: the tensors of a WeightLayout out of a folder's safetensors files.
#include "runtime/model/WeightSource.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "runtime/model/FileIo.h"
#include "runtime/model/HalfFloat.h"
#include "runtime/model/HfConfig.h"
#include "runtime/model/JsonReader.h"
#include "runtime/model/PackMatrix.h"
#include "runtime/model/Safetensors.h"
#include "runtime/model/Text.h"

namespace headrace::model {
namespace {

constexpr char kSingleFile[] = "model.safetensors";
constexpr char kIndexFile[] = "model.safetensors.index.json";

std::optional<DType> dtypeFromStored(std::string_view name) {
  if (name == "F32")
    return DType::F32;
  if (name == "F16")
    return DType::F16;
  if (name == "BF16")
    return DType::BF16;
  return std::nullopt;
}

std::string shapeText(absl::Span<const int64_t> shape) { return cat("[", absl::StrJoin(shape, ", "), "]"); }

struct Found {
  const SafetensorsFile *file;
  const StoredTensor *tensor;
  DType dtype() const { return *dtypeFromStored(tensor->dtype); } // checked when it was found
  absl::Span<const std::byte> data() const { return file->data(*tensor); }
};

// The files of a folder, and which of them has which tensor.
class Files {
public:
  static absl::StatusOr<Files> open(const std::string &folder) {
    Files files;
    files.folder_ = folder;
    absl::Status status = isRegularFile(joinPath(folder, kSingleFile)) ? files.openSingle() : files.openIndexed();
    if (!status.ok())
      return status;
    return files;
  }

  // By the checkpoint name, or the same without the leading "model.".
  absl::StatusOr<Found> find(const std::string &name) const {
    const std::string_view bare = name.starts_with("model.") ? std::string_view(name).substr(6) : name;
    for (std::string_view candidate : {std::string_view(name), bare}) {
      const auto at = fileOf_.find(candidate);
      if (at == fileOf_.end())
        continue;
      const StoredTensor *tensor = at->second->header().find(candidate);
      if (!dtypeFromStored(tensor->dtype))
        return absl::InvalidArgumentError(cat(at->second->path(), ": tensor \"", candidate,
                                              "\": dtype = ", tensor->dtype, ": expected F32, F16 or BF16"));
      return Found{at->second, tensor};
    }
    return absl::NotFoundError(cat(folder_, ": tensor \"", name, "\"", bare == name ? "" : cat(" (or \"", bare, "\")"),
                                   " is missing: expected it in ", listing_));
  }

private:
  absl::Status openSingle() {
    auto file = SafetensorsFile::open(joinPath(folder_, kSingleFile));
    if (!file.ok())
      return file.status();
    for (const StoredTensor &tensor : (*file)->header().tensors)
      fileOf_.emplace(tensor.name, file->get());
    files_.push_back(*std::move(file));
    listing_ = kSingleFile;
    return absl::OkStatus();
  }

  absl::Status openIndexed() {
    const std::string path = joinPath(folder_, kIndexFile);
    if (!isRegularFile(path)) {
      const bool pickled = isRegularFile(joinPath(folder_, "pytorch_model.bin")) ||
                           isRegularFile(joinPath(folder_, "pytorch_model.bin.index.json"));
      return absl::NotFoundError(
          cat(folder_, ": expected ", kSingleFile, " or ", kIndexFile,
              pickled ? ": there is only a pytorch_model.bin, save the model again with safe_serialization=True" : ""));
    }
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
      if (at->second->header().find(tensor) == nullptr)
        return absl::NotFoundError(cat(at->second->path(), ": tensor \"", escaped(tensor),
                                       "\" is missing: expected it there by ", kIndexFile));
      fileOf_.emplace(tensor, at->second);
    }
    listing_ = cat("the ", files_.size(), " files that ", kIndexFile, " names");
    return absl::OkStatus();
  }

  std::string folder_;
  std::string listing_; // for messages
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, const SafetensorsFile *, std::less<>> fileOf_;
};

// One source tensor of a layout's tensor, with the shape and type that it must have.
absl::Status checkSource(const Tensor &tensor, int64_t rows, const Found &found) {
  const bool vector = !isMatrix(tensor.role);
  const std::vector<int64_t> expected = vector ? std::vector<int64_t>{rows} : std::vector<int64_t>{rows, tensor.cols};
  const std::string where = cat(found.file->path(), ": tensor \"", found.tensor->name, "\": ");
  if (found.tensor->shape != expected)
    return absl::InvalidArgumentError(cat(where, "shape = ", shapeText(found.tensor->shape), ": expected ",
                                          shapeText(expected), ", as config.json says"));
  if (!vector && found.dtype() != tensor.dtype)
    return absl::InvalidArgumentError(cat(where, "dtype = ", found.tensor->dtype, ": expected ",
                                          dtypeName(tensor.dtype),
                                          ", the type of the token table: all "
                                          "matrices of a model must have one type"));
  return absl::OkStatus();
}

class Checkpoint final : public WeightSource {
public:
  static absl::StatusOr<std::unique_ptr<WeightSource>> open(const std::string &folder, const WeightLayout &layout) {
    absl::StatusOr<Files> files = Files::open(folder);
    if (!files.ok())
      return files.status();
    std::unique_ptr<Checkpoint> checkpoint(new Checkpoint(*std::move(files)));
    for (const Unit &unit : layout.units)
      for (const Tensor &tensor : unit.tensors)
        if (absl::StatusOr<std::vector<Found>> sources = checkpoint->locate(tensor); !sources.ok())
          return sources.status();
    return checkpoint;
  }

  absl::Status fill(const Unit &unit, MatrixOrder order, absl::Span<std::byte> out) const override {
    if (out.size() != unit.bytes)
      return absl::InvalidArgumentError(
          cat("unit ", unit.name, ": ", out.size(), " bytes of room: expected ", unit.bytes));
    uint64_t written = 0;
    for (const Tensor &tensor : unit.tensors) {
      absl::StatusOr<std::vector<Found>> sources = locate(tensor);
      if (!sources.ok())
        return sources.status();
      for (const Found &source : *sources)
        source.file->willNeed(*source.tensor);
      std::memset(out.data() + written, 0, tensor.offset - written);
      std::byte *target = out.data() + tensor.offset;
      if (!isMatrix(tensor.role))
        fillVector(tensor, *sources, target);
      else if (tensor.linearOperand && order == MatrixOrder::Panel16)
        fillPanels(tensor, *sources, target);
      else
        fillRows(tensor, *sources, target);
      for (const Found &source : *sources) // else loading would hold the whole checkpoint beside the homes it fills
        source.file->release(*source.tensor);
      written = tensor.offset + tensor.bytes;
    }
    std::memset(out.data() + written, 0, unit.bytes - written);
    return absl::OkStatus();
  }

private:
  explicit Checkpoint(Files files) : files_(std::move(files)) {}

  // The sources of a tensor, each checked against the layout (also in fill: its unit is the caller's).
  absl::StatusOr<std::vector<Found>> locate(const Tensor &tensor) const {
    std::vector<Found> sources;
    for (size_t i = 0; i < tensor.sources.size(); ++i) {
      absl::StatusOr<Found> found = files_.find(tensor.sources[i]);
      if (!found.ok())
        return found.status();
      if (absl::Status status = checkSource(tensor, tensor.sourceRows[i], *found); !status.ok())
        return status;
      sources.push_back(*found);
    }
    return sources;
  }

  static void fillVector(const Tensor &tensor, const std::vector<Found> &sources, std::byte *target) {
    std::vector<float> widened;
    uint64_t at = 0;
    for (const Found &source : sources) {
      const size_t count = static_cast<size_t>(source.tensor->shape[0]);
      widened.resize(count);
      widenToF32(source.dtype(), source.data().data(), count, widened.data());
      std::memcpy(target + at, widened.data(), count * sizeof(float));
      at += count * sizeof(float);
    }
    std::memset(target + at, 0, tensor.bytes - at);
  }

  static void fillRows(const Tensor &tensor, const std::vector<Found> &sources, std::byte *target) {
    uint64_t at = 0;
    for (const Found &source : sources) {
      std::memcpy(target + at, source.data().data(), source.data().size());
      at += source.data().size();
    }
    std::memset(target + at, 0, tensor.bytes - at);
  }

  static void fillPanels(const Tensor &tensor, const std::vector<Found> &sources, std::byte *target) {
    const uint64_t elementBytes = dtypeBytes(tensor.dtype);
    const uint64_t rowBytes = static_cast<uint64_t>(tensor.cols) * elementBytes;
    size_t source = 0;
    int64_t sourceRow = 0; // the next row of sources[source]
    for (int64_t panel = 0; panel < tensor.paddedRows / kPanelRows; ++panel) {
      const std::byte *rows[kPanelRows] = {};
      for (const std::byte *&row : rows) {
        while (source < sources.size() && sourceRow == tensor.sourceRows[source]) {
          ++source;
          sourceRow = 0;
        }
        if (source == sources.size())
          break; // padding
        row = sources[source].data().data() + static_cast<uint64_t>(sourceRow++) * rowBytes;
      }
      packPanel(rows, tensor.cols, elementBytes, target + static_cast<uint64_t>(panel) * kPanelRows * rowBytes);
    }
  }

  Files files_;
};

} // namespace

bool hasCheckpoint(const std::string &folder) {
  return isRegularFile(joinPath(folder, kSingleFile)) || isRegularFile(joinPath(folder, kIndexFile));
}

absl::StatusOr<std::unique_ptr<WeightSource>> openCheckpoint(const std::string &folder, const ModelSpec &,
                                                             const WeightLayout &layout) {
  return Checkpoint::open(folder, layout);
}

absl::StatusOr<DType> checkpointDtype(const std::string &folder, const WeightLayout &layout) {
  absl::StatusOr<Files> files = Files::open(folder);
  if (!files.ok())
    return files.status();
  absl::StatusOr<Found> table =
      files->find(layout.units[static_cast<size_t>(layout.embeddingUnit())].find(TensorRole::TokenTable)->sources[0]);
  if (!table.ok())
    return table.status();
  return table->dtype();
}

} // namespace headrace::model
