// SPDX-License-Identifier: Apache-2.0
#include "tests/support/RandomText.h"

#include <algorithm>
#include <fstream>

#include <nlohmann/json.hpp>

namespace headrace::text {
namespace {

void appendUtf8(uint64_t code, std::string &text) {
  const auto put = [&](uint64_t byte) { text += static_cast<char>(byte); };
  if (code < 0x80)
    return put(code);
  if (code < 0x800) {
    put(0xC0 | code >> 6);
  } else {
    if (code < 0x10000) {
      put(0xE0 | code >> 12);
    } else {
      put(0xF0 | code >> 18);
      put(0x80 | (code >> 12 & 0x3F));
    }
    put(0x80 | (code >> 6 & 0x3F));
  }
  put(0x80 | (code & 0x3F));
}

} // namespace

uint64_t SplitMix64::next() {
  uint64_t x = state_ += 0x9E3779B97F4A7C15u;
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
  x = (x ^ x >> 27) * 0x94D049BB133111EBu;
  return x ^ x >> 31;
}

RandomStrings::RandomStrings(const std::string &path) {
  std::ifstream file(path);
  const nlohmann::json tables = nlohmann::json::parse(file);
  for (const nlohmann::json &kind : tables.at("kinds")) {
    Kind &parts = kinds_.emplace_back();
    for (const nlohmann::json &part : kind.at("parts"))
      parts.push_back({.items = part.value("items", std::vector<std::string>()),
                       .ranges = part.value("ranges", std::vector<std::pair<uint32_t, uint32_t>>()),
                       .least = part.at("least"),
                       .most = part.at("most"),
                       .same = part.value("same", false)});
  }
}

std::string RandomStrings::string(uint64_t number) const {
  SplitMix64 random(number);
  const uint64_t size = random.below(16);
  uint64_t pieces = size == 0 ? 0 : size < 6 ? 1 : 2 + random.below(8);
  if (number % 500 == 499)
    pieces = 100 + random.below(200);
  std::string text;
  for (uint64_t i = 0; i < pieces; ++i)
    appendPiece(random, text);
  return text;
}

void RandomStrings::appendPiece(SplitMix64 &random, std::string &text) const {
  for (const Part &part : kinds_[random.below(kinds_.size())]) {
    const auto element = [&] {
      if (!part.items.empty())
        return part.items[random.below(part.items.size())];
      const auto [first, last] = part.ranges[random.below(part.ranges.size())];
      const uint64_t code = first + random.below(last - first + 1);
      std::string one;
      appendUtf8(code >= 0xD800 && code <= 0xDFFF ? code - 0x800 : code, one); // no surrogates
      return one;
    };
    const uint64_t count = part.least + random.below(part.most - part.least + 1);
    const std::string same = part.same ? element() : "";
    for (uint64_t i = 0; i < count; ++i)
      text += part.same ? same : element();
  }
}

std::vector<int32_t> randomIds(uint64_t number, int64_t size) {
  SplitMix64 random((uint64_t{1} << 32) + number);
  std::vector<int32_t> ids;
  for (uint64_t runs = random.below(24); runs > 0; --runs) {
    const auto first = static_cast<int32_t>(random.below(static_cast<uint64_t>(size) + 2));
    if (random.below(2) == 0) {
      ids.push_back(first);
      continue;
    }
    // Where the byte fallback's tokens are.
    for (uint64_t n = 1 + random.below(6); n > 0; --n)
      ids.push_back(std::min(first, 255) + static_cast<int32_t>(random.below(8)));
  }
  return ids;
}

} // namespace headrace::text
