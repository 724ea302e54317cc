// SPDX-License-Identifier: Apache-2.0
//
// How many enumerators an enumeration has, and whether two have the same: read off the enumeration itself, so that what
// is checked against a count cannot be forgotten when an enumerator is added. Values begin at 0 and have no gaps.
#pragma once

#include <string_view>

namespace headrace::model {

// The enumerator's name; empty for a value without one. GCC and clang print the template's argument:
// "kValue = room::Lane::H2D", or "kValue = (room::Lane)6" where nothing has that value, up to a semicolon or bracket.
template <auto kValue> constexpr std::string_view enumeratorName() {
  constexpr std::string_view kBefore = "kValue = ";
  std::string_view text = __PRETTY_FUNCTION__;
  text = text.substr(text.find(kBefore) + kBefore.size());
  text = text.substr(0, text.find_first_of(";]"));
  if (const size_t cast = text.rfind(')');
      cast != std::string_view::npos && cast + 1 < text.size() && text[cast + 1] >= '0' && text[cast + 1] <= '9')
    return {};
  return text.substr(text.rfind(':') + 1);
}

template <typename Enum, int kFrom = 0> constexpr int enumCount() {
  if constexpr (!enumeratorName<static_cast<Enum>(kFrom)>().empty()) {
    return enumCount<Enum, kFrom + 1>();
  } else {
    static_assert(kFrom > 0, "an enumeration that is declared, but not defined here");
    return kFrom;
  }
}

// The first kCount enumerators of both have the same names for the same values.
template <typename A, typename B, int kCount> constexpr bool sameEnumerators() {
  if constexpr (kCount == 0)
    return true;
  else
    return enumeratorName<static_cast<A>(kCount - 1)>() == enumeratorName<static_cast<B>(kCount - 1)>() &&
           sameEnumerators<A, B, kCount - 1>();
}
// Both have the same enumerators: a cast from one to the other keeps the meaning.
template <typename A, typename B> constexpr bool mirrors() {
  return enumCount<A>() == enumCount<B>() && sameEnumerators<A, B, enumCount<A>()>();
}
// B has all enumerators of A, and may have more behind them.
template <typename A, typename B> constexpr bool extends() {
  return enumCount<A>() <= enumCount<B>() && sameEnumerators<A, B, enumCount<A>()>();
}

} // namespace headrace::model
