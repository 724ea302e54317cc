// SPDX-License-Identifier: Apache-2.0
//
// Any bytes as a safetensors file: refused by name, or tensors that cover the file's data exactly once.
#include <cstddef>
#include <cstdint>

#include "runtime/model/Safetensors.h"
#include "tests/fuzz/FuzzCheck.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  using namespace headrace::model;
  const absl::Span<const std::byte> file(reinterpret_cast<const std::byte *>(data), size);
  const auto header = parseSafetensors(file, size, "model.safetensors");
  if (!header.ok()) {
    checkRefusal(header.status(), "model.safetensors: ");
    return 0;
  }
  FUZZ_CHECK(header->dataOffset <= size);
  uint64_t covered = 0;
  for (const StoredTensor &tensor : header->tensors) {
    FUZZ_CHECK(tensor.begin <= tensor.exclusiveEnd);
    FUZZ_CHECK(tensor.exclusiveEnd <= size - header->dataOffset);
    FUZZ_CHECK(header->find(tensor.name) == &tensor);
    covered += tensor.exclusiveEnd - tensor.begin;
  }
  FUZZ_CHECK(header->dataOffset + covered == size);
  return 0;
}
