// SPDX-License-Identifier: Apache-2.0
#include "runtime/model/Safetensors.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/ascii.h"
#include "runtime/base/JsonReader.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"

namespace headrace::model {
namespace {

using nlohmann::json;

constexpr uint64_t kMaxHeaderBytes = 100'000'000; // the format's own limit
constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kFirstBytes = 64; // tell a file from a Git LFS pointer

struct StoredType {
  std::string_view name;
  uint64_t bits;
};
constexpr StoredType kTypes[] = {
    {"BOOL", 8},    {"U8", 8},      {"I8", 8},   {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F4", 4},
    {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"I16", 16}, {"U16", 16},    {"F16", 16},    {"BF16", 16},   {"I32", 32},
    {"U32", 32},    {"F32", 32},    {"I64", 64}, {"U64", 64},    {"F64", 64},    {"C64", 64},
};

std::string quoted(std::string_view name) { return cat("\"", escaped(name, 200), "\""); }

absl::Status damaged(const std::string &path, std::string_view message) {
  return absl::DataLossError(cat(path, ": ", message));
}

absl::Status damaged(const std::string &path, std::string_view tensor, std::string_view message) {
  return damaged(path, cat("tensor ", quoted(tensor), ": ", message));
}

// A JSON integer from 0 to 2^63 - 1.
bool readSize(const json &value, int64_t &size) {
  if (!value.is_number_unsigned() || value.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
    return false;
  size = value.get<int64_t>();
  return true;
}

absl::StatusOr<StoredTensor> readTensor(const std::string &name, const json &entry, const std::string &path) {
  if (!entry.is_object())
    return damaged(path, name, cat("is ", jsonText(entry), ": expected an object"));
  const auto dtype = entry.find("dtype"), shape = entry.find("shape"), offsets = entry.find("data_offsets");
  if (dtype == entry.end() || shape == entry.end() || offsets == entry.end() || entry.size() != 3)
    return damaged(path, name, "expected exactly the keys dtype, shape and data_offsets");

  StoredTensor tensor;
  tensor.name = name;
  const StoredType *type = nullptr;
  for (const StoredType &candidate : kTypes)
    if (*dtype == candidate.name)
      type = &candidate;
  if (type == nullptr)
    return damaged(path, name, cat("dtype = ", jsonText(*dtype), ": expected a safetensors dtype"));
  tensor.dtype = type->name;

  if (!shape->is_array())
    return damaged(path, name, cat("shape = ", jsonText(*shape), ": expected a list"));
  uint64_t elements = 1;
  bool overflow = false;
  for (const json &dimension : *shape) {
    int64_t size = 0;
    if (!readSize(dimension, size))
      return damaged(path, name, cat("shape has ", jsonText(dimension), ": expected sizes of 0 or more"));
    tensor.shape.push_back(size);
    overflow = __builtin_mul_overflow(elements, static_cast<uint64_t>(size), &elements) || overflow;
  }
  uint64_t bits = 0;
  if (__builtin_mul_overflow(elements, type->bits, &bits) || overflow || bits % 8 != 0)
    return damaged(path, name, "shape: expected a product of sizes that is a number of bytes below 2^61");

  int64_t begin = 0, end = 0;
  if (!offsets->is_array() || offsets->size() != 2 || !readSize((*offsets)[0], begin) || !readSize((*offsets)[1], end))
    return damaged(path, name, cat("data_offsets = ", jsonText(*offsets), ": expected [begin, end]"));
  if (end < begin || static_cast<uint64_t>(end - begin) != bits / 8)
    return damaged(
        path, name,
        cat("data_offsets = [", begin, ", ", end, "]: expected ", bits / 8, " bytes, as dtype and shape say"));
  tensor.begin = static_cast<uint64_t>(begin);
  tensor.exclusiveEnd = static_cast<uint64_t>(end);
  return tensor;
}

absl::Status readMetadata(const json &metadata, const std::string &path) {
  bool valid = metadata.is_object() || metadata.is_null(); // null: none, as the safetensors package takes it
  if (metadata.is_object())
    for (const json &value : metadata)
      valid = valid && value.is_string();
  return valid ? absl::OkStatus() : damaged(path, "__metadata__: expected an object of strings");
}

// Every byte of the data belongs to exactly one tensor.
absl::Status checkCover(const std::vector<StoredTensor> &tensors, uint64_t dataBytes, const std::string &path) {
  std::vector<const StoredTensor *> byOffset;
  byOffset.reserve(tensors.size());
  for (const StoredTensor &tensor : tensors)
    byOffset.push_back(&tensor);
  std::stable_sort(byOffset.begin(), byOffset.end(), [](const StoredTensor *a, const StoredTensor *b) {
    return std::pair(a->begin, a->exclusiveEnd) < std::pair(b->begin, b->exclusiveEnd);
  });
  uint64_t covered = 0;
  for (const StoredTensor *tensor : byOffset) {
    const std::string range = cat("data_offsets = [", tensor->begin, ", ", tensor->exclusiveEnd, "]");
    if (tensor->exclusiveEnd > dataBytes)
      return damaged(path, tensor->name,
                     cat(range, ": expected at most ", dataBytes, ", the file's bytes of data (is it truncated?)"));
    if (tensor->begin < covered)
      return damaged(path, tensor->name, cat(range, ": overlaps the tensor that ends at ", covered));
    if (tensor->begin > covered)
      return damaged(path, tensor->name, cat(range, ": leaves a hole behind the tensor that ends at ", covered));
    covered = tensor->exclusiveEnd;
  }
  if (covered != dataBytes)
    return damaged(path, cat("the tensors end at ", covered, ": expected ", dataBytes, ", the file's bytes of data"));
  return absl::OkStatus();
}

} // namespace

const StoredTensor *SafetensorsHeader::find(std::string_view name) const {
  const auto at = std::lower_bound(tensors.begin(), tensors.end(), name,
                                   [](const StoredTensor &tensor, std::string_view key) { return tensor.name < key; });
  return at != tensors.end() && at->name == name ? &*at : nullptr;
}

absl::StatusOr<uint64_t> safetensorsDataOffset(absl::Span<const std::byte> first, uint64_t fileBytes,
                                               const std::string &path) {
  const std::string_view text(reinterpret_cast<const char *>(first.data()), first.size());
  RETURN_IF_ERROR(refuseLfsPointer(text, path));
  if (first.size() < kLengthBytes)
    return damaged(path, cat("has ", fileBytes, " bytes: expected a safetensors file of at least 8"));
  uint64_t headerBytes = 0;
  for (uint64_t i = 0; i < kLengthBytes; ++i)
    headerBytes |= static_cast<uint64_t>(first[i]) << (8 * i);
  const std::string_view length = text.substr(0, kLengthBytes);
  if (headerBytes > kMaxHeaderBytes && std::all_of(length.begin(), length.end(), absl::ascii_isprint))
    return damaged(path, cat("begins with the text ", quoted(length), ": expected a safetensors file"));
  if (headerBytes > kMaxHeaderBytes)
    return damaged(path, cat("header length = ", headerBytes, ": expected at most ", kMaxHeaderBytes));
  if (headerBytes > fileBytes - kLengthBytes)
    return damaged(path, cat("header length = ", headerBytes, ": expected at most ", fileBytes - kLengthBytes,
                             ", the bytes behind it (is the file truncated?)"));
  return kLengthBytes + headerBytes;
}

absl::StatusOr<SafetensorsHeader> parseSafetensors(absl::Span<const std::byte> head, uint64_t fileBytes,
                                                   const std::string &path) {
  ASSIGN_OR_RETURN(dataOffset, safetensorsDataOffset(head, fileBytes, path));
  const std::string_view text(reinterpret_cast<const char *>(head.data()) + kLengthBytes, dataOffset - kLengthBytes);
  if (text.empty() || text[0] != '{')
    return damaged(path, "header: expected a JSON object that begins with '{'");
  absl::StatusOr<json> document = parseJson(text, cat(path, ": header"));
  if (!document.ok())
    return absl::DataLossError(document.status().message());

  SafetensorsHeader header;
  header.dataOffset = dataOffset;
  for (const auto &[name, entry] : document->items()) { // ascending: nlohmann's objects are ordered maps
    if (name == "__metadata__") {
      RETURN_IF_ERROR(readMetadata(entry, path));
      continue;
    }
    absl::StatusOr<StoredTensor> tensor = readTensor(name, entry, path);
    if (!tensor.ok())
      return tensor.status();
    header.tensors.push_back(*std::move(tensor));
  }
  RETURN_IF_ERROR(checkCover(header.tensors, fileBytes - header.dataOffset, path));
  return header;
}

absl::StatusOr<std::unique_ptr<SafetensorsFile>> SafetensorsFile::open(const std::string &path) {
  ASSIGN_OR_RETURN(file, InputFile::open(path));
  std::vector<std::byte> head(std::min(kFirstBytes, file->size()));
  RETURN_IF_ERROR(file->read(0, absl::MakeSpan(head)));
  ASSIGN_OR_RETURN(dataOffset, safetensorsDataOffset(head, file->size(), path));
  head.resize(dataOffset);
  RETURN_IF_ERROR(file->read(0, absl::MakeSpan(head)));
  ASSIGN_OR_RETURN(header, parseSafetensors(head, file->size(), path));
  std::unique_ptr<SafetensorsFile> opened(new SafetensorsFile);
  opened->path_ = path;
  opened->file_ = std::move(file);
  opened->header_ = std::move(header);
  return opened;
}

absl::Status SafetensorsFile::read(const StoredTensor &tensor, uint64_t offset, absl::Span<std::byte> out) const {
  return file_->read(header_.dataOffset + tensor.begin + offset, out);
}

void SafetensorsFile::willNeed(const StoredTensor &tensor) const {
  file_->willNeed(header_.dataOffset + tensor.begin, tensor.bytes());
}

} // namespace headrace::model
