// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/LogitsFile.h"

#include <bit>
#include <cstdint>
#include <cstring>

#include "runtime/base/Text.h"

namespace headrace::tools {

static_assert(std::endian::native == std::endian::little, "safetensors files are little endian");

std::string logitsFile(const std::vector<std::vector<float>> &logits, int64_t vocab) {
  std::string header = R"({"__metadata__":{"format":"headrace-logits"})";
  uint64_t offset = 0;
  for (size_t p = 0; p < logits.size(); ++p) {
    const uint64_t bytes = logits[p].size() * sizeof(float);
    header +=
        model::cat(",\"logits.", p, "\":{\"dtype\":\"F32\",\"shape\":[", static_cast<int64_t>(logits[p].size()) / vocab,
                   ",", vocab, "],\"data_offsets\":[", offset, ",", offset + bytes, "]}");
    offset += bytes;
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' '); // the data begins at a multiple of 8
  std::string file(8, '\0');
  const uint64_t length = header.size();
  std::memcpy(file.data(), &length, 8);
  file += header;
  file.reserve(file.size() + offset);
  for (const std::vector<float> &rows : logits)
    file.append(reinterpret_cast<const char *>(rows.data()), rows.size() * sizeof(float));
  return file;
}

} // namespace headrace::tools
