// SPDX-License-Identifier: Apache-2.0
//
// The families of models, in one list: what reads names, checks numbers or lists what is known takes it from here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "runtime/base/EnumCount.h"

namespace headrace::model {

// Values are stored in plan files: append, never renumber.
enum class Family : uint8_t { Opt = 0, Llama = 1, Qwen2 = 2, Mistral = 3, Qwen3 = 4 };

struct FamilyTraits {
  Family family;
  std::string_view name;      // model_type in a config.json, family in a shape
  std::string_view className; // "Llama" in "LlamaForCausalLM"
};
inline constexpr FamilyTraits kFamilies[] = {{Family::Opt, "opt", "OPT"},
                                             {Family::Llama, "llama", "Llama"},
                                             {Family::Qwen2, "qwen2", "Qwen2"},
                                             {Family::Mistral, "mistral", "Mistral"},
                                             {Family::Qwen3, "qwen3", "Qwen3"}};
constexpr const FamilyTraits &traitsOf(Family family) { return kFamilies[static_cast<size_t>(family)]; }
constexpr bool everyFamilyHasTraits() {
  for (int i = 0; i < enumCount<Family>(); ++i)
    if (traitsOf(static_cast<Family>(i)).family != static_cast<Family>(i))
      return false;
  return sizeof(kFamilies) / sizeof(kFamilies[0]) == enumCount<Family>();
}
static_assert(everyFamilyHasTraits());

constexpr std::string_view familyName(Family family) { return traitsOf(family).name; }
constexpr std::optional<Family> familyFromName(std::string_view name) {
  for (const FamilyTraits &traits : kFamilies)
    if (traits.name == name)
      return traits.family;
  return std::nullopt;
}

// All names as a sentence has them, put together once by the compiler.
struct FamilyList {
  char text[16 * (sizeof(kFamilies) / sizeof(kFamilies[0]))] = {};
  size_t size = 0;

  constexpr explicit FamilyList(std::string_view quote) {
    const size_t count = sizeof(kFamilies) / sizeof(kFamilies[0]);
    for (size_t i = 0; i < count; ++i)
      for (std::string_view part : {std::string_view(i == 0          ? ""
                                                     : i + 1 < count ? ", "
                                                                     : " or "),
                                    quote, kFamilies[i].name, quote})
        for (char c : part)
          text[size++] = c;
  }
};
inline constexpr FamilyList kPlainFamilies(""), kQuotedFamilies("\"");
// opt, llama, qwen2, mistral or qwen3
inline constexpr std::string_view kFamilyNames(kPlainFamilies.text, kPlainFamilies.size);
// The same, each in double quotes.
inline constexpr std::string_view kFamilyNamesQuoted(kQuotedFamilies.text, kQuotedFamilies.size);

} // namespace headrace::model
