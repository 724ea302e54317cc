// SPDX-License-Identifier: Apache-2.0
//
// Tokens that are found in a text before anything else is done with it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace headrace::text {

struct AddedToken {
  int32_t id = -1;
  std::string content;
  bool singleWord = false; // only where no letter, mark or digit stands beside it
  bool lstrip = false;     // with the white space before it
  bool rstrip = false;     // with the white space behind it
  bool normalized = false; // looked for in the text as the normaliser leaves it
  bool special = false;    // not shown
};

inline constexpr size_t kLongestAddedToken = 1024; // bytes

// Finds the leftmost, and of those the longest, of a set of tokens.
class TokenFinder {
public:
  // False if `text` is there already. Neither is empty, nor longer than kLongestAddedToken.
  bool add(std::string_view text, const AddedToken &token);

  // The text in order: tokens with their ids, and what is between them with -1, which is never empty. As in the
  // package, a token inside the white space that one before it took begins the rest anew.
  absl::Status split(std::string_view text,
                     absl::FunctionRef<absl::Status(size_t begin, size_t end, int32_t id)> part) const;

private:
  struct Node {
    int32_t token = -1; // in tokens_
    int32_t child = -1, sibling = -1;
    unsigned char byte = 0;
  };
  struct Found {
    size_t begin, end;
    int32_t token; // in tokens_; -1: none
  };
  struct Rules {
    int32_t id;
    bool singleWord, lstrip, rstrip;
  };
  Found find(std::string_view text, size_t from) const;
  size_t firstByte(std::string_view text, size_t from) const;
  int32_t childOf(int32_t node, unsigned char byte) const;

  std::vector<Node> nodes_;
  std::array<int32_t, 256> roots_ = makeRoots();
  int firstBytes_ = 0; // how many roots there are
  char onlyFirst_ = 0; // if there is one
  std::vector<Rules> tokens_;

  static std::array<int32_t, 256> makeRoots() {
    std::array<int32_t, 256> roots;
    roots.fill(-1);
    return roots;
  }
};

} // namespace headrace::text
