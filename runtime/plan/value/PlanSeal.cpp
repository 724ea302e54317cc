// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "runtime/plan/value/PlanBytes.h"

namespace headrace::plan {
namespace {

static_assert(std::endian::native == std::endian::little, "plan files are little endian");

constexpr char kEndMark[8] = {'H', 'R', 'P', 'L', '-', 'E', 'N', 'D'};
constexpr size_t kTrailerBytes = sizeof(kEndMark) + 2 * sizeof(uint64_t);

// FNV-1a over words of 8 bytes, the last one filled with zeros. Each step is a bijection of the state and of the word:
// bytes that differ in one word only never have the same checksum.
uint64_t checksumOf(absl::Span<const std::byte> bytes) {
  uint64_t state = 0xcbf29ce484222325u;
  for (size_t at = 0; at < bytes.size(); at += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, std::min(sizeof(word), bytes.size() - at));
    state = (state ^ word) * 0x100000001b3u;
  }
  return state;
}

} // namespace

std::string sealed(std::string bytes) {
  const uint64_t numbers[2] = {
      bytes.size(), checksumOf(absl::MakeConstSpan(reinterpret_cast<const std::byte *>(bytes.data()), bytes.size()))};
  bytes.append(kEndMark, sizeof(kEndMark));
  bytes.append(reinterpret_cast<const char *>(numbers), sizeof(numbers));
  return bytes;
}

absl::StatusOr<absl::Span<const std::byte>> unsealed(absl::Span<const std::byte> bytes, const std::string &where) {
  const auto refuse = [&](const std::string &found, const std::string &expected) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": ", found, ": expected ", expected, "; compile the plan again"));
  };
  const std::byte *end = bytes.size() < kTrailerBytes ? nullptr : bytes.data() + bytes.size() - kTrailerBytes;
  if (end == nullptr || std::memcmp(end, kEndMark, sizeof(kEndMark)) != 0)
    return refuse(absl::StrCat(bytes.size(), " bytes without a plan's end"),
                  "a plan that nothing was cut off or put behind, of this version of headrace");
  uint64_t numbers[2];
  std::memcpy(numbers, end + sizeof(kEndMark), sizeof(numbers));
  const auto body = bytes.first(bytes.size() - kTrailerBytes);
  if (numbers[0] != body.size())
    return refuse(absl::StrCat(body.size(), " bytes before its end"), absl::StrCat("the ", numbers[0], " it names"));
  if (const uint64_t checksum = checksumOf(body); checksum != numbers[1])
    return refuse(absl::StrCat("checksum ", absl::Hex(checksum, absl::kZeroPad16)),
                  absl::StrCat("the ", absl::Hex(numbers[1], absl::kZeroPad16), " that it was written with"));
  return body;
}

} // namespace headrace::plan
