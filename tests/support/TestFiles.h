// SPDX-License-Identifier: Apache-2.0
//
// What the model tests share: a folder that goes away, a safetensors writer that can also lie, small specs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::model {

class TempFolder {
public:
  TempFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "headrace-model-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  const std::string &path() const { return path_; }
  std::string file(const std::string &name) const { return path_ + "/" + name; }
  std::string write(const std::string &name, const std::string &content) const {
    std::filesystem::create_directories(std::filesystem::path(file(name)).parent_path());
    std::ofstream(file(name), std::ios::binary) << content;
    return file(name);
  }

private:
  std::string path_;
};

// What Git LFS leaves in place of a file that it has not fetched.
inline constexpr const char *kLfsPointer =
    "version https://git-lfs.github.com/spec/v1\n"
    "oid sha256:0000000000000000000000000000000000000000000000000000000000000000\nsize 4976698672\n";

// The bytes of plain values, as a little-endian file has them.
template <class T> std::string bytesOf(const std::vector<T> &values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  if (!values.empty())
    std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

inline std::string safetensorsOf(const std::string &header, const std::string &data) {
  uint64_t length = header.size();
  std::string file(8, '\0');
  for (int i = 0; i < 8; ++i)
    file[static_cast<size_t>(i)] = static_cast<char>(length >> (8 * i));
  return file + header + data;
}

// Collects tensors and writes a correct file.
class SafetensorsWriter {
public:
  SafetensorsWriter &add(const std::string &name, const std::string &dtype, const std::vector<int64_t> &shape,
                         const std::string &bytes) {
    // Appended piece by piece: GCC 12 warns falsely of overlaps in longer sums of strings.
    header_ += header_.empty() ? "{" : ",";
    for (const char *piece : {"\"", name.c_str(), "\":{\"dtype\":\"", dtype.c_str(), "\",\"shape\":["})
      header_ += piece;
    for (size_t i = 0; i < shape.size(); ++i) {
      header_ += i == 0 ? "" : ",";
      header_ += std::to_string(shape[i]);
    }
    header_ += "],\"data_offsets\":[";
    header_ += std::to_string(data_.size());
    header_ += ",";
    header_ += std::to_string(data_.size() + bytes.size());
    header_ += "]}";
    data_ += bytes;
    return *this;
  }
  std::string file() const { return safetensorsOf(header_.empty() ? "{}" : header_ + "}", data_); }

private:
  std::string header_, data_;
};

inline absl::Span<const std::byte> asBytes(const std::string &text) {
  return {reinterpret_cast<const std::byte *>(text.data()), text.size()};
}

inline std::string messageOf(const absl::Status &status) { return std::string(status.message()); }
template <class T> std::string messageOf(const absl::StatusOr<T> &result) { return messageOf(result.status()); }

// Expects a refusal with this code and message.
#define EXPECT_REFUSED(result, expectedCode, expectedMessage)                                                          \
  do {                                                                                                                 \
    const auto &refused = (result);                                                                                    \
    EXPECT_FALSE(refused.ok());                                                                                        \
    EXPECT_EQ(::headrace::model::codeOf(refused), expectedCode) << ::headrace::model::messageOf(refused);              \
    EXPECT_EQ(::headrace::model::messageOf(refused), expectedMessage);                                                 \
  } while (false)

inline absl::StatusCode codeOf(const absl::Status &status) { return status.code(); }
template <class T> absl::StatusCode codeOf(const absl::StatusOr<T> &result) { return result.status().code(); }

// Small specs, one for each kind of architecture. Sizes are no multiples of 16 on purpose.
inline ModelSpec tinyLlama() {
  ModelSpec spec;
  spec.name = "tiny-llama";
  spec.family = Family::Llama;
  spec.layers = 2;
  spec.hidden = 12;
  spec.heads = 3;
  spec.kvHeads = 1;
  spec.headDim = 4;
  spec.intermediate = 20;
  spec.vocab = 35;
  spec.maxPositions = 64;
  spec.rope.enabled = true;
  spec.dtype = DType::F32;
  return spec;
}

inline ModelSpec tinyOpt() {
  ModelSpec spec = tinyLlama();
  spec.name = "tiny-opt";
  spec.family = Family::Opt;
  spec.kvHeads = 3;
  spec.norm = NormKind::LayerNorm;
  spec.activation = Activation::Relu;
  spec.qkvBias = spec.outBias = spec.mlpBias = true;
  spec.rope.enabled = false;
  spec.learnedPositions = true;
  spec.positionOffset = 2;
  spec.tiedEmbeddings = true;
  return spec;
}

} // namespace headrace::model
