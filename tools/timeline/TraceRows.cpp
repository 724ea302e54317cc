// SPDX-License-Identifier: Apache-2.0
#include "tools/timeline/TraceRows.h"

#include <utility>

#include <nlohmann/json.hpp>

namespace headrace::tools {
namespace {

constexpr std::pair<const char *, uint64_t cost::Rows::*> kRowFields[] = {
    {"tokens", &cost::Rows::tokens},  {"sampled", &cost::Rows::sampled}, {"contexts", &cost::Rows::contexts},
    {"pairs", &cost::Rows::pairs},    {"home", &cost::Rows::homeRows},   {"kept", &cost::Rows::keptRows},
    {"rebuilt", &cost::Rows::actRows}};

// As files had it until keys and values were rebuilt.
constexpr std::pair<const char *, const char *> kFormer = {"rebuilt", "recomputed"};

const nlohmann::ordered_json *countOf(const nlohmann::ordered_json &rows, std::string_view name) {
  auto at = rows.find(name);
  if (at == rows.end() && name == kFormer.first)
    at = rows.find(kFormer.second);
  return at != rows.end() && at->is_number_unsigned() ? &*at : nullptr;
}

} // namespace

nlohmann::ordered_json rowsJson(const std::vector<cost::Rows> &byMiniBatch) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const cost::Rows &rows : byMiniBatch) {
    nlohmann::ordered_json one;
    for (const auto &[name, field] : kRowFields)
      one[name] = rows.*field;
    list.push_back(std::move(one));
  }
  return list;
}

std::optional<std::vector<cost::Rows>> readRows(const nlohmann::ordered_json &json, const plan::Plan &plan,
                                                const plan::Variant &variant) {
  if (!json.is_array() || json.size() != plan.miniBatches)
    return std::nullopt;
  const auto tokens = static_cast<uint64_t>(variant.newTokens), context = static_cast<uint64_t>(variant.context);
  std::vector<cost::Rows> byMiniBatch;
  for (const auto &one : json) {
    cost::Rows rows;
    for (const auto &[name, field] : kRowFields) {
      const nlohmann::ordered_json *const count = countOf(one, name);
      if (count == nullptr)
        return std::nullopt;
      rows.*field = count->get<uint64_t>();
    }
    if (rows.tokens > tokens || rows.sampled > rows.tokens || rows.homeRows > rows.tokens ||
        rows.keptRows > rows.tokens || rows.pairs > tokens * context ||
        rows.contexts > static_cast<uint64_t>(variant.sequences) * context || rows.actRows > rows.contexts)
      return std::nullopt;
    byMiniBatch.push_back(rows);
  }
  return byMiniBatch;
}

} // namespace headrace::tools
