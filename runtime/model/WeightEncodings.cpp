// SPDX-License-Identifier: Apache-2.0
#include "runtime/model/WeightEncodings.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "runtime/base/EnumNames.h"
#include "runtime/base/Text.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/model/WeightLayout.h"

namespace headrace::model {
namespace {

constexpr std::pair<UnitRole, std::string_view> kRoleNames[] = {
    {UnitRole::Embedding, "embedding"}, {UnitRole::Qkv, "qkv"},  {UnitRole::Out, "out"}, {UnitRole::Up, "up"},
    {UnitRole::Down, "down"},           {UnitRole::Head, "head"}};
static_assert(std::size(kRoleNames) == WeightEncodings::kRoles);

constexpr std::string_view kExpected =
    "q8 or q4, with :32, :64 or :128 behind it for the group, or some of qkv, out, up, down and head, such as "
    "qkv=q4,head=q8";

constexpr UnitRole kPackedRoles[] = {UnitRole::Qkv, UnitRole::Out, UnitRole::Up, UnitRole::Down, UnitRole::Head};

// Whose operands may be packed.
std::vector<UnitRole> rolesOf(const ModelSpec &spec) {
  return {std::begin(kPackedRoles), std::end(kPackedRoles) - (spec.tiesHead() ? 1 : 0)};
}

std::optional<Encoding> packedFromText(std::string_view text) {
  const std::optional<Encoding> encoding = encodingFromText(text);
  return encoding && encoding->packed() ? encoding : std::nullopt;
}

// One of the unit's tensors, for messages.
std::string tensorText(const ModelSpec &spec, UnitRole role) {
  const WeightLayout layout = layoutWeights(spec);
  const int32_t unit = role == UnitRole::Head ? layout.headUnit() : layout.layerUnit(0, role);
  return layout.units[static_cast<size_t>(unit)].find(TensorRole::Matrix)->sources.front();
}

} // namespace

bool WeightEncodings::any() const {
  return std::any_of(of_.begin(), of_.end(), [](const auto &one) { return one.has_value(); });
}

std::string_view unitRoleName(UnitRole role) { return nameOf<UnitRole>(kRoleNames, role); }

int64_t inFeatures(const ModelSpec &spec, UnitRole role) {
  switch (role) {
  case UnitRole::Qkv:
  case UnitRole::Up:
    return spec.hidden;
  case UnitRole::Out:
    return spec.qRows();
  case UnitRole::Down:
    return spec.intermediate;
  case UnitRole::Head:
    return spec.tiesHead() ? 0 : spec.hidden;
  case UnitRole::Embedding:
    break;
  }
  return 0;
}

namespace {

std::string textOf(const WeightEncodings &encodings, absl::Span<const UnitRole> roles) {
  WeightEncodings alike;
  for (const UnitRole role : roles)
    alike[role] = encodings[roles.front()];
  if (alike.any() && alike == encodings)
    return encodingText(*alike[roles.front()]);
  std::vector<std::string> parts;
  for (const auto &[role, name] : kRoleNames)
    if (const std::optional<Encoding> &encoding = encodings[role])
      parts.push_back(cat(name, "=", encodingText(*encoding)));
  return absl::StrJoin(parts, ",");
}

} // namespace

std::string weightEncodingText(const WeightEncodings &encodings) { return textOf(encodings, kPackedRoles); }

std::string weightEncodingText(const ModelSpec &spec) { return textOf(spec.encodings, rolesOf(spec)); }

WeightEncodings ofModel(WeightEncodings encodings, const ModelSpec &spec) {
  if (spec.tiesHead())
    encodings[UnitRole::Head].reset();
  return encodings;
}

WeightEncodings packedIn(int bits, const ModelSpec &spec) {
  WeightEncodings out;
  for (const UnitRole role : kPackedRoles)
    for (const int32_t group : {32, 128, kDefaultGroup})
      if (inFeatures(spec, role) % group == 0)
        out[role] = Encoding::groups(bits, group);
  return ofModel(out, spec).any() ? out : WeightEncodings();
}

std::optional<WeightEncodings> weightEncodingsFromText(std::string_view text, std::string &expected) {
  expected = kExpected;
  WeightEncodings out;
  if (const std::optional<Encoding> encoding = packedFromText(text)) {
    for (const UnitRole role : kPackedRoles)
      out[role] = encoding;
    return out;
  }
  for (size_t from = 0; from <= text.size();) {
    const std::string_view part = text.substr(from, std::min(text.find(',', from), text.size()) - from);
    from += part.size() + 1;
    const size_t equals = part.find('=');
    const std::optional<UnitRole> role = fromName<UnitRole>(kRoleNames, part.substr(0, equals));
    const std::optional<Encoding> encoding =
        equals == std::string_view::npos ? std::nullopt : packedFromText(part.substr(equals + 1));
    if (!role || !encoding)
      return std::nullopt;
    if (out[*role]) {
      expected = cat("one encoding of ", unitRoleName(*role));
      return std::nullopt;
    }
    out[*role] = encoding;
  }
  return out;
}

std::optional<WeightEncodings> weightEncodingsFromText(std::string_view text, const ModelSpec &spec,
                                                       std::string &expected) {
  const std::optional<WeightEncodings> all = weightEncodingsFromText(text, expected);
  // What names a head is to be refused where it is tied.
  return all && packedFromText(text) ? std::optional(ofModel(*all, spec)) : all;
}

std::string weightEncodingRefusal(const ModelSpec &spec) {
  if (spec.encodings[UnitRole::Embedding])
    return "none of the embedding: its rows are looked up, one a token";
  if (spec.tiesHead() && spec.encodings[UnitRole::Head])
    return "none of the head: it is the embedding's table, which is not packed";
  for (const UnitRole role : rolesOf(spec)) {
    const std::optional<Encoding> &encoding = spec.encodings[role];
    if (!encoding)
      continue;
    if (!encoding->packed() || !isEncoding(*encoding))
      return std::string(kExpected);
    const int64_t features = inFeatures(spec, role);
    if (features % encoding->group == 0)
      continue;
    std::vector<int32_t> divide;
    for (const int32_t group : kGroups)
      if (features % group == 0)
        divide.push_back(group);
    return cat("a group that divides the ", features, " input features of ", tensorText(spec, role),
               divide.empty() ? std::string(": none of 32, 64 and 128 does")
                              : cat(", such as ", absl::StrJoin(divide, " or ")));
  }
  return "";
}

} // namespace headrace::model
