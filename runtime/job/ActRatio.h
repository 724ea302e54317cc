// SPDX-License-Identifier: Apache-2.0
//
// Which blocks of a sequence keep activations, where keys and values are rebuilt from them (HybridServe, 4.3.2).
//
// Eq. 11 keeps the share of activation blocks that was decided for all. The rule in full: the next block of a sequence
// with a activation blocks and k KV blocks is an activation block where a / (a + k + 1) is below the share. So a
// sequence begins with an activation block where there are any, ties go to KV blocks, and of its first n blocks
// ceil(share n) are activation blocks: which ones depends on their number alone.
//
//   share 3/4   A A A K A A A K ...
//   share 1/3   A K K A K K ...          five of A and two of K with 3/4: 5 / 8 < 3/4, the next is A, as the paper has
//   it
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace headrace::model {

struct ActRatio {
  int64_t num = 0, den = 1; // of `den` blocks so many; in lowest terms, 0 <= num <= den <= kMaxActDenominator

  constexpr bool any() const { return num > 0; }
  constexpr bool isAuto() const { return den == 0; }
  // Eq. 11: of a sequence that has so many of each.
  constexpr bool nextIsAct(int64_t act, int64_t kv) const { return act * den < num * (act + kv + 1); }
  // Activation blocks among the first `blocks`, which are at most 2^40.
  constexpr int64_t of(int64_t blocks) const { return (num * blocks + den - 1) / den; }
  constexpr bool isAct(int64_t block) const { return of(block + 1) > of(block); }
  friend constexpr bool operator==(const ActRatio &, const ActRatio &) = default;
};
inline constexpr int64_t kMaxActDenominator = 1'000'000;
// The compiler is to find one: no share, and not of any plan.
inline constexpr ActRatio kAutoActRatio{0, 0};

// Rows of the activation blocks of a context of so many tokens, the last block whole.
constexpr int64_t actRows(const ActRatio &share, int64_t blockTokens, int64_t context) {
  return share.of((context + blockTokens - 1) / blockTokens) * blockTokens;
}

// Blocks of each kind that any sequences need at most: so many of them, of `longest` blocks each and `all` together.
struct BlocksOfKinds {
  int64_t kv = 0, act = 0;
};
constexpr BlocksOfKinds blocksOfKinds(const ActRatio &share, int64_t all, int64_t sequences, int64_t longest) {
  // Each sequence rounds its activation blocks up to a whole one, by at most (den - 1) / den.
  const int64_t rounded = (share.num * all + sequences * (share.den - 1)) / share.den;
  return {.kv = std::min(all - share.of(all), sequences * (longest - share.of(longest))),
          .act = std::min({rounded, sequences * share.of(longest), all})};
}

// Of so many blocks of each kind, at least 0: in lowest terms; beyond kMaxActDenominator both are halved until they
// fit.
ActRatio actRatioOf(int64_t act, int64_t kv);
// "0", "1", "0.25", "1/3", "auto"; nothing of what is not from 0 to 1, or has too many digits.
std::optional<ActRatio> actRatioFromText(std::string_view text);
std::string actRatioText(const ActRatio &share); // "1/3", "0", "1", "auto"
inline constexpr std::string_view kActRatios =
    "\"auto\", or a share from 0 to 1 of at most six decimals or in millionths at the finest: 0.25, or 1/3";

} // namespace headrace::model
