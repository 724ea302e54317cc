// SPDX-License-Identifier: Apache-2.0
#include "passes/algorithms/SlabAddresses.h"

#include <algorithm>
#include <iterator>

#include "passes/algorithms/ParseNumber.h"

namespace headrace::algorithms {
namespace {

// "kv:0.1@8192"
bool parseEntry(std::string_view entry, SlabKey &key, uint64_t &address) {
  const size_t colon = entry.find(':'), at = entry.find('@');
  if (colon == std::string_view::npos || at == std::string_view::npos || at < colon)
    return false;
  const auto *const kind = std::find_if(kMovables.begin(), kMovables.end(),
                                        [&](const MovableTraits &of) { return of.name == entry.substr(0, colon); });
  if (kind == kMovables.end())
    return false;
  key.of.kind = kind->kind;
  const std::string_view which = entry.substr(colon + 1, at - colon - 1);
  const size_t point = which.find('.');
  return parseNumber(which.substr(0, point), key.of.index) &&
         (point == std::string_view::npos || parseNumber(which.substr(point + 1), key.miniBatch)) &&
         parseNumber(entry.substr(at + 1), address);
}

// "weight, kv, act or residual"
std::string kinds() {
  std::string text;
  for (size_t i = 0; i < kMovables.size(); ++i)
    text += (i == 0 ? "" : i + 1 < kMovables.size() ? ", " : " or ") + std::string(kMovables[i].name);
  return text;
}

} // namespace

std::string toText(const SlabAddresses &addresses) {
  std::string text;
  for (const auto &[key, address] : addresses) {
    text += text.empty() ? "" : " ";
    text += traitsOf(key.of.kind).name;
    text += ":" + std::to_string(key.of.index) + (key.miniBatch == 0 ? "" : "." + std::to_string(key.miniBatch)) + "@" +
            std::to_string(address);
  }
  return text;
}

std::optional<SlabAddresses> slabAddressesFromText(std::string_view text, std::string &error) {
  SlabAddresses addresses;
  while (!text.empty()) {
    const std::string_view entry = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(text.size(), entry.size() + 1));
    if (entry.empty())
      continue;
    SlabKey key;
    uint64_t address = 0;
    if (!parseEntry(entry, key, address)) {
      error = "have '" + std::string(entry) + "', expected such as weight:3@4096 or kv:0.1@8192, of " + kinds();
      return std::nullopt;
    }
    if (!addresses.emplace(key, address).second) {
      error = "have '" + std::string(entry.substr(0, entry.find('@'))) + "' twice";
      return std::nullopt;
    }
  }
  return addresses;
}

} // namespace headrace::algorithms
