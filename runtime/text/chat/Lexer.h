// SPDX-License-Identifier: Apache-2.0
//
// A template's text to tokens, as jinja2's lexer with trim_blocks and lstrip_blocks: white space around tags is already
// gone, comments and raw blocks too.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/chat/Value.h"

namespace headrace::text::jinja {

// A fault of a template's text, with the line it is in.
struct SyntaxError {
  int line;
  std::string message;
};

struct Token {
  enum Kind { Data, VariableBegin, VariableEnd, BlockBegin, BlockEnd, Name, String, Number, Operator, End };
  Kind kind;
  int line;
  std::string text; // of data, a name, a string (without quotes and escapes), an operator
  Value number;

  bool isName(std::string_view name) const { return kind == Name && text == name; }
  bool isOperator(std::string_view symbol) const { return kind == Operator && text == symbol; }
};

// The last token is End. Throws SyntaxError.
std::vector<Token> tokenize(std::string_view source);

// A token as messages call it.
std::string describe(const Token &token);

} // namespace headrace::text::jinja
